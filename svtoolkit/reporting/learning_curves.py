"""Learning curves: what a run did over its steps and epochs, a panel for each quantity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from svtoolkit.reporting.canvas import add_legend, drawing, line_style
from svtoolkit.reporting.history import Record, series

SIZE = (4.2, 2.5)  # inches; on a phone, 368 pixels wide, text of 8 points is 9.7 pixels high
MARKED_POINTS = 40  # up to here every point gets a marker, so that a single epoch can be seen
DRAWN_POINTS = 250  # more than a panel has columns of ink; longer series are averaged over stretches


@dataclass(frozen=True)
class Quantity:
    """A key of the history and how it is drawn: its name, the factor to the unit of the axis."""

    key: str
    label: str
    scale: float = 1.0


@dataclass(frozen=True)
class Panel:
    """One plot: quantities on the left axis, and at most one with an axis of its own on the right."""

    title: str
    x: str
    unit: str
    left: tuple[Quantity, ...]
    right: Quantity | None = None
    logarithmic: bool = False


PANELS = (
    Panel("Loss", "step", "loss (nats)", (Quantity("loss", "loss"),), Quantity("margin", "margin")),
    Panel(
        "Accuracy",
        "step",
        "accuracy (%)",
        (Quantity("accuracy", "with margin", 100), Quantity("accuracy_no_margin", "without margin", 100)),
    ),
    Panel("Learning rate", "step", "learning rate", (Quantity("lr", "learning rate"),), logarithmic=True),
    Panel("Waiting for data", "step", "share of time (%)", (Quantity("data_wait", "waiting", 100),)),
    Panel(
        "Validation",
        "epoch",
        "EER (%)",
        (Quantity("validation_eer", "EER", 100), Quantity("ema_validation_eer", "EER of the moving average", 100)),
        Quantity("validation_min_dcf", "minDCF"),
    ),
    Panel("Peak memory", "epoch", "memory (GiB)", (Quantity("peak_memory_bytes", "peak memory", 2.0**-30),)),
)


@dataclass(frozen=True)
class Curve:
    """The points of one quantity, in the unit of its axis, each of shape (points,)."""

    label: str
    x: np.ndarray
    y: np.ndarray


def panel_curves(panel: Panel, history: Sequence[Record]) -> tuple[list[Curve], Curve | None]:
    """The curves of a panel that have points: those of the left axis, that of the right axis.

    Step records are what a panel over steps shows; a run that kept none shows the means of its epochs instead.
    """

    def points(quantity: Quantity) -> Curve:
        x, y = series(history, panel.x, panel.x, quantity.key)
        if not len(x) and panel.x == "step":
            x, y = series(history, "epoch", "step", quantity.key)
        shown = y > 0 if panel.logarithmic else np.ones(len(y), dtype=bool)
        return Curve(quantity.label, x[shown], y[shown] * quantity.scale)

    left = [curve for curve in map(points, panel.left) if len(curve.x)]
    right = points(panel.right) if panel.right else None
    return left, right if right and len(right.x) and left else None


def learning_curves(history: Sequence[Record]) -> dict[str, Figure]:
    """Loss and margin, accuracy, learning rate, wait for data over steps; EER, minDCF and memory over epochs.

    Args:
        history: records of kind ``step`` and ``epoch``, as ``read_history`` gives them. Accuracies, error
            rates and ``data_wait`` (the share of the time spent waiting for data) lie between 0 and 1.

    Returns:
        title -> figure, of the panels that have a value.

    Raises:
        UserError: a value that is not a number.
    """
    filled = [(panel, *panel_curves(panel, history)) for panel in PANELS]
    figures = {}
    with drawing():
        for panel, left, right in filled:
            if left:
                figure = Figure(figsize=SIZE, layout=ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.06))
                _draw_panel(figure.add_subplot(), panel, left, right)
                figures[panel.title] = figure
    return figures


def _draw_panel(axes: Axes, panel: Panel, left: list[Curve], right: Curve | None) -> None:
    handles = [_draw_curve(axes, curve, position) for position, curve in enumerate(left)]
    axes.set_title(panel.title)
    axes.set(xlabel=panel.x, ylabel=panel.unit)
    _count_along(axes, [*left, right] if right else left)
    if panel.logarithmic:
        _scale_logarithmically(axes, left)
    elif panel.unit.endswith("(%)") or panel.unit.endswith("(GiB)"):
        axes.set_ylim(bottom=0)
    labels = [curve.label for curve in left]
    if right:
        second = axes.twinx()
        second.grid(False)
        handles.append(_draw_curve(second, right, len(left)))
        second.set_ylabel(right.label)
        second.set_ylim(*_range_from_zero(right.y))
        labels.append(f"{right.label} (right)")
    if len(labels) > 1:
        place = {"loc": "lower right", "bbox_to_anchor": (1.02, 0.98), "ncols": 2}
        sizes = {"fontsize": 8, "handlelength": 1.9, "handletextpad": 0.5, "columnspacing": 1.0}
        add_legend(axes, handles, labels, **place, **sizes)


def _draw_curve(axes: Axes, curve: Curve, position: int) -> Artist:
    """Draw a curve; a long one as the mean of each stretch, in a band from its least to its greatest value."""
    style = line_style(position)
    if len(curve.x) > DRAWN_POINTS:
        stretches = np.linspace(0, len(curve.x), DRAWN_POINTS, endpoint=False).astype(int)
        size = np.diff(np.append(stretches, len(curve.x)))
        x, y = (np.add.reduceat(values, stretches) / size for values in (curve.x, curve.y))
        low, high = (reduce.reduceat(curve.y, stretches) for reduce in (np.minimum, np.maximum))
        axes.fill_between(x, low, high, color=style["color"], alpha=0.2, linewidth=0)
    else:
        x, y = curve.x, curve.y
    marker = "o" if len(x) <= MARKED_POINTS else None
    return axes.plot(x, y, marker=marker, markersize=3.2, zorder=3, clip_on=False, **style)[0]


def _count_along(axes: Axes, curves: list[Curve]) -> None:
    """Whole numbers along the x axis, also where there is a single one."""
    first = min(float(curve.x[0]) for curve in curves)
    last = max(float(curve.x[-1]) for curve in curves)
    padding = max(0.03 * (last - first), 1.0 if last - first < 2 else 0.0)
    axes.set_xlim(first - padding, last + padding)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True, min_n_ticks=1))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def _range_from_zero(values: np.ndarray) -> tuple[float, float]:
    """Limits with zero in them, so that a constant margin is not stretched into a slope of rounding errors."""
    low, high = min(0.0, float(values.min())), max(0.0, float(values.max()))
    padding = 0.08 * (high - low) or 1.0
    return low - padding if low else 0.0, high + padding


def _scale_logarithmically(axes: Axes, curves: list[Curve]) -> None:
    """Log axis with ticks in plain numbers: decades alone where the values span two or more, else 1, 2 and 5."""
    low, high = (reduce([reduce(curve.y) for curve in curves]) for reduce in (np.min, np.max))
    axes.set_yscale("log")
    axes.set_ylim(low / 1.5, high * 1.5)
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0,) if high / low >= 100 else (1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
