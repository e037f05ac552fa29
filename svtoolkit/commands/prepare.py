"""svt prepare: a Kaldi data directory of a corpus."""

from __future__ import annotations

import logging
import shutil
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

log = logging.getLogger(__name__)

CORPORA = ("synthetic", "kaldi", "folders", "librispeech")


def run(config: PrepareConfig) -> int:
    """List the corpus (speak it, if it is the synthetic one) and write its data directories."""
    if config.corpus not in CORPORA:
        raise UserError(f"corpus is {config.corpus!r}, expected one of {', '.join(CORPORA)}")
    out = Path(config.out)
    if config.corpus == "synthetic":
        train, evaluation = _speak(config, out)
        _write_split(config, out, train, evaluation)
        return 0
    kaldi_dir = _list_corpus(config)
    if config.eval_speakers:
        train, evaluation = split_speakers(kaldi_dir, eval_speakers=config.eval_speakers, seed=config.seed)
        _write_split(config, out, train, evaluation)
        return 0
    _write(out, kaldi_dir)
    if config.corpus == "kaldi" and len(config.source) == 1:
        for trials in find_trials(config.source[0]):
            shutil.copyfile(trials, out / trials.name)
    if config.draw_trials and not (out / "trials").is_file():
        _draw_trials(config, kaldi_dir, out)
    return 0


def _speak(config: PrepareConfig, out: Path) -> tuple[KaldiDir, KaldiDir]:
    if config.source or config.root is not None:
        raise UserError("corpus=synthetic makes its own speech; leave out source and root")
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


def _write_split(config: PrepareConfig, out: Path, train: KaldiDir, evaluation: KaldiDir) -> None:
    _write(out / "train", train)
    _write(out / "eval", evaluation)
    _draw_trials(config, evaluation, out / "eval")


def _write(folder: Path, kaldi_dir: KaldiDir) -> None:
    kaldi_dir.write(folder)
    hours = sum(kaldi_dir.utt2dur.values()) / 3600
    log.info("%s: %d speakers, %d utterances, %.2f h", folder, len(kaldi_dir.speakers), len(kaldi_dir.utt2spk), hours)


def _draw_trials(config: PrepareConfig, kaldi_dir: KaldiDir, folder: Path) -> None:
    trials = make_trials(kaldi_dir.spk2utt, seed=config.seed, targets_per_speaker=config.targets_per_speaker)
    write_trials(folder / "trials", trials)
    log.info("%s: %d trials, %d of them target", folder / "trials", len(trials), int(trials.target.sum()))
