"""Results that no page can be made of are refused, and nothing is written."""

from __future__ import annotations

import numpy as np
import pytest
from report_material import draw_scores, make_result

from svtoolkit.errors import UserError
from svtoolkit.reporting.report import write_report


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"eer": None}, "result 1 of the report: found None as 'eer', expected a number"),
        ({"eer": float("nan")}, "found None as 'eer', expected a number"),
        ({"eer": True}, "found True as 'eer', expected a number"),
        ({"eer_threshold": "0.4"}, "found '0.4' as 'eer_threshold', expected a number"),
        ({"scores": 3}, "found 3 as 'scores', expected a name"),
        ({"cllr": "low"}, "found 'low' as 'cllr', expected a number"),
        ({"eer_interval": [0.1]}, "as 'eer_interval', expected the two ends"),
        ({"eer_interval": ["a", "b"]}, "as 'eer_interval', expected the two ends"),
        ({"min_dcf_intervals": {"0.01": [0.1]}}, "as 'min_dcf_intervals', expected two bounds by target prior"),
        ({"system": 3}, "found 3 as 'system', expected a name, or nothing"),
        ({"network": "r34"}, "found 'r34' as 'network', expected a mapping"),
        ({"min_dcf": [0.1]}, "as 'min_dcf', expected costs by target prior"),
        ({"min_dcf": {"0.01": "low"}}, "as 'min_dcf', expected costs by target prior"),
        ({"min_dcf": {"1.5": 0.1}}, "as 'min_dcf', expected costs by target prior"),
        ({"min_dcf": {"prior": 0.1}}, "as 'min_dcf', expected costs by target prior"),
        ({"trials": 61}, "found 60 scores behind 61 trials of eval, as-norm"),
        ({"note": {1, 2}}, r"results\[0\]\.note of the report: found a set"),
    ],
)
def test_a_result_that_cannot_be_shown_is_refused(tmp_path, changes, message):
    scored = draw_scores(60)
    with pytest.raises(UserError, match=message):
        write_report(tmp_path / "report", results=[make_result(scored) | changes], scored=[scored])
    assert not (tmp_path / "report").exists()


def test_results_and_scores_must_belong_together(tmp_path):
    scored = draw_scores(60)
    with pytest.raises(UserError, match="found 0 results and scores of 0"):
        write_report(tmp_path, results=[], scored=[])
    with pytest.raises(UserError, match="found 1 results and scores of 2"):
        write_report(tmp_path, results=[make_result(scored)], scored=[scored] * 2)
    with pytest.raises(UserError, match="more than one result of eval, as-norm"):
        write_report(tmp_path, results=[make_result(scored)] * 2, scored=[scored] * 2)
    one_class = (scored.scores, np.ones(60, dtype=bool))
    with pytest.raises(UserError, match="scores of eval, as-norm: found 60 target and 0 non-target trials"):
        write_report(tmp_path, results=[make_result(scored)], scored=[one_class])
    with pytest.raises(UserError, match="scores of eval, as-norm: found 0 target and 0 non-target trials"):
        write_report(tmp_path, results=[make_result(scored, trials=0)], scored=[(np.zeros(0), np.zeros(0, dtype=bool))])
