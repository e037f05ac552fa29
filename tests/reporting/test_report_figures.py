from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import matplotlib
import numpy as np
import pytest
from report_material import draw_scores
from scipy.special import ndtri

from svtoolkit.errors import UserError
from svtoolkit.reporting.canvas import LABEL_LINES, legend_text, line_style, png_bytes, svg_text, text_width
from svtoolkit.reporting.figures import det_curve, probit, score_histogram, shown_range
from svtoolkit.scoring.metrics import equal_error_rate, error_rates

SIZE_LIMIT = 1_000_000  # bytes


def texts(svg: str) -> list[str]:
    root = ElementTree.fromstring(svg)
    return ["".join(node.itertext()) for node in root.iter("{http://www.w3.org/2000/svg}text")]


def det_of(scored, label="eval, cosine"):
    _, p_miss, p_fa = error_rates(*scored)
    return det_curve({label: (p_miss, p_fa, equal_error_rate(*scored)[0])})


def curve_points(figure, line=-1):
    return np.asarray(figure.axes[0].lines[line].get_data())


def test_probit_is_the_inverse_normal_distribution_within_its_limits():
    probability = np.array([0.0, 1e-4, 0.5, 0.3, 0.5, 0.99, 1.0])
    expected = ndtri(np.clip(probability, 0.001, 0.9))
    np.testing.assert_allclose(probit(probability, 0.001, 0.9), expected, atol=1e-9)


def test_normal_scores_give_a_straight_det_curve_through_the_eer():
    scored = draw_scores(100_000, distance=3.0)
    figure = det_of(scored)
    x, y = curve_points(figure)
    inside = (x > ndtri(0.005)) & (x < ndtri(0.3))
    # Two unit normal distributions at distance d: probit(p_miss) = -probit(p_fa) - d.
    np.testing.assert_allclose(y[inside], -x[inside] - 3.0, atol=0.12)
    marker = figure.axes[0].lines[1].get_data()
    np.testing.assert_allclose(marker, ndtri(equal_error_rate(*scored)[0]), atol=1e-6)


def test_det_axes_are_in_percent_and_carry_the_usual_ticks():
    shown = texts(svg_text(det_of(draw_scores(2000))))
    assert {"0.1", "0.2", "0.5", "1", "2", "5", "10", "20", "40"} <= set(shown)
    assert "miss probability (%)" in shown
    assert "false alarm probability (%)" in shown


@pytest.mark.parametrize(("eer", "tick"), [(0.001, "0.01"), (0.7, "90")])
def test_det_axes_widen_for_very_good_and_for_broken_systems(eer, tick):
    p_miss, p_fa = np.array([0.0, eer, 1.0]), np.array([1.0, eer, 0.0])
    assert tick in texts(svg_text(det_curve({"a": (p_miss, p_fa, eer)})))
    assert tick not in texts(svg_text(det_curve({"a": (p_miss, p_fa, 0.1)})))


def test_a_perfect_system_is_drawn_at_the_corner_not_at_infinity():
    perfect = np.array([0.0, 0.0, 1.0]), np.array([1.0, 0.0, 0.0])
    figure = det_curve({"perfect": (*perfect, 0.0)})
    low, _ = figure.axes[0].get_xlim()
    np.testing.assert_allclose(figure.axes[0].lines[1].get_data(), low)
    assert np.isfinite(curve_points(figure)).all()
    assert "perfect: EER 0.00 %" in texts(svg_text(figure))


def test_equal_scores_give_the_diagonal_of_chance():
    figure = det_of((np.zeros(10), np.arange(10) < 5))
    x, y = curve_points(figure)
    inside = np.abs(x) < 2
    assert inside.sum() > 10
    np.testing.assert_allclose(y[inside], -x[inside], atol=1e-6)


def test_det_draws_every_system_in_a_style_of_its_own_with_its_eer():
    rates = {f"system {number}": (np.array([0.0, 0.1, 1.0]), np.array([1.0, 0.1, 0.0])) for number in range(8)}
    figure = det_curve({label: (*curve, 0.1) for label, curve in rates.items()})
    shown = texts(svg_text(figure))
    assert all(f"{label}: EER 10.00 %" in shown for label in rates)
    assert len({(style["color"], style["linestyle"]) for style in map(line_style, range(30))}) == 30


