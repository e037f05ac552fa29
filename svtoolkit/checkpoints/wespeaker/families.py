"""The layouts of WeSpeaker's networks (wespeaker/models): a row or two a family."""

from __future__ import annotations

from collections.abc import Sequence

from svtoolkit.checkpoints.layout import Layout, Part
from svtoolkit.checkpoints.redimnet_names import REDIMNET_PARTS

_LINEAR = "(weight|bias)"
_STATISTICS = "(running_mean|running_var|num_batches_tracked)"
_BATCH_NORM = "(weight|bias|running_mean|running_var|num_batches_tracked)"
_CONV_AND_BATCH_NORM = rf"(0\.weight|1\.{_BATCH_NORM})"
_SHORTCUT = rf"shortcut\.{_CONV_AND_BATCH_NORM}"

_BLOCK = rf"(conv[123]\.weight|bn[123]\.{_BATCH_NORM})"

_STEM = (Part("stem.0.", "conv1.", "weight"), Part("stem.1.", "bn1.", _BATCH_NORM))
_ONE_EMBEDDING = (Part("embedding.", "seg_1.", _LINEAR),)
_TWO_EMBEDDINGS = (
    Part("embedding.0.", "seg_1.", _LINEAR),
    Part("embedding.2.", "seg_bn_1.", _STATISTICS),
    Part("embedding.3.", "seg_2.", _LINEAR),
)


def _stages(pattern: str) -> tuple[Part, ...]:
    """Four of them, counted from 0 by us and from 1 by them."""
    return tuple(Part(f"stages.{stage}.#.", f"layer{stage + 1}.#.", pattern) for stage in range(4))


def _with_embeddings(network: str, expected: str, parts: tuple[Part, ...]) -> tuple[Layout, Layout]:
    """The layouts of a network with one embedding layer and with two."""
    return (
        Layout(f"{network} with one embedding layer", f"{expected} and seg_1", (*parts, *_ONE_EMBEDDING)),
        Layout(
            f"{network} with two embedding layers",
            f"{expected}, seg_1, seg_bn_1 and seg_2",
            (*parts, *_TWO_EMBEDDINGS),
        ),
    )


RESNETS = _with_embeddings("ResNet", "conv1, bn1, layer1 to layer4", (*_STEM, *_stages(f"{_BLOCK}|{_SHORTCUT}")))
# Their stem is downsample_layers.0; the downsampling that a stage of ours begins with is one more of these.
_GEMINIS = _with_embeddings(
    "Gemini-DF-ResNet",
    "downsample_layers.0 to downsample_layers.4, stages.0 to stages.3",
    (
        Part("stem.", "downsample_layers.0.", _CONV_AND_BATCH_NORM),
        *(Part(f"stages.{i}.0.", f"downsample_layers.{i + 1}.", _CONV_AND_BATCH_NORM) for i in range(4)),
        *(Part(f"stages.{stage}.#.", f"stages.{stage}.#.", _BLOCK, shift=1) for stage in range(4)),
    ),
)

_TDNN_UNIT = rf"(conv\.{_LINEAR}|bn\.{_BATCH_NORM})"
_ECAPA_TDNN = Layout(
    "ECAPA-TDNN",
    "layer1 to layer4, conv, pool, bn and linear",
    (
        Part("stem.", "layer1.", _TDNN_UNIT),
        *(
            Part(
                f"stages.{stage}.",
                f"layer{stage + 2}.se_res2block.",
                rf"([02]\.{_TDNN_UNIT}|1\.(convs\.\d+\.{_LINEAR}|bns\.\d+\.{_BATCH_NORM})|3\.linear[12]\.{_LINEAR})",
            )
            for stage in range(3)
        ),
        Part("aggregation.", "conv.", _LINEAR),
        Part("pooling.", "pool.", rf"linear[12]\.{_LINEAR}"),
        Part("embedding.0.", "bn.", _BATCH_NORM),
        Part("embedding.1.", "linear.", _LINEAR),
    ),
)

