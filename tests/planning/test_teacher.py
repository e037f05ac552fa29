"""A larger network that is learnt from is part of what a step is predicted to take."""

from __future__ import annotations

import pickle
from dataclasses import replace
from itertools import accumulate

import pytest
import torch
from larger_network import larger
from tiny_runs import tiny_config
from torch import nn

from svtoolkit import composition
from svtoolkit.commands import plan as plan_command
from svtoolkit.config import DistillationConfig, MemoryPredictionConfig, MemoryStrategyConfig, ResNetConfig, SGDConfig
from svtoolkit.errors import UserError
from svtoolkit.losses import build_head
from svtoolkit.memory.ledger import MemoryLedger
from svtoolkit.memory.step_report import BACKWARD, FORWARD
from svtoolkit.models import build_model
from svtoolkit.planning import teacher as teacher_module
from svtoolkit.planning.cards import find_card
from svtoolkit.planning.memory_prediction import predict_memory
from svtoolkit.planning.profiler import profiler_of
from svtoolkit.planning.run_forecast import forecast_run
from svtoolkit.planning.stored_predictions import path_of, predict_or_recall
from svtoolkit.planning.training_plan import plan_training
from svtoolkit.planning.unpredictable import UnpredictableError
from svtoolkit.training.distillation import Teacher

FRAMES, BINS, CLASSES, BATCH = 40, 16, 20, 6
SIZES = {"num_bins": BINS, "embedding_dim": 16, "base_width": 4}


@pytest.fixture
def question(tmp_path) -> MemoryPredictionConfig:
    return MemoryPredictionConfig(
        frames=FRAMES, num_bins=BINS, num_classes=CLASSES, batch_size=BATCH, device="cpu", optim=SGDConfig(),
        memory=MemoryStrategyConfig("store"), model=ResNetConfig("resnet10", embedding_dim=16, base_width=4),
        distillation=DistillationConfig(model=str(larger(tmp_path / "larger"))),
    )  # fmt: skip


def peak_on_real_tensors() -> int:
    """Of forward and backward pass of a run that learns from a larger network."""
    network, head = (
        build_model("resnet10", **SIZES),
        build_head(embedding_dim=16, num_classes=CLASSES, name="aam", margin=0.2, scale=32.0),
    )
    big = build_model("resnet10", num_bins=24, embedding_dim=16, base_width=8)
    teacher = Teacher(big, None, 1.0, torch.device("cpu"), "fp32")
    features, labels = torch.randn(BATCH, FRAMES, BINS), torch.zeros(BATCH, dtype=torch.int64)

    def forward():
        targets = teacher.embed(features, torch.zeros(BATCH, FRAMES, 24))
        embeddings = network.train()(features)
        losses = head(embeddings, labels).losses + teacher.distances(embeddings, targets)
        return losses.sum() / len(losses)

    with MemoryLedger() as ledger:
        ledger.count([features, labels, *(t for m in (network, head, big) for t in (*m.parameters(), *m.buffers()))])
        present, begin = sum(ledger.live().values()), len(ledger.changes)
        forward().backward()
    return present + max(accumulate(change.difference for change in ledger.changes[begin:]))


def test_a_prediction_is_what_real_tensors_take(question):
    predicted = predict_memory(question, growth=False).whole
    peaks, state = predicted.phase_peaks, predicted.highest["optimizer_state"]
    assert max(peaks[FORWARD], peaks[BACKWARD]) - state == pytest.approx(peak_on_real_tensors(), rel=0.005)


def test_its_weights_stay_and_its_pass_comes_first(question):
    alone = predict_memory(replace(question, distillation=DistillationConfig()), growth=False).whole
    both = predict_memory(question, growth=False).whole
    big = build_model("resnet10", num_bins=24, embedding_dim=16, base_width=8)
    assert both.highest["weights"] - alone.highest["weights"] == sum(p.nbytes for p in big.parameters())
    assert both.highest["gradients"] == alone.highest["gradients"]
    assert both.highest["optimizer_state"] == alone.highest["optimizer_state"]


