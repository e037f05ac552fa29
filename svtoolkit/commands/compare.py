"""svt compare: which of several systems is better, by their scores of the same trials, or that none can be told."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from svtoolkit.config import CompareConfig
from svtoolkit.errors import UserError
from svtoolkit.reporting.facts import facts_of, locate_model
from svtoolkit.reporting.formatting import decimal, label_of, percent
from svtoolkit.reporting.page_tables import FEW_SPEAKERS, metric_name, verdict
from svtoolkit.reporting.report import write_report
from svtoolkit.reporting.result_file import read_system
from svtoolkit.reporting.same_trials import group_by_trials
from svtoolkit.reporting.systems import compare_group, gather_results, name_systems, speakers_file
from svtoolkit.runs.provenance import commands_behind

log = logging.getLogger(__name__)


def run(config: CompareConfig, command_line: str) -> int:
    """Say for each metric and pair which is better, then what is wrong with the list; write the page where asked."""
    systems_given = [*config.results, *config.scores]
    if len(systems_given) == 1:
        raise UserError(
            f"found one system, {systems_given[0]}; expected two or more: results of `svt evaluate`, or score files"
        )
    if config.resamples < 1:
        raise UserError(f"resamples is {config.resamples}; expected 1 or more, such as 1000")
    drawn = {key: getattr(config, key) for key in ("resamples", "confidence", "seed")}
    given = {"trials": config.trials, "utt2spk": config.utt2spk}
    # The rates have no intervals: those of the differences are what is asked for.
    results = gather_results(config.results, config.scores, **given, **drawn | {"resamples": 0})
    name_systems(results, config.names)
    systems = [read_system(result) for result in results]
    [group] = group_by_trials(systems, strict=True, remedy=" and compare these")
    speakers = speakers_file(group, config.utt2spk)
    if speakers is None:
        raise UserError("the speakers of the trials are not known; give utt2spk=FILE, that of the evaluation data")
    compared = compare_group(group, speakers, **drawn)
    for line in told(compared, results):
        log.info("%s", line)
    for warning in compared["design"]["warnings"]:
        log.warning("the trial list: %s", warning)
    if config.out is not None:
        commands = commands_behind(results, locate=locate_model)
        page = write_report(
            Path(config.out),
            results=results,
            scored=[(system.scores, system.trials.target) for system in systems],
            comparisons=[compared],
            facts=facts_of(results)
            | {"commands": [*(each for each in commands if each != command_line), command_line]},
        )
        log.info("page: %s", page)
    return 0


def told(compared: Mapping[str, Any], results: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The comparison in words, a line a pair and metric."""
    design = compared["design"]
    yield (
        f"{compared['trials']:,} trials of {compared['speakers']} speakers, who were drawn {compared['resamples']:,} "
        f"times; {design['on_both_sides']:,} of {design['utterances']:,} utterances are enrolment and test"
    )
    for column, found in design["confounds"].items():
        yield f"  {column} alone: AUC {found['auc']:.3f} (chance is 0.5)"
    rates = {label_of(result): result for result in results}
    for metric, pairs in compared["metrics"].items():
        yield f"{metric_name(metric)}:"
        for pair in pairs:
            one, other = (f"{pair[key]} {_rate(metric, rates[pair[key]])}" for key in ("first", "second"))
            cell = verdict(metric, pair)
            yield f"  {one}, {other}: {cell.text}; {cell.below}"
    if compared["speakers"] < FEW_SPEAKERS:
        yield f"{compared['speakers']} speakers are few: verdicts on so few people are not to be relied on"


def _rate(metric: str, result: Mapping[str, Any]) -> str:
    if metric == "eer":
        return percent(result["eer"])
    return decimal((result.get("min_dcf") or {}).get(metric.removeprefix("min_dcf_")))
