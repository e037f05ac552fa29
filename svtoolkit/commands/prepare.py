"""svt prepare: a Kaldi data directory of a corpus."""

from __future__ import annotations

import logging
import shutil
from dataclasses import asdict, fields
from pathlib import Path

from tqdm import tqdm

from svtoolkit.config import PrepareConfig
from svtoolkit.data.corpora.kaldi import prepare_kaldi
from svtoolkit.data.corpora.librispeech import prepare_librispeech
from svtoolkit.data.corpora.speaker_folders import prepare_speaker_folders
from svtoolkit.data.corpora.synthetic import generate_synthetic_corpus
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.data.splitting import split_speakers
from svtoolkit.data.trials import make_trials, write_trials
from svtoolkit.data.validation import find_trials
from svtoolkit.errors import UserError
from svtoolkit.reporting.provenance import DATA_RECORD, write_record

log = logging.getLogger(__name__)

CORPORA = ("synthetic", "kaldi", "folders", "librispeech")
SYNTHETIC_ONLY = ("speakers", "utterances_per_speaker", "sample_rate")


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
    if config.corpus == "synthetic":
        if config.source or config.root is not None:
            raise UserError("corpus=synthetic makes its own speech; leave out source and root")
        return
    defaults = {item.name: item.default for item in fields(PrepareConfig)}
    foreign = [key for key in SYNTHETIC_ONLY if getattr(config, key) != defaults[key]]
    if foreign:
        raise UserError(f"{', '.join(foreign)}: for corpus=synthetic only, which makes its speech; leave it out")
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
    adaptor = prepare_librispeech if config.corpus == "librispeech" else prepare_speaker_folders
    return adaptor(config.source[0], jobs=config.jobs)


def _write_split(config: PrepareConfig, out: Path, train: KaldiDir, evaluation: KaldiDir) -> list[Path]:
    _write(out / "train", train)
    _write(out / "eval", evaluation)
    _draw_trials(config, evaluation, out / "eval")
    return [out / "train", out / "eval"]


def _write_whole(config: PrepareConfig, out: Path, kaldi_dir: KaldiDir) -> list[Path]:
    _write(out, kaldi_dir)
    brought = find_trials(config.source[0]) if config.corpus == "kaldi" and len(config.source) == 1 else []
    for trials in brought:
        shutil.copyfile(trials, out / trials.name)
    if config.draw_trials and "trials" not in [trials.name for trials in brought]:
        _draw_trials(config, kaldi_dir, out)
    return [out]


def _write(folder: Path, kaldi_dir: KaldiDir) -> None:
    kaldi_dir.write(folder)
    hours = sum(kaldi_dir.utt2dur.values()) / 3600
    log.info("%s: %d speakers, %d utterances, %.2f h", folder, len(kaldi_dir.speakers), len(kaldi_dir.utt2spk), hours)


def _draw_trials(config: PrepareConfig, kaldi_dir: KaldiDir, folder: Path) -> None:
    trials = make_trials(kaldi_dir.spk2utt, seed=config.seed, targets_per_speaker=config.targets_per_speaker)
    write_trials(folder / "trials", trials)
    log.info("%s: %d trials, %d of them target", folder / "trials", len(trials), int(trials.target.sum()))
