"""What computes an 8-bit optimizer: the torch code here, or bitsandbytes where it does the same."""

from __future__ import annotations

import importlib
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from svtoolkit.errors import UserError
from svtoolkit.optim.eight_bit import AdamW8bit, SGD8bit

log = logging.getLogger(__name__)

BACKENDS = ("auto", "torch", "bitsandbytes")

CLASSES = {"sgd_8bit": ("SGD8bit", SGD8bit), "adamw_8bit": ("AdamW8bit", AdamW8bit)}
"""Name of an optimizer -> its name in bitsandbytes.optim, and the class here."""

BLOCK_SIZE = 256
"""Of bitsandbytes since 0.44, on every device."""

OLDEST = (0, 50)
"""The first bitsandbytes whose 8-bit optimizers run on every device."""

INSTALL = "install it with `pip install 'bitsandbytes>=0.50'`"


def build_eight_bit(parameters: Iterable[Tensor], *, name: str, backend: str, **settings: Any) -> torch.optim.Optimizer:
    """Build an 8-bit optimizer by a backend; which one and why goes to the log.

    Args:
        name: a key of ``CLASSES``.
        backend: torch, bitsandbytes, or auto: bitsandbytes on CUDA where it honours every setting, else torch.
        settings: arguments of the class here; beta1 and beta2 for its ``betas``.

    Raises:
        UserError: there is no such backend, or bitsandbytes is asked for and cannot do it.
        ValueError: a setting makes no sense.
    """
    if backend not in BACKENDS:
        raise UserError(f"optim={name}: backend is {backend!r}, expected one of {', '.join(BACKENDS)}")
    theirs, ours = CLASSES[name]
    parameters = list(parameters)
    if "beta1" in settings:
        settings["betas"] = (settings.pop("beta1"), settings.pop("beta2"))
    reason = f"optim.backend is {backend}"
    if backend == "auto":
        obstacle, _ = next(_obstacles(parameters, settings, cuda_alone=True), (None, None))
        backend = "torch" if obstacle else "bitsandbytes"
        reason = f"optim.backend is auto, and {obstacle or 'bitsandbytes honours all settings'}"
    elif backend == "bitsandbytes":
        for obstacle, remedy in _obstacles(parameters, settings):
            raise UserError(
                f"optim={name}: optim.backend is bitsandbytes, but {obstacle}; {remedy}, or set optim.backend=torch"
            )
    if backend == "torch":
        optimizer: torch.optim.Optimizer = ours(parameters, **settings)
    else:
        known = {key: value for key, value in settings.items() if key not in ("block_size", "nesterov")}
        optimizer = _in_memory_order(getattr(importlib.import_module("bitsandbytes").optim, theirs))(
            parameters, **known
        )
    if not any(isinstance(parameter, FakeTensor) for parameter in parameters):  # as those of a prediction are
        log.info("%s: 8-bit state by %s (%s)", name, backend, reason)
    return optimizer


def _obstacles(
    parameters: Sequence[Tensor], settings: Mapping[str, Any], cuda_alone: bool = False
) -> Iterator[tuple[str, str]]:
    """What keeps bitsandbytes from doing the same as the code here, and what to do about it; the import comes last."""
    devices = sorted({parameter.device.type for parameter in parameters})
    if cuda_alone and devices != ["cuda"]:
        yield f"the parameters are on {' and '.join(devices)}, not on cuda", "move them to cuda"
    if settings["block_size"] != BLOCK_SIZE:
        found = settings["block_size"]
        yield f"its blocks are of {BLOCK_SIZE} values and optim.block_size is {found}", f"set it to {BLOCK_SIZE}"
    if settings.get("nesterov"):
        yield "it ignores Nesterov momentum and optim.nesterov is true", "set optim.nesterov=false"
    if settings.get("momentum") == 0:
        yield "it has no SGD without momentum and optim.momentum is 0", "set optim.momentum above 0"
    if any(parameter.dtype not in (torch.float32, torch.bfloat16, torch.float16) for parameter in parameters):
        yield "it takes parameters of 32 or 16 bits alone", "convert them"
    yield from _faults_of_installation(devices)


