"""`features.yaml`: what the features of a data directory are, so that they are used by what expects just these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from svtoolkit.config import FeaturesConfig
from svtoolkit.errors import UserError
from svtoolkit.system.atomic import atomic_write

SETTINGS = "features.yaml"

AFTERWARDS = "remove_mean"
"""The setting of a front end that acts where its frames are used: of the crop or the utterance."""


class Difference(NamedTuple):
    """A setting that is one thing in a front end and another in stored features; None: it is not there."""

    key: str
    wanted: Any
    stored: Any


@dataclass(frozen=True)
class StoredFeatures:
    """What the features of a directory are.

    Attributes:
        file: where that is said.
        form: float32, float16 or compressed.
        settings: of the front end, by key, without ``remove_mean``: it is never removed from what is stored.
    """

    file: Path
    form: str
    settings: Mapping[str, Any]

    @classmethod
    def read(cls, folder: str | Path) -> StoredFeatures:
        """Read those of a data directory.

        Raises:
            UserError: there are none, or something else; or the durations are missing.
        """
        file = Path(folder) / SETTINGS
        remedy = "copy the directory as `svt features` wrote it, or compute the features again"
        if not file.is_file():
            raise UserError(f"{file}: there is no such file, which says how the features were computed; {remedy}")
        try:
            content = yaml.safe_load(file.read_text(encoding="utf-8"))
            form, settings = str(content["format"]), dict(content["features"])
        except (yaml.YAMLError, UnicodeDecodeError, KeyError, TypeError, ValueError) as error:
            raise UserError(f"{file}: expected `format` and `features` with the settings; {remedy}") from error
        if not (file.parent / "utt2dur").is_file():
            raise UserError(f"{file.parent}/utt2dur: there is no such file; {remedy}")
        settings.pop(AFTERWARDS, None)
        return cls(file, form, settings)

    @classmethod
    def of(cls, folder: str | Path, config: FeaturesConfig, form: str) -> StoredFeatures:
        """Those that a front end makes for a directory."""
        settings = asdict(config)
        settings.pop(AFTERWARDS)
        return cls(Path(folder) / SETTINGS, form, settings)

    def write(self, folder: str | Path) -> None:
        """Write them into a data directory: dither and mean removal are said, though neither is a choice."""
        content = {"format": self.form, "dither": 0.0, "features": {**self.settings, AFTERWARDS: False}}
        with atomic_write(Path(folder) / SETTINGS) as stream:
            yaml.safe_dump(content, stream, sort_keys=False, allow_unicode=True)

    def difference(self, config: FeaturesConfig) -> Difference | None:
        """The first setting in which a front end differs from the one that made the features; None: there is none."""
        wanted = asdict(config)
        wanted.pop(AFTERWARDS)
        for key in {**wanted, **self.settings}:
            if wanted.get(key) != self.settings.get(key):
                return Difference(key, wanted.get(key), self.settings.get(key))
        return None
