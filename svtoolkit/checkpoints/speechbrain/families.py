"""The layouts of SpeechBrain's networks for speakers (speechbrain/lobes/models): a row a family."""

from __future__ import annotations

from svtoolkit.checkpoints.layout import Layout, Part

_LINEAR = "(weight|bias)"
_BATCH_NORM = "(weight|bias|running_mean|running_var|num_batches_tracked)"
_SHORTCUT = rf"0\.weight|1\.{_BATCH_NORM}"


def _unit(ours: str, theirs: str) -> tuple[Part, Part]:
    """A TDNNBlock."""
    return (
        Part(f"{ours}conv.", f"{theirs}conv.conv.", _LINEAR),
        Part(f"{ours}bn.", f"{theirs}norm.norm.", _BATCH_NORM),
    )


def _block(stage: int) -> tuple[Part, ...]:
    """A SERes2NetBlock of an ECAPA-TDNN."""
    ours, theirs = f"stages.{stage}.", f"blocks.{stage + 1}."
    return (
        *_unit(f"{ours}0.", f"{theirs}tdnn1."),
        *_unit(f"{ours}1.units.#.", f"{theirs}res2net_block.blocks.#."),
        *_unit(f"{ours}2.", f"{theirs}tdnn2."),
        Part(f"{ours}3.linear#.", f"{theirs}se_block.conv#.conv.", _LINEAR, pointwise=True),
    )


ECAPA_TDNN = Layout(
    "ECAPA-TDNN with mfa and asp",
    "blocks, mfa, asp, asp_bn and fc",
    (
        *_unit("stem.", "blocks.0."),
        *(part for stage in range(3) for part in _block(stage)),
        *_unit("aggregation.", "mfa."),
        Part("pooling.linear1.", "asp.tdnn.conv.conv.", _LINEAR),
        Part("pooling.bn.", "asp.tdnn.norm.norm.", _BATCH_NORM),
        Part("pooling.linear2.", "asp.conv.conv.", _LINEAR),
        Part("embedding.0.", "asp_bn.norm.", _BATCH_NORM),
        Part("embedding.1.", "fc.conv.", _LINEAR, pointwise=True),
    ),
)

_XVECTOR = Layout(
    "x-vector network",
    "blocks.0 to blocks.16",
    (
        *(Part(f"stages.{stage}.conv.", f"blocks.{3 * stage}.conv.", _LINEAR) for stage in range(5)),
        *(Part(f"stages.{stage}.bn.", f"blocks.{3 * stage + 2}.norm.", _BATCH_NORM) for stage in range(5)),
        Part("embedding.", "blocks.16.w.", _LINEAR),
    ),
)

_RESNET = Layout(
    "ResNet",
    "conv1, bn1, layer1 to layer4, attention, norm_stats, fc_embed and norm_embed",
    (
        Part("stem.0.", "conv1.", "weight"),
        Part("stem.1.", "bn1.", _BATCH_NORM),
        *(Part(f"stages.{i}.#.", f"layer{i + 1}.#.", rf"conv[123]\.weight|bn[123]\.{_BATCH_NORM}") for i in range(4)),
        *(
            Part(
                f"stages.{i}.#.shortcut.", f"layer{i + 1}.#.downsample.", rf"0\.weight|1\.{_BATCH_NORM}", optional=i < 2
            )
            for i in range(4)
        ),
        *(
            Part(f"stages.{i}.#.excitation.{ours}.", f"layer{i + 1}.#.se.{theirs}.", _LINEAR)
            for i in range(2)
            for ours, theirs in (("linear1", "fc.0"), ("linear2", "fc.2"))
        ),
        Part("pooling.attention.", "attention.", rf"[03]\.{_LINEAR}|2\.{_BATCH_NORM}"),
        Part("embedding.0.", "norm_stats.", _BATCH_NORM),
        Part("embedding.1.", "fc_embed.", _LINEAR),
        Part("embedding.2.", "norm_embed.", _BATCH_NORM),
    ),
)

LAYOUTS = (ECAPA_TDNN, _XVECTOR, _RESNET)
"""Where two fit equally well, the first is meant."""
