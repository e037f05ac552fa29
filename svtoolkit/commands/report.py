"""svt report: result.json, figures and a page that opens offline."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

from svtoolkit.checkpoints.releases import pinned
from svtoolkit.config import ReportConfig
from svtoolkit.errors import UserError, hide_credentials
from svtoolkit.reporting.facts import facts_of, locate_model
from svtoolkit.reporting.report import write_report
from svtoolkit.reporting.result_file import read_system
from svtoolkit.reporting.systems import Request, compare_in_groups, gather_results, name_systems
from svtoolkit.runs.exp_dir import CONFIG, LOGS
from svtoolkit.runs.provenance import commands_behind
from svtoolkit.runs.run_history import read_history
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
    drawn = {key: getattr(config, key) for key in EVALUATED_HERE}
    given = {"trials": config.trials, "utt2spk": config.utt2spk}
    results = gather_results(config.results, config.scores, **given, **drawn)
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
    comparisons, notes = compare_in_groups(systems, Request(config.compare, config.utt2spk, **drawn))
    facts = facts_of(results, model=config.model, front_end=config.front_end, exp_dir=config.exp_dir)
    commands = commands_behind(results, exp_dir=config.exp_dir, model=config.model, locate=locate_model)
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
