"""The mel spectrograms of ReDimNet, ReDimNet2 and WeSpeaker's tfmel: their arguments, and their tables among weights.

Their classes are MelBanks (our redim_pt) and TFMelBanks (redim_tf).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor

from svtoolkit.checkpoints.layout import list_names
from svtoolkit.config.front_ends import ReDimNetConfig
from svtoolkit.config.limits import explain_excess
from svtoolkit.errors import UserError
from svtoolkit.features.spectrogram import Spectrogram
from svtoolkit.models.front_ends import front_end_of

Settings = TypeVar("Settings", bound=ReDimNetConfig)

SAMPLE_RATE, PREEMPHASIS = 16000, 0.97
ONLY: dict[str, dict[str, Any]] = {
    "redim_pt": {"sample_rate": SAMPLE_RATE, "n_fft": 512, "win_length": 400, "spec_norm": "mn"},
    "redim_tf": {"sample_rate": SAMPLE_RATE, "n_fft": 512, "win_length": 400, "eps": 1e-8},
}
"""Arguments with one value that is known, their default."""

TRAINING = ("do_spec_aug", "num_apply_spec_aug", "freq_start_bin", "freq_mask_width", "time_mask_width")
"""Arguments that change nothing out of training."""

FREE = ("n_mels", "hop_length", "f_min", "f_max", "norm_signal", "do_preemph")

TOLERANCE = 1e-3
"""Of a filter 1 high, which they compute in float32: neighbouring settings are a hundred times further away."""


def features_of(settings: type[Settings], given: Mapping[str, Any], where: str) -> Settings:
    """The front end that arguments make; what is not known among them is not looked at.

    Args:
        settings: of redim_pt or of redim_tf.
        given: arguments of their class.
        where: they stand, as messages begin.

    Raises:
        UserError: a value of another type, or of a front end that is not here.
    """
    built = settings()
    for key, value in ONLY[built.backend].items():
        if given.get(key, value) != value:
            raise UserError(f"{where}.{key} is {given[key]!r:.80}, and the front end is known with {value!r} alone")
    built.num_bins = _number(given, where, "n_mels", 80)
    built.frame_shift_ms = 1000 * _number(given, where, "hop_length", 160) / SAMPLE_RATE
    built.low_freq = float(_number(given, where, "f_min", 20, whole=False))
    built.high_freq = float(_number(given, where, "f_max", 7600, whole=False))
    built.norm_signal = _flag(given, where, "norm_signal", False)
    built.preemphasis = PREEMPHASIS if _flag(given, where, "do_preemph", True) else 0.0
    if problem := explain_excess("features.num_bins", built.num_bins):
        raise UserError(f"{where}.n_mels is {built.num_bins}, {problem}")
    try:
        front_end_of(built)
    except UserError as error:
        raise UserError(f"{where}: {error}") from error
    return built


def _number(given: Mapping[str, Any], where: str, key: str, default: int, *, whole: bool = True) -> Any:
    value = given.get(key, default)
    if type(value) not in ((int,) if whole else (int, float)) or not whole <= value <= SAMPLE_RATE:
        expected = f"a whole number from 1 to {SAMPLE_RATE}" if whole else "a frequency from 0 Hz on"
        raise UserError(f"{where}.{key} is {value!r:.80}, expected {expected}")
    return value


def _flag(given: Mapping[str, Any], where: str, key: str, default: bool) -> bool:
    value = given.get(key, default)
    if type(value) is not bool:
        raise UserError(f"{where}.{key} is {value!r:.80}, expected true or false")
    return value


def without_tables(weights: Mapping[str, Tensor], prefix: str, features: ReDimNetConfig) -> dict[str, Tensor]:
    """The weights without the front end's tables, which have to be those of the features.

    Args:
        weights: of the whole model; there may be no tables.
        prefix: with which the names of the tables begin.
        features: redim_pt or redim_tf, as the description of the model says.

    Raises:
        UserError: a table that the front end does not have, or whose numbers are others.
    """
    found = {name.removeprefix(prefix): table for name, table in weights.items() if name.startswith(prefix)}
    known = _tables(features) if found else {}
    if unknown := [prefix + name for name in found if name not in known]:
        raise UserError(
            f"{list_names(unknown)} is no table of {features.backend}, expected {', '.join(prefix + n for n in known)}"
        )
    for name, table in found.items():
        if table.shape != known[name].shape or not torch.allclose(table.float(), known[name], rtol=0, atol=TOLERANCE):
            raise UserError(
                f"{prefix + name!r} {tuple(table.shape)} is not the table of {features.backend} with the settings that "
                f"are said {tuple(known[name].shape)}: the network was trained on features that are not known here"
            )
    return {name: tensor for name, tensor in weights.items() if not name.startswith(prefix)}


def _tables(features: ReDimNetConfig) -> dict[str, Tensor]:
    """Their name -> what it holds, float32."""
    made = front_end_of(features).filter_bank
    assert isinstance(made, Spectrogram)
    tables = {}
    if features.preemphasis:
        tables["torchfbank.1.flipped_filter"] = torch.tensor([[[-features.preemphasis, 1.0]]])
    if features.backend == "redim_pt":
        return {
            **tables,
            "torchfbank.2.spectrogram.window": made.window,
            "torchfbank.2.mel_scale.fb": made.filters,
        }
    points = made.block.fft_samples // 2
    angles = 2 * math.pi * torch.outer(torch.arange(points), torch.arange(len(made.window))) / made.block.fft_samples
    return {
        **tables,
        "torchfbank.2.real_kernel_pt": (angles.cos() * made.window).unsqueeze(1),
        "torchfbank.2.image_kernel_pt": (angles.sin() * made.window).unsqueeze(1),
        "torchfbank.2.melbanks_pt": made.filters[:points].T.unsqueeze(-1),
    }