_DENSE_LAYER = (
    rf"(nonlinear[12]\.batchnorm\.{_BATCH_NORM}|linear1\.weight"
    rf"|cam_layer\.(linear_local\.weight|linear[12]\.{_LINEAR}))"
)
_LINEAR_AND_BATCH_NORM = rf"(linear\.weight|nonlinear\.batchnorm\.{_BATCH_NORM})"
# Their layers are counted from 1.
CAMPPLUS = Layout(
    "CAM++",
    "head and xvector",
    (
        Part("head.", "head.", rf"(conv[12]\.weight|bn[12]\.{_BATCH_NORM}|layer[12]\.[01]\.({_BLOCK}|{_SHORTCUT}))"),
        Part("stem.", "xvector.tdnn.", _LINEAR_AND_BATCH_NORM),
        *(
            part
            for stage in range(3)
            for part in (
                Part(f"stages.{stage}.layers.#.", f"xvector.block{stage + 1}.tdnnd#.", _DENSE_LAYER, shift=-1),
                Part(f"stages.{stage}.transition.", f"xvector.transit{stage + 1}.", _LINEAR_AND_BATCH_NORM),
            )
        ),
        Part("last.", "xvector.out_nonlinear.", rf"batchnorm\.{_BATCH_NORM}"),
        Part("embedding.linear.", "xvector.dense.linear.", "weight"),
        Part("embedding.batchnorm.", "xvector.dense.nonlinear.batchnorm.", _STATISTICS),
    ),
)

_RES2_OUTER = rf"(conv[13]\.weight|bn[13]\.{_BATCH_NORM})|{_SHORTCUT}"
_RES2_INNER = rf"convs\.\d+\.weight|bns\.\d+\.{_BATCH_NORM}"
RES2NETS = _with_embeddings(
    "Res2Net",
    "conv1, bn1, layer1 to layer4 with convs and bns",
    (*_STEM, *_stages(f"{_RES2_OUTER}|{_RES2_INNER}")),
)
_FUSION = rf"local_att\.([03]\.{_LINEAR}|[14]\.{_BATCH_NORM})"


def _fused_stage(stage: int) -> tuple[Part, ...]:
    """Blocks whose first group has names of its own in WeSpeaker."""
    ours, theirs = f"stages.{stage}.#.", f"layer{stage + 1}.#."
    return (
        Part(ours, theirs, rf"{_RES2_OUTER}|fuse_models\.\d+\.{_FUSION}"),
        Part(f"{ours}convs.0.", f"{theirs}conv2_1.", "weight"),
        Part(f"{ours}bns.0.", f"{theirs}bn2_1.", _BATCH_NORM),
        Part(f"{ours}convs.#.", f"{theirs}convs.#.", "weight", shift=1),
        Part(f"{ours}bns.#.", f"{theirs}bns.#.", _BATCH_NORM, shift=1),
    )


def eres2nets(network: str, downsamplings: Sequence[str], fusions: Sequence[str]) -> tuple[Layout, Layout]:
    """Layouts of an ERes2Net whose blocks have one list of groups, as in 3D-Speaker.

    Args:
        network: what it is called.
        downsamplings, fusions: names of these layers.
    """
    blocks = rf"{_RES2_OUTER}|{_RES2_INNER}"
    return _with_embeddings(
        network,
        f"conv1, bn1, layer1 to layer4, {', '.join([*downsamplings, *fusions])}",
        (
            *_STEM,
            *_stages(blocks)[:2],
            *_stages(rf"{blocks}|fuse_models\.\d+\.{_FUSION}")[2:],
            *(Part(f"downsamplings.{index}.", f"{name}.", "weight") for index, name in enumerate(downsamplings)),
            *(Part(f"fusions.{index}.", f"{name}.", _FUSION) for index, name in enumerate(fusions)),
        ),
    )


