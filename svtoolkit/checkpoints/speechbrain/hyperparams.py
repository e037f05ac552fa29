"""What a hyperparams.yaml of SpeechBrain says of a network and its features; its tags and references are words.

HyperPyYAML builds objects while it reads (`!new:`, `!apply:`) and computes (`!ref <a> * 2`). Nothing of it is done
here: a class is looked up by its name, and a reference is followed where it stands for a whole value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from svtoolkit.config import FeaturesConfig
from svtoolkit.config.front_ends import SpeechBrain24Config, SpeechBrain80Config
from svtoolkit.errors import UserError
from svtoolkit.models.registry import NETWORKS as OURS
from svtoolkit.registry import nearest
from svtoolkit.system.plain_data import DEEPEST, Tagged

REFERENCES = ("!ref", "!copy")
SHOWN = 80
"""Characters of a value that a message shows."""

RELU, LEAKY_RELU = Tagged("!name:torch.nn.ReLU", ""), Tagged("!name:torch.nn.LeakyReLU", "")


class Network(NamedTuple):
    """What a class of SpeechBrain's is here.

    Attributes:
        name: of our network.
        bins: argument that says the mel bins, and its default; None: it has none.
        embedding_dim: default of lin_neurons.
        channels: argument that says the channels, and its default.
        channels_of: ours of a width.
        fixed: further arguments -> the only value that ours has.
        without_effect: arguments that do not change an embedding.
    """

    name: str
    bins: tuple[str, int | None]
    embedding_dim: int
    channels: tuple[str, list[int]]
    channels_of: Callable[[int], list[int]]
    fixed: Mapping[str, Any]
    without_effect: tuple[str, ...] = ("device",)


NETWORKS = {
    "speechbrain.lobes.models.ECAPA_TDNN.ECAPA_TDNN": Network(
        "sb_ecapa_tdnn",
        ("input_size", None),
        192,
        ("channels", [512, 512, 512, 512, 1536]),
        lambda width: [width] * 4 + [3 * width],
        {
            "activation": RELU,
            "kernel_sizes": [5, 3, 3, 3, 1],
            "dilations": [1, 2, 3, 4, 1],
            "attention_channels": 128,
            "res2net_scale": 8,
            "se_channels": 128,
            "global_context": True,
            "groups": [1, 1, 1, 1, 1],
        },
        ("device", "dropout"),
    ),
    "speechbrain.lobes.models.Xvector.Xvector": Network(
        "sb_xvector",
        ("in_channels", 40),
        512,
        ("tdnn_channels", [512, 512, 512, 512, 1500]),
        lambda width: [width] * 4 + [1500],
        {
            "activation": LEAKY_RELU,
            "tdnn_blocks": 5,
            "tdnn_kernel_sizes": [5, 3, 3, 1, 1],
            "tdnn_dilations": [1, 2, 3, 1, 1],
        },
    ),
    "speechbrain.lobes.models.ResNet.ResNet": Network(
        "sb_resnet",
        ("input_size", 80),
        256,
        ("channels", [128, 128, 256, 256]),
        lambda width: [width, width, 2 * width, 2 * width],
        {"activation": RELU, "block_sizes": [3, 4, 6, 3], "strides": [1, 2, 2, 2]},
    ),
}
"""By class; source: speechbrain 1.1.2."""

FBANK = "speechbrain.lobes.features.Fbank"
FBANK_FIXED = {
    "sample_rate": 16000,
    "f_min": 0,
    "f_max": 8000,
    "n_fft": 400,
    "win_length": 25,
    "hop_length": 10,
    "filter_shape": "triangular",
    "deltas": False,
    "context": False,
    "requires_grad": False,
}
FBANK_WITHOUT_EFFECT = ("left_frames", "right_frames", "param_change_factor", "param_rand_factor")
"""The first two without context, the others without gradients."""

NORMALISATION = "speechbrain.processing.features.InputNormalization"
NORMALISATION_FIXED = {"norm_type": "sentence", "mean_norm": True, "std_norm": False}
NORMALISATION_DEFAULTS = {"norm_type": "global", "std_norm": True}
NORMALISATION_WITHOUT_EFFECT = (
    "avg_factor", "length_dim", "update_until_epoch", "avoid_padding_norm", "epsilon", "device",
)  # fmt: skip
"""On one utterance at a time, without its deviation."""


def read_hyperparams(content: Any) -> tuple[dict[str, Any], FeaturesConfig, str]:
    """Arguments of ``build_model``, the front end, and the class of the network.

    Args:
        content: of a hyperparams.yaml, by ``read_foreign_settings``.

    Raises:
        UserError: a class, an argument or a value that is not known here; names the key.
    """
    if isinstance(content, str) and "/" in content:
        link = " ".join(content.split())[:300]
        raise UserError(f"holds the path {link}, as a link that was copied as text; copy that file in its place")
    if not isinstance(content, Mapping):
        raise UserError("holds no mapping, expected the hyperparams.yaml of a speaker model of SpeechBrain")
    theirs, given = _instance(content, "embedding_model", NETWORKS)
    model = _network(NETWORKS[theirs], given)
    features = _features(content)
    rate = _resolved(content, "sample_rate", content.get("sample_rate", 16000))
    if rate != 16000:
        raise UserError(f"sample_rate is {_shown(rate)}, but SpeechBrain's front end here has 16000 alone")
    if features.num_bins != model["num_bins"]:
        raise UserError(
            f"compute_features.n_mels is {features.num_bins}, but the network takes {model['num_bins']} mel bins"
        )
    return model, features, theirs.rpartition(".")[2]


def _network(network: Network, given: Mapping[str, Any]) -> dict[str, Any]:
    bins, default_bins = network.bins
    channels, default_channels = network.channels
    known = {bins, "lin_neurons", channels, *network.fixed}
    _check("embedding_model", given, known, network.fixed, network.without_effect, f"our {network.name}")
    found, published = given.get(channels, default_channels), OURS[network.name].arguments["width"]
    first = found[0] if isinstance(found, list) and found else None
    if type(first) is not int or found != network.channels_of(first):
        expected = network.channels_of(first if type(first) is int else published)
        raise UserError(
            f"embedding_model.{channels} is {_shown(found)}, but our {network.name} has {expected} at that width"
        )
    return {
        "name": network.name,
        "num_bins": _whole(f"embedding_model.{bins}", given.get(bins, default_bins)),
        "embedding_dim": _whole("embedding_model.lin_neurons", given.get("lin_neurons", network.embedding_dim)),
        "base_width": None if first == published else first,
    }


def _features(content: Mapping[str, Any]) -> FeaturesConfig:
    _, given = _instance(content, "compute_features", (FBANK,))
    if given.get("f_max", 0) is None:
        given.pop("f_max")
    known = {"n_mels", *FBANK_FIXED}
    _check("compute_features", given, known, FBANK_FIXED, FBANK_WITHOUT_EFFECT, "SpeechBrain's front end here")
    _, normalisation = _instance(content, "mean_var_norm", (NORMALISATION,))
    _check(
        "mean_var_norm",
        {**NORMALISATION_DEFAULTS, **normalisation},
        NORMALISATION_FIXED,
        NORMALISATION_FIXED,
        NORMALISATION_WITHOUT_EFFECT,
        "SpeechBrain's front end here",
    )
    bins = _whole("compute_features.n_mels", given.get("n_mels", 40))
    return SpeechBrain24Config() if bins == 24 else SpeechBrain80Config(num_bins=bins)


def _check(
    key: str,
    given: Mapping[str, Any],
    known: Collection[str],
    fixed: Mapping[str, Any],
    without_effect: Collection[str],
    ours: str,
) -> None:
    """Refuse arguments that are not known, and values that ours does not have."""
    for name, value in given.items():
        if name not in known and name not in without_effect:
            near = nearest(name, known) or f"known are {', '.join(sorted(known))}"
            raise UserError(f"{key} has an argument {_shown(name)}, which is not known here; {near.strip()}")
        if name in fixed and (value != fixed[name] or isinstance(value, bool) != isinstance(fixed[name], bool)):
            raise UserError(f"{key}.{name} is {_shown(value)}, but {ours} has {_shown(fixed[name])} alone")


def _instance(content: Mapping[str, Any], key: str, classes: Collection[str]) -> tuple[str, dict[str, Any]]:
    """The class of an object that the file would have built, and its arguments with their references followed."""
    value = _resolved(content, key, content.get(key))
    tags = [f"!new:{name}" for name in classes]
    if not isinstance(value, Tagged) or value.tag not in tags:
        found = f"is {_shown(value)}" if key in content else "is missing"
        raise UserError(f"{key} {found}, expected {' or '.join(tags)}")
    given = value.value or {}
    if not isinstance(given, Mapping):
        raise UserError(f"{key} has arguments {_shown(given)}, expected them by their names")
    return value.tag.removeprefix("!new:"), {
        str(name): _resolved(content, f"{key}.{name}", item) for name, item in given.items()
    }


def _resolved(content: Mapping[str, Any], key: str, value: Any) -> Any:
    """A value whose references are followed, in a list too; an object without arguments has the argument ""."""
    value = _followed(content, key, value)
    return [_followed(content, key, item) for item in value] if isinstance(value, list) else value


def _followed(content: Mapping[str, Any], key: str, value: Any) -> Any:
    steps = 0
    while isinstance(value, Tagged) and value.tag in REFERENCES:
        plain = re.fullmatch(r"\s*<(\w+)>\s*", value.value) if isinstance(value.value, str) else None
        if plain is None:
            raise UserError(f"{key} is {_shown(value)}, which is not computed here; write its value in its place")
        if steps == DEEPEST or plain[1] not in content:
            reason = "refers to itself" if steps == DEEPEST else "is not in the file"
            raise UserError(f"{key} is {_shown(value)}, but {plain[1]} {reason}; write its value in its place")
        steps += 1
        value = content[plain[1]]
    return Tagged(value.tag, "") if isinstance(value, Tagged) and not value.value else value


def _whole(key: str, value: Any) -> int:
    if type(value) is not int or not 1 <= value <= 1_000_000:
        raise UserError(f"{key} is {_shown(value)}, expected a whole number of 1 or more")
    return value


def _shown(value: Any) -> str:
    """A value as the file has it, but for quotes; the beginning of a long one."""
    if isinstance(value, Tagged):
        inner = value.value if isinstance(value.value, str) else repr(value.value)[:SHOWN]
        text = f"{value.tag} {inner}".strip()
    else:
        text = repr(value)
    text = " ".join(text.split())
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
