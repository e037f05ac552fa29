"""Eight bits a value: the dynamic tree map, block by block.

Dettmers et al., "8-bit Optimizers via Block-wise Quantization" (ICLR 2022), sections 1.3 and 2.1: a block of values is
divided by its largest magnitude, and each value is stored as the number of the nearest entry of a map of 256.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

DECADES = 7
"""Powers of ten that the map spans: its entries go down to about 1e-6 of the largest magnitude."""


@dataclass(frozen=True)
class DynamicMap:
    """The entries of a map and where one ends and the next begins.

    Attributes:
        values: float32 (256,), rising from -0.993 (signed) or 0 (unsigned) to 1.
        midpoints: float32 (255,); what is above ``midpoints[code]`` is nearer to ``values[code + 1]``.
    """

    values: Tensor
    midpoints: Tensor


def build_dynamic_map(signed: bool, device: torch.device | None = None) -> DynamicMap:
    """The dynamic tree map, signed or for values that are never negative.

    The bits of a code are a sign (signed map only), z zeros, a one, and in what remains the f bits of a fraction:
    (-1)^sign * 10^-z * (0.1 + 0.9 (k + 1/2) / 2^f) for the k-th fraction, so that large values have the finest steps.
    Two codes are over: one is 0, the other 1, which the largest magnitude of a block is. Codes count the entries in
    rising order.
    """
    entries = [torch.tensor([0.0, 1.0])]
    for zeros in range(DECADES):
        fraction_bits = DECADES - zeros - int(signed)
        edges = torch.linspace(0.1, 1.0, 2**fraction_bits + 1)
        centres = 10.0**-zeros * (edges[:-1] + edges[1:]) / 2
        entries += [centres, -centres] if signed else [centres]
    values = torch.cat(entries).sort().values
    exact = (values[:-1].double() + values[1:].double()) / 2
    midpoints = exact.float()
    # Rounded down, so that a float32 is above the midpoint exactly where it is above the true one.
    midpoints = torch.where(midpoints > exact, midpoints.nextafter(torch.tensor(-torch.inf)), midpoints)
    return DynamicMap(values.to(device=device), midpoints.to(device=device))


def zero_code(signed: bool) -> int:
    """The code of 0: all negative entries of the signed map come before it."""
    return 2**DECADES - 1 if signed else 0


_map_on = functools.cache(build_dynamic_map)


def _map_beside(values: Tensor, signed: bool) -> DynamicMap:
    """A map on the device of ``values``. Only plain tensors share one: a fake tensor belongs to its mode."""
    return (_map_on if type(values) is Tensor else build_dynamic_map)(signed, values.device)


def quantise(values: Tensor, block_size: int, *, signed: bool) -> tuple[Tensor, Tensor]:
    """Code values by the nearest entry of the map (binary search), relative to the largest magnitude of their block.

    Args:
        values: float32 (n,).
        block_size: values that share a scale; the last block may be shorter.

    Returns:
        uint8 codes (n,) and float32 largest magnitudes (ceil(n / block_size),). The largest magnitude of a block that
        holds a value which is not finite is not finite either.
    """
    entries = _map_beside(values, signed)
    blocks = _whole_blocks(values, block_size).view(-1, block_size)
    absmax = blocks.abs().amax(dim=1)
    normalised = blocks / torch.where(absmax == 0, 1.0, absmax)[:, None]
    codes = torch.bucketize(normalised, entries.midpoints, out_int32=True)
    return codes.to(torch.uint8).view(-1)[: len(values)], absmax


def dequantise(codes: Tensor, absmax: Tensor, block_size: int, *, signed: bool) -> Tensor:
    """The float32 values (n,) that ``quantise`` gave these codes for, each off by at most half a step of the map."""
    entries = _map_beside(codes, signed)
    values = entries.values.index_select(0, _whole_blocks(codes, block_size).int()).view(-1, block_size)
    return values.mul_(absmax[:, None]).view(-1)[: len(codes)]


def _whole_blocks(values: Tensor, block_size: int) -> Tensor:
    missing = -len(values) % block_size
    return F.pad(values, (0, missing)) if missing else values
