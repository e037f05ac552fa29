"""Training crops of stored features: stretches of frames, at the place where the waveform would have been cut."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

import numpy as np
from torch.utils.data import Dataset

from svtoolkit.augmentation.spec_augment import SpecAugment
from svtoolkit.crops.crop import ATTEMPTS, Crop, CropGeometry, draw_of, draw_start, nothing_usable
from svtoolkit.crops.training_set import TrainingSet
from svtoolkit.data.feature_archive import check_finite, open_features
from svtoolkit.errors import UserError


@dataclass(eq=False)
class FeatureCropDataset(Dataset[Crop]):
    """Item (epoch, entry) -> crop of frames; only these are read.

    The draws are those of ``CropDataset`` without dither and augmentation: its crop begins at the same time, up to the
    nearest frame, and has the same masks. An utterance that is too short is repeated frame by frame. Where features
    cannot be read or are not finite, the crop is one of another entry, with that one's label, as there.

    Args:
        training_set: what entries mean; of one speed, 1.
        geometry: size of the crops.
        spec_augment: draws the masks.
        shift: samples from frame to frame.
        seed: with epoch and entry it fixes every draw.

    Raises:
        UserError: for an item: neither its features nor any of those drawn in their place can be used.
    """

    training_set: TrainingSet
    geometry: CropGeometry
    spec_augment: SpecAugment
    _: KW_ONLY
    shift: int
    seed: int

    def __len__(self) -> int:
        return len(self.training_set)

    def __getitem__(self, item: tuple[int, int]) -> Crop:
        epoch, entry = item
        bad: dict[int, str] = {}
        for attempt in range(ATTEMPTS):
            rng = draw_of(self.seed, epoch, entry, attempt)
            chosen = int(rng.integers(len(self))) if attempt else entry
            utterance, _, _, label = self.training_set.entry(chosen)
            try:
                frames = self._crop(utterance, rng)
            except UserError as error:
                bad[utterance] = str(error)
                continue
            masks = self.spec_augment.draw(self.geometry.frames, self.geometry.bins, rng)
            return Crop(frames, label, masks, chosen, {}, bad)
        raise nothing_usable(bad)

    def _crop(self, utterance: int, rng: np.random.Generator) -> np.ndarray:
        """float32, (frames, bins)."""
        count, rate = self.geometry.frames, self.geometry.sample_rate
        start = draw_start(float(self.training_set.seconds[utterance]), self.geometry.samples / rate, rng)
        location = self.training_set.utterances[utterance].path
        with open_features(location, self.geometry.bins) as matrix:
            first = min(round(start * rate / self.shift), max(matrix.rows - count, 0))
            frames = matrix.read(first, min(count, matrix.rows))
        check_finite(location, frames)
        return frames if len(frames) == count else np.resize(frames, (count, self.geometry.bins))
