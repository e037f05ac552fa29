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
from svtoolkit.data.audio_survey import explain_samples
from svtoolkit.device import send
from svtoolkit.errors import UserError
from svtoolkit.features.fbank import dither_noise

REDRAWS = 8
"""Stretches of an utterance that are looked at before it counts as silent."""
ATTEMPTS = 20
"""Crops that are drawn for an entry, of others after its own, before it is an error."""


class CropBatch(NamedTuple):
    """Crops on their way to the device.

    Attributes:
        waveforms: float32, (batch, samples); of stored features their frames, (batch, frames, bins).
        labels: classes, int64, (batch,).
        masks: SpecAugment masks, int64, (batch, masks, 2).
        entries: rows of the training set, int64, (batch,).
        changes: of the waveforms that are left to the device, by name; see ``Augmenter.apply``.
        bad: utterances that gave no crop, others being taken instead: row of the training set's utterances -> reason.
        warps: number of the factor of each crop in ``data.warps``, int64, (batch,); None: all have the same filters.
    """

    waveforms: Tensor
    labels: Tensor
    masks: Tensor
    entries: Tensor
    changes: Mapping[str, ChangedRows] = {}
    bad: Mapping[int, str] = {}
    warps: Tensor | None = None

    def to(self, device: torch.device) -> CropBatch:
        """The same on another device; see ``send``."""
        waveforms, labels, masks, entries = send(self[:4], device)
        changes = {name: rows.to(device) for name, rows in self.changes.items()}
        warps = None if self.warps is None else send((self.warps,), device)[0]
        return CropBatch(waveforms, labels, masks, entries, changes, self.bad, warps)


class Crop(NamedTuple):
    """One crop: as the row of a ``CropBatch``.

    Attributes:
        samples: of the waveform, or frames.
        changes: loaded parameters of changes that are left to the device.
        bad: as of a ``CropBatch``, found on the way to this crop.
        warp: number of its factor in ``data.warps``; None: there is one filter bank.
    """

    samples: np.ndarray
    label: int
    masks: np.ndarray
    entry: int
    changes: Mapping[str, Parameters] = {}
    bad: Mapping[int, str] = {}
    warp: int | None = None


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

    Where an utterance cannot be read or holds NaN, the crop is one of another entry, with that one's label; where a
    crop is silent, another stretch of its utterance is tried first. Which entry is a draw like all others, so that the
    crops do not depend on when or by whom a bad file was found.

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
        UserError: negative ``dither``; for an item: neither it nor any of those drawn in its place can be used.
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
        bad: dict[int, str] = {}
        chosen = entry
        for attempt in range(ATTEMPTS):
            rng = draw_of(self.seed, epoch, entry, attempt)
            if bad:
                chosen = int(rng.integers(len(self)))
            utterance_index, speed, warp, label = self.training_set.entry(chosen)
            try:
                samples = self._crop(utterance_index, speed, rng)
                reason = explain_samples(samples)
            except UserError as error:
                bad[utterance_index] = str(error)
                continue
            if reason is None:
                crop = self._finish(samples, label, chosen, rng, bad)
                return crop if self.training_set.warps == (1.0,) else crop._replace(warp=warp)
            may_be_speech = bool(np.isfinite(samples).all()) and (bad or attempt + 1 < REDRAWS)
            if not may_be_speech:
                path = self.training_set.utterances[utterance_index].path
                bad[utterance_index] = f"{path}: {reason}; re-create the file or drop it"
        raise nothing_usable(bad)

    def _finish(
        self, samples: np.ndarray, label: int, entry: int, rng: np.random.Generator, bad: Mapping[int, str]
    ) -> Crop:
        """Dither, masks and random changes of some samples, drawn in this order."""
        if self.dither:
            generator = torch.Generator().manual_seed(int(rng.integers(2**63)))
            noise = dither_noise(len(samples), self.dither, self.int16_scale, generator).numpy()
            samples = np.add(samples, noise, out=noise)
        masks = self.spec_augment.draw(self.geometry.frames, self.geometry.bins, rng)
        changes = self.augmenter.load(self.augmenter.draw(rng), len(samples))
        if self.augment_in_batch:
            return Crop(samples, label, masks, entry, changes, bad)
        return Crop(self.augmenter.apply_to_crop(samples, changes), label, masks, entry, {}, bad)

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
            keys="data.",
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


def draw_of(seed: int, epoch: int, entry: int, attempt: int) -> np.random.Generator:
    """What fixes every draw of a crop, and of each one that is drawn in its place."""
    return np.random.default_rng([seed, epoch, entry, attempt] if attempt else [seed, epoch, entry])


def nothing_usable(bad: Mapping[int, str]) -> UserError:
    """That neither an utterance nor those drawn in its place can be used: the reason of the first."""
    return UserError(f"{next(iter(bad.values()))} ({ATTEMPTS - 1} utterances drawn in its place cannot be used either)")


def draw_start(available: float, wanted: float, rng: np.random.Generator) -> float:
    """Where a crop begins in its utterance: in seconds, as the durations of both."""
    return rng.random() * max(available - wanted, 0.0)


def collate_crops(items: list[Crop]) -> CropBatch:
    """Crops of one size as a batch, in their order."""
    samples, labels, masks, entries, changes, bad, warps = zip(*items, strict=True)
    return CropBatch(
        torch.from_numpy(np.stack(samples)),
        torch.tensor(labels),
        torch.from_numpy(np.stack(masks)),
        torch.tensor(entries),
        collate_changes(changes),
        {row: reason for found in bad for row, reason in found.items()},
        None if warps[0] is None else torch.tensor(warps),
    )
