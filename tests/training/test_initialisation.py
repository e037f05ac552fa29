"""Runs initialised from another: whole networks, heads with all classes or those of speed 1, and what is refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
import yaml
from speech_material import write_speech
from tiny_runs import assert_same_run, fail_after, read_run, tiny_config

from svtoolkit.checkpoints.released import read_released
from svtoolkit.commands.average import run as average
from svtoolkit.config import AverageConfig
from svtoolkit.errors import UserError
from svtoolkit.models.front_ends import features_config
from svtoolkit.training import experiment as experiment_module
from svtoolkit.training.experiment import Experiment, train

ORIGINAL = "original_speakers"


@pytest.fixture(scope="module")
def base(finished, tmp_path_factory) -> Path:
    """exp_dir of the finished tiny run, released."""
    exp_dir = tmp_path_factory.mktemp("base") / "exp"
    shutil.copytree(finished, exp_dir)
    assert average(AverageConfig(exp_dir=str(exp_dir), num=2), "svt average") == 0
    return exp_dir


def begin(config) -> Experiment:
    return Experiment(config)


def head_of(exp_dir: Path) -> torch.Tensor:
    return read_run(exp_dir)["state"]["head"]["weight"]


@pytest.mark.parametrize("origin", ["", "model"], ids=["run", "released model"])
def test_the_network_is_that_of_the_model_and_the_head_is_new(base, speech, tmp_path, origin):
    experiment = begin(tiny_config(speech, tmp_path / "exp", init_from=str(base / origin)))
    released, _ = read_released(base / "model")
    for name, weight in released.state_dict().items():
        assert torch.equal(experiment.step.network.state_dict()[name], weight), name
    assert experiment.step.network.training
    assert experiment.step.head.weight.shape == head_of(base).shape
    assert not torch.isclose(experiment.step.head.weight, head_of(base)).any()


def test_a_head_is_kept_and_answers_for_the_same_speakers(base, speech, tmp_path):
    config = tiny_config(speech, tmp_path / "exp", init_from=str(base), init_head="keep", data__speeds=[1.0])
    experiment = begin(config)
    assert torch.equal(experiment.step.head.weight, head_of(base))
    assert len(experiment.step.head.weight) == 18
    assert len(experiment.data.training_set) * 3 == len(begin(tiny_config(speech, tmp_path / "all")).data.training_set)


@pytest.mark.parametrize(("speeds", "first"), [([1.0, 0.9, 1.1], 0), ([0.9, 1.0, 1.1], 6)])
def test_the_original_speakers_are_the_classes_of_speed_one(speech, tmp_path, speeds, first):
    base = tmp_path / "base"
    assert train(tiny_config(speech, base, data__speeds=speeds, trainer__epochs=1, trainer__batch_size=36)) is None
    assert average(AverageConfig(exp_dir=str(base), num=1), "svt average") == 0
    config = tiny_config(speech, tmp_path / "exp", init_from=str(base), init_head=ORIGINAL, data__speeds=[1.0])
    experiment = begin(config)
    assert torch.equal(experiment.step.head.weight, head_of(base)[first : first + 6])


def test_no_crop_of_a_run_at_speed_one_is_at_another(base, speech, tmp_path):
    """The peers' fine-tuning says that it turns speed perturbation off, and does not."""
    config = tiny_config(speech, tmp_path / "exp", init_from=str(base), init_head=ORIGINAL, data__speeds=[1.0])
    training_set = begin(config).data.training_set
    entries = [training_set.entry(entry) for entry in range(len(training_set))]
    assert {entry.speed for entry in entries} == {1.0}
    assert {entry.label for entry in entries} == set(range(6))


def test_large_margin_fine_tuning_is_stopped_and_resumed(base, speech, tmp_path, monkeypatch):
    """600 frames and margin 0.5 in small; the origin is not needed any more once there is a state."""
    origin = tmp_path / "origin"
    shutil.copytree(base, origin)
    changes = {
        "init_from": str(origin), "init_head": ORIGINAL, "data__speeds": [1.0], "data__crop_frames": 60,
        "loss__margin": 0.5, "margin_schedule__name": "constant", "margin_schedule__start": 0.0,
        "margin_schedule__end": 0.0, "optim__lr": 0.01, "trainer__batch_size": 4, "trainer__epochs": 1,
    }  # fmt: skip
    assert train(tiny_config(speech, tmp_path / "whole", **changes)) is None
    config = tiny_config(speech, tmp_path / "exp", **changes)
    with monkeypatch.context() as patched:
        fail_after(patched, 5)
        with pytest.raises(RuntimeError):
            train(config)
    shutil.rmtree(origin)
    assert train(config) is None
    assert_same_run(tmp_path / "exp", tmp_path / "whole")


def test_front_ends_of_the_same_settings_are_not_the_same(base, speech, tmp_path):
    description = yaml.safe_load((base / "model" / "model.yaml").read_text())
    description["features"] = {"backend": "redim_pt", "num_bins": 24}
    model = tmp_path / "model"
    shutil.copytree(base / "model", model)
    (model / "model.yaml").write_text(yaml.safe_dump(description))
    config = tiny_config(speech, tmp_path / "exp", init_from=str(model))
    config.features = features_config({"backend": "redim_tf", "num_bins": 24})
    with pytest.raises(UserError, match=r"features\.backend is 'redim_pt' there and 'redim_tf' here; they must be the"):
        begin(config)


