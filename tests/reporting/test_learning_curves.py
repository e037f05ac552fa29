from __future__ import annotations

import math

import numpy as np
import pytest
from report_material import make_history

from svtoolkit.errors import UserError
from svtoolkit.reporting.canvas import png_bytes, svg_text
from svtoolkit.reporting.history import series, summary
from svtoolkit.reporting.learning_curves import DRAWN_POINTS, PANELS, learning_curves, panel_curves


def panel(title):
    return next(panel for panel in PANELS if panel.title == title)


def titles(figure):
    return [axes.get_title(loc="left") for axes in figure.axes if axes.get_title(loc="left")]


def test_every_quantity_has_a_panel_with_labelled_axes():
    figures = learning_curves(make_history())
    assert list(figures) == [
        "Loss",
        "Accuracy",
        "Learning rate",
        "Waiting for data",
        "Validation",
        "Peak memory",
    ]
    assert [titles(figure) for figure in figures.values()] == [[title] for title in figures]
    drawn = {title: svg_text(figure) for title, figure in figures.items()}
    svg = "".join(drawn.values())
    for label in ("loss (nats)", "accuracy (%)", "share of time (%)", "EER (%)", "memory (GiB)", "epoch", "margin"):
        assert f">{label}<" in svg
    assert drawn["Loss"] == svg_text(learning_curves(make_history())["Loss"])


def test_curves_are_in_the_unit_of_their_axis():
    history = make_history(steps=20, every=10)
    (with_margin, without), right = panel_curves(panel("Accuracy"), history)
    np.testing.assert_allclose(with_margin.y, 100 * np.arange(1, 21) / 40)
    np.testing.assert_allclose(without.y, 100 * np.arange(1, 21) / 20)
    assert right is None
    (eer,), min_dcf = panel_curves(panel("Validation"), history)
    np.testing.assert_allclose(eer.x, [1, 2])
    np.testing.assert_allclose(eer.y, [100 / 12, 100 / 22])
    assert min_dcf is not None
    np.testing.assert_allclose(min_dcf.y, 0.5)
    (memory,), _ = panel_curves(panel("Peak memory"), history)
    np.testing.assert_allclose(memory.y, 1.5)


def test_legends_do_not_reach_into_titles():
    legends = 0
    for figure in learning_curves(make_history()).values():
        for axes in figure.axes:
            if axes.get_legend():
                png_bytes(figure)  # texts have no extent before they are drawn
                legends += 1
                title = axes._left_title.get_window_extent()
                assert axes.get_legend().get_window_extent().x0 > title.x1
    assert legends == 3


def test_a_run_that_kept_epochs_alone_shows_their_means():
    history = [{"kind": "epoch", "epoch": 1, "step": 100, "loss": 3.0}, {"kind": "epoch", "epoch": 2, "step": 200}]
    (loss,), margin = panel_curves(panel("Loss"), history)
    assert (loss.x.tolist(), loss.y.tolist(), margin) == ([100.0], [3.0], None)
    assert list(learning_curves(history)) == ["Loss"]


def test_values_that_are_missing_or_not_finite_leave_a_gap():
    values = [6.0, None, math.nan, math.inf, 2.0]
    history = [{"kind": "step", "step": step, "loss": value} for step, value in enumerate(values)]
    x, y = series(
        [*history, {"kind": "step", "step": 9}, {"kind": "memory", "step": 10, "loss": 1}], "step", "step", "loss"
    )
    assert (x.tolist(), y.tolist()) == ([0.0, 4.0], [6.0, 2.0])


def test_a_continued_run_replaces_what_it_repeats():
    steps = [(10, 5.0), (20, 4.0), (30, 3.0), (20, 4.5), (25, 4.2)]
    history = [{"kind": "step", "step": step, "loss": loss} for step, loss in steps]
    x, y = series(history, "step", "step", "loss")
    assert (x.tolist(), y.tolist()) == ([10.0, 20.0, 25.0], [5.0, 4.5, 4.2])


def test_a_learning_rate_of_zero_is_left_off_the_logarithmic_axis():
    history = [{"kind": "step", "step": step, "lr": rate} for step, rate in enumerate((0.0, 0.1, 0.001))]
    (rate,), _ = panel_curves(panel("Learning rate"), history)
    assert rate.y.tolist() == [0.1, 0.001]
    assert learning_curves(history)["Learning rate"].axes[0].get_yscale() == "log"
    assert learning_curves(history[:1]) == {}


@pytest.mark.parametrize("history", [[], [{"kind": "step", "step": 1}], [{"kind": "note", "loss": 1.0}], [{}]])
def test_a_history_without_values_has_no_curves(history):
    assert learning_curves(history) == {}


@pytest.mark.parametrize("value", ["high", True, [1]])
def test_a_value_that_is_no_number_is_named(value):
    with pytest.raises(UserError, match=r"training history, record 2: found .* as 'loss', expected a number"):
        learning_curves([{"kind": "step", "step": 1, "loss": 1.0}, {"kind": "step", "step": 2, "loss": value}])


def test_a_single_record_is_drawn():
    figures = learning_curves([{"kind": "step", "step": 7, "loss": 3.0, "lr": 0.1, "margin": 0.0}])
    assert ">7<" in svg_text(figures["Loss"])


def test_long_curves_are_means_over_stretches_within_their_range():
    steps = 8 * DRAWN_POINTS
    history = [{"kind": "step", "step": step, "loss": 1.0 + step % 2} for step in range(steps)]
    figure = learning_curves(history)["Loss"]
    x, y = figure.axes[0].lines[0].get_data()
    assert len(x) == DRAWN_POINTS
    np.testing.assert_allclose(y, 1.5)
    np.testing.assert_allclose(x[0], 3.5)
    band = figure.axes[0].collections[0].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == (1.0, 2.0)
    assert len(svg_text(figure)) < 250_000


def test_summary_says_where_the_run_ended():
    assert summary(make_history(steps=40, every=10)) == (
        "up to step 40, epoch 4, best validation EER 2.38 % after epoch 4, peak memory 1.50 GiB"
    )
    assert summary([]) == ""
