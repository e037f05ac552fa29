"""Every network by name: one row each. A family is imported when one of its networks is built."""

from __future__ import annotations

from typing import Any

from svtoolkit.config import (
    EmbeddingLayersConfig,
    ERes2NetV2Config,
    InvertibleConfig,
    MembersConfig,
    ModelConfig,
    OnnxConfig,
    PooledConfig,
    ReDimNet2SizesConfig,
    ReDimNetSizesConfig,
    RepVggConfig,
    Res2NetConfig,
    ResNetConfig,
    ReversedResNetConfig,
    RevNetConfig,
    SpeakerNetConfig,
    SpeechBrainConfig,
    TitaNetConfig,
    TransformersXVectorConfig,
)
from svtoolkit.errors import UserError
from svtoolkit.registry import Registry, Row

Blocks = tuple[int, int, int, int]
"""Of the four stages."""


def _resnet(block: str, blocks: Blocks, **arguments: Any) -> Row:
    arguments = {"block": block, "blocks": blocks, **arguments}
    return Row("svtoolkit.models.resnet:build_resnet", ResNetConfig, arguments, "ResNet")


def _reversed_resnet(block: str, blocks: Blocks) -> Row:
    arguments = {"block": block, "blocks": blocks}
    target = "svtoolkit.models.reversed_resnet:build_reversed_resnet"
    return Row(target, ReversedResNetConfig, arguments, "reversed ResNet")


def _revnet(kind: str, block: str, channels: Blocks, blocks: Blocks, **arguments: Any) -> Row:
    arguments = {"kind": kind, "block": block, "channels": channels, "blocks": blocks, **arguments}
    return Row("svtoolkit.models.revnet:build_revnet", RevNetConfig, arguments, "RevNet")


def _revnext(width: int, blocks: Blocks, **arguments: Any) -> Row:
    arguments = {"width": width, "blocks": blocks, **arguments}
    return Row("svtoolkit.models.revnext:build_revnext", InvertibleConfig, arguments, "RevNeXt")


def _df_revnet(kind: str, blocks: Blocks) -> Row:
    arguments = {"kind": kind, "blocks": blocks}
    return Row("svtoolkit.models.revnet:build_df_revnet", ModelConfig, arguments, "DF-RevNet")


def _df_resnet(blocks: Blocks, *, gemini: bool = False) -> Row:
    arguments = {"blocks": blocks, "gemini": gemini}
    return Row("svtoolkit.models.df_resnet:build_df_resnet", EmbeddingLayersConfig, arguments, "DF-ResNet")


def _ecapa_tdnn(channels: int, *, global_context: bool = False) -> Row:
    arguments = {"channels": channels, "global_context": global_context}
    return Row("svtoolkit.models.ecapa_tdnn:EcapaTdnn", ModelConfig, arguments, "ECAPA-TDNN")


def _res2net(width: int) -> Row:
    return Row("svtoolkit.models.eres2net:build_res2net", Res2NetConfig, {"width": width}, "Res2Net")


def _eres2net(width: int, **arguments: Any) -> Row:
    return Row("svtoolkit.models.eres2net:ERes2Net", Res2NetConfig, {"width": width, **arguments}, "ERes2Net")


def _eres2netv2(**arguments: int) -> Row:
    return Row("svtoolkit.models.eres2net:build_eres2netv2", ERes2NetV2Config, {"width": 64, **arguments}, "ERes2NetV2")


def _speechbrain(target: str, family: str, **arguments: Any) -> Row:
    return Row(f"svtoolkit.models.{target}", SpeechBrainConfig, arguments, f"{family} (SpeechBrain)")


def _simam_resnet(blocks: Blocks) -> Row:
    return Row("svtoolkit.models.simam_resnet:build_simam_resnet", ModelConfig, {"blocks": blocks}, "SimAM-ResNet")


def _repvgg(blocks: Blocks, widths: Blocks, **arguments: Any) -> Row:
    arguments = {"blocks": blocks, "widths": widths, **arguments}
    return Row("svtoolkit.models.repvgg:build_repvgg", RepVggConfig, arguments, "RepVGG")


