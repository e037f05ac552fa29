"""svt crossval: training on all folds of the speakers but one, evaluation on that, for each fold in turn."""

from __future__ import annotations

import json
import logging
import shutil
from contextlib import ExitStack
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from svtoolkit.commands import average, backend, embed, ensemble, score, train
from svtoolkit.config import (
    AverageConfig,
    BackendConfig,
    CrossvalConfig,
    EmbedConfig,
    EnsembleConfig,
    ScoreConfig,
    TrainConfig,
)
from svtoolkit.data.fold_dirs import EVAL, TRAIN, FoldedData, read_folded
from svtoolkit.data.folds import draw_folds, read_folds
from svtoolkit.data.tables import write_table
from svtoolkit.data.trials import read_trials
from svtoolkit.errors import UserError
from svtoolkit.reporting.crossval_lines import name_of, told_of_all, told_of_trainings
from svtoolkit.runs.exp_dir import CONFIG, LOGS, check_same_config, write_config
from svtoolkit.runs.run_history import read_history
from svtoolkit.scoring.evaluation import evaluate_scores
from svtoolkit.scoring.fold import Fold, ensembles, folder_of, trainings
from svtoolkit.scoring.pooled_folds import pool_folds
from svtoolkit.scoring.systems import System, systems_of
from svtoolkit.system.file_lock import is_held
from svtoolkit.system.output import inside_recipe, say_next
from svtoolkit.system.output_folder import claim_folder, hold_alone
from svtoolkit.system.plain_data import write_json
from svtoolkit.system.regular_file import is_regular
from svtoolkit.training.crossval_settings import check_crossval

log = logging.getLogger(__name__)

RESULT, EPOCHS = "crossval.json", "epochs.json"
"""What all folds gave; how many epochs fit into minutes."""

MADE_OF = "data.json"
"""What the folds are of: a cross-validation is initialised from another one of the same."""

TIMED = "timed"
"""Folder of the run of which an epoch is timed."""

FREE_KEYS = {"seed", "seeds", "ensemble", "only", "spk2fold", "backends", "resamples", "confidence"}
"""Keys that may change when a cross-validation is resumed: trainings and scores are added, intervals drawn anew. What
stands in spk2fold is told by the digest of the data."""

LOCK = ".lock"
"""File that is held: of the whole while folds are made ready or pooled, of a fold by who works on it."""


class StoppedError(Exception):
    """A command of a fold did not succeed.

    Args:
        status: its exit status.
    """

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


def run(config: CrossvalConfig, command_line: str) -> int:
    """Train and score what is not yet done, pool the scores, evaluate; the status is that of what stopped it."""
    check_crossval(config)
    if config.choose not in average.CHOICES:
        raise UserError(f"choose is {config.choose!r}, expected last, best or ema")
    config = replace(config, seeds=config.seeds or [config.seed])
    out, folder = Path(config.exp_dir), Path(config.data.train)
    kaldi_dir = read_folded(folder, config.data.root, config.data.source)
    counts = {speaker: len(utterances) for speaker, utterances in kaldi_dir.spk2utt.items()}
    if config.spk2fold is None:
        fold_of = draw_folds(counts, folds=config.folds, seed=config.fold_seed)
    else:
        fold_of = read_folds(config.spk2fold, counts, folds=config.folds)
    data = FoldedData(folder, kaldi_dir, fold_of)
    out.mkdir(parents=True, exist_ok=True)
    with ExitStack() as held:
        try:
            with inside_recipe():
                with hold_alone(out / LOCK, busy=None):
                    config = _make_ready(config, data, out, command_line)
                    for number in config.only or range(1, config.folds + 1):
                        busy = f"{out}: another process is at work on fold {number}; wait for it, or stop it"
                        held.enter_context(hold_alone(folder_of(out, number) / LOCK, busy=busy))
                _do_folds(config, out, command_line)
        except StoppedError as stop:
            log.info("stopped: the same command resumes, and what is finished is not done again")
            return stop.status
        with hold_alone(out / LOCK, busy=None):
            return _conclude(config, data, out, command_line)


def _make_ready(config: CrossvalConfig, data: FoldedData, out: Path, command_line: str) -> CrossvalConfig:
    """Write the folds, or refuse what does not go with those that are there; returns the settings of the trainings."""
    begun = {folder for folder in out.glob("fold*") if _is_begun(folder)}
    if begun:
        if config.resume == "never":
            raise UserError(f"{out}: holds a cross-validation already and resume=never; choose another exp_dir")
        check_same_config(out / CONFIG, asdict(config), further=FREE_KEYS)
    spk2utt = data.kaldi_dir.spk2utt
    made_of = {"speakers": len(spk2utt), "utterances": sum(map(len, spk2utt.values())), "sha256": data.digest()}
    claim_folder(out / MADE_OF, made_of, content="a cross-validation of", is_empty=not begun)
    _check_start(config, out)
    write_config(config)
    write_table(out / "spk2fold", {speaker: str(fold) for speaker, fold in data.fold_of.items()})
    for number in range(1, config.folds + 1):
        if (folder := folder_of(out, number)) not in begun:
            data.write(folder, number, seed=config.fold_seed, targets_per_speaker=config.targets_per_speaker)
    if not begun:
        (out / EPOCHS).unlink(missing_ok=True)  # perhaps of other settings
        shutil.rmtree(out / TIMED, ignore_errors=True)
    if config.minutes is None:
        return config
    return _with_epochs(config, _folds(config, out)[0], config.minutes, out, command_line)


