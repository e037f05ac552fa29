"""Noise, music and babble, mixed in at a signal-to-noise ratio."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from svtoolkit.augmentation.change import Change, Parameters
from svtoolkit.augmentation.draws import pick, uniform
from svtoolkit.augmentation.level import SILENCE, amplitude, level
from svtoolkit.augmentation.sound_files import SoundFiles
from svtoolkit.data.kaldi_dir import Utterance
from svtoolkit.errors import UserError

NOISE_CATEGORIES = ("noise", "music", "speech")
"""Of MUSAN (Snyder et al., arXiv:1510.08484); the speakers of a data directory of noises."""

LIBRARY_CATEGORY = {"noise": "noise", "music": "music", "babble": "speech"}
"""What is mixed in -> the category of the noise library that it is made of."""

SHORTEST_NOISE = 0.1
"""Seconds; a shorter one, repeated to the length of a crop, would be a hum."""


@dataclass(frozen=True)
class NoiseLibrary:
    """Noises by category; a category without files is not there."""

    categories: Mapping[str, SoundFiles]

    @classmethod
    def build(cls, utterances: Sequence[Utterance], *, jobs: int = 1) -> NoiseLibrary:
        """Take the utterances of a data directory whose speakers are categories: noise, music and speech.

        Args:
            utterances: such as ``KaldiDir.utterances()``.
            jobs: files looked at at a time.

        Raises:
            UserError: another speaker, or files that cannot be used.
        """
        for utterance in utterances:
            if utterance.speaker not in NOISE_CATEGORIES:
                raise UserError(
                    f"augment.noise: utterance {utterance.utterance_id!r} is of the category (speaker) "
                    f"{utterance.speaker!r}, expected {', '.join(NOISE_CATEGORIES)}; give what "
                    "`svt prepare corpus=musan` makes, or `svt prepare corpus=noise` of noises of your own"
                )
        files = SoundFiles.build(utterances, "augment.noise", SHORTEST_NOISE, np.inf, jobs)
        categories = np.array([utterance.speaker for utterance in utterances])
        rows = {name: np.flatnonzero(categories == name) for name in NOISE_CATEGORIES}
        return cls({name: files.take(chosen) for name, chosen in rows.items() if len(chosen)})

    def fingerprint(self) -> str:
        """Changes whenever the same draw would be another noise."""
        return " ".join(f"{name} {files.fingerprint()}" for name, files in sorted(self.categories.items()))


@dataclass(frozen=True)
class NoiseKind:
    """How often and how loud one of LIBRARY_CATEGORY is mixed in.

    Attributes:
        weight: how often, in proportion to the sum of all weights.
        snr_db: range of the signal-to-noise ratio, drawn uniformly.
        clips: fewest and most clips added up, drawn uniformly; never more than there are files.
    """

    weight: float
    snr_db: Sequence[float]
    clips: Sequence[int] = (1, 1)


class Noise(Change):
    """Clips drawn uniformly, whatever their length; each begins anywhere in its file with equal probability.

    A clip that is shorter than the crop is repeated from its beginning. Several are brought to equal power before they
    are added up.

    Args:
        library: what there is to draw from.
        kinds: by name.
        sample_rate: of the crops, in Hz.

    Raises:
        UserError: the library lacks files of a kind.
    """

    def __init__(self, library: NoiseLibrary, kinds: Mapping[str, NoiseKind], sample_rate: int) -> None:
        self.library = library
        self.kinds = {name: kind for name, kind in kinds.items() if kind.weight > 0}
        self.sample_rate = sample_rate
        held = {name: len(library.categories.get(LIBRARY_CATEGORY[name], ())) for name in self.kinds}
        lacking = [name for name, kind in self.kinds.items() if held[name] < int(kind.clips[0])]
        for name in lacking:
            remedy = " ".join(f"augment.{other}_weight=0" for other in lacking)
            kind = self.kinds[name]
            raise UserError(
                f"augment.{name}_weight is {kind.weight:g}, but augment.noise holds {held[name]} utterances of the "
                f"category {LIBRARY_CATEGORY[name]!r}, expected {int(kind.clips[0])} or more; add some or set {remedy}"
            )

    def draw(self, generator: np.random.Generator) -> Parameters:
        name = pick(generator, [(name, kind.weight) for name, kind in self.kinds.items()])
        kind, held = self.kinds[name], len(self._files(name))
        snr_db = uniform(generator, kind.snr_db)
        fewest, most = (int(number) for number in kind.clips)
        count = int(generator.integers(fewest, min(most, held) + 1))
        files = generator.choice(held, count, replace=False) if count > 1 else [generator.integers(held)]
        # Where each begins: a share of what its file is longer than the crop.
        clips = tuple((int(file), generator.random()) for file in files)
        return {"kind": name, "snr_db": snr_db, "clips": clips}

    def load(self, parameters: Parameters, samples: int) -> Parameters:
        files = self._files(parameters["kind"])
        clips = [self._read(files, file, share, samples) for file, share in parameters["clips"]]
        return {"noise": clips[0] if len(clips) == 1 else _add_up(clips), "snr_db": parameters["snr_db"]}

    def apply(self, waveforms: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        return add_noise(waveforms, parameters["noise"], parameters["snr_db"])

    def description(self) -> str:
        counts = ", ".join(f"{len(files)} {name}" for name, files in self.library.categories.items())
        return f"noise ({counts})"

    def fingerprint(self) -> str:
        return self.library.fingerprint()

    def _files(self, kind: str) -> SoundFiles:
        return self.library.categories[LIBRARY_CATEGORY[kind]]

    def _read(self, files: SoundFiles, file: int, share: float, samples: int) -> np.ndarray:
        start = share * max(float(files.seconds[file]) - samples / self.sample_rate, 0.0)
        return files.read(file, start, samples, self.sample_rate)


def add_noise(waveforms: Tensor, noises: Tensor, snr_db: Tensor) -> Tensor:
    """Add noise so that 10 log10(power of the speech / power of the added noise), over the whole row, is ``snr_db``.

    Where speech or noise is silent there is no such ratio, and nothing is added.

    Args:
        waveforms: speech, float32, (batch, samples).
        noises: float32, finite, (batch, samples), of any level.
        snr_db: (batch,).
    """
    speech_level, noise_level = level(waveforms), level(noises)
    audible = (speech_level > SILENCE) & (noise_level > SILENCE)
    scale = speech_level / noise_level * amplitude(snr_db.neg())
    return torch.addcmul(waveforms, noises, torch.where(audible, scale, 0.0))


def _add_up(clips: Sequence[np.ndarray]) -> np.ndarray:
    """Clips at equal power, (samples,) each; a silent one adds nothing."""
    mixture = np.zeros_like(clips[0])
    for clip in clips:
        power = float(np.dot(clip, clip)) / len(clip)
        if power > SILENCE**2:
            mixture += clip * np.float32(power**-0.5)
    return mixture
