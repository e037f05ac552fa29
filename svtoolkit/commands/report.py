"""svt report: result.json, figures and a page that opens offline."""

from __future__ import annotations

import logging
import platform
from pathlib import Path
from typing import Any

import torch

from svtoolkit import __version__
from svtoolkit.checkpoints.released import read_released
from svtoolkit.config import ReportConfig
from svtoolkit.data.trials import hash_trials, read_trials
from svtoolkit.errors import UserError, hide_credentials
from svtoolkit.reporting.report import write_report
from svtoolkit.runs.exp_dir import CONFIG, LOGS
from svtoolkit.runs.provenance import commands_behind, read_record, source_commit
from svtoolkit.runs.run_history import read_history
from svtoolkit.scoring.evaluation import scored_part
from svtoolkit.scoring.score_file import align_scores
from svtoolkit.system.checksum import hash_file
from svtoolkit.system.plain_data import MalformedError, parse_json, read_text
from svtoolkit.system.regular_file import is_regular

log = logging.getLogger(__name__)

TEXTS = ("scores_file", "scores_sha256", "trials_file", "trials_sha256")
"""Keys of a result that say what it is of."""


def run(config: ReportConfig, command_line: str) -> int:
    """Gather results, scores, history and facts, and write the report."""
    if not config.results:
        raise UserError("results lists no file; give results=[a.json,b.json], as written by `svt evaluate`")
    results = [_read_result(Path(path)) for path in config.results]
    history, config_text = [], ""
    if config.exp_dir is not None:
        exp_dir = Path(config.exp_dir)
        if not is_regular(exp_dir / CONFIG):
            raise UserError(
                f"{exp_dir / CONFIG}: there is no such file; expected exp_dir to be a folder that `svt train` wrote"
            )
        history = read_history(exp_dir / LOGS / "history.jsonl")
        try:
            config_text = hide_credentials(read_text(exp_dir / CONFIG))
        except MalformedError as error:
            raise UserError(f"{exp_dir / CONFIG}: is no text ({error}); restore it") from error
    commands = commands_behind(results, exp_dir=config.exp_dir, model=config.model)
    page = write_report(
        Path(config.out),
        results=results,
        scored=[_read_scored(result) for result in results],
        history=history,
        config_text=config_text,
        facts=_facts(config) | {"commands": [*commands, command_line]},
    )
    log.info("report: %s", page)
    return 0


def _read_result(path: Path) -> dict[str, Any]:
    if not is_regular(path):
        raise UserError(f"{path}: there is no such file; expected a result that `svt evaluate` wrote")
    try:
        result = parse_json(read_text(path))
    except MalformedError as error:
        where = f"{path}:{error.line}" if error.line else f"{path}"
        raise UserError(f"{where}: is not JSON ({error}); run `svt evaluate` again") from error
    needed = {*TEXTS, "eer", "missing"}
    missing = needed - result.keys() if isinstance(result, dict) else needed
    if missing:
        raise UserError(f"{path}: lacks {', '.join(sorted(missing))}; run `svt evaluate` again")
    for key in TEXTS:
        if not isinstance(result[key], str):
            raise UserError(f"{path}: {key} is {result[key]!r:.80}, expected text; run `svt evaluate` again")
    if type(result["missing"]) is not int or result["missing"] < 0:
        raise UserError(
            f"{path}: missing is {result['missing']!r:.80}, expected a number of trials; run `svt evaluate` again"
        )
    return result


def _read_scored(result: dict[str, Any]) -> tuple[Any, Any]:
    """Scores and target flags behind a result, refused where a file is no longer the same."""
    trials_file, scores_file = result["trials_file"], result["scores_file"]
    if hash_trials(trials_file) != result["trials_sha256"]:
        raise UserError(f"{trials_file}: has changed since {scores_file} was evaluated; run `svt evaluate` again")
    trials = read_trials(trials_file)
    if is_regular(scores_file) and hash_file(Path(scores_file)) != result["scores_sha256"]:
        raise UserError(f"{scores_file}: has changed since it was evaluated; run `svt evaluate` again")
    if result["missing"]:
        trials = scored_part(trials, scores_file)
    return align_scores(trials, scores_file), trials.target


def _facts(config: ReportConfig) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "svtoolkit": __version__,
        "git commit": source_commit(Path(__file__).resolve().parent),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "machine": f"{platform.system()} {platform.machine()}, {torch.get_num_threads()} threads",
    }
    if torch.cuda.is_available():
        facts["gpu"] = torch.cuda.get_device_name()
    if config.exp_dir is not None:
        saved = Path(config.exp_dir) / CONFIG
        facts["seed"] = read_record(saved).get("seed")
        facts["config sha256"] = hash_file(saved)
    if config.model is not None:
        network, description = read_released(config.model)
        facts["model"] = description.model.get("name")
        facts["parameters"] = sum(parameter.numel() for parameter in network.parameters())
        facts["embedding size"] = network.embedding_dim
        facts["epochs averaged"] = description.training.get("epochs_averaged")
    return facts
