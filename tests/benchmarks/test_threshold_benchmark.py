"""The benchmark of thresholds in small, its counts recomputed, and docs/threshold.md as its JSON has it."""

from __future__ import annotations

import json
from itertools import combinations

import numpy as np
import pytest
from paths import ROOT

from benchmarks import threshold as benchmark
from benchmarks.threshold import Generated, Row, Spread, Voices, draw_recorded, format_table, rate_on, spread_of

RESULT = ROOT / "benchmarks" / "results" / "threshold.json"


def test_a_pair_of_speakers_counts_once():
    rng = np.random.default_rng(3)
    speakers = np.array([0, 0, 0, 1, 2, 2])
    vectors = rng.standard_normal((6, 4))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    count = rate_on(Voices(vectors, speakers))
    for threshold in (-0.5, 0.0, 0.4):
        shares = [
            np.mean(vectors[speakers == one] @ vectors[speakers == other].T >= threshold)
            for one, other in combinations(range(3), 2)
        ]
        assert count(threshold) == pytest.approx(np.mean(shares))


def test_what_is_said_of_the_draws():
    ratios = np.array([0.4, 0.5, 1.0, 2.0, 2.5])
    spread = spread_of(0.01, ratios, [True, True, True, False, False])
    assert (spread.median, spread.within_two, spread.within_bounds) == (1.0, 0.6, 0.6)
    assert (spread.low, spread.high) == (0.42, 2.4)


def test_the_others_are_those_who_were_not_drawn():
    rng = np.random.default_rng(4)
    pool = Generated(8, two_sexes=True).draw(rng, 25, np.full(25, 3))
    voices, count = draw_recorded(pool, None, (1, 2), rng)
    assert len(np.unique(voices.speakers)) == benchmark.SPEAKERS
    assert np.bincount(voices.speakers).max() == 2
    rest = pool.of(~np.isin(pool.speakers, voices.speakers))
    assert len(np.unique(rest.speakers)) == 5
    assert count(0.3) == rate_on(rest)(0.3)


def test_generated_speakers_are_measured(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(benchmark, "POPULATION", 60)
    monkeypatch.setattr(benchmark, "RESAMPLES", 5)
    output = tmp_path / "threshold.json"
    assert benchmark.main(["--output", str(output), "--draws", "2"]) == 0
    record = json.loads(output.read_text())
    assert [len(row["spreads"]) for row in record["results"]] == [2] * 4
    assert "| normal embeddings, 64 dimensions | others of them | " in capsys.readouterr().out


def test_the_page_has_the_table_that_was_measured():
    record = json.loads(RESULT.read_text())
    rows = [Row(**{**row, "spreads": [Spread(**each) for each in row["spreads"]]}) for row in record["results"]]
    assert len(rows) == 8
    page = (ROOT / "docs" / "threshold.md").read_text(encoding="utf-8")
    assert format_table(rows) in page
    assert f"{record['draws']} draws" in page
    assert record["command"].partition(" --model")[0] in page
    for number, share in ((0, "within_two"), (0, "within_bounds"), (1, "within_two")):
        shares = [getattr(row.spreads[number], share) for row in rows]
        assert f"{100 * min(shares):.0f} to {100 * max(shares):.0f} %" in page
