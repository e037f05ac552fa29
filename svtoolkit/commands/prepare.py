"""svt prepare: a Kaldi data directory of a corpus."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Collection, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from svtoolkit.audio.inspection import try_durations
from svtoolkit.config import PrepareConfig
from svtoolkit.corpora.prepared import Prepared
from svtoolkit.corpora.registry import CORPORA
from svtoolkit.data.bad_files import BAD_FILES, BadFile, check_max_bad, listing_bad_files
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.data.splitting import split_speakers
from svtoolkit.data.trial_drawing import make_trials
from svtoolkit.data.trials import Trials, write_trials
from svtoolkit.data.validation import find_trials
from svtoolkit.errors import UserError
from svtoolkit.runs.provenance import DATA_RECORD, write_record
from svtoolkit.system.atomic import atomic_write
from svtoolkit.system.progress import show_progress

log = logging.getLogger(__name__)

EVERY_CORPUS = (
    "corpus", "source", "out", "jobs", "max_bad", "seed", "eval_speakers", "draw_trials", "targets_per_speaker"
)  # fmt: skip
"""Keys that need not be named by a corpus; ``root`` and the others are for those that name them."""


def run(config: PrepareConfig, command_line: str) -> int:
    """List the corpus (synthesise it, if it is the synthetic one) and write its data directories."""
    prepare = CORPORA.load(config.corpus)
    parameters = _parameters(config.corpus)
    _check_options(config, parameters)
    out = Path(config.out)
    found = prepare(**_arguments(config, parameters))
    prepared = found if isinstance(found, Prepared) else Prepared(found)
    if prepared.evaluation is not None:
        written = _write_split(config, out, prepared.kaldi_dir, prepared.evaluation)
    elif config.eval_speakers:
        split = split_speakers(prepared.kaldi_dir, eval_speakers=config.eval_speakers, seed=config.seed)
        written = _write_split(config, out, *split)
    else:
        written = _write_whole(config, out, prepared)
    for folder in written:
        write_record(folder / DATA_RECORD, command_line, asdict(config))
    return 0


def _parameters(corpus: str) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(CORPORA.load(corpus)).parameters


def _corpora_with(key: str) -> list[str]:
    return [name for name in CORPORA.rows if key in _parameters(name)]


def _arguments(config: PrepareConfig, parameters: Mapping[str, inspect.Parameter]) -> dict[str, Any]:
    given: dict[str, Any] = {key: getattr(config, key) for key in vars(config) if key in parameters}
    if "folder" in parameters:
        given["folder"] = config.source[0]
    if "sources" in parameters:
        given["sources"] = config.source
    if "measure" in parameters:
        given["measure"] = partial(_measure, config)
    given |= CORPORA[config.corpus].arguments
    absent = [name for name, found in parameters.items() if found.default is found.empty and name not in given]
    if absent:
        raise UserError(
            f"corpus={config.corpus} takes {', '.join(absent)}, expected keys of `svt prepare`, folder, sources or "
            "measure; repair the package that adds it"
        )
    return given


def _check_options(config: PrepareConfig, parameters: Collection[str]) -> None:
    corpus = config.corpus
    makes_its_own = "folder" not in parameters and "sources" not in parameters
    if makes_its_own:
        if config.source or config.root is not None:
            raise UserError(f"corpus={corpus} makes its own speech; leave out source and root")
    elif "root" not in parameters and config.root is not None:
        raise UserError(f"corpus={corpus} finds files below its source; leave out root")
    defaults = asdict(PrepareConfig())
    own = [key for key in defaults if key not in (*EVERY_CORPUS, "root", *parameters)]
    foreign = {key: _corpora_with(key) for key in own if getattr(config, key) != defaults[key]}
    for corpora in foreign.values():
        keys = ", ".join(key for key in foreign if foreign[key] == corpora)
        raise UserError(f"{keys}: for corpus={'|'.join(corpora)} only; leave it out")
    if config.max_bad != defaults["max_bad"] and "folder" not in parameters:
        raise UserError(f"max_bad: for corpus={'|'.join(_corpora_with('folder'))} only; leave it out")
    if config.limit_speakers is not None and config.limit_speakers < 2:
        raise UserError(f"limit_speakers is {config.limit_speakers}, expected 2 or more, or null for all")
    if config.trials and config.eval_speakers:
        raise UserError("trials are of the corpus as it is; leave out eval_speakers, which splits it")
    if config.other_trials and not config.trials:
        raise UserError("other_trials says what trials may be; give them as trials=[...]")
    _check_folders(config)
    _check_numbers(config, makes_its_own=makes_its_own)
    if ("folder" in parameters and len(config.source) != 1) or ("sources" in parameters and not config.source):
        expected = "one folder" if "folder" in parameters else "one data directory or more"
        raise UserError(f"corpus={corpus}: source lists {len(config.source)} folders, expected {expected}")


def _check_numbers(config: PrepareConfig, *, makes_its_own: bool) -> None:
    for name in ("jobs", "targets_per_speaker"):
        if getattr(config, name) < 1:
            raise UserError(f"{name} is {getattr(config, name)}, expected 1 or more")
    check_max_bad(config.max_bad, of="files")
    if not makes_its_own and (config.eval_speakers < 0 or config.eval_speakers == 1):
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


def _measure(config: PrepareConfig, files: Mapping[str, str]) -> dict[str, float]:
    """Utterance -> seconds of the files that can be used; lists the others, of which there may be so many."""
    if not files:
        return {}
    with show_progress("headers", len(files), "file") as progress:
        durations, reasons = try_durations(files, jobs=config.jobs, progress=progress.update)
    out = Path(config.out)
    with listing_bad_files(out, len(files), config.max_bad) as bad:
        bad.add(BadFile(utterance, files[utterance], reason) for utterance, reason in reasons.items())
        if not durations:
            raise bad.refusal()
    if reasons:
        log.warning("%s: %d of %d files cannot be used and are left out", out / BAD_FILES, len(reasons), len(files))
    return durations


def _write_split(config: PrepareConfig, out: Path, train: KaldiDir, evaluation: KaldiDir) -> list[Path]:
    drawn = _draw_trials(config, evaluation)  # before anything is written: there may be too few utterances
    _write(out / "train", train, {})
    _write(out / "eval", evaluation, {"trials": drawn})
    return [out / "train", out / "eval"]


def _write_whole(config: PrepareConfig, out: Path, prepared: Prepared) -> list[Path]:
    lists, names = dict(prepared.trials), [file.name for file in prepared.trial_files]
    if config.draw_trials and "trials" not in [*lists, *names]:
        lists["trials"] = _draw_trials(config, prepared.kaldi_dir)
    _write(out, prepared.kaldi_dir, lists, names)
    for file in prepared.trial_files:
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
            log.warning("%s is left from an earlier run; delete it unless it belongs to these utterances", file)


def _draw_trials(config: PrepareConfig, kaldi_dir: KaldiDir) -> Trials:
    try:
        return make_trials(kaldi_dir.spk2utt, seed=config.seed, targets_per_speaker=config.targets_per_speaker)
    except UserError as error:
        raise UserError(f"{' '.join(config.source) or config.corpus}: no trials can be drawn: {error}") from error
