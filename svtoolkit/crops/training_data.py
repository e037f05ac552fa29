"""The data of a run, from its configuration: training set, held-out speakers, random changes of the crops."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TypeVar

import numpy as np

from svtoolkit.audio.shards.location import is_url, parse_location
from svtoolkit.audio.shards.reader import configure_remote
from svtoolkit.audio.shards.remote_cache import RemoteShards
from svtoolkit.augmentation.augmenter import Augmenter
from svtoolkit.augmentation.build import build_augmenter
from svtoolkit.augmentation.impulse_responses import ImpulseLibrary
from svtoolkit.augmentation.noise import NoiseLibrary
from svtoolkit.augmentation.spec_augment import SpecAugment
from svtoolkit.config import TrainConfig
from svtoolkit.crops.crop import CropDataset, CropGeometry
from svtoolkit.crops.feature_crop import FeatureCropDataset
from svtoolkit.crops.manifest import Manifest
from svtoolkit.crops.sampler import Windows
from svtoolkit.crops.stored_features import read_stored_features
from svtoolkit.crops.training_set import TrainingSet
from svtoolkit.data.audio_table import find_source
from svtoolkit.data.shard_index import read_checksums
from svtoolkit.data.splitting import draw_eval_speakers
from svtoolkit.errors import UserError
from svtoolkit.features import FrontEnd

log = logging.getLogger(__name__)

AUGMENTATION_DEVICES = ("worker", "batch")

Library = TypeVar("Library", NoiseLibrary, ImpulseLibrary)


class TrainingData:
    """What crops are cut from, and how they are changed.

    Attributes:
        training_set: without the held-out speakers.
        held_out: speakers for validation; None: none.
        spec_augment: masks of the features.
        augmenter: changes of the waveforms; without any where none can happen.
        stored: what the features are that crops are cut from; None: they are cut from audio.
    """

    def __init__(self, config: TrainConfig) -> None:
        self.config = config
        self.stored = read_stored_features(config)
        source = find_source(Path(config.data.train), config.data.source)
        manifest, self.held_out = self._split(Manifest.read(config.data.train, config.data.root, source))
        self.training_set = TrainingSet.build(
            manifest, speeds=config.data.speeds, min_seconds=config.data.min_seconds, jobs=self._jobs
        )
        self._open_cache()
        augment = config.augment
        self.spec_augment = SpecAugment(
            augment.spec_probability, augment.time_masks, augment.time_width, augment.freq_masks, augment.freq_width
        )
        self.augmenter = self._build_augmenter()

    def crops(self, front_end: FrontEnd) -> CropDataset | FeatureCropDataset:
        """The crops that this front end makes ``data.crop_frames`` frames of."""
        config = self.config
        samples = front_end.num_samples(config.data.crop_frames)
        geometry = CropGeometry(config.features.sample_rate, samples, config.data.crop_frames, config.features.num_bins)
        if self.stored is not None:
            shift = front_end.num_samples(2) - front_end.num_samples(1)
            return FeatureCropDataset(self.training_set, geometry, self.spec_augment, shift=shift, seed=config.seed)
        return CropDataset(
            self.training_set,
            geometry,
            self.spec_augment,
            dither=config.augment.dither,
            int16_scale=config.features.int16_scale,
            seed=config.seed,
            augmenter=self.augmenter,
            augment_in_batch=config.augment.device == "batch",
            channel=config.data.channel,
            resample=config.data.resample,
        )

    def windows(self) -> Windows | None:
        """Groups of entries to shuffle together; None: all at once.

        Raises:
            UserError: the data are no shards.
        """
        size, utterances = self.config.data.shuffle_shards, self.training_set.utterances
        if size is None:
            return None
        archives = [shard and shard.archive for shard in map(parse_location, utterances.locations)]
        if None in archives:
            raise UserError(
                f"data.shuffle_shards is {size}, but {self.config.data.train} is read from files; "
                "leave it out, or set data.source=shards"
            )
        _, group = np.unique(np.array(archives, dtype=str), return_inverse=True)
        return Windows(np.tile(group, len(self.training_set.speeds)), size)

    def fingerprint(self) -> str:
        """Changes whenever the same draw would be another crop: guards a resumed run."""
        form = None if self.stored is None else f"features as {self.stored.form}"
        return " ".join(filter(None, (self.training_set.fingerprint(), self.augmenter.fingerprint(), form)))

    def announce(self) -> None:
        """Log the sizes of the training set and the changes of its crops."""
        data, held_out = self.training_set, self.config.validation.speakers
        held = f", {held_out} more held out for validation" if held_out else ""
        log.info(
            "%d utterances, %.2f h; %d speakers x %d speeds = %d classes%s",
            len(data.utterances), data.seconds.sum() / 3600,
            len(data.speakers), len(data.speeds), data.num_classes, held,
        )  # fmt: skip
        if self.stored is not None:
            log.info("crops are stretches of stored features (%s): no audio is read", self.stored.form)
        if self.augmenter.changes:
            log.info("%s, computed in the %s", self.augmenter.description(), self.config.augment.device)

    @property
    def _jobs(self) -> int:
        return max(1, self.config.data.num_workers)

    def _open_cache(self) -> None:
        """Shards at a URL are read through a folder of this machine."""
        data = self.config.data
        shard = parse_location(self.training_set.utterances.locations[0])
        is_remote = is_url(data.root or "") or (shard is not None and shard.is_remote)
        if is_remote != (data.cache_dir is not None):
            raise UserError(
                f"data.cache_dir is {data.cache_dir}, and the audio of {data.train} is "
                + ("at a URL; give a local folder for it" if is_remote else "local; leave it out")
            )
        if data.cache_dir is not None:
            listed = read_checksums(Path(data.train), [])
            checksums = {f"{str(data.root).rstrip('/')}/{name}": digest for name, (_, digest) in listed.items()}
            configure_remote(RemoteShards(data.cache_dir, int(data.cache_gib * 2**30), checksums))

    def _split(self, manifest: Manifest) -> tuple[Manifest, Manifest | None]:
        speakers = self.config.validation.speakers
        if not speakers:
            return manifest, None
        try:
            chosen = draw_eval_speakers(manifest.utterance_counts(), eval_speakers=speakers, seed=self.config.seed)
            return manifest.of_speakers(chosen)
        except UserError as error:
            raise UserError(f"validation.speakers is {speakers}: {error} (0: no validation)") from error

    def _build_augmenter(self) -> Augmenter:
        augment = self.config.augment
        if augment.device not in AUGMENTATION_DEVICES:
            raise UserError(f"augment.device is {augment.device!r}, expected one of {', '.join(AUGMENTATION_DEVICES)}")
        noises = self._library(NoiseLibrary, augment.noise)
        rirs = self._library(ImpulseLibrary, augment.reverberation)
        return build_augmenter(augment, noises, rirs, sample_rate=self.config.features.sample_rate, added=augment.added)

    def _library(self, kind: type[Library], path: str | None) -> Library | None:
        return None if path is None else kind.build(Manifest.read(path, self.config.data.root), jobs=self._jobs)
