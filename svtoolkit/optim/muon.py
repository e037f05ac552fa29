"""Muon: momentum whose matrices are made orthogonal, for hidden layers; AdamW for all other parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic of Jordan et al.: singular values from 0.001 to 1 are within 0.7 and 1.2 after five steps of it."""

SCALES: dict[str, Callable[[int, int], float]] = {
    "original": lambda rows, columns: max(1.0, rows / columns) ** 0.5,
    "match_rms_adamw": lambda rows, columns: 0.2 * max(rows, columns) ** 0.5,
}
"""Factor of the learning rate of a matrix: that of Jordan et al., and that of Liu et al. 2025 (arXiv 2502.16982)."""


class MuonGroups(torch.optim.Optimizer):
    """A group of matrices and one of all other parameters, in this order."""

    _order: list[nn.Parameter]

    def leave_to_adamw(self, parameters: Iterable[nn.Parameter]) -> None:
        """Let AdamW have these as well, before the first step."""
        matrices, others = self.param_groups
        matrices["params"], others["params"] = _divide(self._order, {id(parameter) for parameter in parameters})


def muon_groups(
    params: Sequence[nn.Parameter], *, lr: float, weight_decay: float, momentum: float, nesterov: bool, ns_steps: int,
    adjust_lr_fn: str, adamw_lr: float, beta1: float, beta2: float, eps: float,
) -> tuple[list[dict[str, Any]], dict[str, Any]]:  # fmt: skip
    """The two groups with the settings of each, and those of both; arguments and errors of ``Muon``."""
    if not lr > 0 or not adamw_lr > 0:
        raise ValueError(f"found lr={lr} adamw_lr={adamw_lr}, expected learning rates above 0")
    if not weight_decay >= 0 or not 0 <= momentum < 1:
        raise ValueError(f"found weight_decay={weight_decay} momentum={momentum}, expected 0 or more and 0 to 1")
    if not 1 <= ns_steps < 100:
        raise ValueError(f"found ns_steps={ns_steps}, expected 1 to 99")
    if adjust_lr_fn not in SCALES:
        raise ValueError(f"found adjust_lr_fn={adjust_lr_fn!r}, expected one of {', '.join(SCALES)}")
    torch.optim.AdamW(params, betas=(beta1, beta2), eps=eps)  # raises for what makes none
    of_matrices = {"momentum": momentum, "nesterov": nesterov, "ns_steps": ns_steps, "adjust_lr_fn": adjust_lr_fn}
    of_others = {"lr_ratio": adamw_lr / lr, "betas": (beta1, beta2), "eps": eps, "foreach": None}
    matrices, others = _divide(params, ())
    groups = [
        {"params": matrices, "is_matrices": True, **of_matrices},
        {"params": others, "is_matrices": False, **of_others},
    ]
    return groups, {"lr": lr, "weight_decay": weight_decay}


def move_matrix(parameter: Tensor, direction: Tensor, group: Mapping[str, Any]) -> None:
    """A step of a matrix along its momentum, made orthogonal; decoupled weight decay.

    Args:
        direction: of the shape of the parameter.
        group: settings.
    """
    matrix = direction.flatten(1).to(precision_on(parameter.device))
    update = orthogonalise(matrix, group["ns_steps"]).view(direction.shape)
    scale = SCALES[group["adjust_lr_fn"]](*matrix.shape)
    parameter.mul_(1 - group["lr"] * group["weight_decay"])
    parameter.add_(update, alpha=-group["lr"] * scale)


class Muon(MuonGroups):
    """Muon for the matrices of hidden layers, AdamW beside it (Jordan et al. 2024, "Muon: an optimizer for hidden
    layers in neural networks", kellerjordan.github.io/posts/muon).

    A kernel is the matrix (out, in x kernel size). Its momentum M = U S V^T, with Nesterov's look ahead, is made nearly
    orthogonal by Newton-Schulz steps: matrix <- (1 - lr weight_decay) matrix - lr scale U V^T. The
    arithmetic is that of ``torch.optim.Muon``, which takes nothing but matrices and computes in bfloat16: here it is in
    float32 but on CUDA, since most CPUs emulate bfloat16.

    Parameters that are no matrix (norms, biases, kernels of one input channel a group, vectors with two axes) are
    AdamW's, and so are those that ``leave_to_adamw`` names: by the authors' recipe the first kernel and the class head.
    State of a matrix: ``momentum_buffer``, as the parameter; of the others that of ``torch.optim.AdamW``.

    Args:
        lr: of matrices; a schedule sets it in all groups, and that of AdamW keeps its ratio to it.
        adamw_lr: of all others.
        adjust_lr_fn: how the rate follows from the shape of a matrix, a key of ``SCALES``.

    Raises:
        ValueError: a number out of range.
    """

    def __init__(self, params: Iterable[nn.Parameter], **settings: Any) -> None:
        self._order = list(params)
        groups, shared = muon_groups(self._order, **settings)
        super().__init__(groups, shared)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update all parameters that have a gradient; returns what ``closure`` returns."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            trained = [parameter for parameter in group["params"] if parameter.grad is not None]
            if group["is_matrices"]:
                for parameter in trained:
                    self._step_of_matrix(parameter, group)
            elif trained:
                self._step_of_others(trained, group)
        return loss

    def _step_of_matrix(self, parameter: Tensor, group: Mapping[str, Any]) -> None:
        state, gradient = self.state[parameter], parameter.grad
        assert gradient is not None, "it is among those with a gradient"
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        momentum: Tensor = state["momentum_buffer"].lerp_(gradient, 1 - group["momentum"])
        direction = gradient.lerp(momentum, group["momentum"]) if group["nesterov"] else momentum
        move_matrix(parameter, direction, group)

    def _step_of_others(self, parameters: Sequence[Tensor], group: Mapping[str, Any]) -> None:
        adamw = torch.optim.AdamW(
            parameters,
            lr=group["lr"] * group["lr_ratio"],
            betas=group["betas"],
            eps=group["eps"],
            weight_decay=group["weight_decay"],
            foreach=group["foreach"],
        )
        adamw.state = self.state
        adamw.step()


def orthogonalise(matrix: Tensor, steps: int) -> Tensor:
    """U S' V^T of a matrix U S V^T, (rows, columns), with S' near 1: ``steps`` Newton-Schulz steps in its own type.

    Each step is X <- a X + (b A + c A^2) X with A = X X^T, after a division by the Frobenius norm.
    """
    a, b, c = COEFFICIENTS
    is_tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if is_tall else matrix
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(steps):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if is_tall else x


def precision_on(device: torch.device) -> torch.dtype:
    """Of Newton-Schulz steps."""
    return torch.bfloat16 if device.type == "cuda" else torch.float32


def is_matrix(parameter: Tensor) -> bool:
    """Whether a parameter is (out, in, ...) with more than one of each: no norm, bias, depthwise kernel or vector."""
    return parameter.ndim >= 2 and min(parameter.shape[:2]) > 1


def _divide(parameters: Sequence[nn.Parameter], spared: Iterable[int]) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Matrices but for those with an id among ``spared``, and all others; each in the order given."""
    apart = set(spared)
    chosen = [is_matrix(parameter) and id(parameter) not in apart for parameter in parameters]
    matrices = [parameter for parameter, is_chosen in zip(parameters, chosen, strict=True) if is_chosen]
    return matrices, [parameter for parameter, is_chosen in zip(parameters, chosen, strict=True) if not is_chosen]
