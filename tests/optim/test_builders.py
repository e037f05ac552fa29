"""Optimizers by name: settings arrive in torch's optimizer, and an update is the published one."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from svtoolkit.config import AdamW8bitConfig, AdamWConfig, SGD8bitConfig, SGDConfig
from svtoolkit.errors import UserError
from svtoolkit.optim import build_optimizer
from svtoolkit.optim.eight_bit import AdamW8bit, SGD8bit

torch.set_num_threads(1)

SGD = {"lr": 0.3, "weight_decay": 1e-3, "momentum": 0.8, "nesterov": True}
ADAMW = {"lr": 0.02, "weight_decay": 0.07, "beta1": 0.7, "beta2": 0.95, "eps": 1e-6}
EIGHT_BIT = {"block_size": 32, "min_8bit_size": 3, "backend": "torch"}


def parameter() -> nn.Parameter:
    return nn.Parameter(torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64))


def run(optimizer: torch.optim.Optimizer, weight: nn.Parameter, gradients: list[torch.Tensor]) -> torch.Tensor:
    for gradient in gradients:
        weight.grad = gradient.clone()
        optimizer.step()
    return weight.detach()


GRADIENTS = [torch.tensor(row, dtype=torch.float64) for row in ([0.1, 0.2, -0.3], [0.5, -0.1, 0.0], [1.0, 1.0, 2.0])]


def test_sgd_settings_arrive():
    optimizer = build_optimizer([parameter()], "sgd", **SGD)
    assert type(optimizer) is torch.optim.SGD
    (group,) = optimizer.param_groups
    assert {key: group[key] for key in SGD} == SGD
    assert group["dampening"] == 0


def test_adamw_settings_arrive():
    optimizer = build_optimizer([parameter()], "adamw", **ADAMW)
    assert type(optimizer) is torch.optim.AdamW
    (group,) = optimizer.param_groups
    assert group["betas"] == (0.7, 0.95)
    assert {key: group[key] for key in ("lr", "weight_decay", "eps")} == {"lr": 0.02, "weight_decay": 0.07, "eps": 1e-6}


def test_8_bit_settings_arrive():
    sgd = build_optimizer([parameter()], "sgd_8bit", **SGD, **EIGHT_BIT)
    adamw = build_optimizer([parameter()], "adamw_8bit", **ADAMW, **EIGHT_BIT)
    assert (type(sgd), type(adamw)) == (SGD8bit, AdamW8bit)
    sizes = {"block_size": 32, "min_8bit_size": 3}
    assert {key: sgd.param_groups[0][key] for key in (*SGD, *sizes)} == SGD | sizes
    expected = {"lr": 0.02, "weight_decay": 0.07, "betas": (0.7, 0.95), "eps": 1e-6} | sizes
    assert {key: adamw.param_groups[0][key] for key in expected} == expected


@pytest.mark.parametrize("config", [SGDConfig(), AdamWConfig(), SGD8bitConfig(), AdamW8bitConfig()])
def test_the_schema_of_the_configuration_fits(config):
    optimizer = build_optimizer([parameter()], **vars(config))
    assert optimizer.param_groups[0]["lr"] == config.lr
    assert optimizer.param_groups[0]["weight_decay"] == config.weight_decay


@pytest.mark.parametrize("nesterov", [True, False])
def test_an_update_of_sgd_by_hand(nesterov):
    """Sutskever et al. (ICML 2013) as torch writes it: the first gradient fills the buffer, L2 joins the gradient."""
    weight = parameter()
    found = run(build_optimizer([weight], "sgd", **{**SGD, "nesterov": nesterov}), weight, GRADIENTS)
    expected, buffer = parameter().detach(), torch.zeros(3, dtype=torch.float64)
    for gradient in GRADIENTS:
        whole = gradient + 1e-3 * expected
        buffer = 0.8 * buffer + whole
        expected = expected - 0.3 * (whole + 0.8 * buffer if nesterov else buffer)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)


def test_an_update_of_adamw_by_hand():
    """Loshchilov & Hutter (ICLR 2019), algorithm 2: the decay does not pass through the moments."""
    weight = parameter()
    found = run(build_optimizer([weight], "adamw", **ADAMW), weight, GRADIENTS)
    expected = parameter().detach()
    first, second = torch.zeros(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
    for step, gradient in enumerate(GRADIENTS, start=1):
        first = 0.7 * first + 0.3 * gradient
        second = 0.95 * second + 0.05 * gradient**2
        adapted = (first / (1 - 0.7**step)) / ((second / (1 - 0.95**step)).sqrt() + 1e-6)
        expected = expected - 0.02 * (adapted + 0.07 * expected)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)


def test_all_parameters_are_in_one_group():
    network = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    (group,) = build_optimizer(network.parameters(), "sgd", **SGD).param_groups
    assert [id(entry) for entry in group["params"]] == [id(entry) for entry in network.parameters()]


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        (
            "adam",
            SGD,
            "there is no optimizer 'adam'; did you mean 'adamw'? (all: sgd, adamw, muon, sgd_8bit, adamw_8bit, "
            "muon_8bit)",
        ),
        ("sgd", {**SGD, "momentum": 0.0}, "optim=sgd: Nesterov momentum requires a momentum"),
        ("sgd", {**SGD, "momentum": 0.0}, "see docs/settings.md"),
        ("sgd", {**SGD, "lr": -0.1}, "optim=sgd: Invalid learning rate: -0.1"),
        ("sgd", {**SGD, "weight_decay": -1.0}, "optim=sgd: Invalid weight_decay value: -1.0"),
        ("sgd", {**SGD, "lr": math.nan}, "optim=sgd: lr is nan, expected a finite number"),
        ("sgd", {**SGD, "weight_decay": math.inf}, "optim=sgd: weight_decay is inf, expected a finite number"),
        ("sgd", {**SGD, "lr": "fast"}, "optim=sgd: lr is 'fast', expected a finite number"),
        (
            "sgd",
            {**SGD, "beta1": 0.9},
            "optim=sgd has no option 'beta1'; valid are lr, weight_decay, ",
        ),
        ("adamw", {**ADAMW, "beta1": 1.5}, "optim=adamw: Invalid beta parameter at index 0: 1.5"),
        ("adamw", {**ADAMW, "eps": -1.0}, "see docs/settings.md"),
        (
            "sgd_8bit",
            SGD,
            "optim=sgd_8bit: block_size is not given",
        ),
        ("sgd_8bit", SGD | EIGHT_BIT | {"block_size": 0}, "optim=sgd_8bit: Invalid block_size value: 0, expected 1 to"),
        ("sgd_8bit", SGD | EIGHT_BIT | {"momentum": -1}, "Invalid momentum value: -1; see docs/settings.md"),
        ("adamw_8bit", ADAMW | EIGHT_BIT | {"min_8bit_size": -1}, "optim=adamw_8bit: Invalid min_8bit_size value: -1"),
        ("adamw_8bit", ADAMW | EIGHT_BIT | {"lr": -0.1}, "optim=adamw_8bit: Invalid learning rate: -0.1"),
        ("adamw_8bit", ADAMW | EIGHT_BIT | {"backend": "cuda"}, "backend is 'cuda', expected one of auto, torch, bits"),
        ("sgd", SGD | EIGHT_BIT, "optim=sgd has no option 'block_size'"),
        ("adamw", {"lr": 0.1}, "optim=adamw: weight_decay is not given"),
    ],
)
def test_what_makes_no_optimizer(name, settings, message):
    with pytest.raises(UserError) as caught:
        build_optimizer([parameter()], name, **settings)
    assert message in str(caught.value)


def test_no_parameters_make_no_optimizer():
    with pytest.raises(UserError, match="optim=sgd: optimizer got an empty parameter list"):
        build_optimizer([], "sgd", **SGD)
    with pytest.raises(UserError, match="optim=sgd_8bit: optimizer got an empty parameter list"):
        build_optimizer([], "sgd_8bit", **SGD, **EIGHT_BIT | {"backend": "auto"})
