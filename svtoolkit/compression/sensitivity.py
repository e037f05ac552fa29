"""What a network loses when its layers are cut to a rank, one at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from svtoolkit.compression.spectrum import Spectrum

Measured = tuple[float | None, np.ndarray]
"""EER, None without trials, and embeddings (utterances, embedding_dim)."""

Measure = Callable[[], Measured]
"""Of the network as it is."""


CutWeights = Callable[[Mapping[str, Tensor], Mapping[str, int]], Mapping[str, Tensor]]
"""A state dict of whole layers and ranks of some -> the same with these layers at their ranks, as whole matrices."""


@dataclass(frozen=True)
class Cut:
    """A layer at a rank, all others whole.

    Attributes:
        rank: None: it stays whole.
        parameters, kept: values of the whole matrix, and of what it becomes.
        error: |W - W'| / |W|, or of what the layer makes of recordings where it is cut to that.
        eer: None where it was not measured.
        cosine: mean of embeddings to those of the whole network; None where it was not measured.
    """

    layer: str
    rows: int
    columns: int
    trace_norm_coefficient: float
    rank: int | None
    parameters: int
    kept: int
    error: float
    eer: float | None = None
    cosine: float | None = None


def cut_layers(
    network: nn.Module,
    spectra: Mapping[str, Spectrum],
    ranks: Mapping[str, int],
    cut_weights: CutWeights,
    whole: Measured | None = None,
    measure: Measure | None = None,
) -> Iterator[Cut]:
    """A line for each layer; the network is whole again after each.

    Args:
        network: with whole layers.
        spectra: of these layers.
        ranks: of those that are cut.
        cut_weights: how they are.
        whole: of the network before; None: nothing is embedded.
        measure: what embeds.
    """
    for name, spectrum in spectra.items():
        rank = ranks.get(name)
        kept, error = (spectrum.size, 0.0) if rank is None else (spectrum.kept(rank), spectrum.error(rank))
        eer, cosine = (None, None) if whole is None else (whole[0], 1.0)
        if rank is not None and measure is not None and whole is not None:
            before = {key: tensor.clone() for key, tensor in network.state_dict().items() if key.startswith(f"{name}.")}
            network.load_state_dict(cut_weights(before, {name: rank}), strict=False)
            with torch.no_grad():
                eer, embeddings = measure()
            network.load_state_dict(before, strict=False)
            cosine = mean_cosine(whole[1], embeddings)
        yield Cut(
            name, spectrum.rows, spectrum.columns, spectrum.trace_norm_coefficient, rank, spectrum.size, kept, error,
            eer, cosine,
        )  # fmt: skip


def mean_cosine(first: np.ndarray, second: np.ndarray) -> float:
    """Of rows with rows: (n, dim), twice."""
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    return float(np.mean((first * second).sum(axis=1) / np.maximum(lengths, 1e-12)))


def table_lines(cuts: Sequence[Cut]) -> list[str]:
    """The table as text, what hurts most first: by the error rate, the cosine or the error of the product."""
    order = sorted(cuts, key=lambda cut: (-(cut.eer or 0.0), cut.cosine or 0.0, -cut.error))
    width = max(len("layer"), *(len(cut.layer) for cut in cuts))
    lines = [
        f"{'layer':{width}}  {'matrix':>13}  {'nu':>5}  {'rank':>5}  {'kept':>6}  {'error':>6}  {'EER %':>6}  cosine"
    ]
    for cut in order:
        rank = "whole" if cut.rank is None else str(cut.rank)
        eer = "-" if cut.eer is None else f"{100 * cut.eer:.3f}"
        cosine = "-" if cut.cosine is None else f"{cut.cosine:.4f}"
        lines.append(
            f"{cut.layer:{width}}  {f'{cut.rows} x {cut.columns}':>13}  {cut.trace_norm_coefficient:5.3f}  {rank:>5}  "
            f"{100 * cut.kept / cut.parameters:5.1f}%  {cut.error:6.3f}  {eer:>6}  {cosine:>6}"
        )
    return lines
