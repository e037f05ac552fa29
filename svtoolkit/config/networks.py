"""Settings of the networks: what all have in common, and what a family has of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from svtoolkit.config.setting import REQUIRED, setting


@dataclass
class ModelConfig:
    """The speaker embedding network: what all have in common, and all that most have."""

    name: str = setting(REQUIRED, "network; choose with model=... (`svt models` lists them)")
    embedding_dim: int = setting(256, "size of the speaker embedding")
    ranks: dict[str, Any] = setting(
        {},
        "layers whose matrix is a product of low rank, and that rank: {embedding:64}; docs/compression.md",
        by_name=True,
    )


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
class InvertibleConfig(ModelConfig):
    """A reversible network whose blocks can be inverted layer by layer."""

    slope: float = setting(0.1, "of leaky ReLU below 0 inside the blocks, above 0; near 0, inversion amplifies noise")
    norm_floor: float = setting(0.1, "least gain of BatchNorm inside the blocks: |weight| + norm_floor")


@dataclass
class RevNetConfig(InvertibleConfig):
    """A RevNet."""

    insides: str = setting(
        "standard",
        "of the blocks: standard (BatchNorm, ReLU, convolution), in_place (BatchNorm and leaky ReLU that can be "
        "inverted) or hybrid (with coupled convolutions, half the weights: all can be inverted); slope and norm_floor "
        "are of the last two",
    )


@dataclass
class ReversedResNetConfig(ResNetConfig):
    """A ResNet that runs reversibly, with the weights of an ordinary one."""

    name: str = setting("reversed_resnet34", "network; choose with model=... (`svt models` lists them)")
    remainder_bits: int = setting(
        4, "bits a value and block that are kept, 0, 1, 2, 4 or 8: the more, the nearer to the ResNet it is made of"
    )


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


MAP_CHANNELS = "channels of the map that is pooled"
DROPOUT = "share of values that training leaves out after an activation"


@dataclass
class TitaNetConfig(ModelConfig):
    """A TitaNet."""

    base_width: int | None = setting(None, "channels of the blocks; null: as published (256, 1024; speakernet: 512)")
    map_channels: int = setting(3072, MAP_CHANNELS)
    dropout: float = setting(0.1, DROPOUT)


@dataclass
class SpeakerNetConfig(TitaNetConfig):
    """A SpeakerNet."""

    map_channels: int = setting(1500, MAP_CHANNELS)
    dropout: float = setting(0.5, DROPOUT)


@dataclass
class OnnxConfig(ModelConfig):
    """An ONNX graph, of which a release says all."""

    graph_bytes: int = setting(1, "size of the file")
    output: str = setting("embs", "name of the embedding among its outputs")
    bins_first: bool = setting(False, "it takes (batch, bins, frames)")


@dataclass
class MembersConfig(ModelConfig):
    """An ensemble, of which a release says all."""

    members: list[dict[str, Any]] = setting([], "name and sizes of each network")


@dataclass
class TransformersXVectorConfig(ModelConfig):
    """An x-vector head of transformers, of which a release says all."""

    architecture: str = setting("WavLMForXVector", "class of transformers")
    config: dict[str, Any] = setting({}, "what its config.json says; a run may have other dropouts")
    freeze_encoder: bool = setting(True, "true: its convolutions over samples keep the weights that they begin with")


@dataclass
class RepVggConfig(ModelConfig):
    """A RepVGG."""

    deployed: bool = setting(False, "true: one convolution for the parallel ones of a block; to embed, not to train")


@dataclass
class SpeechBrainConfig(ModelConfig):
    """A network of SpeechBrain's."""

    base_width: int | None = setting(
        None, "channels of the first layers; null: as published (ECAPA-TDNN: 1024, x-vector: 512, ResNet: 128)"
    )


BLOCKS = "of the two-dimensional blocks: basic, excited (weights frequencies too), convnext or convnext_relu"
GROUPS = "channels of a group of their convolutions; 0: no groups"
TIME_BLOCK = "of the one-dimensional blocks: conv+att, conv, att or fc"
CHANNELS = "channels of the stem; a map has as many rows as bins times them"
REDIMNET_STAGES = [[1, 2, 1, 12], [2, 2, 1, 12], [1, 3, 1, 12], [2, 4, 1, 8], [1, 4, 1, 8], [2, 4, 1, 4]]
REDIMNET2_STAGES = [[1, 2, 4, 24], [2, 3, 3, 24], [1, 4, 2, 24, 2], [2, 5, 1, 24], [1, 4, 1, 24, 2], [2, 3, 1, 24]]


@dataclass
class ReDimNetSizesConfig(EmbeddingLayersConfig):
    """A ReDimNet of any size."""

    channels: int = setting(16, CHANNELS)
    kind: str = setting("convnext", BLOCKS)
    group_width: int = setting(4, GROUPS)
    stages: list[Any] = setting(
        REDIMNET_STAGES,
        "of each: stride, blocks, expansion, reduction (null: no one-dimensional block)",
    )
    time_block: str = setting("conv+att", TIME_BLOCK)
    out_channels: int | None = setting(None, "rows that a convolution leaves for the pooling; null: all")
    global_context: bool = setting(True, "the attention of the pooling sees the whole utterance")
    pooled_norm: bool = setting(False, "BatchNorm between pooling and embedding, as in IDRnD's code")
    embedding_norm: bool = setting(False, "BatchNorm of the embedding (IDRnD: emb_bn)")


@dataclass
class ReDimNet2SizesConfig(ModelConfig):
    """A ReDimNet2 of any size."""

    channels: int = setting(24, CHANNELS)
    kind: str = setting("basic", BLOCKS)
    group_width: int = setting(1, GROUPS)
    stages: list[Any] = setting(
        REDIMNET2_STAGES,
        "of each: stride, blocks, expansion, reduction, stride of time, kernels of convnext over (frequency, time)",
    )
    time_block: str = setting("conv+att", TIME_BLOCK)
    out_channels: int | None = setting(None, "channels that a convolution leaves for the pooling; null: all")
    pool_map: bool = setting(False, "bins remain in that convolution (Palabra AI: return_2d_output)")
    grouped_strides: bool = setting(True, "stages begin with a grouped convolution (compress_tconvs)")
    dual_maps: bool = setting(False, "stages give their map before the one-dimensional block, too (dual_agg)")
    map_norm: bool = setting(False, "GroupNorm of every map that is mixed (agg_gnorm)")
    frequency_embedding: bool = setting(False, "stages begin with a vector of every bin (use_freq_pos_enc)")
    global_context: bool = setting(True, "the attention of the pooling sees the whole utterance")
    embedding_norm: bool = setting(False, "BatchNorm of the embedding (emb_bn)")
    pad_frames: int = setting(0, "frames of zeros behind those of an utterance")
    skip_frames: int = setting(0, "frames at the beginning that are not pooled (before_pool_offset)")
