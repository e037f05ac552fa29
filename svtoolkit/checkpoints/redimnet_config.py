"""The arguments of ReDimNet's and ReDimNet2's classes as those of our networks, and back.

They are the ``model_config`` of a released file, and ``model_args`` of WeSpeaker's classes. None of their values is
evaluated, whatever text it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from svtoolkit.config.limits import LIMITS
from svtoolkit.errors import UserError
from svtoolkit.models.build import complete_model
from svtoolkit.models.redimnet import StageSetup
from svtoolkit.models.registry import NETWORKS

FIRST, SECOND = "redimnet", "redimnet2"
"""Our networks of any size."""

BLOCKS = {
    "convnext_like": "convnext",
    "convnext_like_relu": "convnext_relu",
    "basic_resnet": "basic",
    "basic_resnet_fwse": "excited",
}
TIME_BLOCKS = {name: name for name in ("conv+att", "conv", "att", "fc")}

IGNORED = ("head_activation", "num_classes", "class_dropout", "feat_agg_dropout", "return_all_outputs")
"""What makes no difference to an embedding."""

FRONT_END = ("feat_type", "spec", "spec_params", "hop_length", "pad_right_samples")
"""What is said of the features; whoever reads them takes it."""

_SETUP = [(1, 2, 12), (2, 2, 12), (1, 3, 12), (2, 4, 8), (1, 4, 8), (2, 4, 4)]
_SETUP2 = [
    ((1, 1), 2, 4), ((2, 1), 3, 3), ((1, 2), 4, 2), ((2, 1), 5, 1), ((1, 2), 4, 1), ((2, 1), 3, 1),
]  # fmt: skip
DEFAULTS: dict[str, dict[str, Any]] = {
    FIRST: {
        "F": 72,
        "C": 16,
        "block_1d_type": "conv+att",
        "block_2d_type": "basic_resnet",
        "stages_setup": [[stride, blocks, 1, [[3, 3]], reduction] for stride, blocks, reduction in _SETUP],
        "group_divisor": 4,
    },
    SECOND: {
        "F": 72,
        "C": 24,
        "block_1d_type": "conv+att",
        "block_2d_type": "basic_resnet",
        "stages_setup": [[stride, blocks, factor, [[3, 3]], 24] for stride, blocks, factor in _SETUP2],
        "group_divisor": 1,
        "compress_tconvs": True,
        "return_2d_output": False,
        "dual_agg": False,
        "agg_gnorm": False,
        "use_freq_pos_enc": False,
        "before_pool_offset": None,
    },
}
"""Of WeSpeaker's ReDimNet and ReDimNet2Wrap, where they are not those of both."""

COMMON: dict[str, Any] = {"out_channels": None, "embed_dim": 192, "global_context_att": True, "emb_bn": False}

ONLY: dict[str, dict[str, Any]] = {
    FIRST: {"pooling_func": "ASTP", "pooling": "ASTP", "tf_optimized_arch": False},
    SECOND: {
        "pooling_func": "ASTP",
        "pooling": "ASTP",
        "causal": "none",
        "spec_in_channels": 1,
        "fm_weigthing_type": "NC",
        "two_emb_layer": False,
        "offset_fm_weights": 0,
        "is_subnet": False,
    },
}
"""What a network here has to be; the others change what is computed."""


