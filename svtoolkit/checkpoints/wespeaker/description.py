"""Which network of ours a WeSpeaker config.yaml describes: its keys ``model`` and ``model_args``."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, NamedTuple

from svtoolkit.checkpoints import redimnet_config
from svtoolkit.errors import UserError
from svtoolkit.models.build import complete_model


class _Description(NamedTuple):
    """A constructor of theirs.

    Attributes:
        name: of our network.
        pooling: its pooling_func, if it has one.
        bins, embedding: their key of these sizes, and what it is where it is not given; None: it must be.
        only: values that the other keys must have.
        renamed: their key -> ours and what its values become.
    """

    name: str
    pooling: str | None = None
    bins: tuple[str, int | None] = ("feat_dim", None)
    embedding: int | None = None
    only: Mapping[str, Any] = {}
    renamed: Mapping[str, tuple[str, Mapping[Any, Any]]] = {}


_LAYERS = {"two_emb_layer": ("embedding_layers", {False: 1, True: 2})}
_REPVGG = {"deploy": ("deployed", {False: False, True: True})}


def _repvgg(size: str) -> _Description:
    only = {"use_se": size == "D2SE"}
    return _Description(f"repvgg_{size.lower()}", "TSTP", only=only, renamed=_REPVGG)


_REPVGGS = "TINY_A0 TINY_RSBB_A0 A0 RSBB_A0 A1 A2 RSBB_A2 B0 RSBB_B0 B1 B1g2 B1g4 B2 B2g2 B2g4 B3 B3g2 B3g4 D2SE"
_SIMAM_ONLY = {"in_planes": 64, "dropout": 0}
_REDIMNET2_ONLY = {"spec": "fbank", "emb_bn": False, "two_emb_layer": False, "global_context_att": True}

DESCRIPTIONS = {
    **{
        f"ResNet{size}": _Description(f"resnet{size}", "TSTP", renamed=_LAYERS)
        for size in (18, 34, 50, 101, 152, 221, 293)
    },
    **{
        f"Gemini_DF_ResNet{size}": _Description(f"gemini_df_resnet{size}", "TSTP", renamed=_LAYERS)
        for size in (60, 114, 183, 237)
    },
    **{
        f"ECAPA_TDNN_{size}": _Description(f"ecapa_tdnn_{size.lower()}", "ASTP", only={"emb_bn": False})
        for size in ("c512", "c1024", "GLOB_c512", "GLOB_c1024")
    },
    "CAMPPlus": _Description("campplus", "TSTP", ("feat_dim", 80), 512),
    **{
        f"{kind}34_{size}": _Description(f"{kind.lower()}34_{size.lower()}", "TSTP", renamed=_LAYERS)
        for kind, size in (("Res2Net", "Base"), ("Res2Net", "Large"), ("ERes2Net", "Base"), ("ERes2Net", "Large"))
    },
    "ERes2Net34_aug": _Description(
        "eres2net34_aug", "TSTP", only={"expansion": 4, "baseWidth": 24, "scale": 3}, renamed=_LAYERS
    ),
    "SimAM_ResNet34_ASP": _Description("simam_resnet34", None, ("acoustic_dim", 80), 256, _SIMAM_ONLY),
    "SimAM_ResNet100_ASP": _Description("simam_resnet100", None, ("acoustic_dim", 80), 256, _SIMAM_ONLY),
    "XVEC": _Description("xvector", "TSTP", ("feat_dim", 40), 512, {"hid_dim": 512, "stats_dim": 1500}),
    **{f"REPVGG_{size}": _repvgg(size) for size in _REPVGGS.split()},
    **{
        f"ReDimNetB{size}": _Description(
            f"redimnet_b{size}", "ASTP", ("feat_dim", 60 if size == 0 else 72), 192, renamed=_LAYERS
        )
        for size in range(7)
    },
    **{
        f"ReDimNet2B{size}": _Description(f"redimnet2_b{size}", "ASTP", ("feat_dim", 72), 192, _REDIMNET2_ONLY)
        for size in range(7)
    },
}
"""Their ``model`` -> how it becomes ours."""


CLASSES = {
    "ReDimNet": redimnet_config.FIRST,
    "ReDimNet2Custom": redimnet_config.SECOND,
    "ReDimNet2Wrap": redimnet_config.SECOND,
}
"""Their classes whose model_args are all sizes of a network -> ours of any size; we write the first of each."""


def network_of(model: str, model_args: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of ``build_model`` for the network that both keys of a config.yaml describe.

    Raises:
        UserError: a model or a key that is not known, a value that makes a network that is not here.
    """
    if model in CLASSES:
        return sized_network_of(model, model_args, f"model_args of {model}")
    if model not in DESCRIPTIONS:
        near = difflib.get_close_matches(str(model), DESCRIPTIONS, n=1)
        meant = f"did you mean {near[0]!r}? " if near else ""
        raise UserError(f"model is {model!r:.80}, {meant}expected one of {', '.join([*DESCRIPTIONS, *CLASSES])}")
    description = DESCRIPTIONS[model]
    bins, default_bins = description.bins
    sizes = {bins: ("num_bins", default_bins), "embed_dim": ("embedding_dim", description.embedding)}
    only = {**description.only, **({"pooling_func": description.pooling} if description.pooling else {})}
    known = [*sizes, *only, *description.renamed]
    if model.startswith("ReDimNet2B") and any(key not in known for key in model_args):
        row = {"name": description.name, "num_bins": default_bins, "embedding_dim": description.embedding}
        begins = redimnet_config.arguments_of(row)
        begins["F"] = begins.pop("feat_dim")
        return sized_network_of(model, {**begins, **model_args}, f"model_args of {model}")
    for key, value in model_args.items():
        if key not in known:
            raise UserError(f"model_args of {model} has {key!r:.80}, expected no other keys than {', '.join(known)}")
        if key in only and value != only[key]:
            raise UserError(
                f"model_args of {model}: {key} is {value!r:.80}, and a network is known for {only[key]!r} alone"
            )
    found: dict[str, Any] = {"name": description.name}
    for key, (ours, default) in sizes.items():
        value = model_args.get(key, default)
        if type(value) is not int or value < 1:
            raise UserError(f"model_args of {model}: {key} is {value!r:.80}, expected a whole number of 1 or more")
        found[ours] = value
    for key, (ours, values) in description.renamed.items():
        value = model_args.get(key, False)
        if type(value) is not bool:
            raise UserError(f"model_args of {model}: {key} is {value!r:.80}, expected true or false")
        found[ours] = values[value]
    return found


