"""From a plan to samples: of every file the slice alone is decoded, at the rate of the crop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from svtoolkit.augmentation.mixing import SILENCE
from svtoolkit.augmentation.noise_library import ImpulseLibrary, NoiseLibrary, SoundFiles
from svtoolkit.augmentation.plan import LIBRARY_CATEGORY, Plan, Slice


@dataclass(frozen=True)
class Materials:
    """Samples that a plan needs.

    Attributes:
        noise: float32, (samples,), of any level; None where nothing is mixed in.
        response: of the room, float32, (taps,), from ``normalise_response``; None where there is no reverberation.
    """

    noise: np.ndarray | None = None
    response: np.ndarray | None = None


NOTHING = Materials()


def load(
    plan: Plan, samples: int, sample_rate: int, noises: NoiseLibrary | None, rooms: ImpulseLibrary | None
) -> Materials:
    """Decode what a plan needs for a crop of so many samples.

    A noise that is shorter than the crop is repeated from its beginning. The talkers of a babble are brought to equal
    power before they are added up.

    Raises:
        UserError: a file that cannot be used.
        ValueError: the plan needs a library that is not given.
    """
    noise = response = None
    if plan.category is not None:
        if noises is None:
            raise ValueError(f"the plan mixes in {plan.category}, but there is no library of noises")
        files = noises.categories[LIBRARY_CATEGORY[plan.category]]
        noise = _mix(files, plan.slices, samples, sample_rate)
    if plan.response is not None:
        if rooms is None:
            raise ValueError("the plan asks for reverberation, but there is no library of impulse responses")
        response = rooms.response(plan.response, sample_rate)
    return Materials(noise, response)


def _mix(files: SoundFiles, slices: Sequence[Slice], samples: int, sample_rate: int) -> np.ndarray:
    """Slices at equal power, added up; a single one as it is."""
    if len(slices) == 1:
        return files.read(slices[0].file, slices[0].start, samples, sample_rate)
    mixture = np.zeros(samples, dtype=np.float32)
    for slice_ in slices:
        talker = files.read(slice_.file, slice_.start, samples, sample_rate)
        power = float(np.dot(talker, talker)) / samples
        if power > SILENCE**2:
            mixture += talker * np.float32(power**-0.5)
    return mixture
