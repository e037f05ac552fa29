"""svt plan: the table, the data, words that `svt train` composes, and what it says where nothing fits."""

from __future__ import annotations

import json
import re

import pytest

from svtoolkit import composition
from svtoolkit.cli import main
from svtoolkit.planning import profiles

QUICK = [
    "plan", "model=resnet10", "model.base_width=8", "frames=24", "num_bins=16", "num_classes=50", "effective_batch=16",
    "optims=[sgd,sgd_8bit]",
]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SVT_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(profiles, "count_cores", lambda: 1)
        yield


def test_the_table(capsys):
    assert main([*QUICK, "gpu=2080ti", "top=3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "resnet10 on GeForce RTX 2080 Ti, 11 GB (10.75 GiB): 40 of 40 ways fit"
    words = "model=resnet10 model.base_width=8 trainer.batch_size=16 data.crop_frames=24 features.num_bins=16"
    assert lines[2] == f"svt train {words} and one line:"
    assert lines[4].split() == ["time", "peak/GiB", "micro-batch", "overrides"]
    rows = lines[5 : lines.index("", 5)]
    assert len(rows) == 3
    for row in rows:
        assert re.fullmatch(
            r" *\d\.\d\d +0\.\d\d +16  memory=\w+( memory\.\w+=[\w.]+)? trainer.precision=fp\d+ optim=sgd(_8bit)? "
            r"trainer\.micro_batch=16",
            row,
        )


def test_words_of_every_way_are_composed_by_svt_train(capsys):
    assert main([*QUICK, "gpu=3060", "gpus=2", "top=0", "format=json", "loss=softmax"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["fitting"] == len(plan["ways"]) > 20
    for way in plan["ways"][::5]:
        assert sum(way["peak"].values()) == pytest.approx(way["peak_bytes"])
        config = composition.load("train", [*way["overrides"], "data.train=data", "exp_dir=exp"])
        assert config.trainer.micro_batch == way["micro_batch"] <= 8
        assert (config.trainer.precision, config.trainer.devices) == (way["precision"], 2)
        assert config.model.base_width == 8
        assert config.memory.strategy == way["memory"]["strategy"]
        assert config.loss.name == "softmax"


def test_where_nothing_fits_it_says_what_would(capsys):
    assert main([*QUICK, "gpu=2080ti", "gib=0.4501"]) == 1
    said = capsys.readouterr().err
    assert re.search(
        r"error: resnet10 does not fit GeForce RTX 2080 Ti, 11 GB in any of 40 ways: the least is 0\.4\d GiB of "
        r"0\.4501, by memory=\w+ .*trainer\.micro_batch=1; GeForce GTX 750, 1 GB holds that \(gpu=gtx750\); else take "
        r"fewer frames, or another network \(`svt plan model=all` lists those that fit\)",
        said,
    )


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("gpu=2090", "gpu is '2090', expected one of gtx750"),
        ("gpus=3", "effective_batch is 16, which 3 cards cannot share"),
        ("frames=0", "frames is 0, expected 1 or more"),
        ("top=-1", "top is -1, expected 0"),
        ("format=yaml", "format is 'yaml', expected table or json"),
        ("optims=[lion]", "optims names 'lion', expected some of sgd"),
        ("optims=[]", "optims is empty"),
        ("loss.shard=true", "loss.shard=true needs several cards"),
    ],
)
def test_what_cannot_be_is_refused(word, said, capsys):
    assert main([*QUICK, "gpu=3060", word]) == 1
    assert said in capsys.readouterr().err


def test_without_a_card_it_asks_for_one(capsys, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert main(QUICK) == 1
    assert "gpu is null, and torch" in capsys.readouterr().err
