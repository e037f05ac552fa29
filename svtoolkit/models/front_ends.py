"""Front ends by name, the setting ``features.backend``: waveforms in, what the network sees out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from svtoolkit.config import FeaturesConfig
from svtoolkit.config.limits import explain_excess
from svtoolkit.errors import UserError
from svtoolkit.registry import Registry, Row, check_settings

if TYPE_CHECKING:
    from svtoolkit.features import FrontEnd

BUILDER = "svtoolkit.features.front_end:build_front_end"

FRONT_ENDS = Registry(
    "front end",
    "svtoolkit.front_ends",
    {
        "torch": Row(BUILDER, FeaturesConfig, {"backend": "torch"}, "log-mel filter bank in torch"),
        "torchaudio": Row(BUILDER, FeaturesConfig, {"backend": "torchaudio"}, "the same by torchaudio"),
    },
    FeaturesConfig,
)
"""Name -> how the front end is built. A target takes the fields of its settings but ``backend``, and the row's
arguments, by keyword, raises ValueError or ImportError where they make no front end, and returns a
``svtoolkit.features.FrontEnd``."""


def features_config(values: Mapping[str, Any]) -> FeaturesConfig:
    """Stored settings as the dataclass of their front end.

    Raises:
        UserError: an unknown front end or key, a value of another type.
    """
    settings = FRONT_ENDS[values.get("backend", FeaturesConfig.backend)].settings or FeaturesConfig
    check_settings("features", settings, values)
    for key, value in values.items():
        if problem := explain_excess(f"features.{key}", value):
            raise UserError(f"features: {key} is {value!r}, {problem}")
    built: FeaturesConfig = settings(**values)
    return built


def front_end_of(config: FeaturesConfig) -> FrontEnd:
    """Build the front end of a configuration.

    Raises:
        UserError: an unknown front end, a value out of range, a library that is missing.
    """
    settings = asdict(config)
    name = settings.pop("backend")
    row = FRONT_ENDS[name]
    try:
        front_end: FrontEnd = FRONT_ENDS.load(name)(**{**settings, **row.arguments})
    except (ImportError, ValueError) as error:
        raise UserError(f"features cannot be computed: {error}") from error
    return front_end
