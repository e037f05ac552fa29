"""The page of a report: one HTML file that shows everything offline, on a screen of either mode and on paper."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from svtoolkit.reporting.formatting import KEPT_CONTROLS, NOTHING, fact, label_of, printable
from svtoolkit.reporting.inline_svg import inline_svg
from svtoolkit.reporting.page_tables import comparison_table, describe, summary_table
from svtoolkit.scoring.evaluation import judge_eer


@dataclass(frozen=True)
class PageFigure:
    """An SVG document and what it shows, in a sentence that a reader who does not see it can do with."""

    svg: str
    caption: str


def build_page(
    *,
    results: Sequence[Mapping[str, Any]],
    comparisons: Sequence[Mapping[str, Any]],
    notes: Sequence[str],
    det: PageFigure,
    histograms: Sequence[PageFigure],
    curves: Sequence[PageFigure],
    run: str,
    config_text: str,
    facts: Mapping[str, Any],
) -> str:
    """The report as one HTML document, without scripts and without anything loaded from elsewhere.

    Args:
        results: one mapping per evaluated score file, as ``report.write_report`` describes it.
        comparisons, notes: of systems in pairs, as ``systems.compare_in_groups`` gives them.
        det: DET plot of all systems.
        histograms: score distributions, in the order of the results.
        curves: learning curves; none where there is no training history.
        run: the training run in words.
        config_text: the composed configuration, YAML.
        facts: what else is known of the run; ``commands`` holds the commands that repeat it.
    """
    commands = facts.get("commands") or []
    trial_lists = dict.fromkeys((result["evaluation"], result.get("trials_sha256") or NOTHING) for result in results)
    lists_of = Counter(evaluation for evaluation, _ in trial_lists)
    return page_template().render(
        about=describe(results, facts),
        summary=summary_table(results),
        remarks=[f"{label_of(result)}: {remark}." for result in results if (remark := judge_eer(result))],
        comparisons=[comparison_table(group) for group in comparisons],
        notes=notes,
        det=det,
        histograms=histograms,
        curves=curves,
        run=run,
        commands=commands if isinstance(commands, str) else "\n".join(map(str, commands)),
        config=config_text.replace("\r\n", "\n").rstrip(),
        facts=[(key.replace("_", " "), fact(value)) for key, value in facts.items() if key != "commands"],
        trial_lists=list(trial_lists),
        mixed_evaluations=[evaluation for evaluation, lists in lists_of.items() if lists > 1],
    )


def page_template() -> Template:
    """The template, in which whatever is printed is escaped, without control characters, and must be defined."""
    environment = Environment(
        loader=PackageLoader("svtoolkit", "reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: value if hasattr(value, "__html__") else printable(str(value), keep=KEPT_CONTROLS),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["inline_svg"] = inline_svg
    return environment.get_template("report.html.jinja")
