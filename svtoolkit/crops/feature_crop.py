"""Training crops of stored features: stretches of frames, at the place where the waveform would have been cut."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

import numpy as np
from torch.utils.data import Dataset

from svtoolkit.augmentation.spec_augment import SpecAugment
from svtoolkit.crops.crop import Crop, CropGeometry, draw_start
from svtoolkit.crops.training_set import TrainingSet
from svtoolkit.data.feature_archive import open_features


@dataclass(eq=False)
class FeatureCropDataset(Dataset[Crop]):
    """Item (epoch, entry) -> crop of frames; only these are read.

    The draws are those of ``CropDataset`` without dither and augmentation: its crop begins at the same time, up to the
    nearest frame, and has the same masks. An utterance that is too short is repeated frame by frame.

    Args:
        training_set: what entries mean; of one speed, 1.
        geometry: size of the crops.
        spec_augment: draws the masks.
        shift: samples from frame to frame.
        seed: with epoch and entry it fixes every draw.

    Raises:
        UserError: for an item: features that cannot be read.
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
        rng = np.random.default_rng([self.seed, epoch, entry])
        utterance, _, label = self.training_set.entry(entry)
        frames = self._crop(utterance, rng)
        return Crop(frames, label, self.spec_augment.draw(self.geometry.frames, self.geometry.bins, rng), entry)

    def _crop(self, utterance: int, rng: np.random.Generator) -> np.ndarray:
        """float32, (frames, bins)."""
        count, rate = self.geometry.frames, self.geometry.sample_rate
        start = draw_start(float(self.training_set.seconds[utterance]), self.geometry.samples / rate, rng)
        with open_features(self.training_set.utterances[utterance].path, self.geometry.bins) as matrix:
            first = min(round(start * rate / self.shift), max(matrix.rows - count, 0))
            frames = matrix.read(first, min(count, matrix.rows))
        return frames if len(frames) == count else np.resize(frames, (count, self.geometry.bins))
