"""Settings of small networks: low rank by training in two stages, and distillation from a larger network."""

from __future__ import annotations

from dataclasses import dataclass

from svtoolkit.config.setting import setting

LAYERS = (
    "names of layers, or patterns such as stages.*; []: linear layers, convolutions over time and 1x1 convolutions; "
    "other convolutions have to be named"
)
PARAMETERS = "most parameters of the network in the end; up to 1: a share of those that it has with whole layers"


@dataclass
class CompressConfig:
    """Layers of low rank, found by training in two stages."""

    name: str = setting(
        "none",
        "trace_norm: stage one trains products U V under a penalty on their trace norm; l2: it trains whole matrices "
        "under an L2 penalty; stage two continues from the truncated SVD; none: one stage; choose with compress=...",
    )


@dataclass
class TwoStageConfig(CompressConfig):
    """Stage one under a penalty, stage two from the truncated SVD without one (Kliegl et al. 2017)."""

    strength: float = setting(
        1e-3, "lambda of the penalty, in the place of optim.weight_decay on these layers; 0: no penalty"
    )
    layers: list[str] = setting([], f"{LAYERS}; class_head: the matrix of the training speakers")
    min_values: int = setting(65536, "a matrix of fewer values stays whole")
    transition: int | None = setting(
        None, "epochs of stage one; null: half of trainer.epochs; all of them: stage one alone, for `svt compress`"
    )
    variance: float | None = setting(
        None, "share of the variance of each layer that its rank explains; null: 0.9, unless parameters is given"
    )
    parameters: float | None = setting(None, f"{PARAMETERS}; null: as variance says")


@dataclass
class DistillationConfig:
    """A larger network whose embeddings the network learns, beside its classes."""

    model: str | None = setting(
        None, "the larger network: a released model of any toolkit, or hf://org/name; null: no distillation"
    )
    weight: float = setting(1.0, "of 1 - cosine to its embedding of the same crop, added to the loss of the classes")
    front_end: str | None = setting(
        None, "its features, of a release that does not say them, such as fbank80; null: what it says"
    )
