"""How well activations come back when a network is inverted: signal-to-noise ratios, beside what theory says.

Hascoet et al., "Reversible designs for extreme memory cost reduction of CNN training", EURASIP Journal on Image and
Video Processing 2023, sec. 4.1: a layer whose result has the ratio SNR_o of signal to noise gives back an input of the
ratio SNR_i = alpha SNR_o. Ratios are of energies, over all values of a tensor, and given in decibels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from svtoolkit.device import autocast
from svtoolkit.errors import UserError
from svtoolkit.memory import apply_strategy
from svtoolkit.models.invertible_functions import hybrid_function
from svtoolkit.models.speaker_network import ChainNetwork
from svtoolkit.reversible import (
    AdditiveCoupling,
    CoupledConvolution,
    InvertibleBatchNorm2d,
    InvertibleLeakyReLU,
    LayerwiseFunction,
    ReversibleSequence,
    snap,
)
from svtoolkit.reversible.coupling import split_streams

PRECISIONS = ("fp64", "fp32", "bf16", "fp16")
"""bf16 and fp16: autocast, as in training."""
RATIOS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Of the gains of two channels (fig. 5)."""
SLOPES = (0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
"""Of leaky ReLU (fig. 6)."""
NOISE = 1e-4
"""Deviation of the noise of a result that has deviation 1, where a formula is checked."""
CHAIN_MAP = (4, 16, 20, 25)
"""(batch, channels, bins, frames) of the chains of figure 11."""
WHOLE, FUNCTION = "streams", "inside"


class Reconstruction(NamedTuple):
    """One activation that was found again.

    Attributes:
        exact: streams lay on a grid.
        kind: streams of a coupling, or the result of a layer inside a residual function.
        couplings: that were inverted before.
        layers: inside the function, counted from its end, that were inverted before; 0 of streams.
        snr: of energies, in dB; None: bit for bit.
    """

    precision: str
    exact: bool
    kind: str
    couplings: int
    layers: int
    snr: float | None


class Alpha(NamedTuple):
    """By what a layer reduces the ratio on the way back: at one value of its parameter, by formula and as measured."""

    parameter: float
    expected: float
    measured: float


class ChainRatio(NamedTuple):
    """The lowest ratio in a chain of so many units: norm, leaky ReLU, coupled convolution.

    Attributes:
        design: layerwise (every layer inverted from the one after it) or hybrid (two units make a residual function,
            two functions a coupling).
    """

    design: str
    units: int
    slope: float
    snr: float


def snr_of(found: Tensor, expected: Tensor) -> float | None:
    """Energy of a signal to that of its error, in dB; None where there is no error."""
    signal, noise = (t.double().square().sum().item() for t in (expected, found.double() - expected.double()))
    if noise == 0:
        return None
    return 10 * math.log10(signal / noise) if signal > 0 and math.isfinite(noise) else -math.inf


def norm_alpha(gain: Tensor, bias: Tensor, mean: Tensor, deviation: Tensor) -> float:
    """SNR_i / SNR_o of a batch norm, all (channels,); noise of its result is the same in all channels (appendix 1.1).

    alpha = c sum(mean^2 + deviation^2) / (sum(deviation^2 / gain^2) sum(gain^2 + bias^2)).
    """
    signal = (mean.square() + deviation.square()).sum() * len(gain)
    return float(signal / ((deviation / gain).square().sum() * (gain.square() + bias.square()).sum()))


def leaky_relu_alpha(slope: float) -> float:
    """SNR_i / SNR_o of a leaky ReLU of a symmetric input, far above the noise: 4 / ((1 + n^2) (1 + 1 / n^2))."""
    return 4 / ((1 + slope**2) * (1 + slope**-2))


@torch.no_grad()
def check_norm(ratios: Sequence[float] = RATIOS, seed: int = 0) -> list[Alpha]:
    """Two channels with gains 1 and rho, as in figure 5."""
    generator, found = torch.Generator().manual_seed(seed), []
    for ratio in ratios:
        layer = InvertibleBatchNorm2d(2, floor=min(RATIOS) / 2).double()
        gain = torch.tensor([1.0, ratio], dtype=torch.float64)
        layer.weight.copy_(gain - layer.floor)
        x = torch.randn(8, 2, 64, 64, generator=generator, dtype=torch.float64)
        y, statistics = layer.evaluate(x)
        noise = NOISE * torch.randn(y.shape, generator=generator, dtype=torch.float64)
        back = layer.inverse_(y + noise, statistics)
        expected = norm_alpha(gain, layer.bias, statistics.mean, statistics.deviation)
        found.append(Alpha(ratio, expected, _ratio(back, x) / _ratio(y + noise, y)))
    return found


@torch.no_grad()
def check_leaky_relu(slopes: Sequence[float] = SLOPES, seed: int = 0) -> list[Alpha]:
    """Normal values, as in figure 6."""
    generator, found = torch.Generator().manual_seed(seed), []
    for slope in slopes:
        layer = InvertibleLeakyReLU(slope)
        x = torch.randn(2**16, generator=generator, dtype=torch.float64)
        y = layer(x.clone())
        noise = NOISE * slope * torch.randn(y.shape, generator=generator, dtype=torch.float64)
        back = layer.inverse_(y + noise)
        found.append(Alpha(slope, leaky_relu_alpha(slope), _ratio(back, x) / _ratio(y + noise, y)))
    return found


def _ratio(found: Tensor, expected: Tensor) -> float:
    return float(expected.square().sum() / (found - expected).square().sum())


@torch.no_grad()
def measure_chains(depths: Sequence[int], slopes: Sequence[float], floor: float, seed: int = 0) -> list[ChainRatio]:
    """Both designs of the paper in float32, by depth and slope (fig. 11)."""
    found = []
    for slope in slopes:
        for units in depths:
            for design, measure in (("layerwise", _layerwise_chain), ("hybrid", _hybrid_chain)):
                torch.manual_seed(seed)
                ratios = measure(units, slope, floor)
                found.append(ChainRatio(design, units, slope, min(ratios, default=math.inf)))
    return found


def _layerwise_chain(units: int, slope: float, floor: float) -> list[float]:
    channels, layers = CHAIN_MAP[1], list[nn.Module]()
    for _ in range(units):
        layers += [InvertibleBatchNorm2d(channels, floor), InvertibleLeakyReLU(slope), CoupledConvolution(channels)]
    function = LayerwiseFunction(*layers)
    x = torch.randn(CHAIN_MAP)
    return [snr for snr in _inside(function, x, x) if snr is not None]


def _hybrid_chain(units: int, slope: float, floor: float) -> list[float]:
    half = CHAIN_MAP[1] // 2
    sequence = ReversibleSequence(
        AdditiveCoupling(*(hybrid_function(half, slope=slope, norm_floor=floor) for _ in range(2)))
        for _ in range(units // 4)
    )
    sequence.exact = False
    return [snr for *_, snr in _invert(sequence, torch.randn(CHAIN_MAP)) if snr is not None]


@torch.no_grad()
def measure_network(network: nn.Module, features: Tensor, precision: str, *, exact: bool) -> list[Reconstruction]:
    """Every activation that a reversible network finds again in its backward pass, from the end to the beginning.

    Args:
        network: a chain of stages, in training mode; its weights stay as they are.
        features: (batch, frames, bins), float32.
        precision: one of ``PRECISIONS``.
        exact: streams lie on a grid.

    Raises:
        UserError: a network without reversible stages.
    """
    sequences = [module for module in network.modules() if isinstance(module, ReversibleSequence)]
    if not sequences or not isinstance(network, ChainNetwork):
        raise UserError(
            "svt reversibility is of reversible networks, and this is none; choose model=revnext57, model=revnet57 or "
            "model=df_revnet89"
        )
    apply_strategy(network, "store", exact=exact)
    dtype = torch.float64 if precision == "fp64" else torch.float32
    network.to(dtype)
    found: list[Reconstruction] = []
    with nullcontext() if precision == "fp64" else autocast(features.device, precision):
        value = features.to(dtype).transpose(1, 2).unsqueeze(1)
        for stage in (network.stem, *network.stages):
            for module in stage.children():
                if isinstance(module, ReversibleSequence):
                    found += [Reconstruction(precision, exact, *each) for each in _invert(module, value)]
                value = module(value)
    network.float()
    return found


def _invert(sequence: ReversibleSequence, x: Tensor) -> Iterator[tuple[str, int, int, float | None]]:
    """Kind, couplings and layers inverted before, and ratio of what a sequence gives back, last first."""
    y, record = sequence.run(x)
    start = x.to(record.stream_dtype)
    if record.bits is not None:
        start = snap(start, record.bits)
    truth = [split_streams(start, record.stream_dtype)]
    for step in sequence.steps():
        one, other = truth[-1]
        if isinstance(step, AdditiveCoupling):
            truth.append(step(one, other, bits=record.bits))
        else:
            truth.append((step(one).contiguous(), step(other).contiguous()))
    streams, inverted = split_streams(y, record.stream_dtype), 0
    sizes = list(record.sizes)
    for position in range(len(truth) - 2, -1, -1):
        step, (one, other) = sequence.steps()[position], truth[position]
        if not isinstance(step, AdditiveCoupling):
            size = sizes.pop()
            first, second = (step.inverse(stream, *size).contiguous() for stream in streams)
            streams = first, second
            continue
        true_sources = {step.g: truth[position + 1][0], step.f: other}
        found_sources = {step.g: streams[0]}
        streams = step.inverse(*streams, bits=record.bits)
        found_sources[step.f] = streams[1]
        for function, source in found_sources.items():
            if isinstance(function, LayerwiseFunction) and isinstance(function[-1], CoupledConvolution):
                ratios = _inside(function, source, true_sources[function])
                yield from ((FUNCTION, inverted, layer, snr) for layer, snr in enumerate(ratios))
        inverted += 1
        yield WHOLE, inverted, 0, snr_of(torch.cat(streams, 1), torch.cat([one, other], 1))


def _inside(function: LayerwiseFunction, source: Tensor, true_source: Tensor) -> list[float | None]:
    """Ratios of what comes into each layer, the last first, when its result is inverted layer by layer."""
    truth, value = [], true_source
    for layer in function:
        truth.append(value)
        value = layer(value.clone())
    value, notes = function.evaluate(source)
    found = []
    for layer, note, expected in zip(reversed(function), reversed(notes), reversed(truth), strict=True):
        inverse: Any = layer.inverse_
        value = inverse(value) if note is None else inverse(value, note)
        found.append(snr_of(value, expected))
    return found
