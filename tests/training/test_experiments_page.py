"""docs/experiments.md and docs/settings.md: what they say is what the program composes and predicts."""

from __future__ import annotations

import sys
from functools import cache

import pytest
from paths import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
import experiments_page as page
import settings_page

ROUNDING = 0.051
"""GiB: half a unit of the last digit of a peak, and a little."""


@cache
def rows() -> dict[str, list[str]]:
    """Network -> cells of its row, the name aside."""
    table = page.PAGE.read_text(encoding="utf-8").split(page.BEGIN)[1].split(page.END)[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[3:]]
    return {first.strip("`"): rest for first, *rest in cells}


def test_every_network_of_the_paper_has_its_row():
    assert len(page.NETWORKS_OF_THE_PAPER) == 25
    assert list(rows()) == page.NETWORKS_OF_THE_PAPER


@pytest.mark.parametrize("name", page.NETWORKS_OF_THE_PAPER)
def test_page_and_experiments_say_the_same(name):
    experiment, micro_batch, peak, narrow_peak, gflop, eflop, days, published, of_tuning, peak_of_tuning = rows()[name]
    assert experiment == f"`{page.experiment_of(name)}`"
    config = page.compose(name, page.experiment_of(name))
    assert (config.model.name, config.trainer.max_batch_size, config.trainer.micro_batch) == (name, 256, None)
    crops = page.UTTERANCES * len(config.data.speeds) * config.trainer.epochs
    assert float(eflop) == pytest.approx(crops * float(gflop) * 1e9 / 1e18, rel=0.04)
    assert int(days) == pytest.approx(float(eflop) * 1e18 / page.GPU_RATE / page.SECONDS_A_DAY, abs=0.6)
    assert published == page.PUBLISHED.get(name, "")
    room = (page.GPU_BYTES - 2**30) / 2**30
    for crops, batch, need in ((micro_batch, 256, peak), (of_tuning, 128, peak_of_tuning)):
        assert batch % int(crops) == 0
        assert 0 < float(need) <= room
        assert int(crops) == batch or 2 * float(need) > 0.9 * room, "twice as many crops would fit"
    assert 0 <= float(peak) - float(narrow_peak) < 0.25


@pytest.mark.parametrize("name", ["resnet34", "df_revnet377"])
def test_eight_bits_and_fine_tuning_are_what_the_page_says_they_are(name):
    config = page.compose(name, page.experiment_of(name))
    narrow = page.compose(name, page.experiment_of(name), page.narrow(config))
    assert (narrow.optim.name, narrow.optim.lr) == (f"{config.optim.name}_8bit", config.optim.lr)
    fine_tuning = page.compose(name, "voxceleb_lm")
    assert (fine_tuning.data.crop_frames, fine_tuning.data.speeds) == (600, [1.0])
    assert fine_tuning.trainer.max_batch_size == 128
    assert (fine_tuning.loss.margin, fine_tuning.init_head, fine_tuning.optim.name) == (0.5, "original_speakers", "sgd")


@pytest.mark.parametrize(("name", "experiment"), [("resnet34", "voxceleb_lm"), ("revnet46", "voxceleb")])
def test_figures_are_those_that_are_predicted(name, experiment):
    forecast = page.forecast(page.compose(name, experiment))
    micro_batch, peak, _, gflop, eflop, days, _, *of_tuning = rows()[name][1:]
    if experiment == "voxceleb_lm":
        micro_batch, peak = of_tuning
    else:
        assert round(forecast.operations / 1e9) == int(gflop)
        assert f"{forecast.all_operations / 1e18:.1f}" == eflop
        assert round(forecast.seconds(page.GPU_RATE) / page.SECONDS_A_DAY) == int(days)
    assert forecast.micro_batch(page.GPU_BYTES) == int(micro_batch)
    assert forecast.peak_bytes(page.GPU_BYTES) / 2**30 == pytest.approx(float(peak), abs=ROUNDING)


def test_the_page_of_settings_is_up_to_date():
    assert settings_page.PAGE.read_text(encoding="utf-8") == settings_page.page(), "run scripts/settings_page.py"
