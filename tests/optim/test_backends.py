"""Which backend computes an 8-bit optimizer: the choice, its reason in the log, and what bitsandbytes cannot do."""

from __future__ import annotations

import logging
from importlib import metadata
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from svtoolkit.errors import UserError
from svtoolkit.optim import backends, build_optimizer
from svtoolkit.optim.eight_bit import AdamW8bit, SGD8bit

torch.set_num_threads(1)

SIZES = {"block_size": 256, "min_8bit_size": 4096}
SETTINGS: dict[str, dict[str, Any]] = {
    "sgd_8bit": {"lr": 0.1, "weight_decay": 1e-3, "momentum": 0.9, "nesterov": False, **SIZES},
    "adamw_8bit": {"lr": 0.01, "weight_decay": 0.1, "beta1": 0.8, "beta2": 0.95, "eps": 1e-7, **SIZES},
}
CLASSES = {"sgd_8bit": SGD8bit, "adamw_8bit": AdamW8bit}
NAMES = pytest.mark.parametrize("name", SETTINGS)


def make_parameters(dtype: torch.dtype = torch.float32) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(shape, generator=generator).to(dtype)) for shape in ((64, 80), (80,))]


def build(name: str, backend: str, parameters: list[nn.Parameter] | None = None, **changes: Any):
    settings = {**SETTINGS[name], "backend": backend, **changes}
    return build_optimizer(make_parameters() if parameters is None else parameters, name, **settings)


def step(optimizer: torch.optim.Optimizer, parameters: list[nn.Parameter], seeds: range) -> None:
    for seed in seeds:
        generator = torch.Generator().manual_seed(seed)
        for parameter in parameters:
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        optimizer.step()


