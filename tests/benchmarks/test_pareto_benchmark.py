"""The benchmark of plans: points that are not matched are found, and the figure is drawn."""

from __future__ import annotations

from benchmarks.pareto import PLANNED, Point, draw, format_table, not_matched


def point(strategy: str, gib: float, times: float, network: str = "a") -> Point:
    return Point(network, strategy, "", gib, times)


def test_a_point_that_no_plan_is_as_good_as_is_found():
    plans = [point(PLANNED, 0.1, 1.5), point(PLANNED, 0.3, 1.1)]
    matched, faster, of_another = point("x", 0.3, 1.2), point("x", 0.2, 1.2), point("x", 0.5, 2.0, network="b")
    assert not_matched([point("store", 1.0, 1.0), *plans, matched, faster, of_another]) == [faster, of_another]


def test_the_figure_and_the_table_have_all_strategies():
    points = [point("store", 1.0, 1.0), point(PLANNED, 0.1, 1.5), point("x", 0.2, 1.2, network="b")]
    assert draw(points).startswith(b"\x89PNG")
    assert all(f"| {each.network} | {each.strategy} |" in format_table(points) for each in points)
