"""distillation.model=...: the embeddings of a larger network are learnt beside the classes."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from larger_network import larger, learning_from
from tiny_runs import assert_same_run, fail_after, read_records, tiny_config

from svtoolkit.config import DistillationConfig
from svtoolkit.errors import UserError
from svtoolkit.training.distillation import read_teacher
from svtoolkit.training.experiment import Experiment, train


def test_the_loss_of_a_step_is_that_of_the_classes_and_the_distance(speech, tmp_path):
    config = learning_from(larger(tmp_path / "larger"), speech, tmp_path / "exp", augment__spec_probability=1.0)
    experiment = Experiment(config)
    step, batch = experiment.step, next(experiment.batches())
    assert not any(parameter.requires_grad for parameter in step.teacher.network.parameters())
    heard = experiment.front_end.features_of(batch.waveforms)
    masked = step.spec_augment.apply(heard.clone(), batch.masks)
    assert not torch.equal(heard, masked)  # which the larger network does not see
    with torch.no_grad():
        targets = build_and_load(tmp_path / "larger")(heard)
    step.head.margin = 0.1
    buffers = [buffer.clone() for buffer in step.network.buffers()]
    embeddings = step.network(masked)
    distances = 1 - (F.normalize(embeddings) * F.normalize(targets)).sum(dim=1)
    expected = (step.head(embeddings, batch.labels).losses + 2.0 * distances).mean()
    wanted = torch.autograd.grad(expected, step.parameters)
    step._restore(buffers)
    from svtoolkit.training.meters import Meter

    meter = Meter()
    losses = step._add_gradient(batch, meter)
    torch.testing.assert_close(losses.mean(), expected.detach())
    assert meter.averages()["distance"] == pytest.approx(float(distances.detach().mean()), rel=1e-5)
    for parameter, gradient in zip(step.parameters, wanted, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-4 * float(gradient.abs().max()))


def build_and_load(folder: Path) -> torch.nn.Module:
    from svtoolkit.checkpoints.released import read_released

    return read_released(folder)[0]


def test_a_run_comes_nearer_and_is_resumed_bit_for_bit(speech, tmp_path, monkeypatch):
    model = larger(tmp_path / "larger", num_bins=40)  # with features of its own
    before = (model / "model.safetensors").read_bytes()
    whole = learning_from(model, speech, tmp_path / "whole", weight=5.0)
    assert train(whole) is None
    epochs = [record for record in read_records(tmp_path / "whole") if record["kind"] == "epoch"]
    assert epochs[1]["distance"] < epochs[0]["distance"]
    config = replace(whole, exp_dir=str(tmp_path / "exp"), trainer=replace(whole.trainer, micro_batch=8))
    with monkeypatch.context() as patch:
        fail_after(patch, 16)
        with pytest.raises(RuntimeError, match="the power is gone"):
            train(config)
    assert train(config) is None
    assert_same_run(tmp_path / "exp", tmp_path / "whole")
    assert (model / "model.safetensors").read_bytes() == before


@pytest.mark.parametrize(
    ("changes", "stored", "message"),
    [
        ({"embedding_dim": 12}, False, r"its embeddings have 12 values, and model.embedding_dim is 16; set model.emb"),
        ({"sample_rate": 8000}, False, r"hears 8000 Hz, and features.sample_rate is 16000; choose a larger network"),
        ({"num_bins": 40}, True, r"has other features than this run, which reads stored ones; train on audio"),
        ({"frame_length_ms": 900.0}, False, r"its features have no frame in a crop of data.crop_frames=40; lengthen"),
    ],
)
def test_refusals(changes, stored, message, speech, tmp_path):
    config = learning_from(larger(tmp_path / "larger", **changes), speech, tmp_path / "exp")
    with pytest.raises(UserError, match=message):
        read_teacher(config, torch.device("cpu"), samples=6640, stored=stored)


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan")])
def test_a_weight_that_is_none_is_refused(weight, speech, tmp_path):
    config = learning_from(larger(tmp_path / "larger"), speech, tmp_path / "exp", weight=weight)
    with pytest.raises(UserError, match=r"distillation.weight is .*, expected a"):
        Experiment(config)
    assert asdict(config)["distillation"]["model"].endswith("larger")


def test_settings_without_a_model_are_refused(speech, tmp_path):
    config = tiny_config(speech, tmp_path, distillation=DistillationConfig(weight=3.0))
    with pytest.raises(UserError, match=r"distillation.weight or distillation.front_end is given, and .*model is null"):
        train(config)
