"""What the page of a report says in tables: network and data at the top, the results, the systems in pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from svtoolkit.reporting.formatting import NOTHING, count, decimal, fact, percent

FEW_SPEAKERS = 20
"""With fewer, bootstrap intervals are too narrow; see ``scoring.bootstrap``."""


@dataclass(frozen=True)
class Cell:
    """What a cell shows, and in small print below it."""

    text: str
    below: str = ""


@dataclass(frozen=True)
class Table:
    """Of the page.

    Attributes:
        head: names of the columns.
        rows: of cells, as many as there are names.
        texts: how many columns at the left are text; the others are numbers.
        title: above the table.
        notes: below it.
    """

    head: list[str]
    rows: list[list[Cell]]
    texts: int
    title: str = ""
    notes: list[str] = field(default_factory=list)


def describe(results: Sequence[Mapping[str, Any]], facts: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    """The head of the page: which network, trained on what, evaluated on which trials, when and with what."""
    network = NOTHING
    if facts.get("model") is not None:
        network = _network(facts)
        if facts.get("embedding size") is not None:
            network += f", embeddings of {fact(facts['embedding size'])}"
        if facts.get("model folder"):
            network += f", {facts['model folder']}"
    networks = [network]
    if network == NOTHING:
        of_results = dict.fromkeys(_network(result.get("network") or {}) for result in results)
        networks = [name for name in of_results if name != NOTHING] or [
            "not recorded; `svt report model=FOLDER` names it"
        ]
    data = facts.get("training data")
    sizes = [
        f"{fact(facts[f'training {noun}'])} {noun}"
        for noun in ("speakers", "utterances")
        if facts.get(f"training {noun}") is not None
    ]
    trained = "not recorded; `svt report exp_dir=FOLDER` names it" if data is None else ", ".join([fact(data), *sizes])
    version = f"svtoolkit {facts['svtoolkit']}" if facts.get("svtoolkit") else ""
    commit = f"commit {facts['git commit']}" if facts.get("git commit") else ""
    made = ", ".join(part for part in (str(facts.get("date") or ""), version, commit) if part)
    about = [("Network", networks), ("Trained on", [trained]), ("Trials", list(dict.fromkeys(map(_trials, results))))]
    return about + ([("Made", [made])] if made else [])


def _network(facts: Mapping[str, Any]) -> str:
    if facts.get("model") is None:
        return NOTHING
    size = facts.get("parameters")
    return fact(facts["model"]) + (f", {fact(size)} parameters" if size is not None else "")


def _trials(result: Mapping[str, Any]) -> str:
    parts = [str(result["evaluation"])]
    if result.get("trials") is not None:
        classes = [
            f"{count(result[key])} {name}"
            for key, name in (("targets", "target"), ("nontargets", "non-target"))
            if result.get(key) is not None
        ]
        parts.append(f"{count(result['trials'])} trials" + (f" ({', '.join(classes)})" if classes else ""))
    return ", ".join([*parts, *filter(None, [result.get("trials_file")])])


def summary_table(results: Sequence[Mapping[str, Any]]) -> Table:
    """All results, error rates and costs with their intervals below them."""
    priors = sorted({prior for result in results for prior in result.get("min_dcf") or {}}, key=float)
    named = any(result.get("system") for result in results)
    networks = [_network(result.get("network") or {}) for result in results]
    several = len(set(networks)) > 1
    head = [*(["system"] if named else []), "evaluation", "scores", *(["network"] if several else [])]
    texts = len(head)
    head += ["EER", *(f"minDCF {prior}" for prior in priors), "Cllr", "minCllr"]
    head += ["trials", "target", "non-target", "missing"]
    rows = []
    for result, network in zip(results, networks, strict=True):
        row = [Cell(result.get("system") or NOTHING)] if named else []
        row += [Cell(result["evaluation"]), Cell(result["scores"]), *([Cell(network)] if several else [])]
        row.append(Cell(percent(result["eer"]), _interval(result.get("eer_interval"), 100)))
        for prior in priors:
            bounds = (result.get("min_dcf_intervals") or {}).get(prior)
            row.append(Cell(decimal((result.get("min_dcf") or {}).get(prior)), _interval(bounds)))
        row += [Cell(decimal(result.get(key))) for key in ("cllr", "min_cllr")]
        row += [Cell(count(result.get(key))) for key in ("trials", "targets", "nontargets", "missing")]
        rows.append(row)
    return Table(head, rows, texts, notes=[_explain(results)])


def _explain(results: Sequence[Mapping[str, Any]]) -> str:
    with_interval = [result for result in results if result.get("eer_interval")]
    confidences = dict.fromkeys(
        f"{100 * result['confidence']:g} %" for result in with_interval if result.get("confidence") is not None
    )
    below = f"Below both, the bootstrap interval over speakers ({', '.join(confidences)}). " if with_interval else ""
    return (
        f"EER: equal error rate. minDCF: normalised minimum detection cost at the target prior named. {below}Cllr: "
        "cost of the scores taken as log likelihood ratios, in bits; minCllr: the same after the best monotonic "
        "calibration. missing: trials without a score, left out."
    )


def _interval(bounds: Sequence[float | None] | None, scale: int = 1) -> str:
    if not bounds or None in bounds:
        return ""
    return "–".join(f"{scale * bound:.{2 if scale == 100 else 4}f}" for bound in bounds if bound is not None)


def comparison_table(group: Mapping[str, Any]) -> Table:
    """The pairs of systems that scored the same trials, with a verdict by each metric."""
    metrics = group["metrics"]
    pairs = len(next(iter(metrics.values())))
    head = ["first", "second", *map(metric_name, metrics)]
    rows = []
    for place in range(pairs):
        of_pair = [listed[place] for listed in metrics.values()]
        row = [Cell(of_pair[0]["first"]), Cell(of_pair[0]["second"])]
        rows.append(row + [verdict(name, pair) for name, pair in zip(metrics, of_pair, strict=True)])
    notes = [
        f"{count(group['trials'])} trials of {count(group['speakers'])} speakers, who were drawn "
        f"{count(group['resamples'])} times, the same for all systems. Differences are first less second, so that one "
        "below 0 speaks for the first; p is corrected for the number of pairs by Holm's method, for each metric by "
        f"itself: of systems of equal quality, any two are told apart in {100 * (1 - group['confidence']):.3g} % of "
        "such tables at most. An interval has the confidence that Holm's method asks of its pair."
    ]
    if group["speakers"] < FEW_SPEAKERS:
        notes.append(f"{group['speakers']} speakers are few: verdicts on so few people are not to be relied on.")
    notes += [f"The trial list: {warning}." for warning in group["design"]["warnings"]]
    return Table(head, rows, texts=len(head), title=", ".join(group["evaluations"]), notes=notes)


def verdict(metric: str, pair: Mapping[str, Any]) -> Cell:
    """Which of two systems is better, if they can be told apart, and the difference behind it."""
    scale, places, unit = (100, 2, " points") if metric == "eer" else (1, 4, "")
    difference, low, high = (_signed(scale * value, places) for value in (pair["difference"], *pair["interval"]))
    text = "cannot be told apart" if pair["better"] is None else f"{pair['better']} is better"
    p_value = "below 0.001" if pair["p_holm"] < 0.001 else f"{pair['p_holm']:.3f}"
    return Cell(
        text,
        f"{difference}{unit}; {100 * pair['confidence']:.4g} % interval {low} to {high}; p {p_value}",
    )


def _signed(value: float, places: int) -> str:
    """With its sign, a minus as wide as a plus; zero without one."""
    text = f"{value:+.{places}f}"
    return text[1:] if not float(text) else text.replace("-", "\N{MINUS SIGN}")


def metric_name(metric: str) -> str:
    """What a metric of a comparison is called."""
    return "EER" if metric == "eer" else metric.replace("min_dcf_", "minDCF ")
