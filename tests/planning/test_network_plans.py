"""svt plan model=all: what of every network fits, beside the profile of one of them."""

from __future__ import annotations

import json

import pytest

from svtoolkit.cli import main
from svtoolkit.models.registry import NETWORKS
from svtoolkit.planning.published_eers import VOX1_O


def test_a_line_for_every_network_and_the_best(capsys):
    assert main(["plan", "model=all", "gpu=2080ti", "effective_batch=150"]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = {line.split()[0]: line.split() for line in lines[1 : lines.index("")]}
    assert set(rows) == set(NETWORKS.rows)
    assert rows["resnet34"][1:4] == ["34", "store", "150"]  # 154 are what Liu & Qian found, table V
    assert rows["revnet197"][2:4] == ["reversible", "150"]
    assert any(line.startswith("the deepest that fits GeForce RTX 2080 Ti, 11 GB: df_revnet377") for line in lines)
    assert "the strongest published that fits: revnet230, EER 0.49 % on Vox1-O" in lines


def test_a_small_card_holds_fewer_and_json_says_so(capsys):
    assert main(["plan", "model=all", "gpu=gtx750", "format=json"]) == 0
    found = {each["name"]: each for each in json.loads(capsys.readouterr().out)["networks"]}
    assert found["eres2net34_aug"]["micro_batch"] == 0
    assert 0 < found["resnet34"]["micro_batch"] < found["revnet197"]["micro_batch"]


def test_other_sizes_are_refused(capsys):
    assert main(["plan", "model=all", "gpu=gtx750", "frames=300"]) == 1
    assert "model=all answers for frames=200 and num_bins=80" in capsys.readouterr().err


def test_no_error_rate_is_of_a_network_that_there_is_none_of():
    assert len(VOX1_O) == 25
    assert set(VOX1_O) <= set(NETWORKS.rows)
    assert pytest.approx(0.96) == VOX1_O["resnet34"]
