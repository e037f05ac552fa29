"""svt reverse: a trained ResNet as a reversible network of the same weights, which svt train begins with."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import yaml
from command_material import BINS, RATE, TRAIN_WORDS, said

from svtoolkit.checkpoints.released import ModelDescription, read_released, write_released
from svtoolkit.cli import main
from svtoolkit.commands import reverse as command
from svtoolkit.config import FeaturesConfig
from svtoolkit.models import build_model


def write(folder: Path, name: str, **options: int) -> Path:
    """A released model of random weights, with a threshold."""
    torch.manual_seed(3)
    sizes = {"name": name, "num_bins": BINS, "embedding_dim": 16, **options}
    description = ModelDescription(
        sizes, FeaturesConfig(sample_rate=RATE, num_bins=BINS), {"loss": "aam"}, {"threshold": 0.3}
    )
    return write_released(folder, build_model(**sizes).state_dict(), description)


@pytest.fixture(scope="module")
def resnet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("resnet"), "resnet34", base_width=2)


@pytest.fixture
def predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of memory, two numbers at once."""
    monkeypatch.setattr(command, "growth_of", lambda model, strategy, frames: 2**30 * (4 if strategy == "store" else 1))


@pytest.mark.usefixtures("predicted")
def test_the_weights_are_those_of_the_resnet(tmp_path, resnet, capsys):
    out = tmp_path / "reversed"
    assert main(["reverse", "--model", str(resnet), "--out", str(out), "remainder_bits=2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{resnet} -> {out} of reversed_resnet34, the same weights"
    assert "of 200 frames, float32: 4.0000 GiB stored, 1.0000 reversed, 4.0 times less" in lines[1]
    assert lines[-1].startswith(f"next: svt train --init-from {out} --data.train TRAIN_DIR --exp-dir EXP_DIR ")
    (network, before), (turned, after) = read_released(resnet), read_released(out)
    assert all(map(torch.equal, network.state_dict().values(), turned.state_dict().values()))
    assert after.model == {**before.model, "name": "reversed_resnet34", "remainder_bits": 2}
    assert after.features == before.features
    assert after.training == {"loss": "aam", "reversed_from": "resnet34"}
    assert after.verification == {}


def test_memory_is_predicted_and_a_run_begins_with_it(tmp_path, resnet, train_data, capsys):
    out, exp_dir = tmp_path / "reversed", tmp_path / "exp"
    assert main(["reverse", f"model={resnet}", f"out={out}", "frames=100"]) == 0
    found = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("activations"))
    assert float(found.split(" times less")[0].rpartition(" ")[2]) > 3
    words = [word for word in TRAIN_WORDS if not word.startswith(("model", "trainer.epochs"))]
    words += [f"init_from={out}", f"data.train={train_data}", f"exp_dir={exp_dir}", "memory=reversible"]
    assert main(["train", *words, "trainer.epochs=1"]) == 0
    assert main(["average", str(exp_dir)]) == 0
    trained, description = read_released(exp_dir / "model")
    assert description.model["name"] == "reversed_resnet34"
    begun = read_released(out)[0].state_dict()
    assert any(not torch.equal(weight, begun[name]) for name, weight in trained.state_dict().items())
    assert yaml.safe_load((exp_dir / "config.yaml").read_text())["memory"]["strategy"] == "reversible"


@pytest.mark.parametrize(
    ("name", "options", "part"),
    [
        ("resnet10", {"base_width": 2}, "no stage of which has three blocks of one shape"),
        ("xvector", {}, "only a ResNet can be reversed (resnet34, resnet50, "),
        ("reversed_resnet34", {"base_width": 2}, "is reversible already"),
    ],
)
@pytest.mark.usefixtures("predicted")
def test_networks_that_cannot_be_reversed(tmp_path, capsys, name, options, part):
    model = write(tmp_path / "model", name, **options)
    text = said(capsys, "reverse", f"model={model}", f"out={tmp_path / 'out'}")
    assert text.startswith(f"error: {model}: its network is {name}")
    assert part in text
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("predicted")
def test_settings_that_are_refused(tmp_path, resnet, capsys):
    out = f"out={tmp_path / 'out'}"
    assert "remainder_bits is 3, expected one of 0, 1, 2, 4, 8" in said(
        capsys, "reverse", f"model={resnet}", out, "remainder_bits=3"
    )
    assert "frames is 0, expected 1 or more" in said(capsys, "reverse", f"model={resnet}", out, "frames=0")
    assert f"{resnet}: is there already" in said(capsys, "reverse", f"model={resnet}", f"out={resnet}")
