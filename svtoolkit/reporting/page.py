"""The page of a report: one HTML file that shows everything offline, on a screen of either mode and on paper."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from svtoolkit.reporting.formatting import KEPT_CONTROLS, NOTHING, count, decimal, fact, percent, printable
from svtoolkit.reporting.inline_svg import inline_svg
from svtoolkit.scoring.evaluation import judge_eer


@dataclass(frozen=True)
class PageFigure:
    """An SVG document and what it shows, in a sentence that a reader who does not see it can do with."""

    svg: str
    caption: str


def build_page(
    *,
    results: Sequence[Mapping[str, Any]],
    det: PageFigure,
    histograms: Sequence[PageFigure],
    curves: PageFigure | None,
    config_text: str,
    facts: Mapping[str, Any],
) -> str:
    """The report as one HTML document, without scripts and without anything loaded from elsewhere.

    Args:
        results: one mapping per evaluated score file, as ``report.write_report`` describes it.
        det: DET plot of all systems.
        histograms: score distributions, in the order of the results.
        curves: learning curves, or None where there is no training history.
        config_text: the composed configuration, YAML.
        facts: what else is known of the run; ``commands`` holds the commands that repeat it.
    """
    commands = facts.get("commands") or []
    trial_lists = dict.fromkeys((result["evaluation"], result.get("trials_sha256") or NOTHING) for result in results)
    lists_of = Counter(evaluation for evaluation, _ in trial_lists)
    return page_template().render(
        summary=_summary(results),
        remarks=[
            f"{result['evaluation']}, {result['scores']}: {remark}."
            for result in results
            if (remark := judge_eer(result))
        ],
        det=det,
        histograms=histograms,
        curves=curves,
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


def _summary(results: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Head and rows of the table of all results."""
    priors = sorted({prior for result in results for prior in result.get("min_dcf") or {}}, key=float)
    head = ["evaluation", "scores", "EER", "EER interval", *(f"minDCF {prior}" for prior in priors)]
    head += ["Cllr", "minCllr", "trials", "target", "non-target", "missing"]
    rows = [
        [result["evaluation"], result["scores"], percent(result["eer"]), _interval(result)]
        + [decimal((result.get("min_dcf") or {}).get(prior)) for prior in priors]
        + [decimal(result.get("cllr")), decimal(result.get("min_cllr"))]
        + [count(result.get(key)) for key in ("trials", "targets", "nontargets", "missing")]
        for result in results
    ]
    return {"head": head, "rows": rows}


def _interval(result: Mapping[str, Any]) -> str:
    interval = result.get("eer_interval")
    if not interval or None in interval:
        return NOTHING
    low, high = (100 * share for share in interval)
    confidence = result.get("confidence")
    return f"{low:.2f}–{high:.2f} %" + (f" ({100 * confidence:g} %)" if confidence is not None else "")
