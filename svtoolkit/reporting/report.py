"""The report of an experiment: figures, machine-readable results and the page, in one folder."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from svtoolkit.errors import UserError
from svtoolkit.reporting.formatting import file_stem, label_of, percent, plain
from svtoolkit.reporting.history import Record, summary
from svtoolkit.reporting.page import PageFigure, build_page
from svtoolkit.system.atomic import atomic_write

NAMES = ("evaluation", "scores")
NUMBERS = ("eer", "eer_threshold")
OPTIONAL_NAMES = ("system", "label", "trials_file")
OPTIONAL_NUMBERS = ("confidence", "cllr", "min_cllr", "trials", "targets", "nontargets", "missing")


ScoredTrials = tuple[np.ndarray, np.ndarray]
"""Scores (finite) and target labels (bool) of one evaluated score file, both of shape (trials,)."""


def write_report(
    folder: str | Path,
    *,
    results: Sequence[Mapping[str, Any]],
    scored: Sequence[ScoredTrials],
    comparisons: Sequence[Mapping[str, Any]] = (),
    notes: Sequence[str] = (),
    history: Sequence[Record] = (),
    config_text: str = "",
    facts: Mapping[str, Any] | None = None,
) -> Path:
    """Write result.json, det.svg, det.png, scores-<system>.svg, curve-<quantity>.svg and index.html.

    Each file is replaced in one step, the page last.

    Args:
        folder: where the files go; made if it is missing.
        results: one mapping per evaluated score file. Needed: ``evaluation`` and ``scores`` (names), ``eer``,
            ``eer_threshold``. Shown where present: ``system`` and ``label`` (names), ``eer_interval`` (low, high),
            ``confidence``, ``min_dcf`` (target prior -> cost), ``min_dcf_intervals`` (prior -> bounds), ``cllr``,
            ``min_cllr``, ``trials``, ``targets``, ``nontargets``, ``missing``, ``trials_file``, ``trials_sha256``,
            ``network`` (``model`` and ``parameters``). Rates lie between 0 and 1. Further keys go to result.json alone.
        scored: scores and labels behind each result, in the same order.
        comparisons, notes: of systems in pairs, as ``systems.compare_in_groups`` gives them.
        history: records of the training run, see ``svtoolkit.runs.run_history``.
        config_text: the composed configuration, YAML.
        facts: model, sizes, machine, versions and the like: text, numbers, lists and mappings of these;
            ``commands`` holds the commands that repeat the run. Those shown at the top of the page: ``model``,
            ``parameters``, ``embedding size``, ``training data``, ``training speakers``, ``training utterances``,
            ``date``, ``svtoolkit``, ``git commit``.

    Returns:
        the path of index.html.

    Raises:
        UserError: no result, one that lacks a key or is listed twice, scores that do not fit, values JSON cannot hold.
    """
    # matplotlib takes a good part of a second to import, which commands that write no report should not pay.
    from svtoolkit.reporting.canvas import png_bytes, svg_text
    from svtoolkit.reporting.learning_curves import learning_curves

    results, facts = plain(list(results), "results"), plain(facts or {}, "facts")
    _check_results(results, scored)
    det, histograms = _evaluation_figures(results, scored)
    documents = {"det.svg": svg_text(det)}
    stems = _stems(results)
    for stem, histogram in zip(stems, histograms, strict=True):
        documents[f"{stem}.svg"] = svg_text(histogram)
    drawn = learning_curves(history)
    curves = {title: f"curve-{file_stem(title).lower()}.svg" for title in drawn}
    documents |= {curves[title]: svg_text(figure) for title, figure in drawn.items()}
    comparisons = plain(list(comparisons), "comparisons")
    page = build_page(
        results=results,
        comparisons=comparisons,
        notes=notes,
        det=PageFigure(documents["det.svg"], _det_caption(results)),
        histograms=[
            PageFigure(documents[f"{stem}.svg"], f"Scores of {label_of(result)}.")
            for stem, result in zip(stems, results, strict=True)
        ],
        curves=[PageFigure(documents[file], title) for title, file in curves.items()],
        run=summary(history),
        config_text=config_text,
        facts=facts,
    )
    documents["result.json"] = _json({"comparisons": comparisons, "facts": facts, "results": results})
    documents["index.html"] = page
    target = Path(folder)
    with atomic_write(target / "det.png", "wb") as stream:
        stream.write(png_bytes(det))
    for name, text in documents.items():
        with atomic_write(target / name) as stream:
            stream.write(text)
    return target / "index.html"


def _json(content: Any) -> str:
    return json.dumps(content, indent=2, sort_keys=True, ensure_ascii=True, allow_nan=False) + "\n"


def _check_results(results: Sequence[Mapping[str, Any]], scored: Sequence[ScoredTrials]) -> None:
    if not results or len(results) != len(scored):
        raise UserError(
            f"a report needs results and the scores behind each; found {len(results)} results and scores of "
            f"{len(scored)}, expected one or more of both, as many results as scores"
        )
    for position, (result, (scores, _)) in enumerate(zip(results, scored, strict=True), start=1):
        for key, expected in _faults(result):
            raise UserError(
                f"result {position} of the report: found {result.get(key)!r} as {key!r}, expected {expected}; "
                "evaluate the scores again"
            )
        if result.get("trials") not in (None, len(scores)):
            raise UserError(
                f"result {position} of the report: found {len(scores)} scores behind {result['trials']} trials of "
                f"{label_of(result)}, expected one per trial; evaluate the scores again"
            )
    labels = [label_of(result) for result in results]
    twice = sorted({label for label in labels if labels.count(label) > 1})
    if twice:
        raise UserError(
            f"the report has more than one result of {', '.join(twice)}; list each system once, or give each a name "
            "of its own with names=[...]"
        )


def _faults(result: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Keys of a result whose values the page cannot show, each with what it should hold."""
    for key in NAMES:
        if not isinstance(result.get(key), str):
            yield key, "a name"
    for key in OPTIONAL_NAMES:
        if not isinstance(result.get(key), str | None):
            yield key, "a name, or nothing"
    for key in NUMBERS + OPTIONAL_NUMBERS:
        value = result.get(key)
        if not _is_number(value) and (value is not None or key in NUMBERS):
            yield key, "a number"
    interval = result.get("eer_interval")
    if interval is not None and not (_are_numbers_or_none(interval) and len(interval) == 2):
        yield "eer_interval", "the two ends of an interval, or nothing"
    bounds = result.get("min_dcf_intervals") or {}
    if not isinstance(bounds, Mapping) or not all(_are_numbers_or_none(b) and len(b) == 2 for b in bounds.values()):
        yield "min_dcf_intervals", "two bounds by target prior, or nothing"
    if result.get("network") is not None and not isinstance(result["network"], Mapping):
        yield "network", "a mapping, or nothing"
    costs = result.get("min_dcf") or {}
    if not isinstance(costs, Mapping) or not all(map(_is_prior, costs)) or not _are_numbers_or_none([*costs.values()]):
        yield "min_dcf", "costs by target prior, such as {'0.01': 0.31}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _are_numbers_or_none(values: Any) -> bool:
    return isinstance(values, list) and all(value is None or _is_number(value) for value in values)


