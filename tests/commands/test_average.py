from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml
from command_material import BINS, RATE

from svtoolkit import __version__, load_model
from svtoolkit.cli import main
from svtoolkit.runs.epoch_weights import load_epoch_weights, weights_path


@pytest.fixture
def copied_run(tmp_path: Path, exp_dir: Path) -> Path:
    return Path(shutil.copytree(exp_dir, tmp_path / "exp"))


def test_the_mean_of_the_last_epochs_is_released(tmp_path, exp_dir, capsys):
    out = tmp_path / "released"
    assert main(["average", str(exp_dir), "num=2", "--out", str(out)]) == 0
    averaged, following = capsys.readouterr().out.splitlines()
    assert averaged == f"averaged epochs 1, 2 -> {out}"
    assert following.startswith(f"next: svt embed --model {out} --data EVAL_DIR --out ")
    weights = load_epoch_weights(out / "model.safetensors")
    first, second = (load_epoch_weights(weights_path(exp_dir / "checkpoints", epoch)) for epoch in (1, 2))
    name = "embedding.weight"
    assert not (first[name] == second[name]).all()
    expected = (first[name].double() + second[name].double()) / 2
    assert (weights[name] == expected.float()).all()


def test_the_description_is_that_of_the_run(tmp_path, exp_dir):
    assert main(["average", str(exp_dir), "num=1", f"out={tmp_path}"]) == 0
    description = yaml.safe_load((tmp_path / "model.yaml").read_text())
    sizes = {"num_bins": BINS, "embedding_dim": 16, "base_width": 4, "embedding_layers": 1}
    assert description["model"] == {"name": "resnet10", **sizes, "pooling_eps": 1e-7}
    trained = yaml.safe_load((exp_dir / "config.yaml").read_text())
    assert description["features"] == trained["features"]
    assert description["training"] == {
        "svtoolkit": __version__,
        "command": f"svt average {exp_dir} num=1 out={tmp_path}",
        "epochs_averaged": [2],
        "data": trained["data"]["train"],
        "crop_frames": 40,
        "loss": "aam",
        "seed": 3,
    }
    assert description["verification"] == {}


def test_the_released_model_embeds(tmp_path, exp_dir, train_data):
    main(["average", str(exp_dir), "num=2", f"out={tmp_path}"])
    model = load_model(tmp_path)
    assert model.sample_rate == RATE
    assert model.threshold is None
    assert model.embed(train_data / "wav" / "s00" / "s00-0.wav").shape == (16,)


def test_it_goes_to_model_of_the_run_by_default(copied_run):
    assert main(["average", str(copied_run), "num=2"]) == 0
    assert sorted(path.name for path in (copied_run / "model").iterdir()) == ["model.safetensors", "model.yaml"]


def test_the_best_epoch_by_validation(tmp_path, copied_run):
    history = copied_run / "logs" / "history.jsonl"
    lines = [json.loads(line) for line in history.read_text().splitlines()]
    for record in lines:
        if record["kind"] == "epoch":
            record["validation_eer"] = {1: 0.1, 2: 0.3}[record["epoch"]]
    history.write_text("".join(f"{json.dumps(record)}\n" for record in lines))
    assert main(["average", str(copied_run), "num=1", "choose=best", f"out={tmp_path / 'best'}"]) == 0
    training = yaml.safe_load((tmp_path / "best" / "model.yaml").read_text())["training"]
    assert training["epochs_averaged"] == [1]


def test_where_fewer_are_kept_all_are_averaged(tmp_path, exp_dir, capsys):
    assert main(["average", str(exp_dir), f"out={tmp_path / 'all'}"]) == 0
    assert "averaged epochs 1, 2 (all that are kept; num is 10)" in capsys.readouterr().out
    training = yaml.safe_load((tmp_path / "all" / "model.yaml").read_text())["training"]
    assert training["epochs_averaged"] == [1, 2]


def test_nothing_to_average(tmp_path, copied_run, capsys):
    assert main(["average", str(copied_run), "num=0", f"out={tmp_path / 'no'}"]) == 1
    assert "num is 0, expected 1 or more" in capsys.readouterr().err
    for path in (copied_run / "checkpoints").glob("epoch-*"):
        path.unlink()
    assert main(["average", str(copied_run), f"out={tmp_path / 'no'}"]) == 1
    assert "trainer.keep_last" in capsys.readouterr().err
    assert not (tmp_path / "no").exists()


def test_an_unknown_choice(exp_dir, capsys):
    assert main(["average", str(exp_dir), "choose=newest"]) == 1
    assert capsys.readouterr().err == "error: choose is 'newest', expected last, best or ema\n"


def test_a_folder_without_a_run(tmp_path, capsys):
    assert main(["average", str(tmp_path)]) == 1
    assert capsys.readouterr().err == (
        f"error: {tmp_path}/config.yaml: there is no such file; "
        "expected exp_dir to be a folder that `svt train` wrote\n"
    )


@pytest.mark.parametrize(("broken", "found"), [("seed: 3\n", "'features'"), ("- seed\n", "'features'"), ("a: [\n", "")])
def test_a_configuration_that_lacks_what_the_description_needs(copied_run, capsys, broken, found):
    (copied_run / "config.yaml").write_text(broken)
    assert main(["average", str(copied_run), "num=1"]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"error: {copied_run}/config.yaml: lacks {found}")
    assert "expected the configuration that `svt train`" in error
