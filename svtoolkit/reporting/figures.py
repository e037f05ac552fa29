"""Figures of an evaluation: the detection error trade-off and the distributions of scores."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from scipy.special import ndtr, ndtri

from svtoolkit.errors import UserError
from svtoolkit.reporting.canvas import COLOURS, add_legend, drawing, legend_text, line_style
from svtoolkit.reporting.formatting import percent
from svtoolkit.reporting.inline_svg import INK
from svtoolkit.scoring.metrics import check_scores

# Ticks in percent of the DET plot of Martin et al. (1997), with those added that very good or broken systems need.
TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 40)
LOW_TICKS, HIGH_TICKS = (0.01, 0.02, 0.05), (60, 80, 90, 95)
LOW_EER, HIGH_EER = 0.005, 0.4
TIE = 0.005  # jump of both rates from which the line between two points is bent visibly
RESOLUTION = 0.004  # probit; about a third of a pixel in a figure of 5 inches
# Inches: the plot, its margins, a line of the legend. On a phone, 370 pixels wide, text of 9 points is 9.8 pixels high.
SIDE, LEFT, TOP, BELOW, ROW = 3.75, 0.7, 0.15, 0.6, 0.2
HANDLE = 0.62  # inches of the legend before its text
HISTOGRAM = (4.5, 3.2)  # inches
CLIP = 0.001  # share of each class beyond which far scores are left out of a histogram, at either end
FAR = 0.5  # of the range that is kept: a score as near to it as that is shown
OUTSIDE = 0.5  # probit; how far curves are drawn beyond the frame, so that none ends inside the plot


def probit(probability: np.ndarray, lowest: float, highest: float) -> np.ndarray:
    """Inverse of the standard normal distribution function, of probabilities clipped to [lowest, highest].

    Args:
        probability: shape (points,), in [0, 1].
        lowest, highest: both within (0, 1), where the result is finite.
    """
    return ndtri(np.clip(probability, lowest, highest))


def det_curve(systems: Mapping[str, tuple[np.ndarray, np.ndarray, float]]) -> Figure:
    """Detection error trade-off of one or several systems, on probit axes, with the EER of each marked.

    Martin, Doddington, Kamm, Ordowski and Przybocki, "The DET curve in assessment of detection task performance",
    Eurospeech 1997: on these axes normally distributed scores give a straight line.

    Args:
        systems: one or more: label -> (p_miss, p_fa, equal error rate), the first two of shape (points,), probabilities
            in order of the threshold.

    Raises:
        UserError: empty or unequal curves, values that are not probabilities.
    """
    for label, (p_miss, p_fa, eer) in systems.items():
        _check_curve(label, np.asarray(p_miss), np.asarray(p_fa), eer)
    rates = [eer for _, _, eer in systems.values()]
    ticks = (
        *(LOW_TICKS if min(rates) < LOW_EER else ()),
        *TICKS,
        *(HIGH_TICKS if max(rates) > HIGH_EER else ()),
    )
    lowest, highest = 0.8 * ticks[0] / 100, 0.98 if ticks[-1] > 50 else 0.55
    start, end = ndtri(lowest), ndtri(highest)
    outer = ndtr(start - OUTSIDE), ndtr(end + OUTSIDE)
    handles = []
    with drawing():
        width = LEFT + SIDE + 0.25
        labels = [
            legend_text(f"{label}: EER {percent(eer)}", 72 * (width - HANDLE - 0.15))
            for label, (_, _, eer) in systems.items()
        ]
        height = TOP + SIDE + BELOW + ROW * sum(1.1 + label.count("\n") for label in labels) + 0.1
        figure = Figure(figsize=(width, height))
        axes = figure.add_axes((LEFT / width, 1 - (TOP + SIDE) / height, SIDE / width, SIDE / height))
        axes.plot([start, end], [start, end], color=INK, lw=0.7, ls=(0, (1, 3)))
        for position, (p_miss, p_fa, eer) in enumerate(systems.values()):
            style = line_style(position)
            point = probit(np.array([eer]), lowest, highest)
            axes.plot(point, point, "o", ms=6, mew=1.4, mfc="white", mec=style["color"], clip_on=False, zorder=5)
            p_miss, p_fa = _bridge_ties(np.asarray(p_miss), np.asarray(p_fa))
            handles += axes.plot(*_thin(probit(p_fa, *outer), probit(p_miss, *outer)), **style)
        _probit_axes(axes, ticks, start, end)
        place = {"loc": "upper left", "bbox_to_anchor": (0.1 / width, (height - TOP - SIDE - BELOW + 0.1) / height)}
        add_legend(figure, handles, labels, borderaxespad=0, **place)
    return figure


def _check_curve(label: str, p_miss: np.ndarray, p_fa: np.ndarray, eer: float) -> None:
    if p_miss.ndim != 1 or p_miss.shape != p_fa.shape or not len(p_miss):
        raise UserError(
            f"DET curve of {label!r}: found error rates of shapes {p_miss.shape} and {p_fa.shape}, expected two "
            "lists of the same length, one point or more"
        )
    if not all(np.all((values >= 0) & (values <= 1)) for values in (p_miss, p_fa, np.array(eer))):
        raise UserError(f"DET curve of {label!r}: found error rates outside 0 to 1, expected probabilities")


def _bridge_ties(p_miss: np.ndarray, p_fa: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Insert points where both rates jump at once, as equal scores of both classes make them.

    Between such points the trade-off is linear in probability, which is not straight on probit axes.
    """
    jumps = np.minimum(np.abs(np.diff(p_miss)), np.abs(np.diff(p_fa)))
    between = ndtr(np.linspace(-3.5, 3.5, 71))
    steps = np.arange(len(p_miss), dtype=np.float64)
    places = np.sort(np.concatenate([steps, *(start + between for start in np.flatnonzero(jumps > TIE))]))
    return np.interp(places, steps, p_miss), np.interp(places, steps, p_fa)