@pytest.mark.parametrize(("memory", "precision"), [("store", "fp32"), ("checkpoint", "bf16")])
def test_the_profile_of_any_batch_is_its_prediction(question, memory, precision):
    asked = replace(question, memory=MemoryStrategyConfig(memory), precision=precision)
    with profiler_of(asked) as profiler:
        profile = profiler.profile_step(asked.memory, precision)
        state = profiler.profile_update(asked.optim).state
        buffers = sum(buffer.nbytes for buffer in profiler.network.buffers())  # copied by a step, not in a prediction
    for batch in (1, 30):
        peaks = predict_memory(replace(asked, batch_size=batch), growth=False).whole.phase_peaks
        waveforms = 4 * 160 * FRAMES * batch
        assert profile.peak_bytes(batch) + state == max(peaks[FORWARD], peaks[BACKWARD]) + waveforms + buffers


def test_a_plan_has_room_and_time_for_it(question):
    card = find_card("2080ti")
    settings = {"optims": [SGDConfig()], "memories": [MemoryStrategyConfig("store")], "precisions": ("fp32",)}
    with_it = plan_training(question, card, 8, **settings).ways[0]
    without = plan_training(replace(question, distillation=DistillationConfig()), card, 8, **settings).ways[0]
    assert with_it.peak["weights"] > without.peak["weights"]
    assert with_it.seconds > 1.2 * without.seconds, "its pass alone has twice the arithmetic of ours"


def test_a_forecast_has_its_arithmetic_and_not_its_weights_on_disk(question, tmp_path):
    config = tiny_config(tmp_path, tmp_path)
    alone = forecast_run(config, steps=10, batch_size=4, num_classes=CLASSES)
    config.distillation = question.distillation
    config.model.embedding_dim = 16
    both = forecast_run(config, steps=10, batch_size=4, num_classes=CLASSES)
    assert both.operations > 1.2 * alone.operations
    assert both.disk_bytes == alone.disk_bytes
    assert both.peak_bytes(None) > alone.peak_bytes(None)


def test_the_command_of_a_plan_has_its_words(question, capsys):
    model = question.distillation.model
    words = ["model=resnet10", "model.embedding_dim=16", f"distillation.model={model}", "optims=[sgd]", "gpu=2080ti",
             "frames=40", "num_classes=20", "top=1"]  # fmt: skip
    plan_command.run(composition.load("plan", words), "svt plan")
    assert f"distillation.model={model} and one line:" in capsys.readouterr().out
    with pytest.raises(UserError, match=r"^model=all answers from figures stored without a larger network; leave"):
        plan_command.run(composition.load("plan", ["model=all", f"distillation.model={model}"]), "svt plan")


def test_a_folder_that_became_another_network_is_predicted_anew(question, tmp_path, monkeypatch):
    monkeypatch.setenv("SVT_CACHE", str(tmp_path / "cache"))
    before, path = predict_or_recall(question), path_of("memory", question)
    assert path_of("memory", question) == path
    larger(tmp_path / "larger", num_bins=40)
    assert path_of("memory", question) != path
    assert predict_or_recall(question).whole.phase_peaks[FORWARD] >= before.whole.phase_peaks[FORWARD]


def test_embeddings_of_another_size_and_no_model_are_a_sentence(question, tmp_path):
    question.distillation.model = str(larger(tmp_path / "wide", embedding_dim=24))
    with pytest.raises(UserError, match=r"its embeddings have 24 values, and model.embedding_dim is 16; set"):
        predict_memory(question)
    question.distillation.model = str(tmp_path / "missing")
    with pytest.raises(UserError, match="missing"):
        predict_memory(question)


def test_a_network_that_looks_at_values_cannot_be_predicted(question, monkeypatch):
    class Looks(nn.Module):
        def forward(self, features):
            return features[:, 0, :16] * features.sum().item()

    monkeypatch.setattr(teacher_module, "build_model", lambda **sizes: Looks())
    with pytest.raises(UnpredictableError, match="takes no tensors without values") as error:
        predict_memory(question)
    assert error.value.what == f"distillation.model={question.distillation.model}"
    again = pickle.loads(pickle.dumps(error.value))  # as from a process that predicts
    assert (str(again), again.what) == (str(error.value), error.value.what)
