"""Layers cut to what they make of recordings: by principal components of their outputs, not of their weights.

A layer makes y = W x + b. Of all W' of a rank, P P^T W with the first eigenvectors P of the covariance of y is nearest
to W in what it makes of the x that there are, and b' = b + (I - P P^T) E(W x) keeps the mean (Zhang, Zou, He and Sun,
"Accelerating very deep convolutional networks for classification and detection", TPAMI 2016, section 3.1). A layer
without a bias has second moments in the place of the covariance. Of a matrix whose singular values are nearly equal,
as Muon leaves them, the truncated SVD loses most; what speech makes of it lies in few directions all the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from svtoolkit.compression.layers import Dense
from svtoolkit.compression.spectrum import Spectrum
from svtoolkit.errors import UserError


@dataclass(eq=False)
class Outputs:
    """What a layer makes of recordings, without its bias: sums, float64 on the CPU.

    Attributes:
        columns: of its matrix.
        has_bias: whether a mean can be kept.
        count: vectors seen.
        total: (out,).
        products: (out, out).
    """

    columns: int
    has_bias: bool
    count: int
    total: Tensor
    products: Tensor

    @classmethod
    def of(cls, layer: Dense) -> Outputs:
        rows = len(layer.weight)
        empty = torch.zeros(rows, dtype=torch.float64)
        return cls(layer.weight[0].numel(), layer.bias is not None, 0, empty, empty.expand(rows, rows).clone())

    def add(self, layer: Any, _given: Any, made: Tensor) -> None:
        """A forward hook: (batch, ..., out) of a linear layer, (batch, out, ...) of a convolution."""
        last = made if isinstance(layer, nn.Linear) else made.movedim(1, -1)
        vectors = (last if layer.bias is None else last - layer.bias).detach().reshape(-1, len(self.total))
        vectors = vectors.cpu().double()
        self.count += len(vectors)
        self.total += vectors.sum(0)
        self.products += vectors.T @ vectors

    @property
    def mean(self) -> Tensor:
        """(out,); zeros where the layer has no bias to keep it in."""
        return self.total / self.count if self.has_bias else torch.zeros_like(self.total)

    @cached_property
    def components(self) -> tuple[Tensor, Tensor]:
        """Deviations along the eigenvectors, the largest first, (out,), and these, (out, out), a column each."""
        moments = self.products / self.count - torch.outer(self.mean, self.mean)
        values, vectors = torch.linalg.eigh(moments)
        return values.flip(0).clamp(min=0).sqrt(), vectors.flip(1)

    @property
    def spectrum(self) -> Spectrum:
        """Whose variance is that of what the layer makes, and whose error that of what it makes at a rank."""
        values = self.components[0]
        return Spectrum(len(values), self.columns, values[: min(len(values), self.columns)])

    def cut(self, weight: Tensor, bias: Tensor | None, rank: int) -> tuple[Tensor, Tensor | None]:
        """W' of that rank, of the shape of the weight, and b'."""
        first = self.components[1][:, :rank]
        matrix = first @ (first.T @ weight.detach().cpu().double().flatten(1))
        new = matrix.view(weight.shape).to(weight)
        if bias is None:
            return new, None
        return new, (bias.detach().cpu().double() + self.mean - first @ (first.T @ self.mean)).to(bias)


@contextmanager
def outputs_of(layers: Mapping[str, Dense]) -> Iterator[dict[str, Outputs]]:
    """In the block, whatever the network is given counts; layer by name -> what it makes."""
    found = {name: Outputs.of(layer) for name, layer in layers.items()}
    hooks = [layer.register_forward_hook(found[name].add) for name, layer in layers.items()]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def check_outputs(found: Mapping[str, Outputs]) -> None:
    """Refuse what tells nothing.

    Raises:
        UserError: a layer that made nothing, as it is not run, or made numbers that are not finite.
    """
    for name, outputs in found.items():
        if not outputs.count or not torch.isfinite(outputs.products).all():
            what = "made numbers that are not finite" if outputs.count else "was not run"
            raise UserError(f"the layer {name} {what} on the recordings of calibration; leave it out of layers")


def cut_weights(
    weights: Mapping[str, Tensor], ranks: Mapping[str, int], *, found: Mapping[str, Outputs]
) -> dict[str, Tensor]:
    """A state dict of whole layers with those of ``ranks`` at these ranks, still whole matrices."""
    new = dict(weights)
    for name, rank in ranks.items():
        weight, bias = f"{name}.weight", f"{name}.bias"
        new[weight], changed = found[name].cut(weights[weight], weights.get(bias), rank)
        if changed is not None:
            new[bias] = changed
    return new