def _thin(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The points that differ from the one before on a grid finer than print, first and last always."""
    cells = np.round(np.stack([x, y]) / RESOLUTION)
    kept = np.ones(len(x), dtype=bool)
    kept[1:-1] = np.any(cells[:, 1:-1] != cells[:, :-2], axis=0)
    return x[kept], y[kept]


def _probit_axes(axes: Axes, ticks: tuple[float, ...], start: float, end: float) -> None:
    places = ndtri(np.array(ticks) / 100)
    names = [f"{tick:g}" for tick in ticks]
    axes.set(xlim=(start, end), ylim=(start, end), aspect="equal")
    axes.set_xticks(places, _spaced(names, [(place - start) / (end - start) * SIDE for place in places]))
    axes.set_yticks(places, names)
    axes.set_xlabel("false alarm probability (%)")
    axes.set_ylabel("miss probability (%)")


def _spaced(names: list[str], inches: list[float]) -> list[str]:
    """Blank the names that would touch the one before; their grid lines stay."""
    shown, end = [], -math.inf
    for name, place in zip(names, inches, strict=True):
        half = 0.04 * len(name)
        fits = place - half > end
        shown.append(name if fits else "")
        end = place + half + 0.04 if fits else end
    return shown


def score_histogram(scores: np.ndarray, target: np.ndarray, threshold: float) -> Figure:
    """Densities of target and non-target scores on common bins, with the threshold of equal error.

    A few scores far from all others, as AS-Norm makes them, would leave the rest one bar: where there are such, the
    figure ends near the 0.1 % and 99.9 % quantiles of the classes, and the label of the axis says how many lie outside.
    The density is that of all scores.

    Args:
        scores: shape (trials,), finite.
        target: bool, shape (trials,).
        threshold: score at which misses and false alarms are equally frequent.

    Raises:
        UserError: unequal lengths, a class without trials, a score that is not finite.
    """
    scores, target = check_scores(scores, target)
    low, high = shown_range(scores, target)
    low, high = min(low, threshold), max(high, threshold)
    inside = (scores >= low) & (scores <= high)
    edges = _bin_edges(scores, target, low, high)
    with drawing():
        figure = Figure(figsize=HISTOGRAM, layout="constrained")
        axes = figure.add_subplot()
        handles: list[Patch] = []
        for part, color, dash in ((~target, COLOURS[1], (0, (4, 1.5))), (target, COLOURS[0], "solid")):
            counts, _ = np.histogram(scores[part], bins=edges)
            density = counts / (np.count_nonzero(part) * np.diff(edges))
            axes.stairs(density, edges, fill=True, color=color, alpha=0.22)
            handles.append(axes.stairs(density, edges, color=color, linestyle=dash, linewidth=1.5))
        line = axes.axvline(threshold, color=INK, lw=1.2, ls=(0, (1, 1.5)))
        outside = len(scores) - int(inside.sum())
        beyond = f" ({outside:,} of {len(scores):,} lie outside the figure)" if outside else ""
        axes.set(xlabel=f"score{beyond}", ylabel="density", ylim=(0, None), xlim=(edges[0], edges[-1]))
        labels = [
            f"non-target ({int(np.sum(~target)):,})",
            f"target ({int(np.sum(target)):,})",
            f"EER threshold {threshold:.3g}",
        ]
        row = {"ncols": 2, "columnspacing": 1.2, "handlelength": 1.8}
        add_legend(figure, [*handles, line], labels, loc="outside upper center", **row)
    return figure


def shown_range(scores: np.ndarray, target: np.ndarray) -> tuple[float, float]:
    """From where to where a histogram shows the scores: all of them, but for few that lie far off at either end."""
    parts = scores[target], scores[~target]
    low = min(float(np.quantile(part, CLIP, method="higher")) for part in parts)
    high = max(float(np.quantile(part, 1 - CLIP, method="lower")) for part in parts)
    lowest, highest = float(scores.min()), float(scores.max())
    room = FAR * max(high - low, 0.0)
    if not room:
        return lowest, highest
    return (lowest if lowest >= low - room else low - room / 5), (
        highest if highest <= high + room else high + room / 5
    )


def _bin_edges(scores: np.ndarray, target: np.ndarray, low: float, high: float) -> np.ndarray:
    """Edges of 20 to 100 equal bins, by the rule of Freedman and Diaconis (1981) on the narrower class."""
    magnitude = max(1.0, abs(low), abs(high))
    if high - low < 1e-6 * magnitude:  # all but equal: bins so narrow are below the precision of the scores
        return np.linspace(low - 0.05 * magnitude, high + 0.05 * magnitude, 21)
    spreads = [(np.percentile(part, [25, 75]), len(part)) for part in (scores[target], scores[~target])]
    widths = [2 * float(upper - lower) / trials ** (1 / 3) for (lower, upper), trials in spreads]
    bins = max((math.ceil((high - low) / width) for width in widths if width > 0), default=20)
    return np.linspace(low, high, min(max(bins, 20), 100) + 1)
