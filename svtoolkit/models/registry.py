"""Every network by name: one row each. A family is imported when one of its networks is built."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from svtoolkit.config import ModelConfig, ResNetConfig
from svtoolkit.config.limits import explain_excess
from svtoolkit.errors import UserError
from svtoolkit.registry import Registry, Row, check_settings, defaults

if TYPE_CHECKING:
    from svtoolkit.models.speaker_network import SpeakerNetwork

Blocks = tuple[int, int, int, int]
"""Of the four stages."""


def _resnet(block: str, blocks: Blocks, **arguments: Any) -> Row:
    arguments = {"block": block, "blocks": blocks, **arguments}
    return Row("svtoolkit.models.resnet:build_resnet", ResNetConfig, arguments, "ResNet")


def _revnet(kind: str, block: str, channels: Blocks, blocks: Blocks, **arguments: Any) -> Row:
    arguments = {"kind": kind, "block": block, "channels": channels, "blocks": blocks, **arguments}
    return Row("svtoolkit.models.revnet:build_revnet", ModelConfig, arguments, "RevNet")


def _df_revnet(kind: str, blocks: Blocks) -> Row:
    arguments = {"kind": kind, "blocks": blocks}
    return Row("svtoolkit.models.revnet:build_df_revnet", ModelConfig, arguments, "DF-RevNet")


def _df_resnet(blocks: Blocks, *, gemini: bool = False) -> Row:
    arguments = {"blocks": blocks, "gemini": gemini}
    return Row("svtoolkit.models.df_resnet:build_df_resnet", ModelConfig, arguments, "DF-ResNet")


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
        # Resemblyzer; with features=res40
        "ge2e_lstm": Row("svtoolkit.models.ge2e:GE2ENetwork", ModelConfig, {"hidden": 256, "layers": 3}, "GE2E LSTM"),
    },
    ModelConfig,
)
"""Name -> how the network is built. A target takes ``num_bins``, ``embedding_dim``, the further fields of its settings
and the row's arguments by keyword, raises ValueError where they make no network, and returns an nn.Module: (batch,
frames, num_bins) -> (batch, embedding_dim)."""


def list_models() -> list[str]:
    """Names that ``build_model`` knows."""
    return list(NETWORKS)


def build_model(name: str, *, num_bins: int = 80, embedding_dim: int = 256, **options: Any) -> SpeakerNetwork:
    """Build a network with fresh weights.

    Args:
        name: one of ``list_models()``.
        num_bins: mel bins of the input.
        embedding_dim: size of the embedding.
        options: of the family; ResNet: ``base_width``, channels of the first stage. None: as published, of any family.

    Returns:
        a module with input (batch, frames, num_bins), output (batch, embedding_dim) and an attribute ``embedding_dim``.

    Raises:
        UserError: unknown name or option (with the nearest known one), a size that is no whole number above 0, or
            what a package of the user's own built is no such module.
    """
    row = NETWORKS[name]
    settings = row.settings or ModelConfig
    ours = {key for ours in NETWORKS.rows.values() for key in defaults(ours.settings or ModelConfig)}
    given = {key: value for key, value in options.items() if value is not None or key not in ours}
    given |= {"num_bins": num_bins, "embedding_dim": embedding_dim}
    check_settings(f"network {name}", settings, given, beside={"num_bins": int})
    for key in ("num_bins", "embedding_dim"):
        if given[key] < 1:
            raise UserError(f"network {name}: {key} is {given[key]!r}, expected a whole number of 1 or more")
    for key, value in given.items():
        if problem := explain_excess("num_bins" if key == "num_bins" else f"model.{key}", value):
            raise UserError(f"network {name}: {key} is {value!r}, {problem}")
    try:
        network: SpeakerNetwork = NETWORKS.load(name)(**{**defaults(settings), **given, **row.arguments})
    except ValueError as error:
        raise UserError(f"network {name}: {error}") from error
    if getattr(network, "embedding_dim", None) != embedding_dim:
        raise UserError(
            f"network {name}: {row.target} built a {type(network).__name__} whose attribute embedding_dim is "
            f"{getattr(network, 'embedding_dim', 'missing')}, expected {embedding_dim}"
        )
    return network
