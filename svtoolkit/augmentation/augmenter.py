"""Policy and libraries together: from a random generator to a changed crop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from svtoolkit.augmentation.apply import apply_plan
from svtoolkit.augmentation.g711 import LAWS
from svtoolkit.augmentation.materials import NOTHING, Materials, load
from svtoolkit.augmentation.noise_library import ImpulseLibrary, NoiseLibrary
from svtoolkit.augmentation.plan import CLEAN, LIBRARY_CATEGORY, Plan, Slice
from svtoolkit.augmentation.policy import AugmentationPolicy
from svtoolkit.augmentation.telephone import LINE_RATE, is_telephone_rate
from svtoolkit.errors import UserError

Choice = TypeVar("Choice")


class Augmenter:
    """Draws what shall happen to a crop, decodes what that needs, and lets it happen.

    Args:
        policy: how often and how much.
        noises, rooms: what there is to draw from; None: no noise, no reverberation.
        sample_rate: of the crops, in Hz.

    Raises:
        UserError: the policy asks for what the libraries do not hold, or never for one of them; a telephone line at a
            rate that is no multiple of its own.
    """

    def __init__(
        self,
        policy: AugmentationPolicy,
        noises: NoiseLibrary | None = None,
        rooms: ImpulseLibrary | None = None,
        *,
        sample_rate: int,
    ) -> None:
        self.policy = policy
        self.noises = noises
        self.rooms = rooms
        self.sample_rate = sample_rate
        # Each way to change a crop: (whether noise is mixed in, whether there is reverberation).
        ways = {
            (True, False): policy.only_noise_weight,
            (False, True): policy.only_reverberation_weight,
            (True, True): policy.both_weight,
        }
        self._ways = [
            (way, weight)
            for way, weight in ways.items()
            if weight > 0 and (noises is not None or not way[0]) and (rooms is not None or not way[1])
        ]
        self._categories = [
            (name, getattr(policy, f"{name}_weight"))
            for name in LIBRARY_CATEGORY
            if getattr(policy, f"{name}_weight") > 0
        ]
        self._refuse_unused()
        self._refuse_missing()
        if policy.telephone_probability and not is_telephone_rate(sample_rate):
            raise UserError(
                f"augment.telephone_probability is {policy.telephone_probability}, but features.sample_rate is "
                f"{sample_rate} Hz, expected a multiple of {LINE_RATE} Hz; set augment.telephone_probability=0"
            )

    @property
    def can_change(self) -> bool:
        """Whether a crop can ever come out otherwise than it went in."""
        policy = self.policy
        return policy.probability > 0 and (bool(self._ways) or any(policy.gain) or policy.telephone_probability > 0)

    def description(self) -> str:
        """For the log: what there is to draw from, and how often."""
        parts = []
        if self.noises is not None:
            counts = ", ".join(f"{len(files)} {name}" for name, files in self.noises.categories.items())
            parts.append(f"noise ({counts})")
        if self.rooms is not None:
            parts.append(f"reverberation ({len(self.rooms)} responses)")
        if any(self.policy.gain):
            parts.append("gain")
        if self.policy.telephone_probability:
            parts.append("telephone")
        return f"{100 * self.policy.probability:g} % of crops get {', '.join(parts)}"

    def draw(self, rng: np.random.Generator, samples: int) -> Plan:
        """A plan for a crop of so many samples, which depends on the state of ``rng`` alone.

        Files are drawn uniformly, whatever their length or room; a slice lies anywhere in its file with equal
        probability.
        """
        policy = self.policy
        if rng.random() >= policy.probability:
            return CLEAN
        has_noise, has_room = _pick(rng, self._ways) if self._ways else (False, False)
        response = int(rng.integers(len(self.rooms))) if has_room and self.rooms is not None else None
        category: str | None = None
        slices: tuple[Slice, ...] = ()
        snr_db = 0.0
        if has_noise:
            category = _pick(rng, self._categories)
            snr_db = _uniform(rng, getattr(policy, f"{category}_snr"))
            slices = self._draw_slices(rng, category, samples / self.sample_rate)
        gain_db = _uniform(rng, policy.gain)
        telephone = LAWS[rng.integers(len(LAWS))] if rng.random() < policy.telephone_probability else None
        return Plan(response, category, slices, snr_db, gain_db, telephone)

    def load(self, plan: Plan, samples: int) -> Materials:
        """Decode what a plan needs for a crop of so many samples; errors as of ``materials.load``."""
        if plan.is_clean:
            return NOTHING
        return load(plan, samples, self.sample_rate, self.noises, self.rooms)

    def apply(self, samples: np.ndarray, plan: Plan, materials: Materials) -> np.ndarray:
        """``apply_plan`` at the rate of the crops."""
        return apply_plan(samples, plan, materials, self.sample_rate)

    def fingerprint(self) -> str:
        """Changes whenever a plan would mean other sounds: guards a resumed run. Empty without libraries."""
        return " ".join(library.fingerprint() for library in (self.noises, self.rooms) if library is not None)

    def _draw_slices(self, rng: np.random.Generator, category: str, seconds: float) -> tuple[Slice, ...]:
        assert self.noises is not None
        files = self.noises.categories[LIBRARY_CATEGORY[category]]
        count = 1
        if category == "babble":
            fewest, most = (int(number) for number in self.policy.babble_talkers)
            count = int(rng.integers(fewest, min(most, len(files)) + 1))
        chosen = rng.choice(len(files), count, replace=False) if count > 1 else [rng.integers(len(files))]
        return tuple(Slice(int(file), rng.random() * max(float(files.seconds[file]) - seconds, 0.0)) for file in chosen)

    def _refuse_unused(self) -> None:
        for number, (name, library) in enumerate((("noise", self.noises), ("reverberation", self.rooms))):
            if library is not None and not any(way[number] for way, _ in self._ways):
                other = "reverberation" if name == "noise" else "noise"
                raise UserError(
                    f"augment.{name} is given but would never be used: augment.only_{name}_weight is 0, and "
                    f"augment.both_weight is 0 or augment.{other} null; raise a weight or set augment.{name}=null"
                )

    def _refuse_missing(self) -> None:
        if self.noises is None:
            return
        for name, weight in self._categories:
            wanted = int(self.policy.babble_talkers[0]) if name == "babble" else 1
            category = LIBRARY_CATEGORY[name]
            held = len(self.noises.categories.get(category, ()))
            if held < wanted:
                raise UserError(
                    f"augment.{name}_weight is {weight:g}, but augment.noise holds {held} utterances of the category "
                    f"{category!r}, expected {wanted} or more; add some or set augment.{name}_weight=0"
                )


def _uniform(rng: np.random.Generator, limits: Sequence[float]) -> float:
    low, high = limits
    return low + (high - low) * rng.random()


def _pick(rng: np.random.Generator, choices: Sequence[tuple[Choice, float]]) -> Choice:
    """One of (choice, weight), in proportion to the weights."""
    point = rng.random() * sum(weight for _, weight in choices)
    for choice, weight in choices:
        point -= weight
        if point < 0:
            return choice
    return choices[-1][0]  # the sum was rounded up
