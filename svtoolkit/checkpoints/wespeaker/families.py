"""The layouts of WeSpeaker's networks (wespeaker/models): a row or two a family."""

from __future__ import annotations

from svtoolkit.checkpoints.wespeaker.layout import Layout, Part

_LINEAR = "(weight|bias)"
_STATISTICS = "(running_mean|running_var|num_batches_tracked)"
_BATCH_NORM = "(weight|bias|running_mean|running_var|num_batches_tracked)"
_CONV_AND_BATCH_NORM = rf"(0\.weight|1\.{_BATCH_NORM})"
_SHORTCUT = rf"\d+\.shortcut\.{_CONV_AND_BATCH_NORM}"

_BLOCK = rf"\d+\.(conv[123]\.weight|bn[123]\.{_BATCH_NORM})"

_STEM = (Part("stem.0.", "conv1.", "weight"), Part("stem.1.", "bn1.", _BATCH_NORM))
_ONE_EMBEDDING = (Part("embedding.", "seg_1.", _LINEAR),)


def _stages(pattern: str) -> tuple[Part, ...]:
    """Four of them, counted from 0 by us and from 1 by them."""
    return tuple(Part(f"stages.{stage}.", f"layer{stage + 1}.", pattern) for stage in range(4))


_RESNET = Layout(
    "ResNet with one embedding layer",
    "conv1, bn1, layer1 to layer4 and seg_1",
    (*_STEM, *_stages(f"{_BLOCK}|{_SHORTCUT}"), *_ONE_EMBEDDING),
)
# Their stem is downsample_layers.0; the downsampling that a stage of ours begins with is one more of these.
_GEMINI = Layout(
    "Gemini-DF-ResNet with one embedding layer",
    "downsample_layers.0 to downsample_layers.4, stages.0 to stages.3 and seg_1",
    (
        Part("stem.", "downsample_layers.0.", _CONV_AND_BATCH_NORM),
        *(Part(f"stages.{i}.0.", f"downsample_layers.{i + 1}.", _CONV_AND_BATCH_NORM) for i in range(4)),
        *(Part(f"stages.{stage}.", f"stages.{stage}.", _BLOCK, first_block=1) for stage in range(4)),
        *_ONE_EMBEDDING,
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

LAYOUTS = (_RESNET, _GEMINI, _ECAPA_TDNN)
"""Where two fit equally well, the first is meant."""