def network_of(name: str, given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Arguments of ``build_model``.

    Args:
        name: ``FIRST`` or ``SECOND``.
        given: theirs; what is left out is as WeSpeaker's class has it.
        where: they stand, as messages begin.

    Raises:
        UserError: an argument that is not known, of another type, or that makes a network that is not here.
    """
    sizes = {**DEFAULTS[name], **COMMON}
    known = [*sizes, "feat_dim", *ONLY[name], *IGNORED, *FRONT_END, *(["two_emb_layer"] if name == FIRST else [])]
    for key, value in given.items():
        if key not in known:
            raise UserError(f"{where} has {str(key)[:80]!r}, expected no other keys than {', '.join(known)}")
        if key in ONLY[name] and (value != ONLY[name][key] or type(value) is not type(ONLY[name][key])):
            raise UserError(f"{where}: {key} is {value!r:.80}, and a network is known for {ONLY[name][key]!r} alone")
    theirs = _Arguments(where, {**sizes, **given})
    found: dict[str, Any] = {
        "name": name,
        "num_bins": theirs.whole("F" if given.get("feat_dim") is None else "feat_dim", "num_bins"),
        "embedding_dim": theirs.whole("embed_dim", "model.embedding_dim"),
        "channels": theirs.whole("C"),
        "kind": theirs.choice("block_2d_type", BLOCKS),
        "group_width": theirs.whole_or_none("group_divisor") or 0,
        "time_block": theirs.choice("block_1d_type", TIME_BLOCKS),
        "stages": theirs.stages(name),
        "out_channels": theirs.whole_or_none("out_channels"),
        "global_context": theirs.flag("global_context_att"),
        "embedding_norm": theirs.flag("emb_bn"),
    }
    if name == FIRST:
        return {**found, "embedding_layers": 2 if "two_emb_layer" in given and theirs.flag("two_emb_layer") else 1}
    return {
        **found,
        "pool_map": theirs.flag("return_2d_output"),
        "grouped_strides": theirs.flag("compress_tconvs"),
        "dual_maps": theirs.flag("dual_agg"),
        "map_norm": theirs.flag("agg_gnorm"),
        "frequency_embedding": theirs.flag("use_freq_pos_enc"),
        "skip_frames": theirs.whole_or_none("before_pool_offset", least=0) or 0,
    }


def arguments_of(model: Mapping[str, Any]) -> dict[str, Any]:
    """Theirs of one of our networks, of any size or of a published one, without ``emb_bn`` of the first generation.

    Args:
        model: arguments of ``build_model``.
    """
    row = NETWORKS[model["name"]]
    ours = {**complete_model({"name": generation_of(model["name"])}), **model, **row.arguments}
    arguments = {
        "feat_dim": ours["num_bins"],
        "embed_dim": ours["embedding_dim"],
        "C": ours["channels"],
        "block_1d_type": ours["time_block"],
        "block_2d_type": next(theirs for theirs, kind in BLOCKS.items() if kind == ours["kind"]),
        "stages_setup": [_stage_of(stage, ours["name"]) for stage in ours["stages"]],
        "group_divisor": ours["group_width"] or None,
        "out_channels": ours["out_channels"],
        "global_context_att": ours["global_context"],
        "pooling_func": "ASTP",
    }
    if generation_of(model["name"]) == FIRST:
        return {**arguments, "two_emb_layer": ours["embedding_layers"] == 2}
    return {
        **arguments,
        "emb_bn": ours["embedding_norm"],
        "return_2d_output": ours["pool_map"],
        "compress_tconvs": ours["grouped_strides"],
        "dual_agg": ours["dual_maps"],
        "agg_gnorm": ours["map_norm"],
        "use_freq_pos_enc": ours["frequency_embedding"],
        "pad_right_samples": ours["pad_frames"] or None,
        "before_pool_offset": ours["skip_frames"] or None,
    }


def generation_of(name: str) -> str:
    """``FIRST`` or ``SECOND``, of a name of ours that begins with one."""
    return SECOND if name.startswith(SECOND) else FIRST


def _stage_of(stage: Sequence[Any], name: str) -> list[Any]:
    """Of ours: stride(s), blocks, expansion, kernels, reduction."""
    each = StageSetup(*stage)
    kernels = [list(size) for size in each.kernels]
    stride = each.stride if generation_of(name) == FIRST else [each.stride, each.time_stride]
    return [stride, each.blocks, each.expansion, kernels, each.reduction]


class _Arguments:
    """Theirs, each checked when it is asked for."""

    def __init__(self, where: str, values: Mapping[str, Any]) -> None:
        self.where = where
        self.values = values

    def _refuse(self, key: str, expected: str) -> UserError:
        return UserError(f"{self.where}: {key} is {self.values[key]!r:.80}, expected {expected}")

    def whole(self, key: str, limit: str | None = None, *, least: int = 1) -> int:
        value, most = self.values[key], int(LIMITS[limit].most) if limit else 1 << 20
        if type(value) is not int or not least <= value <= most:
            raise self._refuse(key, f"a whole number from {least} to {most}")
        return value

    def whole_or_none(self, key: str, *, least: int = 1) -> int | None:
        return None if self.values[key] is None else self.whole(key, least=least)

    def flag(self, key: str) -> bool:
        value = self.values[key]
        if type(value) is not bool:
            raise self._refuse(key, "true or false")
        return value

    def choice(self, key: str, choices: Mapping[str, str]) -> str:
        value = self.values[key]
        if value == "gru":
            raise self._refuse(key, "a block whose result does not depend on the other utterances of a batch")
        if not isinstance(value, str) or value not in choices:
            raise self._refuse(key, f"one of {', '.join(choices)}")
        return choices[value]

    def stages(self, name: str) -> list[list[Any]]:
        """Ours; what their values may be, the network knows."""
        setup = self.values["stages_setup"]
        if not isinstance(setup, list | tuple) or not setup:
            raise self._refuse("stages_setup", "a list of stages")
        stages = []
        for index, stage in enumerate(setup):
            steps = stage[0] if isinstance(stage, list | tuple) and len(stage) == 5 else None
            if name == FIRST and type(steps) is int:
                steps = (steps, 1)
            if not isinstance(steps, list | tuple) or len(steps) != 2 or (name == FIRST and steps[1] != 1):
                stride = "stride" if name == FIRST else "strides of bins and of frames"
                raise UserError(
                    f"{self.where}: stages_setup[{index}] is {stage!r:.80}, expected a list of {stride}, blocks, "
                    "expansion, kernels and reduction"
                )
            _, blocks, expansion, kernels, reduction = stage
            ours = [steps[0], blocks, expansion, reduction]
            if name == SECOND:
                ours += [steps[1], kernels]
            stages.append(ours)
        return stages