_ERES2NETS = _with_embeddings(
    "ERes2Net",
    "conv1, bn1, layer1 to layer4, layer1_downsample to layer3_downsample, fuse_mode12 to fuse_mode1234",
    (
        *_STEM,
        *_stages(f"{_RES2_OUTER}|{_RES2_INNER}")[:2],
        *_fused_stage(2),
        *_fused_stage(3),
        *(Part(f"downsamplings.{i}.", f"layer{i + 1}_downsample.", "weight") for i in range(3)),
        *(Part(f"fusions.{i}.", f"fuse_mode{'1234'[: i + 2]}.", _FUSION) for i in range(3)),
    ),
)

_SIMAM_RESNET = Layout(
    "SimAM-ResNet with ASP",
    "front, pooling.attention and bottleneck",
    (
        Part("stem.0.", "front.conv1.", "weight"),
        Part("stem.1.", "front.bn1.", _BATCH_NORM),
        *(Part(f"stages.{i}.#.", f"front.layer{i + 1}.#.", _BLOCK) for i in range(4)),
        *(
            Part(f"stages.{i}.#.shortcut.", f"front.layer{i + 1}.#.downsample.", _CONV_AND_BATCH_NORM, optional=True)
            for i in range(4)
        ),
        Part("pooling.attention.", "pooling.attention.", rf"[03]\.{_LINEAR}|2\.{_BATCH_NORM}"),
        Part("embedding.", "bottleneck.", _LINEAR),
    ),
)
_XVECTOR = Layout(
    "x-vector network",
    "frame_1 to frame_5, seg_1, seg_bn_1 and seg_2",
    (
        Part("stages.#.conv.", "frame_#.conv_1d.", _LINEAR, shift=-1),
        Part("stages.#.bn.", "frame_#.bn.", _STATISTICS, shift=-1),
        *_TWO_EMBEDDINGS,
    ),
)

_BRANCH = rf"(conv\.weight|bn\.{_BATCH_NORM})"


def _repvgg(network: str, branches: dict[str, tuple[str, str]]) -> Layout:
    """Branches of every block: our name -> theirs and what follows."""
    parts = []
    for ours, theirs in [("stem.", "stage0."), *((f"stages.{i}.#.", f"stage{i + 1}.#.") for i in range(4))]:
        parts += [Part(f"{ours}{name}.", f"{theirs}{their}.", rest) for name, (their, rest) in branches.items()]
        if "dense" in branches:
            parts.append(Part(f"{ours}identity.", f"{theirs}rbr_identity.", _BATCH_NORM, optional=True))
        parts.append(Part(f"{ours}excitation.", f"{theirs}se.", rf"fc_[12]\.{_LINEAR}", optional=True))
    expected = f"stage0 to stage4 with {', '.join(their for their, _ in branches.values())}, and seg"
    return Layout(network, expected, (*parts, Part("embedding.", "seg.", _LINEAR)))


_DENSE_BRANCH = ("rbr_dense", _BRANCH)
_REPVGGS = (
    _repvgg("RepVGG", {"dense": _DENSE_BRANCH, "pointwise": ("rbr_1x1", _BRANCH)}),
    _repvgg("RepVGG with RSBB", {"dense": _DENSE_BRANCH, "dilated": ("rbr_dense_dilation", _BRANCH)}),
    _repvgg("RepVGG with one convolution a block", {"fused": ("rbr_reparam", _LINEAR)}),
)

_REDIMNETS = _with_embeddings("ReDimNet", "backbone, pool", REDIMNET_PARTS)

LAYOUTS = (
    *RESNETS,
    *_GEMINIS,
    _ECAPA_TDNN,
    CAMPPLUS,
    *RES2NETS,
    *_ERES2NETS,
    _SIMAM_RESNET,
    _XVECTOR,
    *_REPVGGS,
    *_REDIMNETS,
)
"""Where two fit equally well, the first is meant; that of a ReDimNet2 is made for its stages."""
