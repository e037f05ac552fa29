"""The page of a report: one HTML file that shows everything offline, on a screen of either mode and on paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from svtoolkit.reporting.formatting import KEPT_CONTROLS, NOTHING, count, decimal, fact, percent, printable
from svtoolkit.reporting.inline_svg import inline_svg

# The policy keeps even a faulty page from loading anything or running a script.
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
STYLE = """
:root { color-scheme: light dark; --ink: #202124; --paper: #ffffff; --soft: #5f6368; --line: #d0d4d9; --tint: #f4f6f8; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8eaed; --paper: #17191c; --soft: #a9afb6; --line: #3c4147; --tint: #202327; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 68rem; padding: 1.5rem 1rem 4rem; color: var(--ink); background: var(--paper);
  font: 1rem/1.5 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.2; }
h2 { font-size: 1.2rem; margin-top: 2.5rem; border-bottom: 1px solid var(--line); padding-bottom: .2rem; }
p, figcaption { max-width: 46rem; }
figcaption, .note { color: var(--soft); font-size: .9rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .93rem; }
th, td { padding: .3rem .5rem; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
thead th { border-bottom: 2px solid var(--soft); vertical-align: bottom; font-size: .85rem; }
td.number, th.number { text-align: right; }
td.number { white-space: nowrap; }
tbody th { font-weight: 600; }
tbody th, td { min-width: 5.2rem; max-width: 44rem; overflow-wrap: break-word; }
td.number { min-width: 0; }
figure { margin: 1.2rem 0; break-inside: avoid; }
figure svg { display: block; max-width: 100%; height: auto; }
figure svg * { stroke-linejoin: round; stroke-linecap: butt; }
pre { background: var(--tint); border: 1px solid var(--line); border-radius: .3rem; padding: .7rem .9rem;
  overflow: auto; max-height: 32rem; font-size: .85rem; line-height: 1.4; }
code, pre { font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(20rem, 1fr)); gap: 0 1.5rem; }
@media print {
  :root { color-scheme: light; --ink: #000000; --paper: #ffffff; --soft: #444444; --line: #bbbbbb; --tint: #ffffff; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  h2 { break-after: avoid; }
  tr { break-inside: avoid; }
  .wide { overflow: visible; }
  th, td { padding: .15rem .35rem; font-size: 8.5pt; }
  pre { max-height: none; white-space: pre-wrap; overflow-wrap: anywhere; }
}
"""


@dataclass(frozen=True)
class PageFigure:
    """An SVG document and what it shows, in a sentence that a reader who does not see it can do with."""

    svg: str
    caption: str


def build_page(
    *,
    title: str,
    results: Sequence[Mapping[str, Any]],
    det: PageFigure,
    histograms: Sequence[PageFigure],
    curves: PageFigure | None,
    config_text: str,
    facts: Mapping[str, Any],
) -> str:
    """The report as one HTML document, without scripts and without anything loaded from elsewhere.

    Args:
        title: heading of the page.
        results: one mapping an evaluated score file, as ``report.write_report`` describes it.
        det: DET plot of all systems.
        histograms: score distributions, in the order of the results.
        curves: learning curves, or None where there is no training history.
        config_text: the composed configuration, YAML.
        facts: what else is known of the run; ``commands`` holds the commands that repeat it.
    """
    others = {key: value for key, value in facts.items() if key != "commands"}
    sections = [
        ("results", "Results", _summary_table(results)),
        ("det", "Detection error trade-off", _figure(det, "det-")),
        ("scores", "Score distributions", _histograms(histograms)),
        ("training", "Training", _training(curves)),
        ("repeat", "How to repeat", _commands(facts.get("commands"))),
        ("config", "Configuration", _block(config_text) if config_text.strip() else _note("None was recorded.")),
        ("facts", "Facts", _facts(others)),
        ("trials", "Trial lists", _trial_lists(results)),
    ]
    body = "\n".join(
        f'<section aria-labelledby="{name}">\n<h2 id="{name}">{heading}</h2>\n{content}\n</section>'
        for name, heading, content in sections
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_text(title)}</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n<h1>{_text(title)}</h1>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _text(value: Any) -> str:
    return escape(printable(str(value)))


def _note(text: str) -> str:
    return f'<p class="note">{_text(text)}</p>'


def _block(text: str) -> str:
    lines = text.replace("\r\n", "\n").rstrip()
    return f"<pre><code>{escape(printable(lines, keep=KEPT_CONTROLS))}</code></pre>"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], *, texts: int) -> str:
    """A table whose first column heads the rows; columns from ``texts`` on are numbers. Cells are plain text."""

    def number(column: int) -> str:
        return ' class="number"' if column >= texts else ""

    top = "".join(f'<th scope="col"{number(column)}>{_text(name)}</th>' for column, name in enumerate(head))
    lines = []
    for first, *rest in rows:
        cells = "".join(f"<td{number(column)}>{_text(cell)}</td>" for column, cell in enumerate(rest, start=1))
        lines.append(f'<tr><th scope="row">{_text(first)}</th>{cells}</tr>')
    return (
        f'<div class="wide"><table><thead><tr>{top}</tr></thead>\n<tbody>\n'
        + "\n".join(lines)
        + "\n</tbody></table></div>"
    )


def _summary_table(results: Sequence[Mapping[str, Any]]) -> str:
    priors = sorted({prior for result in results for prior in result.get("min_dcf") or {}}, key=float)
    head = ["evaluation", "scores", "EER", "EER interval", *(f"minDCF {prior}" for prior in priors)]
    head += ["Cllr", "minCllr", "trials", "target", "non-target", "missing"]
    rows = []
    for result in results:
        costs = result.get("min_dcf") or {}
        rows.append(
            [
                result["evaluation"],
                result["scores"],
                percent(result["eer"]),
                _interval(result),
                *(decimal(costs.get(prior)) for prior in priors),
                decimal(result.get("cllr")),
                decimal(result.get("min_cllr")),
                *(count(result.get(key)) for key in ("trials", "targets", "nontargets", "missing")),
            ]
        )
    legend = (
        "EER: equal error rate, with its bootstrap interval and the confidence of that. minDCF: normalised minimum "
        "detection cost at the target prior named. Cllr: cost of the scores taken as log likelihood ratios, in bits; "
        "minCllr: the same after the best monotonic calibration. missing: trials without a score, left out."
    )
    return f"{_table(head, rows, texts=2)}\n{_note(legend)}"


def _interval(result: Mapping[str, Any]) -> str:
    interval = result.get("eer_interval")
    if not interval or None in interval:
        return NOTHING
    low, high = (100 * share for share in interval)
    confidence = result.get("confidence")
    return f"{low:.2f}–{high:.2f} %" + (f" ({100 * confidence:g} %)" if confidence is not None else "")


def _figure(figure: PageFigure, prefix: str) -> str:
    drawing = inline_svg(figure.svg, prefix=prefix, label=printable(figure.caption))
    return f"<figure>\n{drawing}\n<figcaption>{_text(figure.caption)}</figcaption>\n</figure>"


def _histograms(histograms: Sequence[PageFigure]) -> str:
    drawn = [_figure(figure, f"scores-{position}-") for position, figure in enumerate(histograms, start=1)]
    return '<div class="pair">\n' + "\n".join(drawn) + "\n</div>"


def _training(curves: PageFigure | None) -> str:
    if curves is None:
        return _note("No training history belongs to this report, so there are no learning curves to show.")
    return _figure(curves, "curves-")


def _commands(commands: Any) -> str:
    listed = [commands] if isinstance(commands, str) else commands or []
    if not listed:
        return _note("No commands were recorded.")
    return _block("\n".join(map(str, listed)))


def _facts(facts: Mapping[str, Any]) -> str:
    if not facts:
        return _note("None were recorded.")
    return _table(["fact", "value"], [[key.replace("_", " "), fact(value)] for key, value in facts.items()], texts=2)


def _trial_lists(results: Sequence[Mapping[str, Any]]) -> str:
    """Each list once, and a warning where results of one evaluation stem from different lists."""
    lists = dict.fromkeys((result["evaluation"], result.get("trials_sha256") or NOTHING) for result in results)
    rows = [[evaluation, digest] for evaluation, digest in lists]
    names = [evaluation for evaluation, _ in lists]
    warnings = [
        _note(f"Results of {name} stem from different trial lists: they cannot be compared with each other.")
        for name in dict.fromkeys(names)
        if names.count(name) > 1
    ]
    table = _table(["evaluation", "SHA-256 of the trial list"], rows, texts=2)
    return "\n".join([_note("Results can be compared where they stem from the same trial list."), *warnings, table])
