"""The layouts of ReDimNet and ReDimNet2: names of IDRnD's, Palabra AI's and WeSpeaker's code."""

from __future__ import annotations

import re
from collections.abc import Iterable

from svtoolkit.checkpoints.layout import Layout, Part

_LINEAR = "(weight|bias)"
_BATCH_NORM = "(weight|bias|running_mean|running_var|num_batches_tracked)"
_CONV_NEXT = rf"(dwconvs\.\d|pwconv1)\.{_LINEAR}|norm\.{_BATCH_NORM}"
_MAP_BLOCK = (
    rf"(conv[12]\.weight|conv[12]pw\.{_LINEAR}|bn[12]\.{_BATCH_NORM}|se\.(squeeze|exitation)\.{_LINEAR}|{_CONV_NEXT})"
)
_TRANSFORMER = (
    rf"(attention\.[kvq]_proj|attention\.out_proj|layer_norm|final_layer_norm|feed_forward\.\w+_dense)\.{_LINEAR}"
)
_TIME_LAYER = rf"tcm\.[0-4]\.({_LINEAR}|conv\.{_LINEAR}|{_CONV_NEXT}|{_TRANSFORMER})"
_TIME_CONTEXT = rf"((red_dim_conv\.[01]|exp_dim_conv)\.{_LINEAR}|{_TIME_LAYER})"
_STAGE_REST = rf"({_LINEAR}|freq_embedder\.weight|[03]\.{_LINEAR}|1\.{_BATCH_NORM}|{_TIME_CONTEXT})"

_POOLING = Part("pooling.", "pool.", rf"linear[12]\.{_LINEAR}")
_STEM = Part("stem.", "backbone.stem.", rf"[01]\.{_LINEAR}")
_EMBEDDING = (
    Part("embedding.0.", "bn.", _BATCH_NORM),
    Part("embedding.1.", "linear.", _LINEAR),
    Part("embedding.2.", "bn2.", _BATCH_NORM, optional=True),
)
MOST_STAGES = 8


def _layers(ours: str, theirs: str, shift: int) -> tuple[Part, ...]:
    """Of a stage, whose numbers are theirs plus ``shift``."""
    return (
        Part(f"{ours}#.", f"{theirs}#.conv_block.", _MAP_BLOCK, shift, optional=True),
        Part(f"{ours}#.", f"{theirs}#.", _STAGE_REST, shift, optional=True),
    )


REDIMNET_PARTS = (
    _STEM,
    Part("mixings.#.w", "backbone.inputs_weights.#", ""),
    *(part for i in range(MOST_STAGES) for part in _layers(f"stages.{i}.", f"backbone.stage{i}.", 0)),
    Part("head.", "backbone.mfa.", rf"0\.{_LINEAR}|1\.{_BATCH_NORM}", optional=True),
    _POOLING,
)
"""Of a ReDimNet, but for its embedding."""

REDIMNET = Layout("ReDimNet", "backbone, pool, bn and linear", (*REDIMNET_PARTS, *_EMBEDDING))
"""As IDRnD releases it."""


def redimnet2_layout(names: Iterable[str]) -> Layout:
    """The layout of a ReDimNet2 of so many stages as there are among its names, which may be ours or theirs.

    Its stages begin with the mixture of what is before them, and a change of its shape.
    """
    stage = re.compile(r"(?:backbone\.stage|stages\.)(\d)(_pre|\.before)?\b")
    found = [match for name in names if (match := stage.match(name))]
    dual = {int(match[1]) for match in found if match[2]}
    count = max((int(match[1]) + 1 for match in found), default=6)
    parts: list[Part] = []
    for i in range(count):
        ours, theirs = f"stages.{i}.", f"backbone.stage{i}"
        if i in dual:
            parts += [
                Part(f"mixings.{i}.", f"{theirs}_pre.0.", "w"),
                *_layers(f"{ours}before.", f"{theirs}_pre.", -2),
                Part(f"{ours}context.", f"{theirs}_1d.", _TIME_CONTEXT),
                Part(f"{ours}of_map.#.", f"{theirs}_up_2d.#.", _LINEAR, optional=True),
                Part(f"{ours}of_context.#.", f"{theirs}_up_1d.#.", _LINEAR, optional=True),
            ]
        else:
            parts += [Part(f"mixings.{i}.", f"{theirs}.0.", "w"), *_layers(ours, f"{theirs}.", -2)]
    return Layout(
        "ReDimNet2",
        "backbone, pool, bn and linear",
        (
            _STEM,
            Part("stem_norm.", "backbone.stem_gnorm.", _LINEAR, optional=True),
            *parts,
            Part(f"mixings.{count}.", "backbone.fin_wght1d.", "w"),
            Part("head.conv.", "backbone.head.", _LINEAR, optional=True),
            _POOLING,
            *_EMBEDDING,
        ),
    )
