"""What shall happen to one crop, as plain numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from svtoolkit.augmentation.g711 import LAWS

LIBRARY_CATEGORY = {"noise": "noise", "music": "music", "babble": "speech"}
"""What is mixed in -> the category of the noise library that it is made of."""


@dataclass(frozen=True)
class Slice:
    """Where a noise begins: a file of its category, and seconds from the beginning of it."""

    file: int
    start: float


@dataclass(frozen=True)
class Plan:
    """Changes of one crop, in the order in which they are made: room, noise, gain, telephone.

    Attributes:
        response: room impulse response of the library; None: no reverberation.
        category: noise, music or babble; None: nothing is mixed in.
        slices: what is mixed in: one slice, or for babble one of every talker.
        snr_db: power of the (reverberant) speech over that of what is mixed in.
        gain_db: change of level.
        telephone: companding law of the line, mu or a; None: no line.

    Raises:
        ValueError: a category or law that there is not, or slices where nothing is mixed in.
    """

    response: int | None = None
    category: str | None = None
    slices: tuple[Slice, ...] = ()
    snr_db: float = 0.0
    gain_db: float = 0.0
    telephone: str | None = None

    def __post_init__(self) -> None:
        if self.category not in (None, *LIBRARY_CATEGORY):
            raise ValueError(f"category is {self.category!r}, expected one of {', '.join(LIBRARY_CATEGORY)} or None")
        if self.telephone not in (None, *LAWS):
            raise ValueError(f"telephone is {self.telephone!r}, expected one of {', '.join(LAWS)} or None")
        if (self.category is None) != (not self.slices):
            raise ValueError(f"category is {self.category!r} with {len(self.slices)} slices, expected both or neither")

    @property
    def is_clean(self) -> bool:
        """Whether nothing is to happen."""
        return self.response is None and self.category is None and self.gain_db == 0.0 and self.telephone is None

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as for JSON."""
        return asdict(self) | {"slices": [asdict(slice_) for slice_ in self.slices]}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Plan:
        """The inverse of ``to_dict``."""
        return cls(**{**fields, "slices": tuple(Slice(**slice_) for slice_ in fields["slices"])})


CLEAN = Plan()