def _titanet(width: int) -> Row:
    return Row("svtoolkit.models.titanet:build_titanet", TitaNetConfig, {"width": width}, "TitaNet")


def _redimnet(channels: int, kind: str, group_width: int, *stages: tuple[int | None, ...]) -> Row:
    """``stages``: of each its stride, blocks, expansion and reduction, one column after the other."""
    rows = tuple(zip(*stages, strict=True))
    arguments = {"channels": channels, "kind": kind, "group_width": group_width, "stages": rows}
    return Row("svtoolkit.models.redimnet:ReDimNet", EmbeddingLayersConfig, arguments, "ReDimNet")


def _redimnet2(channels: int, out_channels: int | None, *stages: tuple[float, ...], pool_map: bool = False) -> Row:
    """``stages``: as of a ReDimNet; the third and the fifth halve time."""
    rows = tuple(zip(*stages, (1, 1, 2, 1, 2, 1), strict=True))
    arguments = {"channels": channels, "out_channels": out_channels, "stages": rows, "pool_map": pool_map}
    return Row("svtoolkit.models.redimnet2:ReDimNet2", ModelConfig, arguments, "ReDimNet2")


NETWORKS = Registry(
    "network",
    "svtoolkit.models",
    {
        # for two CPU cores: narrow, and the stem halves the frequency axis
        "resnet10": _resnet("basic", (1, 1, 1, 1), width=16, stem_stride=(2, 1)),
        # WeSpeaker, examples/voxceleb/v2
        "resnet18": _resnet("basic", (2, 2, 2, 2)),
        "resnet34": _resnet("basic", (3, 4, 6, 3)),
        "resnet50": _resnet("bottleneck", (3, 4, 6, 3)),
        "resnet101": _resnet("bottleneck", (3, 4, 23, 3)),
        "resnet152": _resnet("bottleneck", (3, 8, 36, 3)),
        "resnet221": _resnet("bottleneck", (6, 16, 48, 3)),
        "resnet293": _resnet("bottleneck", (10, 20, 64, 3)),
        # the same, reversibly: `svt reverse`
        "reversed_resnet34": _reversed_resnet("basic", (3, 4, 6, 3)),
        "reversed_resnet50": _reversed_resnet("bottleneck", (3, 4, 6, 3)),
        "reversed_resnet101": _reversed_resnet("bottleneck", (3, 4, 23, 3)),
        "reversed_resnet152": _reversed_resnet("bottleneck", (3, 8, 36, 3)),
        "reversed_resnet221": _reversed_resnet("bottleneck", (6, 16, 48, 3)),
        "reversed_resnet293": _reversed_resnet("bottleneck", (10, 20, 64, 3)),
        # the reversible counterpart of resnet10
        "revnet_tiny": _revnet("II", "basic", (16, 32, 64, 128), (1, 2, 3, 1), stem_stride=(2, 1)),
        # Liu & Qian, tables III (RevNet) and IV (DF-RevNet)
        "revnet46": _revnet("I", "basic", (48, 96, 192, 300), (2, 3, 5, 3)),
        "revnet57": _revnet("II", "basic", (48, 96, 192, 300), (2, 3, 5, 3)),
        "revnet126": _revnet("I", "basic", (48, 96, 192, 384), (3, 4, 23, 3)),
        "revnet137": _revnet("II", "basic", (48, 96, 192, 384), (3, 4, 23, 3)),
        "revnet140": _revnet("I", "bottleneck", (48, 96, 192, 300), (3, 4, 15, 3)),
        "revnet155": _revnet("II", "bottleneck", (48, 96, 192, 300), (3, 4, 15, 3)),
        "revnet178": _revnet("I", "basic", (48, 96, 192, 384), (3, 8, 32, 3)),
        "revnet197": _revnet("II", "basic", (48, 96, 192, 384), (3, 8, 34, 3)),
        "revnet230": _revnet("I", "bottleneck", (48, 96, 192, 300), (3, 8, 26, 3)),
        "revnet245": _revnet("II", "bottleneck", (48, 96, 192, 300), (3, 8, 26, 3)),
        "df_revnet66": _df_revnet("I", (3, 3, 5, 3)),
        "df_revnet89": _df_revnet("II", (3, 3, 5, 3)),
        "df_revnet126": _df_revnet("I", (3, 3, 15, 3)),
        "df_revnet149": _df_revnet("II", (3, 3, 15, 3)),
        "df_revnet258": _df_revnet("I", (3, 8, 32, 3)),
        "df_revnet281": _df_revnet("II", (3, 8, 32, 3)),
        "df_revnet354": _df_revnet("I", (3, 8, 48, 3)),
        "df_revnet377": _df_revnet("II", (3, 8, 48, 3)),
        # Hascoet et al. 2023, with the blocks, and of about the size, of RevNet57, RevNet137 and revnet_tiny
        "revnext_tiny": _revnext(12, (1, 2, 3, 1), stem_stride=(2, 1)),
        "revnext57": _revnext(24, (2, 3, 5, 3)),
        "revnext137": _revnext(20, (3, 4, 23, 3)),
        # Liu et al., "DF-ResNet", Interspeech 2022
        "df_resnet56": _df_resnet((3, 3, 9, 3)),
        "df_resnet110": _df_resnet((3, 3, 27, 3)),
        "df_resnet179": _df_resnet((3, 8, 45, 3)),
        "df_resnet233": _df_resnet((3, 8, 63, 3)),
        # WeSpeaker, wespeaker/models/gemini_dfresnet.py
        "gemini_df_resnet60": _df_resnet((3, 3, 9, 3), gemini=True),
        "gemini_df_resnet114": _df_resnet((3, 3, 27, 3), gemini=True),
        "gemini_df_resnet183": _df_resnet((3, 8, 45, 3), gemini=True),
        "gemini_df_resnet237": _df_resnet((3, 8, 63, 3), gemini=True),
        # WeSpeaker, wespeaker/models/ecapa_tdnn.py
        "ecapa_tdnn_c512": _ecapa_tdnn(512),
        "ecapa_tdnn_c1024": _ecapa_tdnn(1024),
        "ecapa_tdnn_glob_c512": _ecapa_tdnn(512, global_context=True),
        "ecapa_tdnn_glob_c1024": _ecapa_tdnn(1024, global_context=True),
        # 3D-Speaker, WeSpeaker: wespeaker/models/campplus.py
        "campplus": Row("svtoolkit.models.campplus:CamPlusPlus", PooledConfig, help="CAM++"),
        # 3D-Speaker, WeSpeaker: wespeaker/models/eres2net.py, res2net.py
        "res2net34_base": _res2net(32),
        "res2net34_large": _res2net(64),
        "eres2net34_base": _eres2net(32),
        "eres2net34_large": _eres2net(64),
        "eres2net34_aug": _eres2net(64, base_width=24, scale=3, expansion=4),
        # 3D-Speaker, speakerlab/models/eres2net/ERes2NetV2.py
        "eres2netv2": _eres2netv2(base_width=26, scale=2, expansion=2),
        "eres2netv2_w24s4ep4": _eres2netv2(base_width=24, scale=4, expansion=4),
        # VoxBlink2, WeSpeaker: wespeaker/models/samresnet.py
        "simam_resnet34": _simam_resnet((3, 4, 6, 3)),
        "simam_resnet100": _simam_resnet((6, 16, 24, 3)),
        # Kaldi, WeSpeaker: wespeaker/models/tdnn.py
        "xvector": Row("svtoolkit.models.xvector:XVector", help="x-vector"),
        # WeSpeaker, wespeaker/models/repvgg.py
        "repvgg_tiny_a0": _repvgg((3, 4, 23, 3), (32, 64, 128, 256)),
        "repvgg_tiny_rsbb_a0": _repvgg((3, 4, 23, 3), (32, 64, 128, 256), dilated=True),
        "repvgg_a0": _repvgg((2, 4, 14, 1), (48, 96, 192, 1280)),
        "repvgg_rsbb_a0": _repvgg((2, 4, 14, 1), (48, 96, 192, 1280), dilated=True),
        "repvgg_a1": _repvgg((2, 4, 14, 1), (64, 128, 256, 1280)),
        "repvgg_a2": _repvgg((2, 4, 14, 1), (96, 192, 384, 1408)),
        "repvgg_rsbb_a2": _repvgg((2, 4, 14, 1), (96, 192, 384, 1408), dilated=True),
        "repvgg_b0": _repvgg((4, 6, 16, 1), (64, 128, 256, 1280)),
        "repvgg_rsbb_b0": _repvgg((4, 6, 16, 1), (64, 128, 256, 1280), dilated=True),
        "repvgg_b1": _repvgg((4, 6, 16, 1), (128, 256, 512, 2048)),
        "repvgg_b1g2": _repvgg((4, 6, 16, 1), (128, 256, 512, 2048), groups=2),
        "repvgg_b1g4": _repvgg((4, 6, 16, 1), (128, 256, 512, 2048), groups=4),
        "repvgg_b2": _repvgg((4, 6, 16, 1), (160, 320, 640, 2560)),
        "repvgg_b2g2": _repvgg((4, 6, 16, 1), (160, 320, 640, 2560), groups=2),
        "repvgg_b2g4": _repvgg((4, 6, 16, 1), (160, 320, 640, 2560), groups=4),
        "repvgg_b3": _repvgg((4, 6, 16, 1), (192, 384, 768, 2560)),
        "repvgg_b3g2": _repvgg((4, 6, 16, 1), (192, 384, 768, 2560), groups=2),
        "repvgg_b3g4": _repvgg((4, 6, 16, 1), (192, 384, 768, 2560), groups=4),
        "repvgg_d2se": _repvgg((8, 14, 24, 1), (160, 320, 640, 2560), groups=4, excited=True),
        # IDRnD, WeSpeaker: wespeaker/models/redimnet.py; 60 bins in b0, 72 in the others
        "redimnet_b0": _redimnet(
            10, "basic", 1, (1, 2, 1, 2, 1), (2, 3, 3, 4, 3), (1, 2, 3, 2, 1), (30, 30, 30, 10, 10)
        ),
        "redimnet_b1": _redimnet(
            12, "convnext", 8, (1, 2, 3, 2, 2), (2, 3, 4, 5, 3), (1, 1, 1, 1, 1), (None, None, 12, 12, 8)
        ),
        "redimnet_b2": _redimnet(
            16, "convnext", 4, (1, 2, 1, 2, 1, 2), (2, 2, 3, 4, 4, 4), (1, 1, 1, 1, 1, 1), (12, 12, 12, 8, 8, 4)
        ),
        "redimnet_b3": _redimnet(
            16, "excited", 1, (1, 2, 1, 2, 1, 2), (6, 6, 8, 10, 10, 8), (4, 2, 2, 2, 1, 1), (32, 32, 32, 16, 16, 16)
        ),
        "redimnet_b4": _redimnet(
            32, "excited", 1, (1, 2, 1, 2, 1, 2), (4, 4, 6, 6, 8, 4), (2, 2, 2, 1, 1, 1), (48, 48, 48, 32, 24, 16)
        ),
        "redimnet_b5": _redimnet(
            32, "excited", 16, (1, 2, 1, 2, 1, 2), (4, 4, 6, 6, 8, 4), (2, 2, 2, 1, 1, 1), (48, 48, 48, 32, 24, 16)
        ),
        "redimnet_b6": _redimnet(
            32, "basic", 32, (1, 2, 1, 3, 1, 2), (4, 6, 6, 8, 8, 8), (4, 2, 2, 1, 1, 1), (32, 32, 24, 24, 16, 16)
        ),
        # Palabra AI, WeSpeaker: wespeaker/models/redimnet2.py; 72 bins
        "redimnet2_b0": _redimnet2(
            12, 64, (1, 2, 1, 2, 1, 2), (2, 3, 4, 5, 4, 3), (2, 1, 1, 1, 1, 1), (36, 36, 36, 36, 18, 18)
        ),
        "redimnet2_b1": _redimnet2(
            16, 64, (1, 2, 1, 2, 1, 2), (2, 3, 4, 5, 4, 3), (2, 1, 1, 1, 1, 1), (32, 32, 32, 32, 16, 16)
        ),
        "redimnet2_b2": _redimnet2(
            20, 64, (1, 2, 1, 3, 1, 2), (2, 3, 4, 5, 4, 3), (2, 1, 1, 1, 1, 1), (40, 30, 30, 20, 20, 10)
        ),
        "redimnet2_b3": _redimnet2(
            24, 64, (1, 2, 1, 2, 1, 2), (2, 3, 4, 5, 4, 3), (2, 1, 1, 1, 1, 1), (36, 36, 36, 36, 18, 18)
        ),
        "redimnet2_b4": _redimnet2(
            32, None, (1, 2, 1, 2, 1, 2), (2, 3, 4, 5, 4, 3), (4, 3, 2, 1, 1, 1), (24, 24, 24, 24, 24, 24)
        ),
        "redimnet2_b5": _redimnet2(
            48, 256, (1, 2, 1, 2, 1, 2), (2, 3, 4, 5, 4, 3), (4, 3, 2, 1, 1, 1), (48, 48, 48, 48, 32, 32)
        ),
        "redimnet2_b6": _redimnet2(
            64,
            224,
            (1, 2, 1, 2, 1, 2),
            (3, 4, 5, 5, 4, 3),
            (3, 2, 2, 1, 0.75, 0.5),
            (64, 64, 48, 48, 32, 24),
            pool_map=True,
        ),
        # SpeechBrain, speechbrain/lobes/models; with features=sb80, the x-vector with sb24
        "sb_ecapa_tdnn": _speechbrain("speechbrain_tdnn:SpeechBrainEcapaTdnn", "ECAPA-TDNN", width=1024),
        "sb_xvector": _speechbrain("speechbrain_tdnn:SpeechBrainXVector", "x-vector", width=512, pooled=1500),
        "sb_resnet": _speechbrain("speechbrain_resnet:SpeechBrainResNet", "ResNet", width=128, blocks=(3, 4, 6, 3)),
        # of any size, as the model_config of a released file describes one
        "redimnet": Row("svtoolkit.models.redimnet:ReDimNet", ReDimNetSizesConfig, help="ReDimNet"),
        "redimnet2": Row("svtoolkit.models.redimnet2:ReDimNet2", ReDimNet2SizesConfig, help="ReDimNet2"),
        # NeMo, examples/speaker_tasks/recognition/conf; with features=nemo80, speakernet of 64 bins
        "titanet_small": _titanet(256),
        "titanet_large": _titanet(1024),
        "speakernet": Row("svtoolkit.models.titanet:build_speakernet", SpeakerNetConfig, help="SpeakerNet"),
        # Resemblyzer; with features=res40
        "ge2e_lstm": Row("svtoolkit.models.ge2e:GE2ENetwork", ModelConfig, {"hidden": 256, "layers": 3}, "GE2E LSTM"),
    },
    ModelConfig,
)
"""Name -> how the network is built. A target takes ``num_bins``, ``embedding_dim``, the further fields of its settings
and the row's arguments by keyword, raises ValueError where they make no network, and returns an nn.Module: (batch,
frames, num_bins) -> (batch, embedding_dim)."""


RELEASED_NETWORKS: dict[str, Row] = {
    "ensemble": Row("svtoolkit.models.ensemble:Ensemble", MembersConfig, help="an ensemble"),
    "onnx": Row("svtoolkit.models.onnx_network:OnnxNetwork", OnnxConfig, help="an ONNX graph"),
    "transformers_xvector": Row(
        "svtoolkit.models.transformers_xvector:TransformersXVector",
        TransformersXVectorConfig,
        help="an x-vector head of transformers",
    ),
}
"""Networks that exist as releases alone, of other toolkits or of several networks: loaded, and not chosen by name."""

FINE_TUNED = frozenset({"transformers_xvector"})
"""Those of them that a run may begin with."""


def check_trainable(name: str, file: object) -> None:
    """Refuse a network that is loaded, and never trained.

    Args:
        file: that names it, for the message.

    Raises:
        UserError: it is one of ``RELEASED_NETWORKS`` that is not of ``FINE_TUNED``.
    """
    if name in RELEASED_NETWORKS and name not in FINE_TUNED:
        what = RELEASED_NETWORKS[name].help
        raise UserError(f"{file}: its network is {what}, which cannot be trained; begin with another release")
