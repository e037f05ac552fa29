"""Settings of the networks: what all have in common, and what a family has of its own."""

from __future__ import annotations

from dataclasses import dataclass

from svtoolkit.config.setting import REQUIRED, setting


@dataclass
class ModelConfig:
    """The speaker embedding network: what all have in common, and all that most have."""

    name: str = setting(REQUIRED, "network; choose with model=... (`svt models` lists them)")
    embedding_dim: int = setting(256, "size of the speaker embedding")


POOLING_EPS = "added to the variance in the pooling; 1e-8 in 3D-Speaker's models and any ERes2NetV2, 0 in its CAM++"
EMBEDDING_LAYERS = "1, or 2 with ReLU and BatchNorm between them (WeSpeaker: two_emb_layer)"


@dataclass
class EmbeddingLayersConfig(ModelConfig):
    """A network that may have two layers after the pooling."""

    embedding_layers: int = setting(1, EMBEDDING_LAYERS)


@dataclass
class ResNetConfig(ModelConfig):
    """A ResNet."""

    name: str = setting("resnet34", "network; choose with model=... (`svt models` lists them)")
    base_width: int | None = setting(None, "channels of the first stage; null: as published (32; resnet10: 16)")
    embedding_layers: int = setting(1, EMBEDDING_LAYERS)
    pooling_eps: float = setting(1e-7, POOLING_EPS)


@dataclass
class PooledConfig(ModelConfig):
    """A network whose statistics pooling differs from toolkit to toolkit."""

    pooling_eps: float = setting(1e-7, POOLING_EPS)


@dataclass
class Res2NetConfig(PooledConfig):
    """A Res2Net or ERes2Net."""

    embedding_layers: int = setting(1, EMBEDDING_LAYERS)


@dataclass
class ERes2NetV2Config(Res2NetConfig):
    """An ERes2NetV2."""

    pooling_eps: float = setting(1e-8, "added to the variance in the pooling, as in 3D-Speaker")


@dataclass
class RepVggConfig(ModelConfig):
    """A RepVGG."""

    deployed: bool = setting(False, "true: one convolution for the parallel ones of a block; to embed, not to train")
