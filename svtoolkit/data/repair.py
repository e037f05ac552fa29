"""A repaired copy of a data directory: what is broken is dropped, what can be computed is computed again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from svtoolkit.data.audio_table import AUDIO_TABLES, FEATURES, find_source
from svtoolkit.data.feature_settings import StoredFeatures
from svtoolkit.data.feature_verification import NUM_FRAMES, UNUSABLE
from svtoolkit.data.kaldi_dir import KaldiDir, further_tables, parse_tables
from svtoolkit.data.tables import MISSING_TABLE, Fault, write_table
from svtoolkit.data.trials import Trials, parse_trials, write_trials
from svtoolkit.data.validation import Validation, find_trials, validate
from svtoolkit.errors import UserError
from svtoolkit.system.atomic import atomic_folder


@dataclass
class Repair:
    """What `repair` did.

    Attributes:
        dropped: (utterance, reason), sorted; a recording without utterances is listed by its own id.
        rewritten: files of the copy that differ from the original or are not in it.
        left_out: (file of the original that the copy lacks, reason).
        validation: what was wrong with the original.
    """

    dropped: list[tuple[str, str]]
    validation: Validation
    rewritten: list[str] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)


def repair(
    path: str | Path,
    out: str | Path,
    *,
    root: str | Path | None = None,
    check_audio: bool = True,
    **options: Any,
) -> Repair:
    """Write a copy of a data directory in which `validate` finds no fault; the original is left as it is.

    Broken utterances are dropped, and with them their trials. Entries that contradict each other drop their
    utterance, equal ones are made one. Recordings of another rate than ``sample_rate`` (the most frequent rate if
    None) and speakers that a directory of ``against`` has as well are dropped. Tables are sorted, spk2utt is derived
    from utt2spk, paths become absolute, utt2dur is measured; where audio is not opened, utt2dur is kept if it is
    complete. Other tables named utt2*, spk2* and text are restricted to what stays. Of features, the archives are read
    where they lie, and utt2num_frames is counted again.

    Args:
        path: the data directory.
        out: folder of the copy; it must be empty or missing, and lie outside ``path``.
        root, check_audio, options: as for `validate`.

    Raises:
        UserError: as `validate`; ``out`` is in use or within ``path``; nothing would remain.
    """
    source, target = Path(path), Path(out)
    _check_target(source, target)
    validation = validate(source, root=root, check_audio=check_audio, **options)
    unusable = next((fault for fault in validation.faults if fault.code == UNUSABLE), None)
    if unusable is not None:
        raise UserError(f"{source}/{unusable}; a copy would be as unusable, so nothing is written")
    kaldi_dir = parse_tables(source, root, find_source(source, None)).kaldi_dir
    dropped = choose_dropped(kaldi_dir, validation.faults)
    kept = kaldi_dir.subset(utterance for utterance in kaldi_dir.utt2spk if utterance not in dropped)
    if not kept.utt2spk:
        counts = ", ".join(f"{code} {number}" for code, number in Counter(f.code for f in validation.faults).items())
        reasons = [*dropped.values(), *map(str, validation.faults), "the tables are empty"]
        raise UserError(
            f"{source}: no utterance would remain of {validation.utterances} ({counts}), so nothing is written; "
            f"the first reason: {reasons[0]}"
        )
    if check_audio:
        kept.utt2dur = {utterance: validation.durations[utterance] for utterance in kept.utt2spk}
    elif set(kept.utt2dur) != set(kept.utt2spk):
        kept.utt2dur = {}
    result = Repair(sorted(dropped.items()), validation)
    with atomic_folder(target) as copy:
        kept.write(copy)
        _copy_tables(source, copy, kept, result)
        if kept.audio_table == FEATURES:
            StoredFeatures.read(source).write(copy)
            if check_audio:
                write_table(copy / NUM_FRAMES, {name: str(validation.frames[name]) for name in kept.utt2spk})
        _copy_trials(source, copy, kept, result)
        _compare_files(source, copy, result)
    return result


def _check_target(source: Path, target: Path) -> None:
    if target.resolve() == source.resolve() or source.resolve() in target.resolve().parents:
        raise UserError(f"{target}: the repaired copy may not be written into the directory that is repaired, {source}")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UserError(f"{target}: expected an empty or a new folder for the repaired copy; choose another one")


def choose_dropped(kaldi_dir: KaldiDir, faults: Sequence[Fault]) -> dict[str, str]:
    """Utterance (or recording without one) -> the reason of the first fault that costs it."""
    of_recording: dict[str, list[str]] = {}
    for utterance, segment in kaldi_dir.segments.items():
        of_recording.setdefault(segment.recording, []).append(utterance)
    spk2utt = kaldi_dir.spk2utt
    dropped: dict[str, str] = {}
    for fault in faults:
        lost: Iterable[str] = ()
        if fault.code == MISSING_TABLE and fault.where in (*AUDIO_TABLES.values(), "utt2spk"):
            lost = kaldi_dir.utt2spk
        elif fault.speaker is not None:
            lost = spk2utt[fault.speaker]
        elif fault.utterance is not None and fault.where.startswith(tuple(AUDIO_TABLES.values())):
            # A recording that no segment uses may have the name of an utterance that is elsewhere.
            unused = [] if kaldi_dir.segments and fault.utterance in kaldi_dir.utt2spk else [fault.utterance]
            lost = of_recording.get(fault.utterance, unused)
        elif fault.utterance is not None:
            lost = [fault.utterance]
        for utterance in lost:
            dropped.setdefault(utterance, str(fault))
    return dropped


def _copy_tables(source: Path, target: Path, kept: KaldiDir, result: Repair) -> None:
    """Tables beyond the directory's own, restricted to the utterances or speakers that stay."""
    for name, table in further_tables(source, kept.utt2spk):
        if table:
            write_table(target / name, table)
        else:
            result.left_out.append((name, "none of its entries is of an utterance or speaker that stays"))


def _copy_trials(source: Path, target: Path, kept: KaldiDir, result: Repair) -> None:
    for file in find_trials(source):
        trials = _usable_trials(file, kept.utt2spk)
        if trials.target.any() and not trials.target.all():
            write_trials(target / file.name, trials)
        else:
            result.left_out.append(
                (file.name, "target and nontarget trials of the utterances that stay are not both left")
            )


def _usable_trials(path: Path, utt2spk: Mapping[str, str]) -> Trials:
    """Trials between utterances that are there, whose labels agree with their speakers."""
    usable = [
        trial
        for _, _, trial in parse_trials(path)
        if not isinstance(trial, str)
        and trial[0] in utt2spk
        and trial[1] in utt2spk
        and (utt2spk[trial[0]] == utt2spk[trial[1]]) == trial[2]
    ]
    return Trials.of(usable)


def _compare_files(source: Path, target: Path, result: Repair) -> None:
    """Fill in which files of the copy differ from the original, and which files it lacks."""
    for file in sorted(target.iterdir()):
        original = source / file.name
        if not original.is_file() or original.read_bytes() != file.read_bytes():
            result.rewritten.append(file.name)
    explained = {name for name, _ in result.left_out}
    for original in sorted(source.iterdir()):
        if original.name not in explained and not (target / original.name).exists():
            reason = "incomplete" if original.name == "utt2dur" else "not a table of utterances or speakers"
            if target.joinpath(FEATURES).is_file() and original.suffix == ".ark":
                reason = "its features are read where they are"
            result.left_out.append((original.name, reason))
