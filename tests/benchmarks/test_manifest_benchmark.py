"""The manifest benchmark in small: what it writes can be opened, and it says what both ways cost."""

from __future__ import annotations

import json
import sys

import pytest

from benchmarks import manifest as benchmark
from svtoolkit.data.kaldi_dir import KaldiDir

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and forks")


def test_the_directory_is_as_large_as_asked_for_and_without_fault(tmp_path):
    benchmark.write_directory(tmp_path, 100, 7)
    kaldi_dir = KaldiDir.read(tmp_path)
    assert len(kaldi_dir.utt2spk) == len(kaldi_dir.utt2dur) == 100
    assert len(kaldi_dir.speakers) == 7
    assert list(benchmark.open_as_arrays(tmp_path)) == benchmark.open_as_objects(tmp_path)


def test_both_ways_are_measured(tmp_path):
    output = tmp_path / "manifest.json"
    arguments = ["--output", str(output), "--utterances", "300", "--speakers", "10", "--workers", "2"]
    assert benchmark.main(arguments) == 0
    results = json.loads(output.read_text())["results"]
    assert set(results) == {"arrays", "objects"}
    for record in results.values():
        assert record["utterances"] == 300
        assert record["seconds"] > 0
        assert record["mib_with_2_workers"] > 0