def test_features_may_be_computed_otherwise(base, speech, tmp_path):
    description = yaml.safe_load((base / "model" / "model.yaml").read_text())
    description["features"]["backend"] = "torchaudio"
    model = tmp_path / "model"
    shutil.copytree(base / "model", model)
    (model / "model.yaml").write_text(yaml.safe_dump(description))
    begin(tiny_config(speech, tmp_path / "exp", init_from=str(model)))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"init_head": "old"}, "init_head is 'old', expected one of new, keep, original_speakers"),
        ({"init_from": None, "init_head": "keep"}, "init_head is keep, but init_from is null; say which run it is of"),
        ({"init_from": "/nowhere"}, "/nowhere/model.yaml: there is no such file; expected a released model or the exp"),
        (
            {"model__embedding_dim": 8},
            r"model\.yaml: model\.embedding_dim is 16 there and 8 here; they must be",
        ),
        ({"features__window": "povey"}, r"features\.window is 'hamming' there and 'povey' here; they must be the same"),
        ({"init_head": "keep", "validation__speakers": 3}, "its head is of other training speakers than data.train="),
        ({"init_head": "keep", "data__speeds": [0.9]}, r"data\.speeds is \[0\.9\], and the head of .* was trained at"),
        (
            {"init_head": ORIGINAL},
            r"init_head=original_speakers keeps .* speed 1 alone, without a warp: set data\.speeds=\[1\.0\]",
        ),
        (
            {"init_head": "keep", "loss__name": "softmax", "loss__margin": 0.0, "loss__scale": 1.0},
            "the head of init_from does not fit loss=softmax .*; choose the loss of that run, or init_head=new",
        ),
    ],
)
def test_what_does_not_fit_is_refused(base, speech, tmp_path, changes, says):
    with pytest.raises(UserError, match=says):
        begin(tiny_config(speech, tmp_path / "exp", **{"init_from": str(base), **changes}))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"init_head": "old"}, "init_head is 'old', expected one of new, keep, original_speakers"),
        (
            {"init_from": None, "init_head": ORIGINAL},
            "init_head is original_speakers, but init_from is null",
        ),
        ({"init_from": "/nowhere"}, "/nowhere/model.yaml: there is no such file; expected a released model or the exp"),
        (
            {"model__embedding_dim": 8},
            r"model\.yaml: model\.embedding_dim is 16 there and 8 here; they must be",
        ),
        ({"features__window": "povey"}, r"features\.window is 'hamming' there and 'povey' here; they must be the same"),
        ({"init_head": "keep", "data__speeds": [0.9]}, r"data\.speeds is \[0\.9\], and the head of .* was trained at"),
        (
            {"init_head": ORIGINAL},
            r"init_head=original_speakers keeps .* speed 1 alone, without a warp: set data\.speeds=\[1\.0\]",
        ),
    ],
)
def test_what_needs_no_data_is_refused_before_they_are_opened(base, tmp_path, changes, says):
    """Reading a large corpus takes minutes."""
    with pytest.raises(UserError, match=says):
        begin(tiny_config(tmp_path / "no data", tmp_path / "exp", **{"init_from": str(base), **changes}))


def test_an_unknown_init_head_is_refused_before_anything_is_opened(tmp_path):
    with pytest.raises(UserError, match="there is no such data directory"):
        begin(tiny_config(tmp_path / "no data", tmp_path / "exp"))
    with pytest.raises(UserError, match="init_head is 'old', expected one of new, keep, original_speakers"):
        begin(tiny_config(tmp_path / "no data", tmp_path / "exp", init_head="old"))


def test_the_configuration_of_the_run_is_needed_for_its_head(base, speech, tmp_path):
    origin = tmp_path / "base"
    shutil.copytree(base, origin)
    config = tiny_config(speech, tmp_path / "exp", init_from=str(origin), init_head="keep")
    for content in ("data: [", "data: 3", "[]", "data: {speeds: [fast]}"):
        (origin / "config.yaml").write_text(content)
        with pytest.raises(
            UserError, match=r"base/config\.yaml: is not the configuration of a run, .* or use init_head="
        ):
            begin(config)


def test_a_kept_head_counts_with_all_its_classes_where_memory_runs_out(base, speech, tmp_path, monkeypatch):
    config = tiny_config(speech, tmp_path / "exp", init_from=str(base), init_head="keep", data__speeds=[1.0])
    asked: list[int] = []

    def fit(config, micro_batch, num_classes, world, attempt, limit):
        asked.append(num_classes)
        return micro_batch

    monkeypatch.setattr(experiment_module, "gpu_memory_bytes", lambda device: 1)
    monkeypatch.setattr(experiment_module, "fit_micro_batch", fit)
    begin(config)
    assert asked == [len(head_of(base))] == [18]


def test_a_released_model_has_no_head(base, speech, tmp_path):
    config = tiny_config(speech, tmp_path / "exp", init_from=str(base / "model"), init_head="keep")
    with pytest.raises(UserError, match="init_head=keep needs the exp_dir of a run, whose state has the head; found a"):
        begin(config)


def test_a_run_must_be_averaged_first(finished, speech, tmp_path):
    with pytest.raises(UserError, match=r"model\.yaml: there is no such file; svt average makes it of the run"):
        begin(tiny_config(speech, tmp_path / "exp", init_from=str(finished)))


def test_a_run_without_states_has_no_head(base, speech, tmp_path):
    shutil.copytree(base, tmp_path / "base", ignore=shutil.ignore_patterns("state-*.pt"))
    config = tiny_config(speech, tmp_path / "exp", init_from=str(tmp_path / "base"), init_head="keep")
    with pytest.raises(UserError, match="holds no state of the run; use init_head=new"):
        begin(config)


def test_speakers_of_another_corpus_are_other_speakers(base, tmp_path):
    other = write_speech(tmp_path / "other", speakers=9)
    config = tiny_config(other, tmp_path / "exp", init_from=str(base), validation__speakers=3)
    assert len(begin(config).step.head.weight) == 18
    config.init_head = "keep"
    with pytest.raises(UserError, match="its head is of other training speakers"):
        begin(config)
