"""optim=muon: orthogonal updates of matrices, AdamW for the rest, state that resumes."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from tiny_runs import assert_same_run, fail_after, tiny_config
from torch import nn

from svtoolkit.config import (
    LossConfig,
    MemoryPredictionConfig,
    MemoryStrategyConfig,
    Muon8bitConfig,
    MuonConfig,
    ResNetConfig,
    TwoStageConfig,
)
from svtoolkit.device import choose_device
from svtoolkit.errors import UserError
from svtoolkit.optim import build_optimizer, exempt_from_decay, leave_to_adamw
from svtoolkit.optim.muon import Muon, is_matrix, orthogonalise
from svtoolkit.planning.assembly import build_trainable
from svtoolkit.planning.memory_prediction import predict_memory
from svtoolkit.planning.profiler import profiler_of
from svtoolkit.runs.full_state import load_latest_state
from svtoolkit.training.experiment import Experiment, train

MODEL = ResNetConfig(name="resnet10", embedding_dim=16, base_width=4)


def muon(parameters, **changes) -> Muon:
    return build_optimizer(parameters, **asdict(replace(MuonConfig(), **changes)))


def with_gradient(*shape, seed=0) -> nn.Parameter:
    generator = torch.Generator().manual_seed(seed)
    parameter = nn.Parameter(torch.randn(*shape, generator=generator))
    parameter.grad = torch.randn(*shape, generator=generator)
    return parameter


@pytest.mark.parametrize("shape", [(8, 8), (6, 20), (20, 6)])
def test_singular_values_are_near_1(shape):
    u, _, v = torch.linalg.svd(torch.randn(*shape, generator=torch.Generator().manual_seed(1)), full_matrices=False)
    matrix = u @ torch.diag(torch.logspace(-1.0, 0.5, min(shape))) @ v  # singular values from 0.1 to 3.2
    found = torch.linalg.svdvals(orthogonalise(matrix, 5))
    assert ((found > 0.65) & (found < 1.25)).all()
    rotated = u.T @ orthogonalise(matrix, 5) @ v.T  # the singular vectors stay
    assert torch.allclose(rotated, torch.diag(rotated.diagonal()), atol=1e-4)


def test_a_kernel_moves_by_an_orthogonal_matrix():
    kernel = with_gradient(6, 5, 3, 3)
    before = kernel.detach().clone()
    muon([kernel], lr=0.1, weight_decay=0.0).step()
    update = (before - kernel.detach()).flatten(1) / 0.1
    values = torch.linalg.svdvals(update)
    assert ((values > 0.65) & (values < 1.25)).all()


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch.optim has Muon since 2.9")
@pytest.mark.parametrize("scale", ["original", "match_rms_adamw"])
@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize("shape", [(12, 5), (5, 12)])
def test_matrices_go_where_torch_takes_them(shape, nesterov, scale, monkeypatch):
    """torch's steps are in bfloat16: with ours in bfloat16 as well, bit for bit."""
    monkeypatch.setattr("svtoolkit.optim.muon.precision_on", lambda device: torch.bfloat16)
    ours, theirs = (with_gradient(*shape, seed=3) for _ in range(2))
    settings = {"lr": 0.02, "weight_decay": 0.1, "momentum": 0.9, "nesterov": nesterov}
    optimizers = [
        muon([ours], **settings, adjust_lr_fn=scale),
        torch.optim.Muon([theirs], **settings, adjust_lr_fn=scale),
    ]
    for number in range(3):
        for parameter, optimizer in zip((ours, theirs), optimizers, strict=True):
            parameter.grad = with_gradient(*shape, seed=number).grad
            optimizer.step()
    assert ours.equal(theirs)
    assert not ours.equal(with_gradient(*shape, seed=3))


def test_in_float32_the_update_is_that_of_bfloat16_up_to_its_digits():
    matrix = torch.randn(10, 30, generator=torch.Generator().manual_seed(2))
    assert torch.allclose(orthogonalise(matrix, 5), orthogonalise(matrix.bfloat16(), 5).float(), atol=0.03)