def without_bitsandbytes(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(package: str) -> str:
        raise metadata.PackageNotFoundError(package)

    monkeypatch.setattr(metadata, "version", version)


@pytest.fixture
def bitsandbytes():
    return pytest.importorskip("bitsandbytes")


@NAMES
def test_both_backends_make_the_same_steps(name, bitsandbytes):
    """The first step is all but the same; then moments are rounded, not quite alike (see test_dynamic_map)."""
    ours, theirs = make_parameters(), make_parameters()
    by_torch, by_bitsandbytes = build(name, "torch", ours), build(name, "bitsandbytes", theirs)
    assert type(by_torch) is CLASSES[name]
    assert isinstance(by_bitsandbytes, getattr(bitsandbytes.optim, CLASSES[name].__name__))
    step(by_torch, ours, range(1))
    step(by_bitsandbytes, theirs, range(1))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
    step(by_torch, ours, range(1, 5))
    step(by_bitsandbytes, theirs, range(1, 5))
    for one, other, begin in zip(ours, theirs, make_parameters(), strict=True):
        assert (one - other).norm() < 0.01 * (one - begin).norm()


@NAMES
def test_all_settings_reach_bitsandbytes(name, bitsandbytes):
    parameters = make_parameters()
    optimizer = build(name, "bitsandbytes", parameters, min_8bit_size=50)
    (group,) = optimizer.param_groups
    given = SETTINGS[name]
    assert group["lr"] == given["lr"]
    assert group["weight_decay"] == given["weight_decay"]
    assert group["betas"] == ((0.9, 0) if name == "sgd_8bit" else (0.8, 0.95))
    assert name == "sgd_8bit" or group["eps"] == 1e-7
    step(optimizer, parameters, range(1))
    assert all(optimizer.state[parameter]["state1"].dtype == torch.uint8 for parameter in parameters)


@NAMES
@pytest.mark.parametrize("backend", ["torch", "bitsandbytes"])
def test_the_choice_is_logged_once_with_its_reason(name, backend, bitsandbytes, caplog):
    with caplog.at_level(logging.INFO, "svtoolkit"):
        parameters = make_parameters()
        step(build(name, backend, parameters), parameters, range(2))
    assert caplog.messages == [f"{name}: 8-bit state by {backend} (optim.backend is {backend})"]


def test_a_prediction_on_fake_tensors_announces_no_choice(caplog):
    """Its parameters are on no device of the run; `svt train --dry-run` makes two before the one that is measured."""
    with caplog.at_level(logging.INFO, "svtoolkit"), FakeTensorMode():
        build("sgd_8bit", "auto", [nn.Parameter(torch.empty(64, 80))])
    assert caplog.messages == []


def chosen(caplog: pytest.LogCaptureFixture, name: str, **changes: Any) -> str:
    """The log of backend=auto with parameters on CUDA, as far as a machine without it can tell."""

    class OnCuda(nn.Parameter):
        device = SimpleNamespace(type="cuda")  # type: ignore[assignment]

    parameters = [OnCuda(parameter.data) for parameter in make_parameters(changes.pop("dtype", torch.float32))]
    with caplog.at_level(logging.INFO, "svtoolkit"):
        build(name, "auto", parameters, **changes)
    (message,) = caplog.messages
    return message


@NAMES
def test_auto_takes_torch_on_the_cpu(name, caplog):
    with caplog.at_level(logging.INFO, "svtoolkit"):
        assert type(build(name, "auto")) is CLASSES[name]
    reason = "optim.backend is auto, and the parameters are on cpu, not on cuda"
    assert caplog.messages == [f"{name}: 8-bit state by torch ({reason})"]


@NAMES
def test_auto_takes_bitsandbytes_on_cuda(name, bitsandbytes, monkeypatch, caplog):
    monkeypatch.setattr(bitsandbytes.cextension, "lib", SimpleNamespace(compiled_with_cuda=True))
    assert chosen(caplog, name) == (
        f"{name}: 8-bit state by bitsandbytes (optim.backend is auto, and bitsandbytes honours all settings)"
    )


OBSTACLES = [
    ("sgd_8bit", {"block_size": 2048}, "its blocks are of 256 values and optim.block_size is 2048", "set it to 256"),
    ("adamw_8bit", {"block_size": 64}, "its blocks are of 256 values and optim.block_size is 64", "set it to 256"),
    ("sgd_8bit", {"nesterov": True}, "it ignores Nesterov momentum and optim.nesterov is true", "set optim.nesterov=f"),
    ("sgd_8bit", {"momentum": 0.0}, "it has no SGD without momentum and optim.momentum is 0", "set optim.momentum abo"),
    ("adamw_8bit", {"dtype": torch.float64}, "it takes parameters of 32 or 16 bits alone", "convert them"),
]


@pytest.mark.parametrize(("name", "changes", "obstacle", "remedy"), OBSTACLES)
def test_what_bitsandbytes_cannot_do(name, changes, obstacle, remedy, bitsandbytes, monkeypatch, caplog):
    settings = dict(changes)
    parameters = make_parameters(settings.pop("dtype", torch.float32))
    with pytest.raises(UserError) as caught:
        build(name, "bitsandbytes", parameters, **settings)
    message = str(caught.value)
    assert message.startswith(f"optim={name}: optim.backend is bitsandbytes, but {obstacle}; {remedy}")
    assert message.endswith(", or set optim.backend=torch")
    monkeypatch.setattr(bitsandbytes.cextension, "lib", SimpleNamespace(compiled_with_cuda=True))
    assert chosen(caplog, name, **changes) == (f"{name}: 8-bit state by torch (optim.backend is auto, and {obstacle})")


SHAPE = (8, 64, 3, 3)


def channels_last(seed: int) -> torch.Tensor:
    values = torch.randn(SHAPE, generator=torch.Generator().manual_seed(seed))
    return values.to(memory_format=torch.channels_last)


@NAMES
@pytest.mark.parametrize("smallest", [4096, 5000], ids=["8 bits", "32 bits"])
@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format], ids=["same", "other gradient"])
def test_weights_in_channels_last_are_stepped_in_the_order_of_their_memory(name, smallest, layout, bitsandbytes):
    """As a contiguous weight of that order is, bit for bit, and they stay where and as they are."""
    ours = nn.Parameter(channels_last(0))
    theirs = nn.Parameter(ours.detach().permute(0, 2, 3, 1).contiguous())
    built = [build(name, "bitsandbytes", [parameter], min_8bit_size=smallest) for parameter in (ours, theirs)]
    place, strides = ours.data_ptr(), ours.stride()
    for seed in range(1, 5):
        gradient = channels_last(seed)
        ours.grad = gradient.to(memory_format=layout)
        theirs.grad = gradient.permute(0, 2, 3, 1).contiguous()
        for optimizer in built:
            optimizer.step()
        assert torch.equal(ours.permute(0, 2, 3, 1), theirs)
    assert (ours.data_ptr(), ours.stride()) == (place, strides)
    assert torch.equal(ours.grad, gradient)
    assert list(built[0].state) == [ours]
    assert built[0].state[ours]["step"] == 4
    assert built[0].state[ours]["state1"].dtype == (torch.uint8 if smallest == 4096 else torch.float32)


@NAMES
def test_a_run_in_channels_last_is_resumed_bit_for_bit_in_that_layout_alone(name, bitsandbytes, tmp_path):
    def run(parameter: nn.Parameter, seeds: range, state: Any = None) -> torch.optim.Optimizer:
        optimizer = build(name, "bitsandbytes", [parameter])
        if state is not None:
            optimizer.load_state_dict(state)
        for seed in seeds:
            parameter.grad = channels_last(seed)
            optimizer.step()
        return optimizer

    whole, first = nn.Parameter(channels_last(0)), nn.Parameter(channels_last(0))
    run(whole, range(1, 6))
    torch.save(run(first, range(1, 3)).state_dict(), tmp_path / "state.pt")
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    second = nn.Parameter(first.detach().clone())
    run(second, range(3, 6), state)
    assert torch.equal(whole, second)
    with pytest.raises(ValueError, match=r"the state of parameter 0 is of another memory layout: set trainer\.chan"):
        run(nn.Parameter(first.detach().contiguous()), range(0), state)


