"""svt report: result.json, figures and a page that opens offline."""

from __future__ import annotations

import datetime
import logging
import platform
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from svtoolkit import __version__
from svtoolkit.checkpoints.releases import folder_of, pinned, read_release
from svtoolkit.config import ReportConfig
from svtoolkit.errors import UserError, hide_credentials
from svtoolkit.reporting.report import write_report
from svtoolkit.reporting.result_file import read_result, read_system
from svtoolkit.reporting.systems import Request, compare_in_groups, name_systems
from svtoolkit.runs.exp_dir import CONFIG, LOGS
from svtoolkit.runs.provenance import commands_behind, model_behind, read_record, source_commit
from svtoolkit.runs.run_history import read_history
from svtoolkit.scoring.result import make_result
from svtoolkit.system.checksum import hash_file
from svtoolkit.system.plain_data import MalformedError, read_text
from svtoolkit.system.regular_file import is_regular

log = logging.getLogger(__name__)

EVALUATED_HERE = ("resamples", "confidence", "seed")


def run(config: ReportConfig, command_line: str) -> int:
    """Gather results, scores, history and facts, and write the report."""
    if config.model is not None:
        config = replace(config, model=pinned(config.model))
    if config.front_end is not None and config.model is None:
        raise UserError(f"front_end is {config.front_end!r}, but model is null; name the release, or leave it out")
    results = _results(config)
    name_systems(results, config.names)
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
    systems = [read_system(result) for result in results]
    drawn = {key: getattr(config, key) for key in EVALUATED_HERE}
    comparisons, notes = compare_in_groups(systems, Request(config.compare, config.utt2spk, **drawn))
    facts = _facts(config, results)
    commands = commands_behind(results, exp_dir=config.exp_dir, model=config.model, locate=_locate)
    page = write_report(
        Path(config.out),
        results=results,
        scored=[(system.scores, system.trials.target) for system in systems],
        comparisons=comparisons,
        notes=notes,
        history=history,
        config_text=config_text,
        facts=facts | {"commands": [*(command for command in commands if command != command_line), command_line]},
    )
    log.info("report: %s", page)
    return 0


def _results(config: ReportConfig) -> list[dict[str, Any]]:
    """The results of the files, then those of the score files, evaluated here."""
    if not config.results and not config.scores:
        raise UserError(
            "results lists no file; give results=[a.json,b.json], as written by `svt evaluate`, or scores=[a,b] and "
            "trials=FILE"
        )
    results = [read_result(Path(path)) for path in config.results]
    if config.scores and config.trials is None:
        raise UserError("scores needs the trial list that was scored; give trials=FILE")
    if config.trials is not None and not config.scores:
        raise UserError("trials is the list of scores=[...], which lists no file; leave trials out, or give scores")
    drawn = {key: getattr(config, key) for key in EVALUATED_HERE}
    for path in config.scores:
        # The command line is that of the report: it evaluates the file.
        results.append(make_result(path, str(config.trials), utt2spk=config.utt2spk, command="", **drawn))
    return results


def _facts(config: ReportConfig, results: list[dict[str, Any]]) -> dict[str, Any]:
    """What is known of program, machine, run and network; each result gets the network of its own embeddings."""
    facts: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.timezone.utc).date(),
        "svtoolkit": __version__,
        "git commit": source_commit(Path(__file__).resolve().parent),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "machine": f"{platform.system()} {platform.machine()}, {torch.get_num_threads()} threads",
    }
    if torch.cuda.is_available():
        facts["gpu"] = torch.cuda.get_device_name()
    of_results = [model_behind(result["scores_file"]) for result in results]
    networks = {model: _network(*model) for model in dict.fromkeys(of_results) if model}
    for result, model in zip(results, of_results, strict=True):
        result["network"] = networks[model] if model else {}
    if config.model is not None:
        facts |= _network(config.model, config.front_end, strict=True)
    elif len(networks) == 1 and all(of_results):
        facts |= next(iter(networks.values()))
    if config.exp_dir is not None:
        saved = Path(config.exp_dir) / CONFIG
        record = read_record(saved)
        facts["seed"] = record.get("seed")
        facts["config sha256"] = hash_file(saved)
        data = record.get("data")
        facts["training data"] = data.get("train") if isinstance(data, dict) else None
    if isinstance(facts.get("training data"), str):
        facts |= _size_of(Path(facts["training data"]))
    return facts


def _network(folder: str, front_end: str | None, *, strict: bool = False) -> dict[str, Any]:
    """Facts of a released model; none of one that can no longer be read, unless ``strict``."""
    try:
        network, description = read_release(folder, front_end=front_end)
    except UserError:
        if strict:
            raise
        log.warning("%s: the model of the embeddings cannot be read, so that the report does not describe it", folder)
        return {}
    return {
        "model": description.model.get("name"),
        "model folder": folder,
        "parameters": sum(parameter.numel() for parameter in network.parameters()) or None,
        "embedding size": network.embedding_dim,
        "epochs averaged": description.training.get("epochs_averaged"),
        "training data": description.training.get("data"),
    }


def _locate(model: str) -> Path:
    """The folder of a model; of the hub's that cannot be had, one that is not there."""
    try:
        return folder_of(model)
    except UserError as error:
        log.warning("%s", error)
        return Path(model)


def _size_of(folder: Path) -> dict[str, int]:
    """Speakers and utterances of a data directory, where it is still there."""
    tables = {"training speakers": folder / "spk2utt", "training utterances": folder / "utt2spk"}
    return {
        name: sum(1 for line in table.read_bytes().splitlines() if line.strip())
        for name, table in tables.items()
        if is_regular(table)
    }
