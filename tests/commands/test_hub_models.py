"""Commands whose model is of the hub, a stand-in of it on this machine."""

from __future__ import annotations

import pytest
import torch
import yaml

from svtoolkit import composition
from svtoolkit.checkpoints.released import read_description, read_released
from svtoolkit.cli import main
from svtoolkit.errors import UserError
from svtoolkit.training.initialisation import read_start

TINY = "hf://me/tiny"


def test_commands_say_the_commit(hub, model, tmp_path, eval_data, capsys, undrawn):
    commit = hub.add("me/tiny", model)
    wav = str(next((eval_data / "wav").rglob("*.wav")))
    assert main(["verify", TINY, wav, wav, "min_voice=0"]) == 3
    assert main(["embed", "--model", f"{TINY}@main", f"data={eval_data}", f"out={tmp_path / 'eval'}", "threads=1"]) == 0
    record = yaml.safe_load((tmp_path / "eval.yaml").read_text())
    assert record["model"] == f"{TINY}@{commit}"
    words = [f"trials={eval_data / 'trials'}", f"embeddings={tmp_path / 'eval.scp'}", f"out={tmp_path / 'scores'}"]
    assert main(["score", *words]) == 0
    scored = [f"scores={tmp_path / 'scores'}", f"trials={eval_data / 'trials'}"]
    assert main(["evaluate", *scored]) == 0
    assert main(["report", f"results=[{tmp_path / 'scores.json'}]", f"out={tmp_path / 'report'}"]) == 0
    assert f"{TINY}@{commit}" in (tmp_path / "report" / "index.html").read_text()
    assert main(["convert-model", f"model={TINY}", f"out={tmp_path / 'ours'}"]) == 0
    assert read_description(tmp_path / "ours").training == {"source": f"{TINY}@{commit}"}
    capsys.readouterr()
    assert main(["calibrate", TINY, str(eval_data)]) == 1
    assert f"`svt convert-model model={TINY} out=DIR`" in capsys.readouterr().err
    assert (
        main(["evaluate", f"scores={tmp_path / 'scores'}", f"trials={eval_data / 'trials'}", f"store_threshold={TINY}"])
        == 1
    )
    assert f"`svt convert-model model={TINY} out=DIR`" in capsys.readouterr().err


def test_a_run_begins_with_it(hub, model, caplog):
    commit = hub.add("me/tiny", model)
    with caplog.at_level("INFO"):
        config = composition.load("train", [f"init_from={TINY}", "data.train=unread", "exp_dir=unwritten"])
        start = read_start(config)
    assert (config.model.name, config.model.base_width, config.features.sample_rate) == ("resnet10", 4, 8000)
    expected = read_released(model)[0].state_dict()
    assert all(torch.equal(start.network[name], tensor) for name, tensor in expected.items())
    assert f"initialised from {TINY}@{commit}; head: new" in caplog.messages
    config.init_head = "keep"
    with pytest.raises(UserError, match=f"^{TINY}: init_head=keep needs the exp_dir of a run"):
        read_start(config)
    with pytest.raises(UserError, match=r"^hf://me/none: there is no such repository"):
        composition.load("train", ["init_from=hf://me/none", "data.train=unread", "exp_dir=unwritten"])