def test_bitsandbytes_is_not_installed(monkeypatch, caplog):
    without_bitsandbytes(monkeypatch)
    with pytest.raises(UserError) as caught:
        build("sgd_8bit", "bitsandbytes")
    assert str(caught.value) == (
        "optim=sgd_8bit: optim.backend is bitsandbytes, but bitsandbytes is not installed; "
        "install it with `pip install 'bitsandbytes>=0.50'`, or set optim.backend=torch"
    )
    assert chosen(caplog, "sgd_8bit").endswith("(optim.backend is auto, and bitsandbytes is not installed)")


@pytest.mark.parametrize("version", ["0.49.2", "0.4", "0.43.0.dev0"])
def test_bitsandbytes_is_too_old(version, monkeypatch):
    monkeypatch.setattr(metadata, "version", lambda package: version)
    with pytest.raises(UserError, match=rf"bitsandbytes {version} is installed and 0\.50 or newer is needed; install"):
        build("adamw_8bit", "bitsandbytes")


def test_bitsandbytes_cannot_be_imported(bitsandbytes, monkeypatch):
    def refuse(module: str) -> Any:
        assert module.startswith("bitsandbytes")
        raise OSError("libcudart.so: cannot open shared object file\nand much more")

    monkeypatch.setattr(backends, "importlib", SimpleNamespace(import_module=refuse))
    with pytest.raises(UserError) as caught:
        build("adamw_8bit", "bitsandbytes")
    assert (
        "bitsandbytes cannot be imported (libcudart.so: cannot open shared object file); run `python -m bitsandbytes` "
        "to see why, or set optim.backend=torch"
    ) in str(caught.value)


@pytest.mark.parametrize("flag", [False, lambda: None])
def test_bitsandbytes_has_no_library_for_this_cuda(flag, bitsandbytes, monkeypatch, caplog):
    """Its stand-in for a missing library has every attribute: a function that raises."""
    monkeypatch.setattr(bitsandbytes.cextension, "lib", SimpleNamespace(compiled_with_cuda=flag))
    assert "by torch" in chosen(caplog, "adamw_8bit")
    assert caplog.messages[0].endswith("bitsandbytes has no library for this CUDA)")


@NAMES
def test_settings_that_bitsandbytes_refuses_are_user_errors_too(name, bitsandbytes):
    with pytest.raises(UserError, match=f"optim={name}: Invalid learning rate: -1"):
        build(name, "bitsandbytes", lr=-1)


@NAMES
def test_a_run_by_bitsandbytes_is_resumed_bit_for_bit(name, bitsandbytes, tmp_path):
    parameters = make_parameters()
    optimizer = build(name, "bitsandbytes", parameters)
    step(optimizer, parameters, range(6))
    first = make_parameters()
    stopped = build(name, "bitsandbytes", first)
    step(stopped, first, range(3))
    torch.save({"optimizer": stopped.state_dict(), "parameters": first}, tmp_path / "state.pt")
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    second = [nn.Parameter(parameter.data) for parameter in state["parameters"]]
    resumed = build(name, "bitsandbytes", second)
    resumed.load_state_dict(state["optimizer"])
    step(resumed, second, range(3, 6))
    assert all(torch.equal(one, other) for one, other in zip(parameters, second, strict=True))


@NAMES
@pytest.mark.parametrize(("saved", "loaded"), [("torch", "bitsandbytes"), ("bitsandbytes", "torch")])
def test_a_state_of_the_other_backend_is_refused(name, saved, loaded, bitsandbytes):
    parameters = make_parameters()
    source, target = build(name, saved, parameters), build(name, loaded, parameters)
    step(source, parameters, range(1))
    with pytest.raises(ValueError, match=r"the state .*(saved by optim.backend=torch|or of its other backend)"):
        target.load_state_dict(source.state_dict())
    target.load_state_dict(build(name, loaded).state_dict())


@NAMES
@pytest.mark.parametrize("backend", ["auto", "torch"])
def test_bitsandbytes_is_imported_for_those_alone_who_want_it(name, backend, monkeypatch):
    """It takes a second, and writes about its libraries to the terminal."""
    monkeypatch.setattr(backends, "importlib", None)
    assert type(build(name, backend)) is CLASSES[name]