def test_what_is_no_matrix_is_adamws():
    parameters = [
        with_gradient(*shape, seed=number)
        for number, shape in enumerate([(7,), (6, 1, 3, 3), (1, 9), (9, 1), (6, 4), (6, 4, 3)])
    ]
    assert [is_matrix(parameter) for parameter in parameters] == [False, False, False, False, True, True]
    others = [nn.Parameter(parameter.detach().clone()) for parameter in parameters[:4]]
    reference = torch.optim.AdamW(others, lr=0.003, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.01)
    optimizer = muon(parameters, lr=0.02, adamw_lr=0.003)
    for _ in range(2):
        for other, parameter in zip(others, parameters, strict=False):
            other.grad = parameter.grad.clone()
        optimizer.step()
        reference.step()
    for other, parameter in zip(others, parameters, strict=False):
        assert torch.allclose(parameter, other, rtol=0, atol=1e-7)


def test_the_schedule_sets_both_rates():
    vector, matrix = with_gradient(4), with_gradient(4, 4)
    before = [vector.detach().clone(), matrix.detach().clone()]
    optimizer = muon([vector, matrix], lr=0.02, adamw_lr=0.001, weight_decay=0.0)
    for group in optimizer.param_groups:
        group["lr"] = 0.01  # half of the peak
    optimizer.step()
    assert torch.allclose((before[0] - vector).abs(), torch.full((4,), 0.0005), rtol=1e-4)
    assert torch.linalg.svdvals((before[1] - matrix) / 0.01).max() < 1.25


def test_weight_decay_is_decoupled():
    vector, matrix = with_gradient(4), with_gradient(4, 4)
    before = [vector.detach().clone(), matrix.detach().clone()]
    optimizer = muon([vector, matrix], lr=0.1, adamw_lr=0.2, weight_decay=0.5)
    vector.grad.zero_()
    matrix.grad.zero_()
    optimizer.step()
    assert torch.allclose(vector, before[0] * (1 - 0.2 * 0.5))
    assert torch.allclose(matrix, before[1] * (1 - 0.1 * 0.5))


def test_first_kernel_and_head_are_adamws_and_the_memory_layout_changes_nothing():
    losses = []
    for channels_last in (False, True):
        torch.manual_seed(0)
        built = build_trainable(
            MODEL, MemoryStrategyConfig("store"), LossConfig(name="aam"), MuonConfig(),
            num_bins=24, num_classes=7, device=choose_device("cpu"), channels_last=channels_last,
        )  # fmt: skip
        matrices, others = built.optimizer.param_groups
        first = next(p for p in built.network.parameters() if p.ndim >= 2)
        ids = {id(parameter) for parameter in others["params"]}
        assert {id(first), *map(id, built.head.parameters())} <= ids
        assert matrices["params"]
        assert all(is_matrix(parameter) for parameter in matrices["params"])
        x, labels = torch.randn(4, 40, 24), torch.arange(4)
        for _ in range(3):
            built.optimizer.zero_grad()
            loss = built.head(built.network(x), labels).losses.mean()
            loss.backward()
            built.optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


def test_parameters_without_weight_decay_keep_their_kind():
    matrix, vector, other = with_gradient(4, 4), with_gradient(4), with_gradient(5, 5)
    optimizer = muon([matrix, vector, other], lr=0.1)
    leave_to_adamw(optimizer, [other])
    exempt_from_decay(optimizer, [other, matrix])
    found = [(group["is_matrices"], group["weight_decay"], group["params"]) for group in optimizer.param_groups]
    assert [each[:2] for each in found] == [(True, 0.0), (True, 0.01), (False, 0.0), (False, 0.01)]
    assert [list(map(id, each[2])) for each in found] == [[id(matrix)], [], [id(other)], [id(vector)]]


