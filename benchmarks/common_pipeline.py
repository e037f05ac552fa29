"""The way most toolkits load training crops, to measure against: everything whole, one utterance after the other.

The order is that of WeSpeaker (wespeaker/dataset/dataset.py and processor.py): decode, change the speed of the whole,
crop, reverberation or noise, features. Noise and impulse responses are decoded whole, as there; the full response is
applied, and the peak is normalised after it. Speed changes with the resampler of svtoolkit, so that none is at a
disadvantage. The noise of "speech" is one clip, not several talkers. Noise and reverberation together happen as often
as in svtoolkit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import soundfile
import torch
from scipy.signal import fftconvolve
from torch import Tensor

from svtoolkit.audio.files import convert_rate
from svtoolkit.augmentation.impulse_responses import ImpulseLibrary
from svtoolkit.augmentation.noise import LIBRARY_CATEGORY, NoiseLibrary
from svtoolkit.config import AugmentConfig
from svtoolkit.crops.training_set import TrainingSet
from svtoolkit.features import FrontEnd
from svtoolkit.features.fbank import dither_noise

Features = Callable[[np.ndarray, np.random.Generator], np.ndarray]


class CommonPipeline:
    """Items (epoch, entry) -> features.

    Args:
        training_set: what entries mean: whole files of one rate.
        noises, rirs: to augment with; only where their files are is taken of them.
        augment: how often, and the ranges of signal-to-noise ratios.
        samples: of a crop.
        features: of one crop.
    """

    def __init__(
        self,
        training_set: TrainingSet,
        noises: NoiseLibrary,
        rirs: ImpulseLibrary,
        augment: AugmentConfig,
        samples: int,
        features: Features,
    ) -> None:
        self.training_set = training_set
        self.noises = {name: files.paths for name, files in noises.categories.items()}
        self.rirs = rirs.files.paths
        self.augment = augment
        self.samples = samples
        self.features = features

    def load(self, items: Sequence[tuple[int, int]]) -> Tensor:
        """(batch, frames, bins), the mean of each crop removed."""
        return torch.from_numpy(np.stack([self._load_one(*item) for item in items]))

    def _load_one(self, epoch: int, entry: int) -> np.ndarray:
        rng = np.random.default_rng([epoch, entry])
        row, speed, _, _ = self.training_set.entry(entry)
        samples, rate = soundfile.read(str(self.training_set.utterances[row].path), dtype="float32")
        if speed != 1.0:
            samples = convert_rate(samples, rate * speed, rate)
        crop = self._augment(_random_stretch(samples, self.samples, rng), rng)
        features = self.features(crop, rng)
        return features - features.mean(axis=0)

    def _augment(self, crop: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        if rng.random() >= self.augment.probability:
            return crop
        way = rng.integers(3)  # reverberation, both, noise
        if way < 2:
            response, _ = soundfile.read(self.rirs[rng.integers(len(self.rirs))], dtype="float32")
            crop = _normalise_peak(fftconvolve(crop, response / np.linalg.norm(response))[: len(crop)])
        if way > 0:
            crop = _normalise_peak(self._add_noise(crop, rng))
        return crop

    def _add_noise(self, crop: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        kind = list(LIBRARY_CATEGORY)[rng.integers(len(LIBRARY_CATEGORY))]
        paths = self.noises[LIBRARY_CATEGORY[kind]]
        noise, _ = soundfile.read(paths[rng.integers(len(paths))], dtype="float32")
        noise = _random_stretch(noise, len(crop), rng)
        snr_db = rng.uniform(*getattr(self.augment, f"{kind}_snr"))
        scale = np.sqrt(10 ** ((_decibels(crop) - _decibels(noise) - snr_db) / 10))
        return crop + scale.astype(np.float32) * noise


def kaldi_native_features(num_bins: int) -> Features:
    """kaldi-native-fbank with Kaldi's dither, drawn by it for every frame."""
    import kaldi_native_fbank as knf  # no other way needs it

    options = knf.FbankOptions()
    options.frame_opts.dither = 1.0
    options.frame_opts.window_type = "hamming"
    options.mel_opts.num_bins = num_bins

    def compute(crop: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        computer = knf.OnlineFbank(options)
        computer.accept_waveform(16000, crop * 32768)
        computer.input_finished()
        return np.stack([computer.get_frame(index) for index in range(computer.num_frames_ready)])

    return compute


def torch_features(front_end: FrontEnd) -> Features:
    """A filter bank in torch, called for one crop at a time as that of torchaudio is, with dither for every sample."""

    def compute(crop: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        generator = torch.Generator().manual_seed(int(rng.integers(2**63)))
        dither = dither_noise(len(crop), 1.0, True, generator)
        return front_end((torch.from_numpy(crop) + dither).unsqueeze(0))[0].numpy()

    return compute


def _random_stretch(samples: np.ndarray, length: int, rng: np.random.Generator) -> np.ndarray:
    """As long as asked for; what is too short is repeated."""
    if len(samples) < length:
        return np.resize(samples, length)
    begin = rng.integers(len(samples) - length + 1)
    return samples[begin : begin + length]


def _normalise_peak(samples: np.ndarray) -> np.ndarray:
    return samples / (np.abs(samples).max() + 1e-4)


def _decibels(samples: np.ndarray) -> np.floating:
    return 10 * np.log10(np.mean(samples**2) + 1e-4)
