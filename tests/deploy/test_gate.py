"""The comparison with torch: what passes, and what refuses an export."""

from __future__ import annotations

import numpy as np
import pytest

from svtoolkit.data.trials import Trials
from svtoolkit.deploy.gate import TOLERANCES, Agreement, Tolerance, compare, why_refused
from svtoolkit.deploy.recordings import Recording, made_recordings

TOLERANCE = TOLERANCES["fp32"]


def recordings(count: int) -> list[Recording]:
    return [Recording(f"r{number}", np.zeros(1, dtype=np.float32)) for number in range(count)]


def embeddings(count: int = 6, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, 16)).astype(np.float32)


def test_equal_embeddings_pass():
    expected = embeddings()
    agreement = compare("onnxruntime", 3 * expected, expected, recordings(6), None)
    assert (agreement.recordings, agreement.scores) == (6, 15)
    assert agreement.least_cosine == pytest.approx(1)
    assert agreement.most_score == pytest.approx(0, abs=1e-6)
    assert why_refused(agreement, TOLERANCE) is None


def test_the_worst_cosine_and_score_count():
    expected = embeddings()
    found = expected.copy()
    found[3] += 0.03 * embeddings(seed=1)[3]
    agreement = compare("onnxruntime", found, expected, recordings(6), None)
    unit = [each / np.linalg.norm(each, axis=1, keepdims=True) for each in (found, expected)]
    assert agreement.least_cosine == pytest.approx(float(unit[0][3] @ unit[1][3]), abs=1e-6)
    differences = np.abs(unit[0] @ unit[0].T - unit[1] @ unit[1].T)
    assert agreement.most_score == pytest.approx(differences.max(), abs=1e-6)
    assert why_refused(agreement, TOLERANCE) == f"a cosine of {agreement.least_cosine:.6f} is below 0.9999"
    assert "a score differs by" in (why_refused(agreement, Tolerance(0.0, 1e-4)) or "")


def test_nan_is_refused():
    found = embeddings()
    found[0, 0] = np.nan
    assert "a cosine of nan" in (why_refused(compare("r", found, embeddings(), recordings(6), None), TOLERANCE) or "")


def test_equal_error_rates_of_the_trials():
    expected = embeddings()
    listed = [("r0", "r1", True), ("r2", "r3", True), ("r0", "r4", False), ("r1", "r5", False)]
    agreement = compare("r", expected, expected, recordings(6), Trials.of(listed))
    assert agreement.scores == 4
    assert agreement.eer == agreement.eer_torch


@pytest.mark.parametrize(("eer", "fewest", "passes"), [(0.1019, None, True), (0.103, None, False), (0.103, 300, True)])
def test_the_equal_error_rate_may_be_a_little_worse(eer, fewest, passes):
    agreement = Agreement("r", 9, 9, 1.0, 0.0, eer, 0.1)
    assert (why_refused(agreement, TOLERANCE, fewest) is None) == passes


def test_made_recordings_are_voices_and_always_the_same():
    first, again = made_recordings(16000), made_recordings(16000)
    assert len(first) == 6
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one.samples, other.samples)
        assert one.samples.dtype == np.float32
        assert 0.01 < np.abs(one.samples).max() < 1
