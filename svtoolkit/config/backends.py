"""Settings of trained back ends."""

from __future__ import annotations

from dataclasses import dataclass

from svtoolkit.config.setting import REQUIRED, setting

WHITEN = "turn and scale the centred embeddings so that their covariance is the identity, before anything else"
SHRINKAGE = (
    "share of a multiple of the identity in covariances, from 0 to 1 (1 itself not); null: of Ledoit and Wolf, more "
    "where there are fewer recordings"
)
DIM = "dimensions kept, fewer than speakers; null: half as many as embeddings and speakers allow"
ITERATIONS = "iterations of EM"


@dataclass
class WhiteningConfig:
    """What every back end can be told."""

    whiten: bool = setting(False, WHITEN)
    shrinkage: float | None = setting(None, SHRINKAGE)


@dataclass
class LDAConfig(WhiteningConfig):
    """Linear discriminant analysis, then the cosine."""

    dim: int | None = setting(None, DIM)


@dataclass
class PLDAConfig(LDAConfig):
    """Linear discriminant analysis, then the likelihood ratio of the two-covariance model."""

    iterations: int = setting(10, ITERATIONS)


@dataclass
class BackendConfig:
    """`svt backend`: trains a back end on embeddings of training speakers, for `svt score`."""

    kind: str = setting(REQUIRED, "lda, wccn or plda (docs/backends.md), or one of an installed package")
    embeddings: str = setting(REQUIRED, "scp of the training speakers' embeddings, of svt embed")
    utt2spk: str = setting(REQUIRED, "their speakers; each of its utterances needs an embedding")
    out: str = setting(REQUIRED, "file to write, such as exp/r34/plda.safetensors; its settings go to <out>.yaml, too")
    dim: int | None = setting(None, f"lda, plda: {DIM}")
    shrinkage: float | None = setting(None, SHRINKAGE)
    whiten: bool = setting(False, WHITEN)
    iterations: int | None = setting(None, f"plda: {ITERATIONS}; null: 10")