def sized_network_of(model: str, arguments: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The same for a model that says all its sizes; ``where`` they stand, as messages begin.

    Raises:
        UserError: a key that is not known, a value that makes a network that is not here, or features of its own.
    """
    name = redimnet_config.generation_of(model.lower())
    if arguments.get("spec") not in (None, "fbank"):
        raise UserError(f"{where}: spec is {arguments['spec']!r:.80}, and a network is known for 'fbank' alone")
    found = redimnet_config.network_of(name, arguments, where)
    frames = arguments.get("pad_right_samples")
    if frames is not None and (type(frames) is not int or not 0 <= frames < 1 << 20):
        raise UserError(f"{where}: pad_right_samples is {frames!r:.80}, expected a whole number from 0 to {1 << 20}")
    return {**found, "pad_frames": frames} if frames else found


def config_of(ours: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The two keys of a config.yaml, ``model`` and ``model_args``, that describe a network of ours.

    Raises:
        UserError: a network, or a setting of one, that WeSpeaker does not have.
    """
    wanted = complete_model(ours)
    if wanted["name"] in CLASSES.values():
        model = next(model for model, name in CLASSES.items() if name == wanted["name"])
        cannot = [key for key in ("pooled_norm", "embedding_norm") if model == "ReDimNet" and wanted[key]]
        if cannot:
            raise UserError(f"model.{cannot[0]} is True, and WeSpeaker's {model} has no such setting")
        return model, redimnet_config.arguments_of(wanted)
    by_name = {description.name: (model, description) for model, description in DESCRIPTIONS.items()}
    if wanted["name"] not in by_name:
        raise UserError(f"model.name is {wanted['name']!r}, and WeSpeaker has no such network")
    model, description = by_name[wanted["name"]]
    arguments: dict[str, Any] = {description.bins[0]: wanted["num_bins"], "embed_dim": wanted["embedding_dim"]}
    arguments |= {"pooling_func": description.pooling} if description.pooling else {}
    for key, (name, values) in description.renamed.items():
        arguments[key] = next((theirs for theirs, value in values.items() if value == wanted.get(name)), False)
    arguments |= {key: value for key, value in description.only.items() if key == "use_se"}
    made = complete_model(network_of(model, arguments))
    differing = [f"model.{key} is {value!r}" for key, value in wanted.items() if made.get(key) != value]
    if differing:
        raise UserError(f"{', '.join(differing)}, and WeSpeaker's {model} has no such setting")
    return model, arguments
