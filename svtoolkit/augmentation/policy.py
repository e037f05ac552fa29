"""How often a crop is changed, in which way, and how much."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from svtoolkit.errors import UserError

LARGEST_DECIBELS = 100.0


@dataclass(frozen=True)
class AugmentationPolicy:
    """Probabilities and ranges, named as the keys of the configuration group ``augment``.

    The probability and the ranges of signal-to-noise ratios are those of WeSpeaker's VoxCeleb recipe (its
    dataset/processor.py), the number of talkers that of Kaldi's (egs/voxceleb/v2/run.sh); WeSpeaker mixes in one.

    Attributes:
        probability: share of crops that are changed at all.
        only_noise_weight, only_reverberation_weight, both_weight: how often each happens to a crop that is changed,
            in proportion to their sum; what lacks its data drops out.
        noise_weight, music_weight, babble_weight: how often each is what is mixed in, in proportion to their sum.
        noise_snr, music_snr, babble_snr: ranges of the signal-to-noise ratio in dB, drawn uniformly.
        babble_talkers: fewest and most talkers of a babble, drawn uniformly; never more than there are files.
        gain: range of the gain of crops that are changed, in dB, drawn uniformly.
        telephone_probability: share of crops that are changed which go through a telephone line.

    Raises:
        UserError: a value out of range; names the key.
    """

    probability: float = 0.6
    only_noise_weight: float = 1.0
    only_reverberation_weight: float = 1.0
    both_weight: float = 1.0
    noise_weight: float = 1.0
    music_weight: float = 1.0
    babble_weight: float = 1.0
    noise_snr: Sequence[float] = (0.0, 15.0)
    music_snr: Sequence[float] = (5.0, 15.0)
    babble_snr: Sequence[float] = (10.0, 30.0)
    babble_talkers: Sequence[int] = (3, 7)
    gain: Sequence[float] = (0.0, 0.0)
    telephone_probability: float = 0.0

    def __post_init__(self) -> None:
        for name in ("probability", "telephone_probability"):
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(f"augment.{name} is {getattr(self, name)}, expected a share from 0 to 1")
        for names in (
            ("only_noise_weight", "only_reverberation_weight", "both_weight"),
            ("noise_weight", "music_weight", "babble_weight"),
        ):
            self._check_weights(names)
        for name in ("noise_snr", "music_snr", "babble_snr", "gain"):
            self._check_decibels(name)
        talkers = self.babble_talkers
        if len(talkers) != 2 or not 1 <= talkers[0] <= talkers[1] or any(number % 1 for number in talkers):
            raise UserError(
                f"augment.babble_talkers is {list(talkers)}, expected fewest and most talkers, such as [3, 7]"
            )

    def _check_weights(self, names: Sequence[str]) -> None:
        for name in names:
            if not 0 <= getattr(self, name) < math.inf:
                raise UserError(f"augment.{name} is {getattr(self, name)}, expected a weight of 0 or more")
        if not any(getattr(self, name) for name in names):
            listed = ", ".join(f"augment.{name}" for name in names)
            raise UserError(f"{listed} are all 0, expected one above 0; augment.probability=0 changes no crop")

    def _check_decibels(self, name: str) -> None:
        limits = list(getattr(self, name))
        if len(limits) != 2 or not -LARGEST_DECIBELS <= limits[0] <= limits[1] <= LARGEST_DECIBELS:
            raise UserError(
                f"augment.{name} is {limits}, expected a lower and an upper limit in dB, such as [0, 15], "
                f"from {-LARGEST_DECIBELS:g} to {LARGEST_DECIBELS:g}"
            )
