"""Settings of the losses: what all have in common, and what one has of its own."""

from __future__ import annotations

from dataclasses import dataclass

from svtoolkit.config.setting import setting


@dataclass
class LossConfig:
    """Classification head over the training speakers."""

    name: str = setting(
        "aam",
        "aam (ArcFace: cos(theta + margin)), aam_subcenter, aam_topk, am (CosFace: cos(theta) - margin), sphereface2 "
        "or softmax (a linear layer with bias); choose with loss=...",
    )
    margin: float = setting(
        0.2, "radians (aam) or cosine (am, sphereface2), at the end of the margin schedule; softmax: must be 0"
    )
    scale: float = setting(32.0, "cosines are multiplied by it before the softmax; softmax: must be 1")
    shard: bool = setting(False, "true: the classes are sharded over all devices, for very many speakers")
    rank: int | None = setting(
        None, "of the matrix of the classes as a product of low rank; null: it is whole (docs/compression.md)"
    )


@dataclass
class PairwiseConfig:
    """A term beside the loss of the classes that compares crops with each other."""

    name: str = setting(
        "none",
        "angular_prototypical: crops of a class against those of the others in the micro-batch; none: no such term; "
        "choose with pairwise=...",
    )


@dataclass
class AngularPrototypicalConfig(PairwiseConfig):
    """Angular prototypical loss (Chung et al. 2020): the class of a crop is told by crops alone."""

    weight: float = setting(1.0, "of the term, added to the loss of the classes")
    crops: int = setting(2, "of a class that come together: one is compared with the mean of the others")
    scale: float = setting(10.0, "cosines are multiplied by it before the softmax: at the beginning, it is learnt")


@dataclass
class SubcenterLossConfig(LossConfig):
    """Angular margin with several centers a class, of which the closest counts."""

    centers: int = setting(3, "of each class; noisy labels gather at the others")


@dataclass
class TopKLossConfig(SubcenterLossConfig):
    """The same with a penalty on the classes that are closest to a crop and not its own."""

    top_k: int = setting(5, "classes that are made closer, for each crop")
    top_k_margin: float = setting(0.06, "radians by which, where the margin is 0.2; it grows with the margin")


@dataclass
class SphereFace2Config(LossConfig):
    """Binary classification of every class by itself."""

    balance: float = setting(0.7, "weight of the own class; that of each other is 1 - balance")
    power: int = setting(3, "cosines are spread by 2 ((cos + 1) / 2) ** power - 1")
    angular: bool = setting(False, "true: the margin is added to the angle; false: taken from the spread cosine")
