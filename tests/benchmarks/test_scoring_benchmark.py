"""Both ways score the same list, and the record holds what RESULTS.md says of them."""

from __future__ import annotations

import json

from benchmarks import scoring
from svtoolkit.scoring.score_file import read_scores


def test_both_ways_agree_and_are_recorded(tmp_path, monkeypatch):
    ran = []

    def run_here(commands):
        for words in commands:
            ran.append(words)
            assert (scoring.main if "benchmarks.scoring" in words else svt)(words[3:]) == 0
        return [scoring.Cost(0.5, 1.0)] * len(commands)

    def svt(words):
        from svtoolkit.cli import main

        return main(words)

    monkeypatch.setattr(scoring, "run_all", run_here)
    monkeypatch.setattr(scoring.tempfile, "TemporaryDirectory", lambda: _Folder(tmp_path))
    assert scoring.main(["--scale", "0.0005", "--rounds", "1", "--output", str(tmp_path / "record.json")]) == 0
    record = json.loads((tmp_path / "record.json").read_text())
    assert (record["trials"], record["utterances"], record["cohort"]) == (276, 69, 20)
    assert max(record["largest_error"].values()) < 1e-5
    assert record["times_faster"] == record["times_less_processor"] == 2.0
    assert record["product_processor_seconds"][0] > 0
    assert len(ran) == 4
    for name in ("cosine", "as_norm"):
        ours, theirs = (read_scores(tmp_path / f"{name}{way}")[2] for way in ("", "_by_trial"))
        assert abs(ours - theirs).max() < 2e-3  # theirs have five decimals, of which cosines are normalised


class _Folder:
    def __init__(self, path):
        self.path = path

    def __enter__(self):
        return str(self.path)

    def __exit__(self, *error):
        return None
