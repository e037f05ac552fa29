"""Everything that is wrong with a data directory, found before a training run finds it.

The checks of tables follow Kaldi's utils/validate_data_dir.sh; those of audio, of trials and of speakers shared with
another directory go beyond it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from svtoolkit.config import ValidateConfig
from svtoolkit.data.audio_survey import SILENCE_DBFS, Extent, Survey, survey_recording
from svtoolkit.data.audio_table import find_source
from svtoolkit.data.feature_verification import FeatureChecks
from svtoolkit.data.kaldi_dir import PIPE, KaldiDir, Tables, parse_tables
from svtoolkit.data.shard_index import INDEX
from svtoolkit.data.shard_verification import verify_shards
from svtoolkit.data.tables import Fault, Segment, read_table
from svtoolkit.data.trials import parse_trials
from svtoolkit.errors import UserError
from svtoolkit.system.foreign_path import remedy_of_windows_path
from svtoolkit.system.regular_file import is_regular
from svtoolkit.system.threads import map_in_order

DURATION_TOLERANCE = 0.05
"""Seconds that utt2dur, the end of a segment or the header may differ from the audio: rounding in other tools ..."""

RELATIVE_TOLERANCE = 0.01
"""... or, where it is more, this share of the duration (utt2dur only)."""


@dataclass
class Validation:
    """What `validate` found.

    Attributes:
        faults: in the order of the tables, then of the recordings, the trial lists and the other directories.
        rates: sample rate in Hz -> recordings; empty if audio was not opened.
        durations: utterance -> seconds that its audio holds; empty if audio was not opened.
        frames: utterance -> frames that its features hold; empty if there are none, or they were not opened.
        speakers: number of speakers in utt2spk.
        utterances: number of utterances in utt2spk.
        hours: of all utterances: of their audio or, if audio was not opened, by the tables.
    """

    faults: list[Fault] = field(default_factory=list)
    rates: Counter[int] = field(default_factory=Counter)
    durations: dict[str, float] = field(default_factory=dict)
    frames: dict[str, int] = field(default_factory=dict)
    speakers: int = 0
    utterances: int = 0
    hours: float = 0.0

    @property
    def ok(self) -> bool:
        return not self.faults


def validate(path: str | Path, *, progress: Callable[[int], object] | None = None, **options: Any) -> Validation:
    """Check a data directory and list all its faults.

    Args:
        path: the data directory.
        progress: called with the number of recordings that are done.
        options: other fields of ``ValidateConfig``; the result does not depend on ``jobs``. Where ``sample_rate`` is
            None, it is the one that most recordings have.

    Raises:
        UserError: ``path`` or a directory of ``against`` cannot be read at all, or options that do not go together.
    """
    config = ValidateConfig(str(path), **options)
    _check_options(config)
    is_features = find_source(Path(path), None) == "features"
    if is_features and (config.sample_rate is not None or config.channel is not None):
        raise UserError(f"{path}: holds features, of which no audio can be had; leave out sample_rate and channel")
    tables = parse_tables(path, config.root, "features" if is_features else None)
    kaldi_dir = tables.kaldi_dir
    validation = Validation(
        faults=list(tables.faults), speakers=len(kaldi_dir.speakers), utterances=len(kaldi_dir.utt2spk)
    )
    if config.check_audio and is_features:
        checks = FeatureChecks(Path(path), tables)
        checks.run(config.jobs, progress)
        validation.faults += checks.faults
        validation.durations, validation.frames = checks.durations, checks.frames
        validation.hours = sum(validation.durations.values()) / 3600
    elif config.check_audio:
        AudioChecks(tables, config.sample_rate, config.channel, validation).run(config.jobs, progress)
        validation.hours = sum(validation.durations.values()) / 3600
    else:
        durations = (kaldi_dir.utterance(utt).duration for utt in kaldi_dir.utt2spk if _is_listed(kaldi_dir, utt))
        validation.hours = sum(duration or 0.0 for duration in durations) / 3600
    if config.check_audio and tables.audio_table == INDEX and config.root is None:
        validation.faults += [
            fault for fault in verify_shards(path, jobs=config.jobs) if fault not in validation.faults
        ]
    for trials in find_trials(path) if kaldi_dir.utt2spk else ():  # without it no trial could be right
        validation.faults += _check_trials(trials, kaldi_dir.utt2spk)
    for other in config.against:
        validation.faults += _compare(tables, Path(other))
    return validation


def find_trials(path: str | Path) -> list[Path]:
    """The trial lists of a data directory: `trials` and `trials_*`."""
    files = (file for file in Path(path).glob("trials*") if file.name == "trials" or file.name.startswith("trials_"))
    return sorted(file for file in files if is_regular(file))


def _check_options(config: ValidateConfig) -> None:
    if not config.check_audio and (config.sample_rate is not None or config.channel is not None):
        raise UserError("sample_rate and channel are checked in the audio; leave them out or set check_audio=true")
    if config.sample_rate is not None and config.sample_rate <= 0:
        raise UserError(f"sample_rate is {config.sample_rate}, expected a rate in Hz such as 16000")
    if config.channel is not None and config.channel < 0:
        raise UserError(f"channel is {config.channel}, expected 0 or more (channels are counted from 0)")


def _is_listed(kaldi_dir: KaldiDir, utterance: str) -> bool:
    segment = kaldi_dir.segments.get(utterance)
    return (segment.recording if segment else utterance) in kaldi_dir.wav_scp


@dataclass
class AudioChecks:
    """Decodes the recordings of a directory and adds what is wrong with them to a `Validation`."""

    tables: Tables
    sample_rate: int | None
    channel: int | None
    validation: Validation

    def run(self, jobs: int, progress: Callable[[int], object] | None) -> None:
        kaldi_dir = self.tables.kaldi_dir
        piped = {fault.utterance for fault in self.tables.faults if fault.code == PIPE}
        recordings = [recording for recording in sorted(kaldi_dir.wav_scp) if recording not in piped]
        stretches = self._stretches()

        def survey(recording: str) -> Survey:
            return survey_recording(kaldi_dir.audio_path(recording), stretches[recording], self.channel)

        rates: dict[str, int] = {}
        faults: dict[str, list[Fault]] = {}
        for done, (recording, found) in enumerate(
            zip(recordings, map_in_order(survey, recordings, jobs), strict=True), start=1
        ):
            faults[recording] = list(self._check(recording, found))
            if found.info is not None:
                rates[recording] = found.info.sample_rate
            if progress is not None:
                progress(done)
        self.validation.rates = Counter(rates.values())
        # The rate to expect is known only now that all recordings are.
        for recording in recordings:
            self.validation.faults += self._check_rate(recording, rates.get(recording)) + faults[recording]

    def _stretches(self) -> dict[str, dict[str, tuple[float, float | None]]]:
        """Recording -> utterance -> (start, end); a recording without utterances is one stretch."""
        kaldi_dir = self.tables.kaldi_dir
        stretches: dict[str, dict[str, tuple[float, float | None]]] = {rec: {} for rec in kaldi_dir.wav_scp}
        for utterance, segment in kaldi_dir.segments.items():
            if segment.recording in stretches:
                stretches[segment.recording][utterance] = (segment.start, segment.end)
        return {recording: found or {recording: (0.0, None)} for recording, found in stretches.items()}

    def _check(self, recording: str, survey: Survey) -> Iterator[Fault]:
        where = self.tables.where(self.tables.audio_table, recording)
        path = self.tables.kaldi_dir.audio_path(recording)
        if survey.missing:
            listed = self.tables.kaldi_dir.wav_scp[recording]
            remedy = remedy_of_windows_path(listed) or "check the path"
            if remedy == "check the path" and not Path(listed).is_absolute():
                remedy = "the list has a relative path: give the root it is taken from, or check the path"
            yield Fault("missing-audio", where, f"{recording!r}: there is no file {path}; {remedy}", recording)
            return
        if survey.problem is not None or survey.info is None:
            yield Fault("unreadable-audio", where, f"{recording!r}: {survey.problem}", recording)
            return
        info = survey.info
        if survey.samples == 0:
            message = f"{recording!r}: {path} holds no sample; re-create the file or drop it"
            yield Fault("empty-audio", where, message, recording)
            return
        if info.samples - survey.samples > DURATION_TOLERANCE * info.sample_rate:
            message = (
                f"{recording!r}: {path} ends after {survey.samples / info.sample_rate:.2f} s, its header says "
                f"{info.seconds:.2f} s; the file is cut off: re-create it or drop it"
            )
            yield Fault("truncated-audio", where, message, recording)
        if info.channels > 1 and self.channel is None:
            message = f"{recording!r}: {info.channels} channels, expected one; choose one with channel=0"
            yield Fault("multi-channel", where, message, recording)
        if self.channel is not None and self.channel >= info.channels:
            message = f"{recording!r}: there is no channel {self.channel}, the file has {info.channels}, from 0"
            yield Fault("no-channel", where, message, recording)
        segments = self.tables.kaldi_dir.segments
        for key, extent in survey.extents.items():
            yield from self._check_stretch(
                key, extent, segments.get(key), survey.samples / info.sample_rate, info.sample_rate
            )

    def _check_stretch(
        self, key: str, extent: Extent, segment: Segment | None, length: float, sample_rate: int
    ) -> Iterator[Fault]:
        """The samples of one utterance, or of a recording without utterances."""
        where = self.tables.where(self.tables.audio_table if segment is None else "segments", key)
        if segment is not None and (
            not extent.samples or (segment.end is not None and segment.end > length + DURATION_TOLERANCE)
        ):
            end = "its end" if segment.end is None else f"{segment.end:g} s"
            message = (
                f"{key!r} runs from {segment.start:g} s to {end}, but recording {segment.recording!r} "
                f"is {length:.2f} s long; correct the segment or drop it"
            )
            yield Fault("beyond-end", where, message, key)
            return
        if not extent.finite:
            yield Fault("not-finite", where, f"{key!r} has samples that are NaN or infinite; re-create the file", key)
        elif extent.peak_dbfs < SILENCE_DBFS:
            message = (
                f"{key!r} is silent: its peak is {extent.peak_dbfs:.0f} dBFS, expected {SILENCE_DBFS:.0f} or more; "
                "drop it or record it again"
            )
            yield Fault("silent-audio", where, message, key)
        if key not in self.tables.kaldi_dir.utt2spk:
            return
        measured = extent.samples / sample_rate
        self.validation.durations[key] = measured
        listed = self.tables.kaldi_dir.utt2dur.get(key)
        if listed is not None and abs(listed - measured) > max(DURATION_TOLERANCE, RELATIVE_TOLERANCE * measured):
            message = f"{key!r} is {measured:.3f} s long, the table says {listed:g} s; measure it again"
            yield Fault("wrong-duration", self.tables.where("utt2dur", key), message)

    def _check_rate(self, recording: str, rate: int | None) -> list[Fault]:
        rates = self.validation.rates
        if rate is None:
            return []
        expected = self.sample_rate or max(rates, key=lambda candidate: (rates[candidate], candidate))
        if rate == expected:
            return []
        histogram = ", ".join(f"{found} Hz: {rates[found]}" for found in sorted(rates))
        message = (
            f"{recording!r} has {rate} Hz, expected {expected} Hz (recordings: {histogram}); "
            "convert the file or drop it"
        )
        return [Fault("sample-rate", self.tables.where(self.tables.audio_table, recording), message, recording)]


def _check_trials(path: Path, utt2spk: Mapping[str, str]) -> list[Fault]:
    faults: list[Fault] = []
    classes: Counter[bool] = Counter()
    unknown: set[str] = set()
    for number, line, trial in parse_trials(path):
        where = f"{path.name}:{number}"
        if isinstance(trial, str):
            faults.append(Fault("malformed-trial", where, trial))
            continue
        enrol, test, target = trial
        classes[target] += 1
        absent = [utterance for utterance in dict.fromkeys((enrol, test)) if utterance not in utt2spk]
        for utterance in absent:
            if utterance not in unknown:
                message = f"{utterance!r} is not in utt2spk; drop its trials or add the utterance"
                faults.append(Fault("unknown-trial-utterance", where, message))
        unknown.update(absent)
        if not absent and (utt2spk[enrol] == utt2spk[test]) != target:
            message = f"found {line!r}, but by utt2spk the speakers are {utt2spk[enrol]!r} and {utt2spk[test]!r}"
            faults.append(Fault("trial-label", where, f"{message}; correct the label or utt2spk"))
    for target, name in ((True, "target"), (False, "nontarget")):
        if not classes[target]:
            message = f"there is no {name} trial; an error rate needs both kinds"
            faults.append(Fault("one-class-trials", path.name, message))
    return faults


def _compare(tables: Tables, other: Path) -> list[Fault]:
    """Speakers and utterance ids that are in both directories."""
    if not is_regular(other / "utt2spk"):
        raise UserError(f"{other}: there is no utt2spk to compare with; expected a Kaldi data directory")
    theirs = {utterance: speaker for utterance, (_, speaker) in read_table(other / "utt2spk", [], 2).items()}
    speakers = set(theirs.values())
    count: defaultdict[str, list[str]] = defaultdict(list)
    for utterance, speaker in tables.kaldi_dir.utt2spk.items():
        if speaker in speakers:
            count[speaker].append(utterance)
    faults = []
    for speaker in sorted(count):
        where = tables.where("utt2spk", count[speaker][0])
        number = len(count[speaker])
        message = f"speaker {speaker!r} ({number} utterances) is also in {other}; a speaker may stand in one only"
        faults.append(Fault("shared-speaker", where, message, speaker=speaker))
    for utterance in sorted(set(tables.kaldi_dir.utt2spk) & set(theirs)):
        message = f"utterance {utterance!r} is also in {other}; ids must differ"
        faults.append(Fault("shared-utterance", tables.where("utt2spk", utterance), message, utterance))
    return faults
