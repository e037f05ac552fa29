"""docs/experiments.md and docs/settings.md: what they say is what the program composes and predicts."""

from __future__ import annotations

import sys
from functools import cache

import pytest
from paths import ROOT

from svtoolkit.planning.memory_prediction import predict_memory
from svtoolkit.planning.micro_batch import step_of

sys.path.insert(0, str(ROOT / "scripts"))
import experiments_page as page
import settings_page

TOLERANCE = 0.051
"""GiB: half a unit of the last digit of a peak, and rounding."""


@cache
def rows() -> dict[str, list[str]]:
    """Network -> cells of its row, the name aside."""
    lines = page.PAGE.read_text(encoding="utf-8").splitlines()
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in lines
        if line.startswith("| `") and "GMAC" not in line
    ]
    return {first.strip("`"): rest for first, *rest in cells}


def test_every_network_of_the_paper_has_its_row():
    assert len(page.NETWORKS_OF_THE_PAPER) == 25
    assert list(rows()) == [name for name in page.NETWORKS_OF_THE_PAPER if name in rows()]


@pytest.mark.parametrize("name", list(rows()))
def test_page_and_experiments_say_the_same(name):
    experiment, micro_batch, peak, narrow_peak, gmac, eflop, days, published, of_tuning, peak_of_tuning = rows()[name]
    assert experiment == f"`{page.experiment_of(name)}`"
    config = page.compose(name, page.experiment_of(name))
    assert (config.model.name, config.trainer.batch_size, config.trainer.micro_batch) == (name, 256, None)
    narrow = page.compose(name, page.experiment_of(name), page.narrow(config))
    assert (narrow.optim.name, narrow.optim.lr) == (f"{config.optim.name}_8bit", config.optim.lr)
    work = page.flops(config, float(gmac) * 1e9)
    assert float(eflop) == pytest.approx(work / 1e18, rel=0.02)
    assert int(days) == pytest.approx(work / (page.TFLOPS * 1e12) / 86400, abs=0.9)
    assert published == page.PUBLISHED.get(name, "")
    fine_tuning = page.compose(name, "voxceleb_lm")
    assert (fine_tuning.trainer.batch_size, fine_tuning.data.crop_frames, fine_tuning.data.speeds) == (128, 600, [1.0])
    assert (fine_tuning.loss.margin, fine_tuning.init_head, fine_tuning.optim.name) == (0.5, "original_speakers", "sgd")
    room = (page.GPU_BYTES - 2**30) / 2**30
    for crops, batch, need in ((micro_batch, 256, peak), (of_tuning, 128, peak_of_tuning)):
        assert batch % int(crops) == 0
        assert 0 < float(need) <= room
        assert int(crops) == batch or 2 * float(need) > 0.9 * room, "twice as many crops would fit"
    assert 0 <= float(peak) - float(narrow_peak) < 0.25


@pytest.mark.parametrize(
    ("name", "experiment", "cell"), [("resnet34", None, 1), ("resnet34", "voxceleb_lm", 8), ("revnet57", None, 1)]
)
def test_peaks_are_those_that_are_predicted(name, experiment, cell):
    config = page.compose(name, experiment or page.experiment_of(name))
    micro_batch, peak = rows()[name][cell : cell + 2]
    step = step_of(config, int(micro_batch), page.CLASSES)
    assert predict_memory(step).whole.peak_bytes / 2**30 == pytest.approx(float(peak), abs=TOLERANCE)


def test_the_page_of_settings_is_up_to_date():
    assert settings_page.PAGE.read_text(encoding="utf-8") == settings_page.page(), "run scripts/settings_page.py"
