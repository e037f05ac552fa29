"""The benchmark of conversions in small: both ways are measured, and flush as often as is said."""

from __future__ import annotations

import json
import os

from paths import ROOT

from benchmarks import conversion as benchmark


def test_both_ways_are_measured(tmp_path, capsys):
    output = tmp_path / "conversion.json"
    assert benchmark.main(["--output", str(output), "--files", "6", "--rounds", "1", "--folder", str(tmp_path)]) == 0
    record = json.loads(output.read_text())
    assert record["command"].startswith("python -m benchmarks.conversion --output ")
    together, alone = (record["results"][name] for name in ("one flush a batch", "two flushes a file"))
    assert record["times_faster"] == round(alone["fastest_seconds"] / together["fastest_seconds"], 2)
    assert f"{record['times_faster']} times as fast" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["conversion.json"]


def test_a_file_by_itself_costs_two_flushes(tmp_path, monkeypatch):
    source = benchmark.write_material(tmp_path, 5)
    calls: list[int] = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda descriptor: (calls.append(descriptor), real(descriptor)))
    benchmark.convert(source, tmp_path / "together", together=True)
    of_tables = len(calls)
    benchmark.convert(source, tmp_path / "alone", together=False)
    assert len(calls) - 2 * of_tables == 2 * 5


def test_the_page_has_what_was_measured():
    record = json.loads((ROOT / "benchmarks" / "results" / "conversion.json").read_text())
    page = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
    assert f"{record['files_a_batch']} at a time: of {record['files']} files of half a second that is" in page
    assert f"{record['times_faster']} times as fast" in page
