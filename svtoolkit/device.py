"""Where and how precisely the arithmetic runs."""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch

from svtoolkit.errors import UserError

PRECISIONS: dict[str, torch.dtype | None] = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


def choose_device(name: str) -> torch.device:
    """auto, cpu, cuda or cuda:N.

    Raises:
        UserError: CUDA is asked for and there is none, or the name is unknown.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.partition(":")[0] not in ("cpu", "cuda"):
        raise UserError(f"device is {name!r}, expected auto, cpu, cuda or cuda:N")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise UserError(f"device is {name}, but torch {torch.__version__} sees no CUDA device; use device=cpu")
    return torch.device(name)


def autocast(device: torch.device, precision: str) -> AbstractContextManager[None]:
    """Context of the forward pass for fp32, bf16 or fp16.

    Raises:
        UserError: unknown precision.
    """
    if precision not in PRECISIONS:
        raise UserError(f"precision is {precision!r}, expected one of {', '.join(PRECISIONS)}")
    dtype = PRECISIONS[precision]
    return torch.autocast(device.type, dtype=dtype, enabled=dtype is not None)