def _is_begun(folder: Path) -> bool:
    """Whether a fold has a training, or a process at work on it."""
    return any(folder.glob(f"seed*/{CONFIG}")) or any(is_held(lock) for lock in folder.glob(LOCK))


def _conclude(config: CrossvalConfig, data: FoldedData, out: Path, command_line: str) -> int:
    """Pool the scores where all folds have them; else say which have not."""
    kinds = {"pooled": (out, _folds(config, out)), "ensemble": (out / "ensemble", _ensembles(config, out))}
    systems = systems_of(config.backends, key="backends")
    wanted = [fold for _, folds in kinds.values() for fold in folds]
    complete = [known for known in (fold.known for fold in wanted) if systems.keys() <= known.keys()]
    for line in told_of_trainings(complete, systems):
        log.info("%s", line)
    if len(complete) < len(wanted):
        log.info("%d of %d trainings are finished; who finishes the last pools the scores", len(complete), len(wanted))
        return 0
    figures: dict[str, Any] = {"command": command_line, "folds": complete}
    for what, (folder, folds) in kinds.items():
        if not folds:
            continue
        figures[what] = pool_folds(
            folder, folds, systems, data, name=f"crossval of {config.folds} folds", command_line=command_line,
            resamples=config.resamples, confidence=config.confidence,
        )  # fmt: skip
        for name, result in figures[what].items():
            result["mean_eer"] = float(np.mean([fold.known[name]["eer"] for fold in folds]))
        for line in told_of_all(figures[what], what):
            log.info("%s", line)
    write_json(out / RESULT, figures)
    compared = f"{config.backends[0]}.json"
    say_next("svt", "compare", str(out / "scores" / compared), str(Path(out.parent, "OTHER", "scores", compared)))
    return 0


def _check_start(config: CrossvalConfig, out: Path) -> None:
    """Refuse to begin a fold with weights that were trained on its speakers, in another cross-validation."""
    other = Path(config.init_from or "") / MADE_OF
    if config.init_from is not None and is_regular(other) and other.read_bytes() != (out / MADE_OF).read_bytes():
        raise UserError(
            f"{other}: init_from is a cross-validation of other folds or data, whose networks may have heard the "
            f"speakers that are held out here; give the same data.train, fold_seed and folds, or "
            f"spk2fold={Path(config.init_from, 'spk2fold')}"
        )


def _folds(config: CrossvalConfig, out: Path) -> list[Fold]:
    return trainings(out, config.folds, config.seeds)


def _ensembles(config: CrossvalConfig, out: Path) -> list[Fold]:
    return ensembles(out, config.folds, config.seeds) if config.ensemble else []


def _do_folds(config: CrossvalConfig, out: Path, command_line: str) -> None:
    """Train and score what is not done yet of this process' folds."""
    systems = systems_of(config.backends, key="backends")
    both = [*_folds(config, out), *_ensembles(config, out)]
    folds = [fold for fold in both if not config.only or fold.number in config.only]
    for place, fold in enumerate(folds, start=1):
        name = name_of(fold.number, fold.seed)
        if not (known := fold.known):
            log.info("=== %s: %d of %d trainings", name, place, len(folds))
            known = _embed(config, fold, command_line)
            fold.note(known)
        missing = [system for system in systems if system not in known]
        for system in missing:
            known[system] = _score(config, fold, system, systems[system], known["training_speakers"], command_line)
            fold.note(known)
        if not missing:
            log.info("%s: finished before", name)


