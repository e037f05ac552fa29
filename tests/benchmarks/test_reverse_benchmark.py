"""The benchmark of reversed networks: forms that are what they say, a line a form, changes relative to the ResNet."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from benchmarks import reverse
from svtoolkit.reversible import MomentumSequence

torch.set_num_threads(1)


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> nn.Module:
    sizes = {"block": "basic", "blocks": (3, 1, 1, 1), "width": 2, "stem_stride": (2, 1)}
    monkeypatch.setitem(reverse.RECIPES, "resnet34", reverse.Recipe(sizes, 1, 20))
    torch.manual_seed(0)
    return reverse.build_resnet(num_bins=reverse.BINS, embedding_dim=reverse.SIZE, **sizes).eval()


def first_stage(form: str, network: nn.Module, x: Tensor) -> Tensor:
    turned = reverse.reversed_as(reverse.FORMS[form], "resnet34", network).eval()
    assert isinstance(turned.stages[0][0], MomentumSequence)
    return turned.stages[0](turned.stem(x))


@torch.no_grad()
def test_forms(network):
    x = torch.randn(1, 1, 8, 9, generator=torch.Generator().manual_seed(1))
    blocks, begin = list(network.stages[0]), network.stem(x)
    exact = network.stages[0](begin)
    streams = [begin, blocks[0](begin)]
    for block in blocks[1:]:
        streams.append(streams[-2] + block(streams[-1]) - streams[-1])
    torch.testing.assert_close(first_stage("two streams", network, x), streams[-1], atol=1e-3, rtol=0)
    distances = [float((first_stage(form, network, x) - exact).norm()) for form in ("8 bits", "2 bits", "leapfrog")]
    assert distances == sorted(distances)
    assert distances[0] < 0.02 * float(exact.norm())
    assert (first_stage("4 bits, linear shortcut", network, x) >= 0).all()


def test_lines_and_record(tmp_path: Path, capsys):
    for fold, rate in enumerate((10.0, 20.0)):
        rows = [
            {"form": "4 bits", "untrained": {"cosine": 0.9, "eer": 1.1 * rate}, "tuned": {"cosine": 1.0, "eer": rate}},
            {"form": "ResNet", "untrained": {"cosine": 1.0, "eer": rate}},
        ]
        rows = [{"network": "resnet34", "fold": fold, **row} for row in rows]
        (tmp_path / f"resnet34_{fold}.json").write_text(json.dumps(rows))
    output = tmp_path / "reverse.json"
    words = f"--root . --work {tmp_path} --output {output} --runs resnet34:0 resnet34:1".split()
    assert reverse.main(words) == 0
    assert "| resnet34 | 4 bits | 2 | 0.900, 16.50 % (+10.0) | - | 1.000, 15.00 % (+0.0) |" in capsys.readouterr().out
    record = json.loads(output.read_text())
    assert [(line["form"], line["folds"]) for line in record["summary"]] == [("4 bits", 2), ("ResNet", 2)]
    assert len(record["runs"]) == 4
