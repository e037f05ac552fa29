"""optim=muon_8bit: Muon's steps with a byte a value of state, refused like others."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest
import torch
from torch import nn

from svtoolkit.config import LossConfig, MemoryPredictionConfig, Muon8bitConfig, MuonConfig, ResNetConfig
from svtoolkit.device import choose_device
from svtoolkit.errors import UserError
from svtoolkit.optim import Muon, Muon8bit, build_optimizer, leave_to_adamw
from svtoolkit.optim.dynamic_map import dequantise
from svtoolkit.planning.assembly import build_trainable

SHAPES = [(12, 5), (40, 30), (7,), (6, 4, 3, 3), (6, 1, 3, 3)]


def muon(parameters, config: MuonConfig, **changes) -> torch.optim.Optimizer:
    return build_optimizer(parameters, **asdict(replace(config, **changes)))


def weights(seed: int = 0) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(seed)
    return [nn.Parameter(torch.randn(*shape, generator=generator)) for shape in SHAPES]


def give_gradients(parameters: list[nn.Parameter], number: int) -> None:
    generator = torch.Generator().manual_seed(100 + number)
    for parameter in parameters:
        parameter.grad = torch.randn(parameter.shape, generator=generator)


@pytest.mark.parametrize("nesterov", [True, False])
def test_with_state_in_32_bits_it_is_muon(nesterov):
    """Weights below min_8bit_size: the same steps, but for the order of AdamW's operations."""
    ours, theirs = weights(), weights()
    pairs = [
        (ours, muon(ours, Muon8bitConfig(), min_8bit_size=10**6, nesterov=nesterov)),
        (theirs, muon(theirs, MuonConfig(), nesterov=nesterov)),
    ]
    for number in range(4):
        for parameters, optimizer in pairs:
            give_gradients(parameters, number)
            optimizer.step()
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
    assert not ours[0].equal(weights()[0])


@pytest.mark.parametrize("block_size", [16, 2**20])
def test_in_8_bits_it_goes_about_where_muon_goes(block_size, monkeypatch):
    """The momentum is decoded, moved and coded chunk by chunk, whatever the layout of the weight."""
    monkeypatch.setattr("svtoolkit.optim.chunks.CHUNK_VALUES", max(block_size, 64))
    ours, theirs = weights(), weights()
    ours[3].data = ours[3].data.to(memory_format=torch.channels_last)
    pairs = [
        (ours, muon(ours, Muon8bitConfig(), min_8bit_size=1, block_size=block_size, weight_decay=0.0)),
        (theirs, muon(theirs, MuonConfig(), weight_decay=0.0)),
    ]
    for number in range(5):
        for parameters, optimizer in pairs:
            give_gradients(parameters, number)
            optimizer.step()
    for one, other, before in zip(ours, theirs, weights(), strict=True):
        moved, expected = (one - before).flatten(), (other - before).flatten()
        assert torch.cosine_similarity(moved, expected, dim=0) > 0.995
    state = pairs[0][1].state[ours[1]]
    momentum = dequantise(state["momentum_codes"], state["momentum_absmax"], block_size, signed=True)
    expected = pairs[1][1].state[theirs[1]]["momentum_buffer"].flatten()
    assert (momentum - expected).abs().max() < 0.03 * expected.abs().max()


def test_the_state_takes_a_byte_a_value():
    parameters = [nn.Parameter(torch.randn(256, 128)), nn.Parameter(torch.randn(5000)), nn.Parameter(torch.randn(4, 4))]
    optimizer = muon(parameters, Muon8bitConfig())
    give_gradients(parameters, 0)
    optimizer.step()
    matrix, vector, small = (optimizer.state[parameter] for parameter in parameters)
    assert {key: (len(value), value.dtype) for key, value in matrix.items() if key != "step"} == {
        "momentum_codes": (256 * 128, torch.uint8),
        "momentum_absmax": (16, torch.float32),
    }
    assert vector.keys() == {"step", "exp_avg_codes", "exp_avg_absmax", "exp_avg_sq_codes", "exp_avg_sq_absmax"}
    assert small["momentum"].dtype == torch.float32
    leave_to_adamw(optimizer, [])
    assert [len(group["params"]) for group in optimizer.param_groups] == [2, 1]


def test_hidden_layers_alone_are_its():
    built = build_trainable(
        ResNetConfig(name="resnet10", embedding_dim=16, base_width=4), MemoryPredictionConfig().memory,
        LossConfig(name="aam"), Muon8bitConfig(), num_bins=24, num_classes=7, device=choose_device("cpu"),
        channels_last=True,
    )  # fmt: skip
    others = {id(parameter) for parameter in built.optimizer.param_groups[1]["params"]}
    assert {id(parameter) for parameter in built.head.parameters()} <= others


def test_a_state_of_another_optimizer_is_refused():
    parameters = weights()
    others = muon(parameters, MuonConfig())
    give_gradients(parameters, 0)
    others.step()
    with pytest.raises(ValueError, match="the state is of another optimizer"):
        muon(parameters, Muon8bitConfig()).load_state_dict(others.state_dict())
    assert isinstance(others, Muon)
    assert isinstance(muon(parameters, Muon8bitConfig()), Muon8bit)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lr": 0.0}, "expected learning rates above 0"),
        ({"block_size": 0}, "Invalid block_size value: 0"),
        ({"min_8bit_size": -1}, "Invalid min_8bit_size value: -1"),
        ({"beta1": 1.0}, "Invalid beta"),
        ({"adjust_lr_fn": "jordan"}, "adjust_lr_fn='jordan', expected one of original, match_rms_adamw"),
    ],
)
def test_settings_that_make_none(changes, message):
    with pytest.raises(UserError, match=message):
        muon(weights(), Muon8bitConfig(), **changes)
