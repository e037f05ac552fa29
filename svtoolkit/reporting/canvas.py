"""How every figure of a report looks, and how it becomes SVG or PNG.

Only matplotlib's objects are used, never pyplot: no state is shared with a program that draws for itself, no display
is needed, and the settings of the user (matplotlibrc) do not leak in, so that equal input gives equal bytes.
"""

from __future__ import annotations

import io
import unicodedata
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.legend import Legend

from svtoolkit.reporting.formatting import printable
from svtoolkit.reporting.inline_svg import INK

GRID = "#80868b"
# Okabe & Ito (2008), "Color universal design": told apart with any colour vision. Their yellow is left out, which
# vanishes on paper; the first four are also the darkest, for grey prints.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
DASHES: tuple[Any, ...] = ("solid", (0, (6, 2)), (0, (1.5, 1.5)), (0, (7, 2, 1.5, 2)), (0, (3, 1, 1, 1, 1, 1)))
LABEL_LINES = 4
BREAKS = " /_-,.:+="
HINTED = 1.08  # in a PNG letters end at whole pixels, and a line gets as much longer

STYLE: Any = {
    "svg.fonttype": "none",  # text stays text: searchable, small, in the colour of the page
    "svg.hashsalt": "svtoolkit",
    "font.sans-serif": ["DejaVu Sans", "Verdana"],  # Verdana has the widths of DejaVu Sans where that is missing
    "font.size": 9,
    "text.parse_math": False,  # a system may be called `a$b$`
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.linewidth": 0.8,
    "axes.titlelocation": "left",
    "axes.titlesize": 9,
    "axes.titleweight": "bold",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.alpha": 0.35,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.6,
    "legend.frameon": False,
    "legend.handlelength": 3.0,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "path.simplify": True,
}


def line_style(position: int) -> dict[str, Any]:
    """Colour and dash pattern of the series at ``position``; thirty pairs before one repeats."""
    turn = position // len(COLOURS)
    return {"color": COLOURS[position % len(COLOURS)], "linestyle": DASHES[(position + turn) % len(DASHES)]}


@contextmanager
def drawing() -> Iterator[None]:
    """The style of the report inside the block; matplotlib's settings before it are restored after it."""
    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # a browser has the font we lack
        yield


def legend_text(label: str, width: float) -> str:
    """A label on as many lines as it needs, without characters that an SVG cannot hold.

    A line ends after a space or a sign between the parts of a name, else where it is full. One of more than
    ``LABEL_LINES`` loses its middle: names of systems differ at either end.

    Args:
        width: of a line, in points.
    """
    lines = _wrap(printable(label), width)
    if len(lines) <= LABEL_LINES:
        return "\n".join(lines)
    kept = lines[: LABEL_LINES - 1]
    kept[-1] += "…"
    return "\n".join([*kept, _tail(printable(label), width)])


def text_width(text: str) -> float:
    """Width of a line in points; of characters that another font has to bring the most they take."""
    return sum(map(_advance, text))


def _wrap(text: str, width: float) -> list[str]:
    lines, start, used, gap = [], 0, 0.0, 0
    for place, char in enumerate(text):
        advance = _advance(char)
        if used + advance > width and place > start:
            end = gap if gap > start else place
            lines.append(text[start:end].rstrip())
            start, used = end, text_width(text[end:place])
        used += advance
        if char in BREAKS:
            gap = place + 1
    return [*lines, text[start:]]


def _tail(text: str, width: float) -> str:
    while text_width(text) > width:
        text = text[1:]
    return text


@cache
def _advance(char: str) -> float:
    if unicodedata.east_asian_width(char) in "WF":
        return float(STYLE["font.size"])
    font = get_font(findfont(FontProperties(family="DejaVu Sans")))
    font.set_size(STYLE["font.size"], 72)
    return HINTED * float(font.load_char(ord(char)).linearHoriAdvance) / 65536


def add_legend(parent: Figure | Axes, handles: Sequence[Artist], labels: Sequence[str], **options: Any) -> Legend:
    """A legend whose labels are taken literally, also where they begin with an underscore."""
    legend = parent.legend(handles, [str(position) for position in range(len(labels))], **options)
    for text, label in zip(legend.get_texts(), labels, strict=True):
        text.set_text(label)
    return legend


def svg_text(figure: Figure) -> str:
    """The figure as an SVG document, transparent; equal figures give equal text, whatever the day."""
    stream = io.StringIO()
    with drawing():
        # savefig would draw a figure twice whose parts are laid out as it is drawn.
        FigureCanvasSVG(figure).print_svg(stream, metadata={"Date": None, "Creator": None})
    return stream.getvalue()


def png_bytes(figure: Figure) -> bytes:
    """The figure as a PNG on white, 150 dots an inch."""
    stream = io.BytesIO()
    with drawing():
        figure.savefig(stream, format="png", dpi=150, facecolor="white", metadata={"Software": None})
    return stream.getvalue()
