"""Utterances of unequal length in one batch, padded to the longest, each with the embedding that it has alone.

No network knows of it. While a padded batch goes through, the functions of torch that look along time are told where
each utterance ends: a convolution finds zeros there, as at the end of a map; means, deviations and softmax leave out
what lies beyond; an attention does not see it. What lies beyond an end holds anything in between, and reaches no frame
before it. Whether that is so of a network, a trial says.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

MULTIPLE = 8
"""Of which the padded length is one: a network that halves time three times never finds an odd number of frames."""
TRIAL_FRAMES = (171, 150, 130, 111)
TOLERANCE = 1e-4
"""Of the largest value of an embedding: far above rounding, far below what frames that do not exist would change."""


class UnknownLengthError(ValueError):
    """Maps of as many frames, whose utterances end at different ones."""


def embed_padded(network: nn.Module, utterances: Sequence[Tensor]) -> Tensor:
    """Embeddings of utterances, (frames, bins) each, by a network in eval mode -> (batch, embedding_dim).

    Without gradients: maps are overwritten beyond the ends of their utterances.

    Raises:
        UnknownLengthError: the network is none that ``takes_padding``.
    """
    longest, num_bins = max(map(len, utterances)), utterances[0].shape[1]
    padded = math.ceil(longest / MULTIPLE) * MULTIPLE
    if padded == num_bins:  # no axis is mistaken for time
        padded += MULTIPLE
    batch = utterances[0].new_zeros(len(utterances), padded, num_bins)
    for row, utterance in zip(batch, utterances, strict=True):
        row[: len(utterance)] = utterance
    used: Callable[[int], int] = getattr(network, "frames_used", int)
    with _Ends([used(len(utterance)) for utterance in utterances], used(padded), batch.device):
        embeddings: Tensor = network(batch)
    return embeddings


@torch.inference_mode()
def takes_padding(network: nn.Module, num_bins: int) -> bool:
    """Whether padded utterances have the embeddings that they have alone: tried with noise of four lengths.

    Args:
        network: in eval mode; one whose ``maskable`` is False is not tried.
        num_bins: of the features.
    """
    if not getattr(network, "maskable", True):
        return False
    weights = next(network.parameters(), torch.empty(0))
    noise = torch.randn(len(TRIAL_FRAMES), max(TRIAL_FRAMES), num_bins, generator=torch.Generator().manual_seed(0))
    louder = torch.linspace(0.1, 3.0, max(TRIAL_FRAMES)).view(-1, 1)
    trial = [row[:frames] for row, frames in zip((noise * louder).to(weights), TRIAL_FRAMES, strict=True)]
    try:
        with torch.autocast(weights.device.type, enabled=False):
            alone = torch.cat([network(utterance.unsqueeze(0)) for utterance in trial])
            together = embed_padded(network, trial)
    except Exception:  # of any kind: the networks are of other packages, too
        return False
    return together.shape == alone.shape and bool((together - alone).abs().max() <= TOLERANCE * alone.abs().max())


class _Ends(TorchFunctionMode):
    """Where the utterances of a batch end, in every map by its number of frames, which is its last dimension.

    Args:
        lengths: frames of each utterance.
        padded: frames of the batch.
    """

    def __init__(self, lengths: Sequence[int], padded: int, device: torch.device) -> None:
        super().__init__()
        self.device = device
        self.lengths = {padded: list(lengths)}
        self.masks: dict[int, Tensor] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        rule = _RULES.get(getattr(func, "__name__", ""))
        if rule is None:
            return func(*args, **(kwargs or {}))
        return rule(self, func, *args, **(kwargs or {}))

    def of(self, x: Tensor, axis: int = -1) -> list[int] | None:
        """Where utterances end along an axis of a map; None: it is not time."""
        lengths = self.lengths.get(x.shape[axis]) if x.ndim > 1 else None
        return lengths if lengths is not None and len(lengths) == len(x) else None

    def note(self, frames: int, lengths: list[int]) -> None:
        """Remember where utterances end in maps of so many frames."""
        if self.lengths.setdefault(frames, lengths) != lengths or min(lengths) < 1:
            raise UnknownLengthError(f"maps of {frames} frames end at {self.lengths[frames]} and at {lengths}")

    def beyond(self, frames: int) -> Tensor:
        """(batch, frames from the end of the shortest on): True beyond the end of an utterance."""
        if frames not in self.masks:
            lengths = self.lengths[frames]
            ends = torch.tensor(lengths, device=self.device).unsqueeze(1)
            self.masks[frames] = torch.arange(min(lengths), frames, device=self.device) >= ends
        return self.masks[frames]

    def fill_(self, x: Tensor, value: float = 0.0) -> Tensor:
        """A map with another value beyond the ends."""
        mask = self.beyond(x.shape[-1])
        if mask.shape[1]:
            x[..., -mask.shape[1] :].masked_fill_(mask.view(len(x), *[1] * (x.ndim - 2), -1), value)
        return x

    def column(self, numbers: Sequence[float], x: Tensor) -> Tensor:
        """A number of each utterance, to multiply the map by."""
        return torch.tensor(numbers, dtype=x.dtype, device=x.device).view(-1, *[1] * (x.ndim - 1))


def _last(value: Any) -> Any:
    return value[-1] if isinstance(value, Sequence) and not isinstance(value, str) else value


def _convolution(
    ends: _Ends, func: Any, input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1,
    padding: Any = 0, dilation: Any = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    lengths, kernel = ends.of(input), weight.shape[-1]
    if lengths is not None and kernel > 1:
        ends.fill_(input)
    output: Tensor = func(input, weight, bias, stride, padding, dilation, groups)
    step, around, span = _last(stride), _last(padding), _last(dilation) * (kernel - 1)
    if lengths is not None and around != "same":
        sides = 0 if around == "valid" else 2 * around
        ends.note(output.shape[-1], [(length + sides - span - 1) // step + 1 for length in lengths])
    return output


def _pad(
    ends: _Ends, func: Any, input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> Tensor:
    lengths, (before, after) = ends.of(input), pad[:2]
    if lengths is not None and (before or after):
        ends.fill_(input)
    output: Tensor = func(input, pad, mode, value)
    if lengths is None or not (before or after) or mode not in ("constant", "reflect"):
        return output
    ends.note(output.shape[-1], [before + length + after for length in lengths])
    if mode == "reflect":  # of each utterance at its own end
        last = torch.tensor(lengths, device=ends.device).unsqueeze(1) - 1
        place = torch.arange(min(lengths), input.shape[-1] + after, device=ends.device)
        place = (last - (place - last).abs()).abs()  # anything beyond the reflection
        place = place.clamp(max=input.shape[-1] - 1).unsqueeze(1).expand(-1, input.shape[1], -1)
        output[..., before + min(lengths) :] = input.gather(-1, place)
    return output


def _moments(ends: _Ends, x: Tensor, dims: tuple[int, ...], lengths: list[int], correction: float | None) -> Any:
    """Mean and, with a correction, variance; dimensions are kept."""
    others = math.prod(x.shape[dim] for dim in dims[:-1])
    mean = ends.fill_(x).sum(dims, keepdim=True) / ends.column([others * length for length in lengths], x)
    if correction is None:
        return mean, None
    squares = ends.fill_(x - mean).square_().sum(dims, keepdim=True)
    return mean, squares / ends.column([max(others * length - correction, 1) for length in lengths], x)


def _reduction(ends: _Ends, func: Any, input: Tensor, *args: Any, **kwargs: Any) -> Any:
    given = dict(zip(("dim", "keepdim"), args, strict=False)) | kwargs
    dim, keepdim = given.pop("dim", None), given.pop("keepdim", False)
    correction = given.pop("correction", 1)
    dims = sorted(each % input.ndim for each in ((dim,) if isinstance(dim, int) else dim or ()))
    lengths = ends.of(input)
    if lengths is None or given or input.ndim - 1 not in dims:
        return func(input, *args, **kwargs)
    is_mean = func.__name__ == "mean"
    mean, variance = _moments(ends, input, tuple(dims), lengths, None if is_mean else correction)
    if not keepdim:
        mean, variance = mean.squeeze(dims), variance if is_mean else variance.squeeze(dims)
    if is_mean:
        return mean
    return (variance if func.__name__ == "var_mean" else variance.sqrt()), mean


def _softmax(ends: _Ends, func: Any, input: Tensor, dim: int, *args: Any, **kwargs: Any) -> Tensor:
    if dim in (-1, input.ndim - 1) and ends.of(input) is not None:
        input = ends.fill_(input.clone(), -math.inf)
    result: Tensor = func(input, dim, *args, **kwargs)
    return result


def _attention(ends: _Ends, func: Any, query: Tensor, key: Tensor, value: Tensor, **kwargs: Any) -> Tensor:
    lengths = ends.of(key, -2)
    if lengths is not None and not kwargs:
        within = torch.arange(key.shape[-2], device=ends.device) < torch.tensor(lengths, device=ends.device)[:, None]
        kwargs = {"attn_mask": within[:, None, None]}
    result: Tensor = func(query, key, value, **kwargs)
    return result


def _segment_mean(ends: _Ends, func: Any, input: Tensor, kernel_size: Any, stride: Any = None, **kwargs: Any) -> Tensor:
    """Of segments beside each other, the last of which may be shorter."""
    lengths, size = ends.of(input), _last(kernel_size)
    if lengths is None or _last(stride) not in (None, size) or set(kwargs) - {"ceil_mode"}:
        result: Tensor = func(input, kernel_size, stride, **kwargs)
        return result
    result = func(ends.fill_(input), kernel_size, stride, **kwargs)
    begins = torch.arange(result.shape[-1], device=ends.device) * size
    there = (input.shape[-1] - begins).clamp(max=size)
    heard = (torch.tensor(lengths, device=ends.device).unsqueeze(1) - begins).clamp(1, size)
    return result * (there.to(result.dtype) / heard).unsqueeze(1)


def _squeeze(ends: _Ends, func: Any, input: Tensor, factor: int) -> Tensor:
    lengths = ends.of(input)
    output: Tensor = func(input if lengths is None else ends.fill_(input), factor)
    if lengths is not None:
        ends.note(output.shape[-1], [math.ceil(length / factor) for length in lengths])
    return output


_RULES: dict[str, Callable[..., Any]] = {
    "conv1d": _convolution,
    "conv2d": _convolution,
    "pad": _pad,
    "mean": _reduction,
    "var_mean": _reduction,
    "std_mean": _reduction,
    "softmax": _softmax,
    "scaled_dot_product_attention": _attention,
    "avg_pool1d": _segment_mean,
    "pixel_unshuffle": _squeeze,
}
"""Name of a function of torch -> what it does instead where its input is a map of utterances."""
