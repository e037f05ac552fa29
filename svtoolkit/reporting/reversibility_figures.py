"""Figures of `svt reversibility`, after figures 5, 6, 10 and 11 of Hascoet et al. (2023)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from svtoolkit.planning.reversibility import FUNCTION, WHOLE, Alpha, ChainRatio, Reconstruction
from svtoolkit.reporting.canvas import add_legend, drawing, line_style

SIZE = (4.6, 3.2)  # inches
WIDE = (8.2, 3.4)


def alpha_figure(found: Sequence[Alpha], parameter: str) -> Figure:
    """By what a layer reduces the signal-to-noise ratio: formula as a line, measurements as points."""
    with drawing():
        figure = Figure(figsize=SIZE, layout="constrained")
        axes = figure.add_subplot()
        values = [each.parameter for each in found]
        (line,) = axes.plot(values, [each.expected for each in found], **line_style(0))
        style: Any = {"color": line_style(1)["color"], "linestyle": "none", "marker": "o"}
        (points,) = axes.plot(values, [each.measured for each in found], **style)
        axes.set(xscale="log", yscale="log", xlabel=parameter, ylabel="alpha")
        add_legend(figure, [line, points], ["formula", "measured"], loc="outside upper center", ncols=2)
    return figure


def layers_figure(found: Sequence[Reconstruction]) -> Figure:
    """Ratios of all that was found again, in the order of the backward pass; what is exact is left out."""
    runs = list(dict.fromkeys((each.precision, each.exact) for each in found))
    with drawing():
        figure = Figure(figsize=WIDE, layout="constrained")
        panels = figure.subplots(1, 2, sharey=True)
        handles: dict[str, Any] = {}
        for axes, kind, title in zip(panels, (WHOLE, FUNCTION), ("Streams", "Inside the blocks"), strict=True):
            for position, (precision, exact) in enumerate(runs):
                rows = [row for row in found if (row.precision, row.exact, row.kind) == (precision, exact, kind)]
                points = [(place, row.snr) for place, row in enumerate(rows) if row.snr is not None]
                label = f"{precision}{', exact' if exact else ''}"
                style: Any = {**line_style(position), "marker": ".", "markersize": 4}
                (handle,) = axes.plot([place for place, _ in points], [snr for _, snr in points], **style)
                handles.setdefault(label, handle)
            axes.set(xlabel="inverted, from the end of the network")
            axes.set_title(title)
        panels[0].set_ylabel("signal to noise (dB)")
        add_legend(figure, list(handles.values()), list(handles), loc="outside lower center", ncols=4)
    return figure


def depth_figure(found: Sequence[ChainRatio]) -> Figure:
    """The lowest ratio of both designs over depth, a line for each slope."""
    slopes = list(dict.fromkeys(each.slope for each in found))
    with drawing():
        figure = Figure(figsize=WIDE, layout="constrained")
        panels = figure.subplots(1, 2, sharey=True)
        handles: list[Any] = []
        for axes, design in zip(panels, ("layerwise", "hybrid"), strict=True):
            handles = []
            for position, slope in enumerate(slopes):
                rows = [row for row in found if (row.design, row.slope) == (design, slope) and math.isfinite(row.snr)]
                style: Any = {**line_style(position), "marker": "o", "markersize": 4}
                handles += axes.plot([row.units for row in rows], [row.snr for row in rows], **style)
            axes.set(xscale="log", xlabel="norm, leaky ReLU and coupled convolution: units")
            axes.set_title(design)
        panels[0].set_ylabel("lowest signal to noise (dB)")
        add_legend(figure, handles, [f"slope {slope:g}" for slope in slopes], loc="outside lower center", ncols=4)
    return figure
