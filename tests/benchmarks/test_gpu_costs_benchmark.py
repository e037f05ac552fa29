"""The benchmark that waits for a GPU: it runs through on a CPU, and what it cannot measure there it says."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

from benchmarks import gpu_costs

torch.set_num_threads(1)

CPU = torch.device("cpu")


class Convolution(nn.Module):
    """A network of one convolution of 5120 weights, with a bias of float32 state."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(16, 64, (5, 1))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return self.layer(features[:, None, :, :].expand(-1, 16, -1, -1)).mean(dim=(2, 3))


@pytest.fixture
def small(monkeypatch):
    def build(name, strategy, *, channels_last=True, device):
        torch.manual_seed(1)
        network = Convolution().to(device)
        layout = torch.channels_last if channels_last else torch.contiguous_format
        network.layer.weight.data = network.layer.weight.data.to(memory_format=layout)
        return network

    monkeypatch.setattr(gpu_costs, "build_network", build)


def test_on_a_cpu_it_runs_through_and_says_what_it_left_out(small, tmp_path, capsys):
    pytest.importorskip("bitsandbytes")
    words = ["--output", str(tmp_path / "costs.json"), "--steps", "3", "--rounds", "1", "--device", "cpu"]
    assert gpu_costs.main(words) == 0
    record = json.loads((tmp_path / "costs.json").read_text())
    assert record["left_out"] == [gpu_costs.NO_GPU]
    assert f"left out: {gpu_costs.NO_GPU}" in capsys.readouterr().out
    assert "determinism" not in record
    for layout, found in record["eight_bit"].items():
        assert set(found["layout_kept"].values()) == {True}
        assert found["bytes_per_parameter"]["32 bits"] == 4
        assert found["bytes_per_parameter"]["torch, 2048"] == pytest.approx((5120 + 3 * 4 + 64 * 4) / 5184, abs=1e-4)
        distances = found["distance_by_way"]
        assert 0 < distances["32 bits | torch, 256"] < 0.02
        assert 0 < distances["32 bits | bitsandbytes, 256"] < 0.02
        assert distances["torch, 256 | bitsandbytes, 256"] < (0.002 if layout == "contiguous" else 0.02)
        assert set(found["time"]) == set(gpu_costs.OPTIMIZERS)


def test_without_bitsandbytes_its_row_is_left_out(small, monkeypatch):
    monkeypatch.setattr(gpu_costs, "find_spec", lambda name: None)
    assert gpu_costs.left_out(CPU) == [gpu_costs.NO_GPU, gpu_costs.NO_BITSANDBYTES]
    found = gpu_costs.compare_eight_bit("any", 1, 1, CPU, channels_last=True)
    assert set(found["time"]) == set(gpu_costs.OPTIMIZERS) - {gpu_costs.THEIRS}


def test_determinism_is_compared_under_the_switches_of_the_trainer(small, monkeypatch):
    cudnn = torch.backends.cudnn
    seen = []

    class Step:
        def __init__(self, name, strategy, **settings):
            self.precision = settings["precision"]

        def __call__(self):
            seen.append((self.precision, cudnn.deterministic, cudnn.benchmark))

    monkeypatch.setattr(gpu_costs, "TrainingStep", Step)
    before = cudnn.deterministic, cudnn.benchmark
    found = gpu_costs.compare_determinism("any", 1, CPU, batch_size=2, frames=12)
    assert (cudnn.deterministic, cudnn.benchmark) == before
    assert set(seen) == {
        (precision, *switch) for precision in ("fp32", "fp16") for switch in ((True, False), (False, True))
    }
    assert found["fp32"]["deterministic"]["gradients_repeat"] is True
    assert found["fp32"]["deterministic"]["ratio_fastest"] > 0
    assert "a deterministic step takes" in gpu_costs.format_tables({"eight_bit": {}, "determinism": found})


def test_the_distance_is_a_share_of_the_way():
    begin, one, other = ([torch.full((2,), value)] for value in (0.0, 4.0, 5.0))
    assert gpu_costs.distance_by_way(begin, one, other) == 0.25
