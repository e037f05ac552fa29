"""svt prepare: a Kaldi data directory of a corpus."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path

from tqdm import tqdm

from svtoolkit.config import PrepareConfig
from svtoolkit.data.corpora.cnceleb import prepare_cnceleb, read_cnceleb_trials
from svtoolkit.data.corpora.kaldi import prepare_kaldi
from svtoolkit.data.corpora.librispeech import prepare_librispeech
from svtoolkit.data.corpora.musan import prepare_musan
from svtoolkit.data.corpora.rirs_noises import prepare_rirs_noises
from svtoolkit.data.corpora.speaker_folders import prepare_speaker_folders
from svtoolkit.data.corpora.synthetic import generate_synthetic_corpus
from svtoolkit.data.corpora.voxceleb import prepare_voxceleb1, prepare_voxceleb2
from svtoolkit.data.corpora.voxceleb_trials import read_voxceleb_trials
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.data.splitting import split_speakers
from svtoolkit.data.trials import Trials, make_trials, write_trials
from svtoolkit.data.validation import find_trials
from svtoolkit.errors import UserError
from svtoolkit.reporting.provenance import DATA_RECORD, write_record

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
)
"""Corpora, options that are for them alone, and why."""


def run(config: PrepareConfig, typed: str) -> int:
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
        write_record(folder / DATA_RECORD, typed, asdict(config))
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
    out = Path(config.out)
    targets = (out / "train", out / "eval") if config.eval_speakers else (out,)
    own = [source for source in config.source if Path(source).resolve() in [target.resolve() for target in targets]]
    if own:
        raise UserError(f"out={config.out} would overwrite the source {own[0]}; choose another folder")


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
    if config.corpus == "kaldi" and config.source:
        return prepare_kaldi(config.source, config.root, jobs=config.jobs)
    if len(config.source) != 1:
        expected = "one data directory or more" if config.corpus == "kaldi" else "one folder"
        raise UserError(f"corpus={config.corpus}: source lists {len(config.source)} folders, expected {expected}")
    if config.root is not None:
        raise UserError(f"corpus={config.corpus} finds files below its source; leave out root")
    if config.corpus in IN_PARTS:
        return IN_PARTS[config.corpus](config.source[0], part=config.part, jobs=config.jobs)
    return FOLDERS[config.corpus](config.source[0], jobs=config.jobs)


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
    _write(out / "train", train)
    _write(out / "eval", evaluation)
    _draw_trials(config, evaluation, out / "eval")
    return [out / "train", out / "eval"]


def _write_whole(config: PrepareConfig, out: Path, kaldi_dir: KaldiDir) -> list[Path]:
    official = _official_trials(config, kaldi_dir)
    _write(out, kaldi_dir)
    brought = find_trials(config.source[0]) if config.corpus == "kaldi" and len(config.source) == 1 else []
    for file in brought:
        shutil.copyfile(file, out / file.name)
    for name, trials in official.items():
        _write_trials(out / name, trials)
    if config.draw_trials and "trials" not in [*official, *(file.name for file in brought)]:
        _draw_trials(config, kaldi_dir, out)
    return [out]


def _write(folder: Path, kaldi_dir: KaldiDir) -> None:
    kaldi_dir.write(folder)
    length = "durations unknown: svt convert measures them"
    if kaldi_dir.utt2dur:
        length = f"{sum(kaldi_dir.utt2dur.values()) / 3600:.2f} h"
    log.info("%s: %d speakers, %d utterances, %s", folder, len(kaldi_dir.speakers), len(kaldi_dir.utt2spk), length)


def _draw_trials(config: PrepareConfig, kaldi_dir: KaldiDir, folder: Path) -> None:
    trials = make_trials(kaldi_dir.spk2utt, seed=config.seed, targets_per_speaker=config.targets_per_speaker)
    _write_trials(folder / "trials", trials)


def _write_trials(path: Path, trials: Trials) -> None:
    write_trials(path, trials)
    log.info("%s: %d trials, %d of them target", path, len(trials), int(trials.target.sum()))