@pytest.mark.parametrize("label", ["_private", "a$b$c", r"\alpha", "<script>alert(1)</script>", "说话人", 'x" id="y'])
def test_labels_are_taken_literally(label):
    assert f"{label}: EER 50.00 %" in texts(svg_text(det_of((np.zeros(4), np.arange(4) < 2), label)))


def test_labels_that_svg_cannot_hold_are_replaced():
    replaced = "a\N{REPLACEMENT CHARACTER}b" + 2 * "\N{REPLACEMENT CHARACTER}"
    assert legend_text("a\x00b\ud800\n", 300) == replaced


@pytest.mark.parametrize("name", ["W" * 90, "exp/a-long_name.of:parts, " * 6, "语" * 70, "a b " * 40])
def test_long_labels_are_wrapped_and_nothing_of_them_is_lost(name):
    lines = legend_text(name, 290).split("\n")
    assert 1 < len(lines) <= LABEL_LINES
    assert "".join("".join(lines).split()) == "".join(name.split())
    assert all(text_width(line.rstrip()) <= 290 for line in lines)
    assert legend_text("several words in a row", 80) == "several words\nin a row"


def test_labels_without_end_lose_their_middle():
    lines = legend_text("left" + "x" * 1000 + "right", 290).split("\n")
    assert len(lines) == LABEL_LINES
    assert lines[0].startswith("left")
    assert lines[-2].endswith("…")
    assert lines[-1].endswith("right")
    assert all(text_width(line) <= 300 for line in lines)


def test_det_legend_and_axis_labels_do_not_overlap():
    rates = {f"{number} {'w' * 60}": (np.array([0.0, 0.1, 1.0]), np.array([1.0, 0.1, 0.0])) for number in range(12)}
    figure = det_curve({label: (*curve, 0.1) for label, curve in rates.items()})
    png_bytes(figure)  # texts have no extent before they are drawn
    legend, label = figure.legends[0].get_window_extent(), figure.axes[0].xaxis.label.get_window_extent()
    assert legend.x1 <= figure.bbox.width
    assert legend.y1 <= label.y0
    assert legend.y0 >= 0


@pytest.mark.parametrize(
    ("system", "message"),
    [
        (([], [], 0.1), "expected two lists of the same length"),
        (([0.0], [0.0, 1.0], 0.1), "expected two lists of the same length"),
        (([0.0, 1.1], [1.0, 0.0], 0.1), "outside 0 to 1"),
        (([0.0, np.nan], [1.0, 0.0], 0.1), "outside 0 to 1"),
        (([0.0, 1.0], [1.0, 0.0], 3.1), "outside 0 to 1"),
    ],
)
def test_det_refuses_what_is_no_trade_off(system, message):
    with pytest.raises(UserError, match=message):
        det_curve({"a": system})


def test_histogram_densities_have_unit_area_on_common_bins():
    scores, target = draw_scores(5000)
    figure = score_histogram(scores, target, 1.5)
    outlines = [patch for patch in figure.axes[0].patches if not patch.get_fill()]
    assert len(outlines) == 2
    for outline in outlines:
        density, edges, _ = outline.get_data()
        assert np.sum(density * np.diff(edges)) == pytest.approx(1.0)
        assert (edges[0], edges[-1]) == pytest.approx((scores.min(), scores.max()))
    assert {"non-target (2,500)", "target (2,500)", "EER threshold 1.5"} <= set(texts(svg_text(figure)))


