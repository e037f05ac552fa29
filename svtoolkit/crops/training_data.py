"""The data of a run, from its configuration: training set, held-out speakers, random changes of the crops."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
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
from svtoolkit.config.front_ends import WaveformConfig
from svtoolkit.crops.class_tuples import ClassTuples, tuple_size
from svtoolkit.crops.crop import CropDataset, CropGeometry
from svtoolkit.crops.feature_crop import FeatureCropDataset
from svtoolkit.crops.loader import workers_of
from svtoolkit.crops.manifest import Manifest
from svtoolkit.crops.sampler import Windows
from svtoolkit.crops.stored_features import read_stored_features
from svtoolkit.crops.training_set import TrainingSet, leave_out_bad
from svtoolkit.data.audio_table import find_source
from svtoolkit.data.raw_folders import refuse_other_folders
from svtoolkit.data.shard_index import read_checksums
from svtoolkit.data.splitting import draw_eval_speakers, fitting_eval_speakers
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
        utterances: of the data directory, those left out included.
        bad_files: utterances of the training speakers whose length no table gives and no header either.
    """

    def __init__(self, config: TrainConfig) -> None:
        self.config = config
        self.stored = read_stored_features(config)
        source = find_source(Path(config.data.train), config.data.source)
        whole = Manifest.read(config.data.train, config.data.root, source)
        self.utterances = len(whole)
        manifest, self.held_out = self._split(whole)
        manifest, self.bad_files = leave_out_bad(manifest, jobs=self._jobs)
        self.training_set = TrainingSet.build(
            manifest,
            speeds=config.data.speeds,
            warps=config.data.warps,
            min_seconds=config.data.min_seconds,
            jobs=self._jobs,
        )
        if len(self.training_set.speakers) < 2:
            raise UserError(
                f"{config.data.train}: found one training speaker, {self.training_set.speakers[0]!r}, expected two or "
                "more, whom the network learns to tell apart; add speakers, or lower validation.speakers or "
                "data.min_seconds"
            )
        self._open_cache()
        augment = config.augment
        self.spec_augment = SpecAugment(
            augment.spec_probability, augment.time_masks, augment.time_width, augment.freq_masks, augment.freq_width
        )
        if self._hears_samples:
            self.spec_augment = replace(self.spec_augment, probability=0.0)
        self.augmenter = self._build_augmenter()

    def crops(self, front_end: FrontEnd) -> CropDataset | FeatureCropDataset:
        """Crops that are ``data.crop_frames`` frames long."""
        config = self.config
        samples, frames = front_end.crop_size(config.data.crop_frames)
        geometry = CropGeometry(config.features.sample_rate, samples, frames, config.features.num_bins)
        if self.stored is not None:
            shift = front_end.num_samples(2) - front_end.num_samples(1)
            return FeatureCropDataset(self.training_set, geometry, self.spec_augment, shift=shift, seed=config.seed)
        return CropDataset(
            self.training_set,
            geometry,
            self.spec_augment,
            dither=config.augment.dither,
            int16_scale=True,  # the units of augment.dither, whatever the front end works in
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
        return Windows(np.tile(group, self.training_set.copies), size)

    def tuples(self) -> ClassTuples | None:
        """Entries of one class that come together; None: each comes by itself.

        Raises:
            UserError: no speaker has so many utterances.
        """
        size, training_set = tuple_size(self.config.pairwise), self.training_set
        if size == 1:
            return None
        most = int(np.bincount(training_set.utterances.speaker_index).max())
        if most < size:
            raise UserError(
                f"pairwise.crops is {size}, and no training speaker has more than {most} utterances: none could be "
                "compared with others of its class; set pairwise=none, or add utterances"
            )
        return ClassTuples(training_set.labels(), size)

    def fingerprint(self) -> str:
        """Changes whenever the same draw would be another crop: guards a resumed run."""
        form = None if self.stored is None else f"features as {self.stored.form}"
        return " ".join(filter(None, (self.training_set.fingerprint(), self.augmenter.fingerprint(), form)))

    def announce(self) -> None:
        """Log the sizes of the training set and the changes of its crops."""
        data = self.training_set
        held = f", {len(self.held_out.speakers)} more held out for validation" if self.held_out else ""
        log.info(
            "%d utterances, %.2f h; %d speakers x %d speeds%s = %d classes%s",
            len(data.utterances), data.seconds.sum() / 3600, len(data.speakers), len(data.speeds),
            f" x {len(data.warps)} warps" if len(data.warps) > 1 else "", data.num_classes, held,
        )  # fmt: skip
        for key, factors in (("speeds", data.speeds), ("warps", data.warps)):
            if 1.0 not in factors:
                log.warning("data.%s is %s, without 1.0: no crop is of speech as it is; add 1.0", key, list(factors))
        if self.stored is not None:
            log.info("crops are stretches of stored features (%s): no audio is read", self.stored.form)
        if self._hears_samples and self.config.augment.spec_probability:
            log.info("SpecAug masks features: crops of the waveform itself have no masks")
        if self.augmenter.changes:
            log.info("%s, computed in the %s", self.augmenter.description(), self.config.augment.device)
        missing = [f"augment.{key}" for key in ("noise", "reverberation") if getattr(self.config.augment, key) is None]
        if missing and self.stored is None:
            log.info("trains without %s: give the data directory to add it", " and without ".join(missing))

    @property
    def _hears_samples(self) -> bool:
        return isinstance(self.config.features, WaveformConfig)

    @property
    def _jobs(self) -> int:
        return max(1, workers_of(self.config.data.num_workers))

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
        counts, speakers = manifest.utterance_counts(), self.config.validation.speakers
        if speakers is None:
            speakers = _hold_out(counts, self.config.validation.max_speakers)
        if not speakers:
            return manifest, None
        try:
            chosen = draw_eval_speakers(counts, eval_speakers=speakers, seed=self.config.seed)
            return manifest.of_speakers(chosen)
        except UserError as error:
            raise UserError(f"validation.speakers is {speakers}: {error} (0: no validation)") from error

    def _build_augmenter(self) -> Augmenter:
        augment = self.config.augment
        if augment.device not in AUGMENTATION_DEVICES:
            raise UserError(f"augment.device is {augment.device!r}, expected one of {', '.join(AUGMENTATION_DEVICES)}")
        noises = self._library(NoiseLibrary, augment.noise, "noise")
        rirs = self._library(ImpulseLibrary, augment.reverberation, "rirs")
        return build_augmenter(augment, noises, rirs, sample_rate=self.config.features.sample_rate, added=augment.added)

    def _library(self, kind: type[Library], path: str | None, corpus: str) -> Library | None:
        """Of the data directory at ``path``; ``corpus`` of ``svt prepare`` makes one of plain recordings."""
        if path is None:
            return None
        refuse_other_folders(Path(path), corpus)
        return kind.build(Manifest.read(path, self.config.data.root), jobs=self._jobs)


def _hold_out(counts: Mapping[str, int], most: int) -> int:
    """How many speakers are held out where no number is given; the log says where they are fewer than ``most``."""
    fitting = fitting_eval_speakers(counts, most)
    if not fitting:
        log.info(
            "no speaker is held out for validation: a fifth of %d speakers, of those with two utterances, is less than "
            "the two that trials need; validation.speakers=2 holds out two",
            len(counts),
        )
    elif fitting < most:
        log.info(
            "%d speakers are held out for validation instead of %d: a fifth of %d at most, with two utterances each; "
            "validation.speakers=N holds out N",
            fitting, most, len(counts),
        )  # fmt: skip
    return fitting