def _faults_of_installation(devices: Sequence[str]) -> Iterator[tuple[str, str]]:
    try:
        version = metadata.version("bitsandbytes")
    except metadata.PackageNotFoundError:
        yield "bitsandbytes is not installed", INSTALL
        return
    if tuple(int(part) for part in re.findall(r"\d+", version)[:2]) < OLDEST:
        yield f"bitsandbytes {version} is installed and {OLDEST[0]}.{OLDEST[1]} or newer is needed", INSTALL
        return
    try:
        library = importlib.import_module("bitsandbytes.cextension").lib
    except Exception as error:  # it looks for libraries of the system, which may go wrong in any way
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        yield f"bitsandbytes cannot be imported ({reason})", "run `python -m bitsandbytes` to see why"
        return
    # Without its library it is there all the same, and fails at the first step.
    if "cuda" in devices and getattr(library, "compiled_with_cuda", False) is not True:
        yield "bitsandbytes has no library for this CUDA", "run `python -m bitsandbytes` to see why"


def _in_memory_order(theirs: type[Any]) -> type[Any]:
    """Their class for weights of any memory layout, refusing at once a state that does not fit.

    Its kernels walk pointers from end to end (``kOptimizerStatic8bit1StateBlockwise``), and it makes weights and
    gradients contiguous before each step, for good. A weight in channels_last is handed over as a flat view of its
    memory instead, so that it keeps its layout; its blocks are then 256 neighbours in memory.
    """

    class Checked(theirs):
        def update_step(self, group: dict[str, Any], p: Tensor, gindex: int, pindex: int) -> None:
            if not _is_channels_last(p):
                super().update_step(group, p, gindex, pindex)
                return
            gradient, state = p.grad, self.state[p]
            assert gradient is not None, "a step skips parameters without a gradient"
            if gradient.stride() != p.stride():
                gradient = torch.empty_like(p, dtype=gradient.dtype).copy_(gradient)
            flat = torch.nn.Parameter(_memory_of(p.detach()), requires_grad=False)
            flat.grad = _memory_of(gradient)
            self.state[flat] = {
                key: _memory_of(value) if isinstance(value, Tensor) and value.shape == p.shape else value
                for key, value in state.items()
            }
            super().update_step(group, flat, gindex, pindex)
            state["step"] = self.state.pop(flat)["step"]

        def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> None:
            own = [parameter for group in self.param_groups for parameter in group["params"]]
            saved = [number for group in state_dict["param_groups"] for number in group["params"]]
            parameters = dict(zip(saved, own, strict=False))  # of another number: theirs says so
            for number, state in state_dict["state"].items():
                content = {**state, **state.get(self._FSDP_WRAPPED_QUANT_STATE_KEY, {})}
                if "state1" not in content:
                    raise ValueError(
                        f"the state of parameter {number} holds {', '.join(state)}, which is not of bitsandbytes: "
                        "it was saved by optim.backend=torch"
                    )
                if number in parameters and _is_channels_last(content["state1"]) != _is_channels_last(
                    parameters[number]
                ):
                    raise ValueError(
                        f"the state of parameter {number} is of another memory layout: set trainer.channels_last as "
                        "it was when the state was saved"
                    )
            super().load_state_dict(state_dict, *args, **kwargs)

    Checked.__name__ = Checked.__qualname__ = theirs.__name__
    return Checked


def _is_channels_last(tensor: Tensor) -> bool:
    """Whether it lies in that layout alone."""
    return tensor.is_contiguous(memory_format=torch.channels_last) and not tensor.is_contiguous()


def _memory_of(tensor: Tensor) -> Tensor:
    """A tensor without gaps as a view (values,) in the order of its memory."""
    return tensor.as_strided((tensor.numel(),), (1,))