def _embed(config: CrossvalConfig, fold: Fold, command_line: str) -> dict[str, Any]:
    """Train and average, or join; embed; each by the command of that name; returns what is known of it."""
    model, embeddings = fold.exp_dir / "model", fold.exp_dir / "embeddings"
    members = [Path(f"seed{seed}") for seed in (config.seeds if fold.seed is None else [fold.seed])]
    if fold.seed is not None:
        _succeed(train.run(_training(config, fold, fold.seed), command_line))
        _succeed(average.run(AverageConfig(str(fold.exp_dir), config.average, config.choose, str(model)), command_line))
    elif not model.exists():
        models = [str(fold.data / member / "model") for member in members]
        _succeed(ensemble.run(EnsembleConfig(models, str(model)), command_line))
    for part in (EVAL, TRAIN):
        settings = EmbedConfig(
            model=str(model), data=str(fold.data / part), out=str(embeddings / part),
            device=config.trainer.device, threads=config.trainer.threads,
            channel=config.data.channel, resample=config.data.resample,
            crops=config.crops, crop_seconds=config.crop_seconds,
        )  # fmt: skip
        _succeed(embed.run(settings, command_line))
    speakers = len(set(read_folded(fold.data / TRAIN, None, None).utt2spk.values()))
    histories = [read_history(fold.data / member / LOGS / "history.jsonl") for member in members]
    epochs = [[record for record in history if record["kind"] == "epoch"] for history in histories]
    return {
        "fold": fold.number, "seed": fold.seed, "trials": len(read_trials(fold.trials)), "training_speakers": speakers,
        "epochs": sum(map(len, epochs)), "minutes": round(sum(records[-1]["seconds"] for records in epochs) / 60, 3),
    }  # fmt: skip


def _score(
    config: CrossvalConfig, fold: Fold, name: str, system: System, speakers: int, command_line: str
) -> dict[str, Any]:
    """Train the back end where there is one, score by the command of that name; returns the error rates."""
    embeddings, scores = fold.exp_dir / "embeddings", fold.scores(name)
    train_scp, utt2spk = str(embeddings / f"{TRAIN}.scp"), str(fold.data / TRAIN / "utt2spk")
    normalised = system.normalisation != "none"
    file = None
    if system.backend is not None:
        file = str(fold.exp_dir / "backends" / f"{system.backend}.safetensors")
        settings = BackendConfig(kind=system.backend, embeddings=train_scp, utt2spk=utt2spk, out=file)
        if not is_regular(file):
            _succeed(backend.run(settings, command_line))
    scored = ScoreConfig(
        trials=str(fold.trials), embeddings=str(embeddings / f"{EVAL}.scp"), out=str(scores), backend=file,
        normalisation=system.normalisation, cohort=train_scp, cohort_utt2spk=utt2spk,
        utt2spk=str(fold.data / EVAL / "utt2spk"), subtract_mean=normalised and file is None,
        top_n=min(config.top_n, speakers) if normalised else None,
    )  # fmt: skip
    _succeed(score.run(scored, command_line))
    figures = evaluate_scores(
        str(scores), read_trials(fold.trials), utt2spk=None, resamples=0, confidence=config.confidence, seed=0
    )
    return {"eer": figures["eer"], "min_dcf": figures["min_dcf"]}


def _training(config: CrossvalConfig, fold: Fold, seed: int) -> TrainConfig:
    """The settings of one training: those of all, on the data of the fold, where paths are absolute."""
    shared = {item.name: getattr(config, item.name) for item in fields(TrainConfig)}
    data = replace(config.data, train=str(fold.data / TRAIN), root=None, source=None)
    own = {"exp_dir": str(fold.exp_dir), "seed": seed, "data": data, "resume": "auto"}
    if config.init_from is not None and is_regular(Path(config.init_from) / MADE_OF):
        own["init_from"] = str(Path(config.init_from) / f"fold{fold.number}" / f"seed{seed}")
    return TrainConfig(**shared | own)


def _with_epochs(config: CrossvalConfig, fold: Fold, minutes: float, out: Path, command_line: str) -> CrossvalConfig:
    """As many epochs as take so many minutes, by an epoch that is timed once and thrown away.

    The learning rate and the margin follow the share of a run that is done, so that a run that is cut off would not be
    one that is as short.
    """
    noted = out / EPOCHS
    if not is_regular(noted):
        pilot = fold._replace(exp_dir=out / TIMED)
        settings = _training(config, pilot, config.seeds[0])
        log.info("=== an epoch of fold %d is timed", fold.number)
        _succeed(train.run(replace(settings, trainer=replace(settings.trainer, epochs=1)), command_line))
        seconds = read_history(pilot.exp_dir / LOGS / "history.jsonl")[-1]["seconds"]
        shutil.rmtree(pilot.exp_dir)
        epochs = int(60 * minutes / seconds)
        if epochs < 1:
            raise UserError(
                f"an epoch of fold {fold.number} takes {seconds / 60:.2g} minutes, more than minutes={minutes:g}; give "
                "more, or choose a smaller network"
            )
        write_json(noted, {"epochs": epochs, "seconds_of_an_epoch": seconds})
    found = json.loads(noted.read_text(encoding="utf-8"))
    log.info("%d epochs of %.1f s fit into %g minutes", found["epochs"], found["seconds_of_an_epoch"], minutes)
    return replace(config, trainer=replace(config.trainer, epochs=found["epochs"]))


def _succeed(status: int) -> None:
    if status:
        raise StoppedError(status)
