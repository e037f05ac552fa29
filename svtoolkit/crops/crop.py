"""Training crops: only the samples of the crop are decoded, and every draw is a function of (seed, epoch, entry)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from svtoolkit.audio.files import convert_rate, read_audio
from svtoolkit.augmentation.augmenter import UNCHANGED, Augmenter, ChangedRows, collate_changes
from svtoolkit.augmentation.change import Parameters
from svtoolkit.augmentation.spec_augment import SpecAugment
from svtoolkit.crops.training_set import TrainingSet
from svtoolkit.errors import UserError
from svtoolkit.features.fbank import dither_noise


class CropBatch(NamedTuple):
    """Crops on their way to the device.

    Attributes:
        waveforms: float32, (batch, samples); of stored features their frames, (batch, frames, bins).
        labels: classes, int64, (batch,).
        masks: SpecAugment masks, int64, (batch, masks, 2).
        entries: rows of the training set, int64, (batch,).
        changes: of the waveforms that are left to the device, by name; see ``Augmenter.apply``.
    """

    waveforms: Tensor
    labels: Tensor
    masks: Tensor
    entries: Tensor
    changes: Mapping[str, ChangedRows] = {}

    def to(self, device: torch.device) -> CropBatch:
        """The same on another device; the copy of pinned tensors is asynchronous."""
        waveforms, labels, masks, entries = (tensor.to(device, non_blocking=True) for tensor in self[:4])
        changes = {name: rows.to(device) for name, rows in self.changes.items()}
        return CropBatch(waveforms, labels, masks, entries, changes)


class Crop(NamedTuple):
    """One crop: as the row of a ``CropBatch``.

    Attributes:
        samples: of the waveform, or frames.
        changes: loaded parameters of changes that are left to the device.
    """

    samples: np.ndarray
    label: int
    masks: np.ndarray
    entry: int
    changes: Mapping[str, Parameters] = {}


@dataclass(frozen=True)
class CropGeometry:
    """Sizes of a crop: sample rate in Hz, samples, and the frames and bins that become of them."""

    sample_rate: int
    samples: int
    frames: int
    bins: int


@dataclass(eq=False)
class CropDataset(Dataset[Crop]):
    """Item (epoch, entry) -> crop.

    Args:
        training_set: what entries mean.
        geometry: size of the crops.
        spec_augment: draws the masks.
        dither: standard deviation of white noise, in 16-bit units where ``int16_scale``.
        seed: with epoch and entry it fixes every draw.
        augmenter: draws the changes of the waveforms.
        augment_in_batch: leave their arithmetic to the device.
        channel, resample: as for ``read_audio``.

    Raises:
        UserError: negative ``dither``; for an item: a file that cannot be used.
    """

    training_set: TrainingSet
    geometry: CropGeometry
    spec_augment: SpecAugment
    _: KW_ONLY
    dither: float
    int16_scale: bool
    seed: int
    augmenter: Augmenter = UNCHANGED
    augment_in_batch: bool = False
    channel: int | None = None
    resample: bool = False

    def __post_init__(self) -> None:
        if not self.dither >= 0:
            raise UserError(f"augment.dither is {self.dither}, expected a standard deviation of 0 or more")

    def __len__(self) -> int:
        return len(self.training_set)

    def __getitem__(self, item: tuple[int, int]) -> Crop:
        epoch, entry = item
        rng = np.random.default_rng([self.seed, epoch, entry])
        utterance_index, speed, label = self.training_set.entry(entry)
        samples = self._crop(utterance_index, speed, rng)
        if self.dither:
            generator = torch.Generator().manual_seed(int(rng.integers(2**63)))
            noise = dither_noise(len(samples), self.dither, self.int16_scale, generator).numpy()
            samples = np.add(samples, noise, out=noise)
        masks = self.spec_augment.draw(self.geometry.frames, self.geometry.bins, rng)
        changes = self.augmenter.load(self.augmenter.draw(rng), len(samples))
        if self.augment_in_batch:
            return Crop(samples, label, masks, entry, changes)
        return Crop(self.augmenter.apply_to_crop(samples, changes), label, masks, entry)

    def _crop(self, utterance_index: int, speed: float, rng: np.random.Generator) -> np.ndarray:
        """A random stretch, ``speed`` times as fast; an utterance that is too short is repeated."""
        rate = self.geometry.sample_rate
        utterance = self.training_set.utterances[utterance_index]
        available = float(self.training_set.seconds[utterance_index])
        wanted = math.ceil(self.geometry.samples * speed) / rate
        start = draw_start(available, wanted, rng)
        samples = read_audio(
            utterance.path,
            sample_rate=rate,
            start=utterance.offset + start,
            duration=min(wanted, available),
            channel=self.channel,
            resample=self.resample,
        )
        if not len(samples):
            raise UserError(
                f"{utterance.path}: utterance {utterance.utterance_id!r} has no samples at {start:.2f} s of it; "
                "its duration is given too long: run `svt validate` on the data directory"
            )
        if speed != 1.0:
            samples = convert_rate(samples, rate * speed, rate)
        count = self.geometry.samples
        return samples[:count] if len(samples) >= count else np.resize(samples, count)


def draw_start(available: float, wanted: float, rng: np.random.Generator) -> float:
    """Where a crop begins in its utterance: in seconds, as the durations of both."""
    return rng.random() * max(available - wanted, 0.0)


def collate_crops(items: list[Crop]) -> CropBatch:
    """Crops of one size as a batch, in their order."""
    samples, labels, masks, entries, changes = zip(*items, strict=True)
    return CropBatch(
        torch.from_numpy(np.stack(samples)),
        torch.tensor(labels),
        torch.from_numpy(np.stack(masks)),
        torch.tensor(entries),
        collate_changes(changes),
    )
