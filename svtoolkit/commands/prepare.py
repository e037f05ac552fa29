"""svt prepare: a Kaldi data directory of a corpus."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, fields
from pathlib import Path

from tqdm import tqdm

from svtoolkit.audio.files import try_durations
from svtoolkit.config import PrepareConfig
from svtoolkit.corpora.cnceleb import prepare_cnceleb, read_cnceleb_trials
from svtoolkit.corpora.kaldi import prepare_kaldi
from svtoolkit.corpora.librispeech import prepare_librispeech
from svtoolkit.corpora.musan import prepare_musan
from svtoolkit.corpora.rirs_noises import prepare_rirs_noises
from svtoolkit.corpora.speaker_folders import prepare_speaker_folders
from svtoolkit.corpora.synthetic.corpus import generate_synthetic_corpus
from svtoolkit.corpora.voxceleb import prepare_voxceleb1, prepare_voxceleb2
from svtoolkit.corpora.voxceleb_trials import read_voxceleb_trials
from svtoolkit.data.bad_files import BAD_FILES, BadFile, count_allowed, show_reasons, write_bad_files
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.data.splitting import split_speakers
from svtoolkit.data.trials import Trials, make_trials, write_trials
from svtoolkit.data.validation import find_trials
from svtoolkit.errors import UserError
from svtoolkit.runs.provenance import DATA_RECORD, write_record
from svtoolkit.system.atomic import atomic_write

log = logging.getLogger(__name__)

FOLDERS: dict[str, Callable[..., KaldiDir]] = {
    "folders": prepare_speaker_folders,
    "librispeech": prepare_librispeech,
    "musan": prepare_musan,
    "rirs_noises": prepare_rirs_noises,
}
"""Corpora of one folder."""
IN_PARTS: dict[str, Callable[..., KaldiDir]] = {
    "voxceleb1": prepare_voxceleb1,
    "voxceleb2": prepare_voxceleb2,
    "cnceleb": prepare_cnceleb,
}
"""The same, of which a part can be taken."""
CORPORA = ("synthetic", "kaldi", *FOLDERS, *IN_PARTS)
OWN_OPTIONS = (
    (("synthetic",), ("speakers", "utterances_per_speaker", "sample_rate"), "which makes its speech"),
    (tuple(IN_PARTS), ("part",), "which are published in parts"),
    (("voxceleb1",), ("trials", "other_trials"), "of which the official lists are"),
    ((*FOLDERS, *IN_PARTS), ("max_bad",), "of which a list is made"),
)
"""Corpora, options that are for them alone, and why."""


def run(config: PrepareConfig, command_line: str) -> int:
    """List the corpus (speak it, if it is the synthetic one) and write its data directories."""
    _check_options(config)
    out = Path(config.out)
    if config.corpus == "synthetic":
        written = _write_split(config, out, *_speak(config, out))
    elif config.eval_speakers:
        kaldi_dir = _list_corpus(config)
        split = split_speakers(kaldi_dir, eval_speakers=config.eval_speakers, seed=config.seed)
        written = _write_split(config, out, *split)
    else:
        written = _write_whole(config, out, _list_corpus(config))
    for folder in written:
        write_record(folder / DATA_RECORD, command_line, asdict(config))
    return 0


def _check_options(config: PrepareConfig) -> None:
    if config.corpus not in CORPORA:
        raise UserError(f"corpus is {config.corpus!r}, expected one of {', '.join(CORPORA)}")
    if config.corpus == "synthetic" and (config.source or config.root is not None):
        raise UserError("corpus=synthetic makes its own speech; leave out source and root")
    defaults = {item.name: item.default for item in fields(PrepareConfig)} | {"trials": []}
    for corpora, options, why in OWN_OPTIONS:
        foreign = [option for option in options if getattr(config, option) != defaults[option]]
        if foreign and config.corpus not in corpora:
            raise UserError(f"{', '.join(foreign)}: for corpus={'|'.join(corpora)} only, {why}; leave it out")
    if config.trials and config.eval_speakers:
        raise UserError("trials are of the corpus as it is; leave out eval_speakers, which splits it")
    if config.other_trials and not config.trials:
        raise UserError("other_trials says what trials may be; give them as trials=[...]")
    _check_folders(config)
    _check_numbers(config)


def _check_numbers(config: PrepareConfig) -> None:
    for name in ("jobs", "targets_per_speaker"):
        if getattr(config, name) < 1:
            raise UserError(f"{name} is {getattr(config, name)}, expected 1 or more")
    if not 0 <= config.max_bad <= 1:
        raise UserError(f"max_bad is {config.max_bad}, expected a share of the files from 0 to 1")
    if config.corpus != "synthetic" and (config.eval_speakers < 0 or config.eval_speakers == 1):
        raise UserError(
            f"eval_speakers is {config.eval_speakers}, expected 2 or more, whose trials can be drawn, or 0: no split"
        )


def _check_folders(config: PrepareConfig) -> None:
    out = Path(config.out)
    if out.exists() and not out.is_dir():
        raise UserError(f"out={config.out} is a file, expected the folder to write; choose another name")
    targets = (out / "train", out / "eval") if config.eval_speakers else (out,)
    own = [source for source in config.source if Path(source).resolve() in [target.resolve() for target in targets]]
    if own:
        raise UserError(f"out={config.out} would overwrite the source {own[0]}; choose another folder")
    if config.corpus == "folders":
        for source in config.source:
            if out.resolve().is_relative_to(Path(source).resolve()):
                raise UserError(
                    f"out={config.out} lies in the source {source}, whose folders are taken for speakers; choose a "
                    "folder outside"
                )


def _speak(config: PrepareConfig, out: Path) -> tuple[KaldiDir, KaldiDir]:
    total = config.speakers * config.utterances_per_speaker
    with tqdm(total=total, unit="utt", desc="speak", dynamic_ncols=True) as bar:
        return generate_synthetic_corpus(
            out,
            speakers=config.speakers,
            utterances_per_speaker=config.utterances_per_speaker,
            eval_speakers=config.eval_speakers,
            seed=config.seed,
            sample_rate=config.sample_rate,
            jobs=config.jobs,
            progress=bar.update,
        )


def _list_corpus(config: PrepareConfig) -> KaldiDir:
    def measure(files: Mapping[str, str]) -> dict[str, float]:
        return _measure(config, files)

    if config.corpus == "kaldi" and config.source:
        return prepare_kaldi(config.source, config.root, jobs=config.jobs, measure=measure)
    if len(config.source) != 1:
        expected = "one data directory or more" if config.corpus == "kaldi" else "one folder"
        raise UserError(f"corpus={config.corpus}: source lists {len(config.source)} folders, expected {expected}")
    if config.root is not None:
        raise UserError(f"corpus={config.corpus} finds files below its source; leave out root")
    if config.corpus in IN_PARTS:
        return IN_PARTS[config.corpus](config.source[0], part=config.part, jobs=config.jobs, measure=measure)
    return FOLDERS[config.corpus](config.source[0], jobs=config.jobs, measure=measure)


def _measure(config: PrepareConfig, files: Mapping[str, str]) -> dict[str, float]:
    """Utterance -> seconds of the files that can be used; lists the others, of which there may be so many."""
    if not files:
        return {}
    with tqdm(total=len(files), unit="file", desc="headers", dynamic_ncols=True) as bar:
        durations, reasons = try_durations(files, jobs=config.jobs, progress=bar.update)
    out, allowed = Path(config.out), count_allowed(config.max_bad, len(files))
    bad = [BadFile(utterance, files[utterance], reason) for utterance, reason in reasons.items()]
    write_bad_files(out, bad)
    if len(bad) > allowed or not durations:
        raise UserError(
            f"{len(bad)} of {len(files)} files cannot be used, with max_bad={config.max_bad:g} {allowed} may be: "
            f"{show_reasons(bad)}; {out / BAD_FILES} lists them all: repair or remove them, or raise max_bad"
        )
    if bad:
        log.warning("%s: %d of %d files cannot be used and are left out", out / BAD_FILES, len(bad), len(files))
    return durations


def _official_trials(config: PrepareConfig, kaldi_dir: KaldiDir) -> dict[str, Trials]:
    """Trial lists that are published with a corpus: name of the file to write -> trials."""
    if config.corpus == "cnceleb" and config.part == "test":
        return {"trials": read_cnceleb_trials(config.source[0], kaldi_dir.utt2spk)}
    lists: dict[str, Trials] = {}
    for path in config.trials:
        name, trials = read_voxceleb_trials(path, kaldi_dir.utt2spk, allow_other=config.other_trials)
        if name in lists:
            raise UserError(f"{path}: would be {name}, which another list is already; leave one out or rename the file")
        lists[name] = trials
    return lists


def _write_split(config: PrepareConfig, out: Path, train: KaldiDir, evaluation: KaldiDir) -> list[Path]:
    drawn = _draw_trials(config, evaluation)  # before anything is written: there may be too few utterances
    _write(out / "train", train, {})
    _write(out / "eval", evaluation, {"trials": drawn})
    return [out / "train", out / "eval"]


def _write_whole(config: PrepareConfig, out: Path, kaldi_dir: KaldiDir) -> list[Path]:
    lists = _official_trials(config, kaldi_dir)
    brought = find_trials(config.source[0]) if config.corpus == "kaldi" and len(config.source) == 1 else []
    names = [file.name for file in brought]
    if config.draw_trials and "trials" not in [*lists, *names]:
        lists["trials"] = _draw_trials(config, kaldi_dir)
    _write(out, kaldi_dir, lists, names)
    for file in brought:
        with atomic_write(out / file.name, "wb") as stream:
            stream.write(file.read_bytes())
    return [out]


def _write(folder: Path, kaldi_dir: KaldiDir, lists: Mapping[str, Trials], brought: Collection[str] = ()) -> None:
    """Tables and trial lists; ``brought``: names of lists that the caller writes."""
    kaldi_dir.write(folder)
    length = "durations unknown: svt convert measures them"
    if kaldi_dir.utt2dur:
        length = f"{sum(kaldi_dir.utt2dur.values()) / 3600:.2f} h"
    log.info("%s: %d speakers, %d utterances, %s", folder, len(kaldi_dir.speakers), len(kaldi_dir.utt2spk), length)
    for name, trials in lists.items():
        write_trials(folder / name, trials)
        log.info("%s: %d trials, %d of them target", folder / name, len(trials), int(trials.target.sum()))
    for file in find_trials(folder):
        if file.name not in (*lists, *brought):
            log.warning("%s: stood there before; remove it unless it is of these utterances", file)


def _draw_trials(config: PrepareConfig, kaldi_dir: KaldiDir) -> Trials:
    return make_trials(kaldi_dir.spk2utt, seed=config.seed, targets_per_speaker=config.targets_per_speaker)
