"""pairwise=angular_prototypical: crops of a class that come together, beside the loss of the classes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tiny_runs import assert_same_run, fail_after, read_records, read_run, tiny_config

from svtoolkit import composition
from svtoolkit.config import AngularPrototypicalConfig, TwoStageConfig
from svtoolkit.crops.batch_size import choose_batch_size
from svtoolkit.distributed.world import ALONE
from svtoolkit.errors import UserError
from svtoolkit.training import fitting
from svtoolkit.training.experiment import Experiment, train
from svtoolkit.training.meters import Meter
from svtoolkit.training.run_state import check_state, collect_state, restore_state


def comparing(speech, exp_dir, *, weight=1.5, crops=2, **changes):
    pairwise = AngularPrototypicalConfig("angular_prototypical", weight=weight, crops=crops)
    return tiny_config(speech, exp_dir, pairwise=pairwise, validation__speakers=0, **changes)


def test_the_gradient_is_that_of_both_terms(speech, tmp_path):
    experiment = Experiment(comparing(speech, tmp_path))
    step, batch = experiment.step, next(experiment.batches())
    classes = batch.labels.reshape(4, 2)
    assert torch.equal(classes[:, 0], classes[:, 1])
    assert len(set(classes[:, 0].tolist())) == 4
    step.head.margin = 0.1
    features = step.spec_augment.apply(experiment.front_end.features_of(batch.waveforms), batch.masks)
    buffers = [buffer.clone() for buffer in step.network.buffers()]
    embeddings = step.network(features)
    cosines = F.cosine_similarity(embeddings[1::2].unsqueeze(1), embeddings[::2].unsqueeze(0), dim=2)
    compared = -(10.0 * cosines).log_softmax(dim=1).diagonal()
    expected = step.head(embeddings, batch.labels).losses.mean() + 1.5 * compared.mean()
    wanted = torch.autograd.grad(expected, [*step.network.parameters(), *step.head.parameters()])
    step._restore(buffers)
    meter = Meter()
    losses = step._add_gradient(batch, meter)
    torch.testing.assert_close(losses.mean(), expected.detach())
    for parameter, gradient in zip([*step.network.parameters(), *step.head.parameters()], wanted, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-3, atol=1e-5)
    slope = 1.5 * (torch.softmax(10.0 * cosines, dim=1) * cosines).sum(dim=1).sub(cosines.diagonal()).mean()
    torch.testing.assert_close(step.pairwise.scale.grad, slope.detach(), rtol=1e-3, atol=1e-6)
    assert meter.averages()["pairwise"] == pytest.approx(float(compared.detach().mean()), rel=1e-4)
    is_closest = cosines.argmax(dim=1) == torch.arange(4)
    assert meter.averages()["pairwise_accuracy"] == pytest.approx(float(is_closest.double().mean()))
    assert meter.averages()["loss"] < float(expected.detach()), "of the classes alone"


def test_crops_are_compared_within_their_micro_batch(speech, tmp_path):
    experiment = Experiment(comparing(speech, tmp_path, trainer__micro_batch=4))
    step, batches = experiment.step, experiment.batches()
    parts = [next(batches), next(batches)]
    step.network.eval()  # BatchNorm sees micro-batches, too
    expected = []
    for part in parts:
        embeddings = step.network(step.spec_augment.apply(experiment.front_end(part.waveforms), part.masks))
        expected.append(step.pairwise(embeddings, part.labels).losses.detach())
    result = step(iter(parts))
    assert result.meter.tuples == 4
    assert result.meter.pairwise == pytest.approx(float(torch.cat(expected).sum()) / 2, rel=1e-5)


def test_tuples_do_not_depend_on_workers_or_stops(speech, tmp_path):
    def batches_of(start_step=0, **changes):
        experiment = Experiment(comparing(speech, tmp_path, crops=4, **changes))
        experiment.loop.finished_steps = start_step
        return list(experiment.batches())

    alone = batches_of()
    for ours, theirs in [
        *zip(alone, batches_of(data__num_workers=2), strict=True),
        *zip(alone[5:], batches_of(5), strict=True),
    ]:
        assert torch.equal(ours.waveforms, theirs.waveforms)
        assert torch.equal(ours.entries, theirs.entries)
    seen = torch.cat([batch.entries for batch in alone[: len(alone) // 2]]).tolist()
    assert len(set(seen)) == len(seen)


@pytest.mark.parametrize("optim", ["sgd", "adamw_8bit"])
def test_a_run_is_resumed_bit_for_bit_and_tells_of_the_term(speech, tmp_path, monkeypatch, caplog, optim):
    caplog.set_level("INFO")
    changes = {"optim": optim, "trainer__epochs": 1, "data__speeds": [1.0]}
    assert train(comparing(speech, tmp_path / "whole", **changes)) is None
    config = comparing(speech, tmp_path / "exp", **changes)
    with monkeypatch.context() as patch:
        fail_after(patch, 4)
        with pytest.raises(RuntimeError, match="the power is gone"):
            train(config)
    assert train(config) is None
    assert_same_run(tmp_path / "exp", tmp_path / "whole")
    records = read_records(tmp_path / "exp")
    assert all(record["pairwise"] > 0 and 0 <= record["pairwise_accuracy"] <= 1 for record in records)
    assert ", pairwise " in caplog.text
    state = read_run(tmp_path / "exp")["state"]
    assert state["pairwise"]["scale"] != 10.0
    decays = [group["weight_decay"] for group in state["optimizer"]["param_groups"]]
    assert decays == [0.0, config.optim.weight_decay]
    assert len(state["optimizer"]["param_groups"][0]["params"]) == 1


def test_a_run_in_two_stages_takes_the_scale_along(speech, tmp_path, monkeypatch):
    compress = TwoStageConfig(name="trace_norm", strength=0.05, layers=["embedding"], min_values=1, variance=0.6)
    changes = {"compress": compress, "data__speeds": [1.0], "trainer__micro_batch": 4}
    assert train(comparing(speech, tmp_path / "whole", **changes)) is None
    config = comparing(speech, tmp_path / "exp", **changes)
    with monkeypatch.context() as patch:
        fail_after(patch, 7)  # of eight steps, four in each stage
        with pytest.raises(RuntimeError, match="the power is gone"):
            train(config)
    assert train(config) is None
    assert_same_run(tmp_path / "exp", tmp_path / "whole")
    first, second = (record["pairwise"] for record in read_records(tmp_path / "exp") if record["kind"] == "epoch")
    assert second != first


def test_a_state_with_another_term_is_refused(speech, tmp_path):
    with_term, without = Experiment(comparing(speech, tmp_path)), Experiment(tiny_config(speech, tmp_path))
    for here, there in ((with_term, without), (without, with_term)):
        state = collect_state(there.step, {})
        with pytest.raises(UserError, match=r"the saved state does not fit this run: .*scale.*; use another exp_dir"):
            restore_state({**collect_state(here.step, {}), "pairwise": state["pairwise"]}, here.step, {})


def test_a_state_of_before_there_was_the_term(speech, tmp_path):
    step = Experiment(tiny_config(speech, tmp_path)).step
    facts = {"finished_steps": 1, "seconds": 1.0, "nonfinite_steps": 0, "fingerprint": "a", "micro_batch": 8}
    state = collect_state(step, {}, **facts)
    del state["pairwise"]
    check_state(state)
    assert restore_state(state, step, {}) == facts


def test_it_is_chosen_by_a_word():
    config = composition.load(
        "train", ["pairwise=angular_prototypical", "pairwise.weight=0.5", "data.train=a", "exp_dir=b"]
    )
    assert config.pairwise == AngularPrototypicalConfig("angular_prototypical", weight=0.5)


def test_the_batch_of_a_small_corpus_holds_tuples(speech, tmp_path):
    trainer = tiny_config(speech, tmp_path, trainer__batch_size=None).trainer
    assert choose_batch_size(trainer, 70, 1, 3) == 24
    assert choose_batch_size(trainer, 70) == 32


def test_half_of_a_micro_batch_is_tried_where_it_holds_tuples(speech, tmp_path, monkeypatch):
    monkeypatch.setattr(fitting, "suggestions", lambda *given: [])

    def attempt(crops):
        tried.append(crops)
        raise torch.OutOfMemoryError

    for crops, expected in ((2, [8, 4]), (4, [8])):
        tried: list[int] = []
        config = comparing(speech, tmp_path, crops=crops)
        with pytest.raises(UserError, match=r"fit into the 0\.0 GiB of the GPU"):
            fitting.fit_micro_batch(config, 8, 9, ALONE, attempt, 1)
        assert tried == expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"crops": 1}, r"pairwise\.crops is 1, expected 2 or more of a class"),
        (
            {"crops": 3},
            r"micro_batch is 8 .*, and pairwise\.crops is 3: .*multiple of 3 from 6 on, or pairwise=none",
        ),
        ({"trainer__micro_batch": 2}, r"trainer\.micro_batch is 2 .*, and pairwise\.crops is 2: "),
        (
            {"crops": 16, "trainer__batch_size": 32},
            r"crops is 16, and no training speaker has more than \d+ utt",
        ),
        ({"weight": -1.0}, r"pairwise\.weight is -1\.0, expected a number above 0"),
        ({"data__shuffle_shards": 2}, r"pairwise=angular_prototypical brings .* data\.shuffle_shards=2 those of few"),
    ],
)
def test_what_cannot_be_compared_is_refused(changes, message, speech, tmp_path):
    with pytest.raises(UserError, match=message):
        train(comparing(speech, tmp_path / "exp", **changes))
    assert not (tmp_path / "exp" / "checkpoints").exists()


def test_crops_drawn_in_the_place_of_bad_ones_are_not_compared(speech, tmp_path):
    experiment = Experiment(comparing(speech, tmp_path))
    batch = next(experiment.batches())
    labels = batch.labels.clone()
    labels[3] = (labels[3] + 1) % experiment.step.head.num_classes
    result = experiment.step(iter([batch._replace(labels=labels)]))
    assert result.meter.tuples == 3
    assert np.isfinite(result.meter.pairwise)
    assert replace(result.meter).averages()["pairwise"] > 0
