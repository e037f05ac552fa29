"""Where and how precisely the arithmetic runs."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager

import torch

from svtoolkit.errors import UserError

PRECISIONS: dict[str, torch.dtype | None] = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


def choose_device(name: str, key: str = "device") -> torch.device:
    """auto (CUDA where there is one), cpu, cuda or cuda:N.

    Args:
        key: that a user sets it by, for messages.

    Raises:
        UserError: the name is unknown, or CUDA or a GPU is asked for that is not there.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    found = re.fullmatch("cpu|cuda(:([0-9]+))?", name)
    if found is None:
        raise UserError(f"{key} is {name!r}, expected auto, cpu, cuda or cuda:N")
    if name != "cpu":
        if not torch.cuda.is_available():
            raise UserError(f"{key} is {name}, but torch {torch.__version__} sees no CUDA device; use {key}=cpu")
        count = torch.cuda.device_count()
        if int(found[2] or 0) >= count:
            raise UserError(
                f"{key} is {name}, but torch sees {count} CUDA devices; expected cuda:0 to cuda:{count - 1}"
            )
    return torch.device(name)


def half_precision(device: torch.device) -> str:
    """The precision of 16 bits that a device computes convolutions in: fp16 on GPUs before Ampere, else bf16."""
    is_old = device.type == "cuda" and torch.cuda.get_device_capability(device) < (8, 0)
    return "fp16" if is_old else "bf16"


def autocast(device: torch.device, precision: str) -> AbstractContextManager[None]:
    """Context of the forward pass for fp32, bf16 or fp16.

    Raises:
        UserError: unknown precision, or one that the device does not have.
    """
    if precision not in PRECISIONS:
        raise UserError(f"precision is {precision!r}, expected one of {', '.join(PRECISIONS)}")
    dtype = PRECISIONS[precision]
    if precision == "bf16" and half_precision(device) != "bf16":
        major, minor = torch.cuda.get_device_capability(device)
        raise UserError(
            f"precision is bf16, which {torch.cuda.get_device_name(device)} has no convolutions for (its compute "
            f"capability is {major}.{minor}, expected 8.0 or more); use fp16"
        )
    try:
        return torch.autocast(device.type, dtype=dtype, enabled=dtype is not None)
    except RuntimeError as error:
        raise UserError(f"precision is {precision}, which {device} cannot do ({error}); use fp32") from error
