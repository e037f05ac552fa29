"""Front ends by name, the setting ``features.backend``: waveforms in, what the network sees out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from svtoolkit.config import FeaturesConfig
from svtoolkit.config.front_ends import (
    CROP_FRAME_MS,
    ClovaConfig,
    Kaldi3DConfig,
    Nemo80Config,
    ReDimNetConfig,
    ReDimNetTFConfig,
    Resemblyzer40Config,
    SpeechBrain24Config,
    SpeechBrain80Config,
    WaveformConfig,
)
from svtoolkit.config.limits import explain_excess
from svtoolkit.errors import UserError
from svtoolkit.registry import Registry, Row, check_settings, defaults

if TYPE_CHECKING:
    from svtoolkit.features import FrontEnd

BUILDER = "svtoolkit.features.front_end:build_front_end"
SPECTROGRAM = "svtoolkit.features.spectrogram:build_spectrogram"


def _spectrogram(block: str, settings: type[FeaturesConfig], help: str, *, free: Collection[str] = ()) -> Row:
    """A block of ``svtoolkit.features.spectrogram``: its settings are fixed, but for the free ones."""
    fixed = {key: value for key, value in defaults(settings).items() if key not in ("backend", *free)}
    return Row(SPECTROGRAM, settings, {**fixed, "block": block}, help)


_FREE = ("num_bins", "frame_shift_ms", "preemphasis", "low_freq", "high_freq", "norm_signal", "pad_right")

FRONT_ENDS = Registry(
    "front end",
    "svtoolkit.front_ends",
    {
        "torch": Row(BUILDER, FeaturesConfig, {"backend": "torch"}, "log-mel filter bank in torch"),
        "torchaudio": Row(BUILDER, FeaturesConfig, {"backend": "torchaudio"}, "the same by torchaudio"),
        "kaldi_3d": Row(
            BUILDER,
            Kaldi3DConfig,
            {"backend": "torch", "window": "povey", "int16_scale": False},
            "3D-Speaker's and ModelScope's: povey window, samples in [-1, 1]",
        ),
        "sb80": _spectrogram(
            "speechbrain", SpeechBrain80Config, "SpeechBrain's ECAPA-TDNN and ResNet", free=("num_bins",)
        ),
        "sb24": _spectrogram("speechbrain", SpeechBrain24Config, "SpeechBrain's x-vector"),
        "nemo80": _spectrogram(
            "nemo",
            Nemo80Config,
            "NeMo's TitaNet; SpeakerNet has 64 bins of 20 ms",
            free=("num_bins", "frame_length_ms"),
        ),
        "clova": _spectrogram(
            "clova", ClovaConfig, "clovaai/voxceleb_trainer: 40 bins (lite), 64 (V2)", free=("num_bins",)
        ),
        "redim_pt": _spectrogram("redimnet", ReDimNetConfig, "ReDimNet with feat_type pt", free=_FREE),
        "redim_tf": _spectrogram(
            "tensorflow", ReDimNetTFConfig, "ReDimNet with feat_type tf, and WeSpeaker's tfmel", free=_FREE
        ),
        "res40": _spectrogram("resemblyzer", Resemblyzer40Config, "Resemblyzer's mel energies, no logarithm"),
        "waveform": Row(
            "svtoolkit.features.waveform:build_waveform",
            WaveformConfig,
            {
                key: value
                for key, value in defaults(WaveformConfig).items()
                if key not in ("backend", "sample_rate", "frame_length_ms", "norm_signal")
            }
            | {"crop_frame_ms": CROP_FRAME_MS},
            "the waveform itself, for the x-vector heads of transformers",
        ),
    },
    FeaturesConfig,
)
"""Name -> how the front end is built. A target takes the fields of its settings but ``backend``, and the row's
arguments, by keyword, raises ValueError or ImportError where they make no front end, and returns a
``svtoolkit.features.FrontEnd``. A setting that is an argument of the row, too, is fixed to that."""

BACKENDS = frozenset({"torch", "torchaudio"})
"""Names that say how the filter bank is computed, not what it is."""

RELEASED_FRONT_ENDS = frozenset({"waveform"})
"""Names that no command line chooses: a released model brings them."""

KALDI = BACKENDS | {"kaldi_3d"}
"""Names that make the same features of the same other settings."""


def features_config(values: Mapping[str, Any]) -> FeaturesConfig:
    """Stored settings as the dataclass of their front end.

    Raises:
        UserError: an unknown front end or key, a value of another type.
    """
    name = values.get("backend", FeaturesConfig.backend)
    row = FRONT_ENDS.rows.get(name) or FRONT_ENDS[name]  # of ours no package has to be looked for, which takes its time
    settings = row.settings or FeaturesConfig
    check_settings("features", settings, values)
    for key, value in values.items():
        if problem := explain_excess(f"features.{key}", value):
            raise UserError(f"features: {key} is {value!r:.80}, {problem}")
    built: FeaturesConfig = settings(**values)
    return built


def check_warps(config: FeaturesConfig, warps: Sequence[float]) -> None:
    """Refuse vocal tracts of other lengths where there are no filters to warp.

    Raises:
        UserError: a front end that is not Kaldi's filter bank.
    """
    if not is_unwarped(warps) and config.backend not in KALDI:
        raise UserError(
            f"data.warps is {list(warps)}, which moves the filters of Kaldi's filter bank, and the features are "
            f"{config.backend!r}; train with data.warps=[1.0] or features=fbank80 or features=kaldi_3d"
        )


def is_unwarped(warps: Sequence[float]) -> bool:
    """Whether all crops have the filter bank that a model is used with."""
    return list(warps) == [1.0]


def front_end_of(config: FeaturesConfig, warps: Sequence[float] = (1.0,)) -> FrontEnd:
    """Build the front end of a configuration.

    Args:
        warps: factors of vocal tracts; of others than [1.0] it has a filter bank for each.

    Raises:
        UserError: an unknown front end, a value out of range, a library that is missing, warps that it has none of.
    """
    check_warps(config, warps)
    settings = asdict(config)
    name = settings.pop("backend")
    row = FRONT_ENDS[name]
    for key, value in settings.items():
        if key in row.arguments and value != row.arguments[key]:
            raise UserError(
                f"features.{key} is {value!r:.80}, but the front end {name} fixes it to {row.arguments[key]!r}; leave "
                f"it out: the option {name} of the group features sets it"
            )
    try:
        of_tracts = {} if is_unwarped(warps) else {"warps": warps}
        front_end: FrontEnd = FRONT_ENDS.load(name)(**{**settings, **row.arguments, **of_tracts})
    except (ImportError, ValueError) as error:
        raise UserError(f"features cannot be computed: {error}") from error
    return front_end