def test_it_learns():
    """Which of four random prototypes an image of noise is made of; the loss begins near ln 4."""
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    prototypes = torch.randn(4, 1, 6, 6, generator=generator)
    labels = torch.arange(64) % 4
    images = prototypes[labels] + 1.5 * torch.randn(64, 1, 6, 6, generator=generator)
    network = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 4)
    )
    optimizer = muon(list(network.parameters()), lr=0.02)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(network(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[0] > 1.2
    assert losses[-1] < 0.6


@pytest.mark.parametrize(("optim", "types"), [("muon", {torch.float32}), ("muon_8bit", {torch.float32, torch.uint8})])
def test_a_stopped_run_ends_the_same(speech, tmp_path, monkeypatch, optim, types):
    whole = tiny_config(speech, tmp_path / "whole", optim)
    assert train(whole) is None
    config = tiny_config(speech, tmp_path / "exp", optim)
    with monkeypatch.context() as patch:
        fail_after(patch, 8)
        with pytest.raises(RuntimeError, match="the power is gone"):
            train(config)
    assert train(config) is None
    assert_same_run(Path(config.exp_dir), Path(whole.exp_dir))
    state = load_latest_state(tmp_path / "exp" / "checkpoints")[1]["optimizer"]["state"]
    held = [value for each in state.values() for value in each.values()]
    assert {value.dtype for value in held if isinstance(value, torch.Tensor)} == types


def test_a_state_of_other_shapes_is_refused(speech, tmp_path):
    config = tiny_config(speech, tmp_path, "muon", trainer__epochs=1)
    assert train(config) is None
    state = load_latest_state(tmp_path / "checkpoints")[1]
    number = next(number for number, each in state["optimizer"]["state"].items() if "momentum_buffer" in each)
    state["optimizer"]["state"][number]["momentum_buffer"] = torch.zeros(2, 2)
    with pytest.raises(UserError, match="momentum_buffer of the optimizer has the shape"):
        Experiment(config, state=state).restore()


def test_it_is_carried_over_to_matrices_of_low_rank(speech, tmp_path):
    compress = TwoStageConfig("trace_norm", strength=0.05, layers=["embedding"], min_values=1, variance=0.6)
    config = tiny_config(speech, tmp_path, "muon", compress=compress, validation__speakers=0)
    assert train(config) is None
    state = load_latest_state(tmp_path / "checkpoints")[1]
    assert any("low_rank" in name for name in state["network"])
    experiment = Experiment(config, state=state)
    experiment.restore()
    for group in experiment.step.optimizer.param_groups:
        for parameter in group["params"]:
            kept = set(experiment.step.optimizer.state[parameter])
            assert kept == ({"momentum_buffer"} if group["is_matrices"] else {"step", "exp_avg", "exp_avg_sq"})


@pytest.mark.parametrize(
    ("model", "optim"), [(MODEL, MuonConfig()), (ResNetConfig(name="resnet10", embedding_dim=16), Muon8bitConfig())]
)
def test_its_state_is_predicted(model, optim):
    question = MemoryPredictionConfig(
        frames=40, batch_size=2, num_bins=24, num_classes=10, model=model, loss=LossConfig(name="aam"),
        optim=optim, device="cpu",
    )  # fmt: skip
    torch.manual_seed(0)
    built = build_trainable(
        model, question.memory, question.loss, optim,
        num_bins=24, num_classes=10, device=choose_device("cpu"), channels_last=True,
    )  # fmt: skip
    for group in built.optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = torch.ones_like(parameter)
    built.optimizer.step()
    held = [value for state in built.optimizer.state.values() for value in state.values()]
    size = sum(value.nbytes for value in held if isinstance(value, torch.Tensor))
    assert predict_memory(question, growth=False).whole.highest["optimizer_state"] == size
    with profiler_of(question) as profiler:
        found = profiler.profile_update(optim).state
        assert found == pytest.approx(size, rel=0.01)
        if optim.name == "muon_8bit":
            assert found < 0.4 * profiler.profile_update(MuonConfig()).state


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lr": 0.0}, r"expected learning rates above 0"),
        ({"adamw_lr": -1.0}, r"expected learning rates above 0"),
        ({"weight_decay": -0.1}, r"expected 0 or more"),
        ({"momentum": 1.0}, r"momentum=1.0"),
        ({"ns_steps": 0}, r"ns_steps=0, expected 1 to 99"),
        ({"adjust_lr_fn": "jordan"}, r"adjust_lr_fn='jordan', expected one of original, match_rms_adamw"),
        ({"beta1": 1.0}, r"Invalid beta"),
        ({"eps": -1.0}, r"Invalid epsilon"),
    ],
)
def test_settings_that_make_none(changes, message):
    with pytest.raises(UserError, match=message):
        muon([with_gradient(3, 3), with_gradient(3)], **changes)
