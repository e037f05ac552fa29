"""Optimizers by the import path of their class: settings read from the signature, checked like ours."""

from __future__ import annotations

import pickle
import sys
from dataclasses import asdict, fields

import pytest
import torch
from omegaconf import OmegaConf
from torch import nn

from svtoolkit.config import MemoryPredictionConfig, OptimConfig, ResNetConfig
from svtoolkit.errors import UserError
from svtoolkit.optim import build_optimizer, settings_of

PLAIN = "ASGD Adadelta Adafactor Adagrad Adam AdamW Adamax NAdam RAdam RMSprop Rprop SGD".split()


def weight() -> nn.Parameter:
    return nn.Parameter(torch.tensor([[1.0, -2.0, 0.5]]))


def refusal(name: str, **settings: object) -> str:
    with pytest.raises(UserError) as caught:
        build_optimizer([weight()], name, **settings)
    return str(caught.value)


def test_keyword_arguments_arrive():
    optimizer = build_optimizer([weight()], "torch.optim.NAdam", lr=0.1, momentum_decay=0.02, betas=[0.8, 0.9])
    assert type(optimizer) is torch.optim.NAdam
    (group,) = optimizer.param_groups
    assert (group["lr"], group["momentum_decay"], group["betas"], group["weight_decay"]) == (0.1, 0.02, (0.8, 0.9), 0)


@pytest.mark.parametrize("name", PLAIN)
def test_every_plain_optimizer_of_torch_with_its_own_defaults(name):
    theirs, ours = weight(), weight()
    path = f"torch.optim.{name}"
    expected, found = getattr(torch.optim, name)([theirs]), build_optimizer([ours], **asdict(settings_of(path)()))
    assert type(found) is type(expected)
    groups = [{**optimizer.param_groups[0], "params": None} for optimizer in (expected, found)]
    assert groups[0] == groups[1]
    for optimizer, parameter in ((expected, theirs), (found, ours)):
        parameter.grad = torch.tensor([[0.1, 0.2, -0.3]])
        optimizer.step()
    assert torch.equal(theirs, ours)


def test_settings_are_a_dataclass_for_hydra():
    schema = settings_of("torch.optim.NAdam")
    assert issubclass(schema, OptimConfig)
    assert [item.name for item in fields(schema)][:3] == ["name", "lr", "weight_decay"]
    node = OmegaConf.structured(schema)
    assert (node.name, node.lr, node.betas) == ("torch.optim.NAdam", 0.002, [0.9, 0.999])
    node.betas = [0.5, 0.6]
    node.foreach = True
    assert OmegaConf.to_object(node) == schema(betas=[0.5, 0.6], foreach=True)
    with pytest.raises(Exception, match="momentum_decay"):
        node.momentum_decay = "much"
    assert settings_of("torch.optim.NAdam") is schema


@pytest.mark.parametrize("name", PLAIN)
def test_all_settings_of_torch_suit_hydra_and_pickle(name):
    settings = settings_of(f"torch.optim.{name}")(lr=0.5)
    assert OmegaConf.to_object(OmegaConf.structured(settings)) == settings
    assert pickle.loads(pickle.dumps(settings)) == settings


MINE = """
import torch

class Plain(torch.optim.SGD):
    def __init__(self, params, lr, power=2, flag=False, label="a", hook=None, **kwargs):
        super().__init__(params, lr)
        self.own = (power, flag, label, hook)

class WithoutRate(torch.optim.SGD):
    def __init__(self, params, rate=0.1):
        super().__init__(params, rate)

class NeedsMore(torch.optim.SGD):
    def __init__(self, params, lr: float, model):
        super().__init__(params, lr)
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    (tmp_path / "my_optim.py").write_text(MINE)
    monkeypatch.syspath_prepend(tmp_path)
    settings_of.cache_clear()
    yield
    sys.modules.pop("my_optim", None)
    settings_of.cache_clear()


def test_a_class_of_one_s_own(mine):
    optimizer = build_optimizer([weight()], "my_optim.Plain", lr=0.3, power=1.5, flag=True)
    assert optimizer.own == (1.5, True, "a", None)
    assert type(build_optimizer([weight()], "my_optim.Plain", lr=0.3).own[0]) is int
    assert {item.name for item in fields(settings_of("my_optim.Plain"))} == {
        "name", "lr", "weight_decay", "power", "flag", "label"
    }  # fmt: skip
    assert "has no weight decay, found 0.1" in refusal("my_optim.Plain", lr=0.3, weight_decay=0.1)
    assert "lr is not given" in refusal("my_optim.Plain")
    assert "has no lr" in refusal("my_optim.WithoutRate")
    assert "missing 1 required positional argument: 'model'" in refusal("my_optim.NeedsMore", lr=0.1)


def test_a_class_of_an_installed_package():
    """Its arguments have no annotations: types are those of the defaults, and whole numbers stay so."""
    lion = pytest.importorskip("bitsandbytes").optim.Lion8bit
    (group,) = build_optimizer([weight()], "bitsandbytes.optim.Lion8bit", lr=0.1, weight_decay=0.5).param_groups
    (expected,) = lion([weight()], lr=0.1, weight_decay=0.5).param_groups
    assert {**group, "params": None} == {**expected, "params": None}


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("torch.optim.NAdam", {"momentun_decay": 0.1}, ["has no option", "did you mean 'momentum_decay'?"]),
        ("torch.optim.NAdam", {"lr": "fast"}, ["lr is 'fast', expected a finite number"]),
        ("torch.optim.NAdam", {"betas": 0.9}, ["betas is 0.9, expected a list"]),
        ("torch.optim.NAdam", {"eps": -1.0}, ["Invalid epsilon value: -1.0"]),
        ("torch.optim.NAdamm", {}, ["has no 'NAdamm'", "did you mean 'NAdam'?"]),
        ("torch.optim.LBFGS", {}, ["needs a closure", "choose another optimizer"]),
        ("torch.optim.SparseAdam", {}, ["sparse gradients", "choose another optimizer"]),
        ("torch.optim.Optimizer", {}, ["is no optimizer", "choose another optimizer"]),
        ("torch.optim.lr_scheduler.StepLR", {}, ["is no optimizer"]),
        ("torch.nn.Linear", {}, ["is no optimizer"]),
        ("nowhere.Optim", {}, ["nowhere cannot be imported", "install the package"]),
        (".NAdam", {}, ["cannot be imported"]),
    ],
)
def test_what_is_no_plain_optimizer(name, settings, words):
    message = refusal(name, **settings)
    assert message.startswith(f"optim={name}")
    assert all(word in message for word in words), message


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="this torch has no Muon")
def test_what_refuses_the_parameters_says_why():
    with pytest.raises(UserError, match=r"optim=torch\.optim\.Muon: .*2D"):
        build_optimizer([nn.Parameter(torch.zeros(3, 3, 3))], "torch.optim.Muon", lr=0.1)


@pytest.mark.parametrize("name", ["NAdam", "Adafactor"])
def test_its_memory_is_predicted_where_its_update_depends_on_no_values(name):
    from svtoolkit.planning.memory_prediction import predict_memory

    config = MemoryPredictionConfig(
        frames=40, batch_size=2, num_classes=5, num_bins=16, device="cpu",
        model=ResNetConfig("resnet10", 8, 4), optim=settings_of(f"torch.optim.{name}")(),
    )  # fmt: skip
    if name == "NAdam":
        assert predict_memory(config, growth=False).whole.peak_bytes > 0
    else:
        with pytest.raises(UserError, match=r"optim=torch\.optim\.Adafactor cannot be predicted"):
            predict_memory(config)
