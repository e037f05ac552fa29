"""The benchmark of the layer after the pooling of a ResNet152: grown from a small one, both second stages, resumed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from benchmarks import low_rank_resnet152 as benchmark

torch.set_num_threads(1)


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmark, "NETWORK", {"num_bins": 24, "embedding_dim": 16, "base_width": 2})
    monkeypatch.setattr(benchmark, "SPEAKERS", 2)
    monkeypatch.setattr(benchmark, "FRAMES", 40)


def test_a_network_that_was_grown_is_the_small_one(narrow) -> None:
    torch.manual_seed(0)
    small, deep = benchmark.build_small(), benchmark.build()
    with torch.no_grad():
        small.train()(torch.randn(4, 40, 24))
    benchmark.grow(small.state_dict(), deep)
    frames = torch.randn(2, 50, 24)
    with torch.no_grad():
        torch.testing.assert_close(deep.eval()(frames), small.eval()(frames), rtol=0, atol=1e-5)


def test_parts(tmp_path: Path, speech: Path, narrow, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    evaluated = tmp_path / "data"
    evaluated.mkdir()
    for path in speech.iterdir():
        (evaluated / path.name).write_bytes(path.read_bytes())
    (evaluated / "trials").write_text(
        "spk0-utt0 spk0-utt1 target\nspk1-utt0 spk1-utt1 target\nspk0-utt0 spk1-utt1 nontarget\n"
    )
    output, work = tmp_path / "found.json", tmp_path / "work"
    words = (
        f"--train {speech} {speech} --trials {evaluated} --root . --output {output} --work {work} --steps 3 2 1 "
        "--threads 1"
    )
    assert benchmark.main(words.split()) == 0
    record = json.loads(output.read_text())
    size, inputs = record["layer"]
    whole, product = record["parameters"]
    assert (size, whole) == (16, 16 * inputs)
    assert product == record["rank"] * (size + inputs)
    assert whole >= benchmark.SHARE * product > 0
    assert {row["trials"] for row in record["rows"]} == {"list", "all pairs"}
    assert all(
        {"small", "stage one", "whole", "cut, by weights", "cut", "low rank", "relative"} <= set(row)
        for row in record["rows"]
    )
    states = {path.stem: torch.load(path, weights_only=True)["network"] for path in work.glob("*.pt")}
    assert set(states) == {"small", "stage_one", "whole", "low_rank"}
    assert len(states["whole"]) > 3 * len(states["small"])
    assert "embedding.low_rank_v.weight" in states["low_rank"]
    (work / "whole.pt").unlink()
    before = (work / "low_rank.pt").stat().st_mtime_ns
    monkeypatch.setattr(benchmark.Training, "crops", lambda *_: pytest.fail("only the part that is missing is trained"))
    with pytest.raises(pytest.fail.Exception):
        benchmark.main(words.split())
    assert (work / "low_rank.pt").stat().st_mtime_ns == before
