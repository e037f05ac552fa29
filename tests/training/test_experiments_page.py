"""docs/experiments.md against conf/experiment: what both say, and what the program foresees."""

from __future__ import annotations

import re
from functools import cache

import pytest
from paths import ROOT

from svtoolkit import composition
from svtoolkit.config import MemoryCommandConfig, TrainConfig
from svtoolkit.models.registry import NETWORKS
from svtoolkit.planning.memory_prediction import predict_memory

FOLDER = ROOT / "conf" / "experiment"
CROPS = 3 * 1_092_009
"""Of an epoch: the utterances of VoxCeleb2 dev at three speeds."""
CLASSES = 17982
TFLOPS = 7
SECONDS_A_DAY = 86400
NAMES = sorted(path.stem for path in FOLDER.glob("*net*.yaml") if "_" not in path.stem)


@cache
def rows() -> dict[str, list[str]]:
    """Name of an experiment -> cells of its row, the name aside."""
    lines = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| `")]
    return {first.strip("`"): rest for first, *rest in cells}


def composed(name: str) -> TrainConfig:
    return composition.to_config(
        "train", composition.compose("train", [f"experiment={name}", "exp_dir=x", "data.train=x"])
    )


def header(name: str) -> str:
    return (FOLDER / f"{name}.yaml").read_text(encoding="utf-8").partition("\ndefaults:")[0]


def peak_in(name: str) -> str:
    found = re.search(r"predicted peak ([\d.]+) GiB", header(name))
    assert found, name
    return found[1]


def test_every_experiment_has_its_row_and_its_two_variants():
    assert rows().keys() == {*NAMES, *(f"{name}_lm" for name in NAMES)}
    files = {path.stem for path in FOLDER.glob("*net*.yaml")}
    assert files == {f"{name}{variant}" for name in NAMES for variant in ("", "_8bit", "_lm")}


@pytest.mark.parametrize("name", NAMES)
def test_page_and_files_say_the_same(name):
    config, (micro_batch, peak, narrow_peak, gmac, eflop, days, published) = composed(name), rows()[name]
    assert config.trainer.batch_size == 256
    assert int(micro_batch) == config.trainer.micro_batch
    assert (peak, narrow_peak) == (peak_in(name), peak_in(f"{name}_8bit"))
    assert composed(f"{name}_8bit").optim.name == f"{config.optim.name}_8bit"
    assert f"predicted to take {days} GPU days at {TFLOPS} TFLOPS" in header(name)
    cards = re.search(r"published: (\d+) cards? for (\d+) days", header(name))
    assert published == (f"{cards[1]} x {cards[2]}" if cards else "")
    passes = 4 if NETWORKS[config.model.name].help in ("RevNet", "DF-RevNet") else 3
    work = CROPS * config.trainer.epochs * 2 * passes * float(gmac) * 1e9
    assert float(eflop) == pytest.approx(work / 1e18, rel=0.02)
    assert int(days) == pytest.approx(work / (TFLOPS * 1e12) / SECONDS_A_DAY, abs=0.9)
    fine_tuning = composed(f"{name}_lm")
    assert rows()[f"{name}_lm"] == [str(fine_tuning.trainer.micro_batch), peak_in(f"{name}_lm")]
    assert fine_tuning.trainer.batch_size == 128
    assert fine_tuning.data.crop_frames == 600
    assert fine_tuning.data.speeds == [1.0]
    assert (fine_tuning.loss.margin, fine_tuning.init_head) == (0.5, "original_speakers")


@pytest.mark.parametrize("name", ["resnet34", "resnet34_lm", "revnet57"])
def test_peaks_are_those_that_are_predicted(name):
    config = composed(name)
    step = MemoryCommandConfig(
        frames=config.data.crop_frames, batch_size=config.trainer.micro_batch or 0, num_classes=CLASSES, device="cpu",
        model=config.model, memory=config.memory, loss=config.loss, optim=config.optim,
    )  # fmt: skip
    assert f"{predict_memory(step).whole.peak_bytes / 2**30:.1f}" == peak_in(name)