def test_far_scores_do_not_squeeze_the_histogram_and_are_counted():
    scores, target = draw_scores(1200)
    scores[[0, 1, 3]] = 400.0, -300.0, 350.0
    figure = score_histogram(scores, target, 1.5)
    low, high = figure.axes[0].get_xlim()
    near = np.delete(scores, [0, 1, 3])
    assert (low, high) == pytest.approx((near.min(), near.max()), abs=1.5)
    outside = int(np.sum((scores < low) | (scores > high)))
    assert 3 <= outside <= 6
    assert f"score ({outside} of 1,200 lie outside the figure)" in texts(svg_text(figure))
    for outline, part in zip(figure.axes[0].patches[1::2], (scores[~target], scores[target]), strict=True):
        density, edges, _ = outline.get_data()
        assert np.sum(density * np.diff(edges)) == pytest.approx(np.mean((part >= low) & (part <= high)))


def test_few_scores_that_are_not_far_are_all_shown():
    scores, target = draw_scores(60)
    assert shown_range(scores, target) == (scores.min(), scores.max())
    # The targets are one in a hundred: what is rare among all trials is not far among those.
    rare = np.concatenate([np.zeros(990) + np.linspace(0, 1, 990), np.linspace(3, 4, 10)])
    assert shown_range(rare, np.arange(1000) >= 990)[1] == 4.0


@pytest.mark.parametrize("scores", [np.full(6, 0.3), np.full(6, 1e6) + np.arange(6) * 1e-9, np.arange(6) * 1e-300])
def test_histogram_of_scores_that_hardly_differ(scores):
    assert "score" in texts(svg_text(score_histogram(scores, np.arange(6) < 3, float(scores[0]))))


def test_histogram_legend_stays_within_the_figure():
    figure = score_histogram(*draw_scores(200_000), -0.123456)
    png_bytes(figure)
    extent = figure.legends[0].get_window_extent()
    assert extent.x0 >= 0
    assert extent.x1 <= figure.bbox.width


@pytest.mark.parametrize(
    ("scores", "target", "message"),
    [
        ([], [], "found 0 target and 0 non-target trials"),
        ([1.0, 2.0], [True, True], "found 2 target and 0 non-target trials"),
        ([1.0, np.nan], [True, False], "scores are not finite numbers"),
        ([1.0, 2.0, 3.0], [True, False], "one score and one label"),
    ],
)
def test_histogram_refuses_scores_without_both_classes(scores, target, message):
    with pytest.raises(UserError, match=message):
        score_histogram(np.array(scores), np.array(target, dtype=bool), 0.0)


def test_figures_are_the_same_bytes_each_time_and_name_no_day():
    scored = draw_scores(500)
    first, second = (svg_text(det_of(scored)) for _ in range(2))
    assert first == second
    assert "<dc:date>" not in first
    assert svg_text(score_histogram(*scored, 1.0)) == svg_text(score_histogram(*scored, 1.0))
    assert png_bytes(det_of(scored)) == png_bytes(det_of(scored))


def test_settings_of_the_user_neither_leak_in_nor_get_lost():
    scored = draw_scores(500)
    expected = svg_text(det_of(scored))
    with matplotlib.rc_context({"font.size": 30, "lines.linewidth": 9, "axes.facecolor": "red"}):
        assert svg_text(det_of(scored)) == expected
        assert matplotlib.rcParams["font.size"] == 30


def test_many_scores_give_small_figures():
    scored = draw_scores(200_000, distance=2.0)
    det, histogram = svg_text(det_of(scored)), svg_text(score_histogram(*scored, 1.0))
    assert len(det) < SIZE_LIMIT / 4
    assert len(histogram) < SIZE_LIMIT / 4


def test_a_report_needs_neither_pyplot_nor_a_display_and_imports_matplotlib_late():
    code = (
        "import sys\n"
        "import svtoolkit.reporting.report\n"
        "assert 'matplotlib' not in sys.modules, 'matplotlib is imported too early'\n"
        "assert 'torch' not in sys.modules, 'torch is imported'\n"
        "import svtoolkit.reporting.learning_curves\n"
        "from svtoolkit.reporting import canvas, figures\n"
        "figure = figures.score_histogram([0.0, 1.0], [False, True], 0.5)\n"
        "canvas.svg_text(figure); canvas.png_bytes(figure)\n"
        "assert 'matplotlib.pyplot' not in sys.modules, 'pyplot is imported'\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
