"""WeSpeaker's ``frontend: tfmel`` (wespeaker/frontend/tfmel.py), which is our redim_tf: its keys, both ways."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from svtoolkit.checkpoints import mel_spectrograms
from svtoolkit.checkpoints.mel_spectrograms import PREEMPHASIS, SAMPLE_RATE
from svtoolkit.config.front_ends import ReDimNetTFConfig
from svtoolkit.errors import UserError

ARGUMENTS = "tfmel_args"
TABLES = "frontend.spec."
"""What the names of its tables begin with among the weights."""

NETWORKS = "ReDimNet2"
"""Beginning of the models that take (batch, bins, frames), as it makes them."""


def features_of(dataset: Mapping[str, Any], model: str, num_bins: int) -> ReDimNetTFConfig:
    """The front end that dataset_args describe; of tfmel_args, their class passes over what it does not know.

    Args:
        dataset: with the mappings tfmel_args, and resample_rate and cmvn.
        model: name of the network there.
        num_bins: that the network takes.

    Raises:
        UserError: a value of another type, or of a front end that is not here.
    """
    if not model.startswith(NETWORKS):
        raise UserError(f"dataset_args.frontend is 'tfmel', whose (batch, bins, frames) {model} does not take")
    given = dataset.get(ARGUMENTS)
    if not isinstance(given, Mapping):
        raise UserError(f"dataset_args.{ARGUMENTS} is {given!r}, expected a mapping")
    if dataset.get("cmvn", True) is not False:
        raise UserError(
            "dataset_args.cmvn is not false: of the features of tfmel it would remove the mean over the bins; expected "
            "cmvn: false"
        )
    if dataset.get("resample_rate", SAMPLE_RATE) != SAMPLE_RATE:
        raise UserError(f"resample_rate is {dataset['resample_rate']!r}, and tfmel is known at {SAMPLE_RATE} alone")
    built = mel_spectrograms.features_of(ReDimNetTFConfig, given, ARGUMENTS)
    if built.num_bins != num_bins:
        raise UserError(f"{ARGUMENTS}.n_mels is {built.num_bins}, but the network takes {num_bins}")
    return built


def dataset_args_of(features: ReDimNetTFConfig, network: str) -> dict[str, Any]:
    """The dataset_args that describe the front end of a network of ours.

    Raises:
        UserError: theirs cannot be told to compute it, or the network does not take what it makes.
    """
    if not network.startswith(NETWORKS.lower()):
        raise UserError(f"features.backend is 'redim_tf', and the counterpart of {network} does not take its tfmel")
    cannot = {
        "preemphasis": features.preemphasis not in (0, PREEMPHASIS),
        "remove_mean": not features.remove_mean,
        "pad_right": features.pad_right != 0,
        "frame_shift_ms": not (features.frame_shift_ms * SAMPLE_RATE / 1000).is_integer(),
    }
    if differing := [f"features.{key} is {getattr(features, key)!r}" for key, wrong in cannot.items() if wrong]:
        raise UserError(f"{', '.join(differing)}, which WeSpeaker's tfmel cannot be told; keep the model in our form")
    only = mel_spectrograms.ONLY[features.backend]
    high = features.high_freq if features.high_freq > 0 else SAMPLE_RATE / 2 + features.high_freq
    return {
        "resample_rate": features.sample_rate,
        "frontend": "tfmel",
        ARGUMENTS: {
            "n_mels": features.num_bins,
            "n_fft": only["n_fft"],
            "win_length": only["win_length"],
            "hop_length": int(features.frame_shift_ms * SAMPLE_RATE / 1000),
            "f_min": features.low_freq,
            "f_max": high,
            "norm_signal": features.norm_signal,
            "do_preemph": features.preemphasis != 0,
            "eps": only["eps"],
        },
        "cmvn": False,
    }