def _is_prior(text: str) -> bool:
    try:
        return 0 < float(text) < 1
    except ValueError:
        return False


def _stems(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """File names without suffix, one per result; numbered where names differ only in what is left out of them."""
    stems: list[str] = []
    for result in results:
        stem = f"scores-{file_stem(label_of(result))}"
        taken = {known.casefold() for known in stems}
        number = 2
        numbered = stem
        while numbered.casefold() in taken:
            numbered, number = f"{stem}-{number}", number + 1
        stems.append(numbered)
    return stems


def _evaluation_figures(results: Sequence[Mapping[str, Any]], scored: Sequence[ScoredTrials]) -> tuple[Any, list[Any]]:
    """The DET plot of all systems, and the histogram of each."""
    from svtoolkit.reporting.figures import det_curve, score_histogram
    from svtoolkit.scoring.metrics import error_rates

    systems, histograms = {}, []
    for result, (scores, target) in zip(results, scored, strict=True):
        try:
            _, p_miss, p_fa = error_rates(scores, target)
            histograms.append(score_histogram(scores, target, result["eer_threshold"]))
        except UserError as error:
            raise UserError(f"scores of {label_of(result)}: {error}") from error
        systems[label_of(result)] = p_miss, p_fa, result["eer"]
    return det_curve(systems), histograms


def _det_caption(results: Sequence[Mapping[str, Any]]) -> str:
    rates = "; ".join(f"{label_of(result)}: {percent(result['eer'])}" for result in results)
    return (
        "Miss against false alarm probability over all thresholds, on probit axes; nearer to the lower left is better. "
        f"Circles mark the equal error rates, on the dotted diagonal: {rates}."
    )
