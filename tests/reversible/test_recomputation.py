"""What a second evaluation finds as the first one did: random numbers, autocast, statistics, weights."""

from __future__ import annotations

import pytest
import torch
from reversible_material import norms_of, random_map, settle_norms
from torch import nn

from svtoolkit.reversible.recomputation import (
    AutocastState,
    ModuleState,
    ParameterGradients,
    RandomState,
    autocast_is_on,
    untracked_statistics,
)

torch.set_num_threads(1)

CPU, META = torch.device("cpu"), torch.device("meta")


@pytest.mark.parametrize("cast", [None, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("around", [None, torch.bfloat16, torch.float16])
def test_autocast_is_as_it_was_wherever_it_is_restored(cast, around):
    with torch.autocast("cpu", dtype=cast, enabled=cast is not None):
        state = AutocastState.capture(CPU)
    assert state.dtype == cast
    with torch.autocast("cpu", dtype=around, enabled=around is not None):
        with state.restored():
            assert autocast_is_on(CPU) == (cast is not None)
            assert cast is None or torch.get_autocast_dtype("cpu") == cast
            assert not torch.is_autocast_cache_enabled()
        assert autocast_is_on(CPU) == (around is not None)
        assert torch.is_autocast_cache_enabled()


def test_a_device_without_autocast_has_none():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        state = AutocastState.capture(META)
    assert state.dtype is None
    with torch.autocast("cpu", dtype=torch.bfloat16), state.restored():
        assert autocast_is_on(CPU)
        assert not autocast_is_on(META)


def test_numbers_drawn_are_noticed_and_drawn_again():
    torch.manual_seed(0)
    state = RandomState(CPU)
    assert not state.is_consumed()
    first = torch.rand(3)
    assert state.is_consumed()
    torch.rand(5)
    onwards = RandomState(CPU)
    with state.restored():
        assert torch.equal(torch.rand(3), first)
    assert not onwards.is_consumed()


def draw_and_fail() -> None:
    torch.rand(1)
    raise ZeroDivisionError


def test_the_generator_goes_on_after_an_error_too():
    state = RandomState(CPU)
    torch.rand(1)
    onwards = RandomState(CPU)
    with pytest.raises(ZeroDivisionError), state.restored():
        draw_and_fail()
    assert not onwards.is_consumed()


NORMS = [
    nn.BatchNorm2d(3),
    nn.BatchNorm2d(3, momentum=None),
    nn.BatchNorm2d(3, affine=False),
    nn.SyncBatchNorm(3),
    nn.InstanceNorm2d(3, track_running_stats=True),
]


@pytest.mark.parametrize("norm", NORMS, ids=repr)
def test_statistics_stay_and_the_value_is_that_of_the_batch(norm):
    settle_norms(norm).train()
    before = {name: tensor.clone() for name, tensor in norm.state_dict().items()}
    x = random_map(4, 3, 5, 6)
    with untracked_statistics(nn.Sequential(norm)):
        value = norm(x)
    after = norm.state_dict()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    assert norm.track_running_stats
    assert torch.equal(norm(x), value)
    assert not torch.equal(norm.running_mean, before["running_mean"])


@pytest.mark.parametrize("norm", [NORMS[0], NORMS[-1]], ids=repr)
def test_a_frozen_layer_goes_on_with_its_running_statistics(norm):
    settle_norms(norm).eval()
    x = random_map(4, 3, 5, 6)
    expected = norm(x)
    with untracked_statistics(norm):
        assert torch.equal(norm(x), expected)


def test_layers_are_put_back_after_an_error():
    module = nn.Sequential(nn.BatchNorm2d(3), nn.BatchNorm2d(3, track_running_stats=False), nn.BatchNorm2d(3).eval())
    mean = module[0].running_mean
    with pytest.raises(ZeroDivisionError), untracked_statistics(module):
        raise ZeroDivisionError
    assert [layer.track_running_stats for layer in norms_of(module)] == [True, False, True]
    assert module[0].running_mean is mean


def parameters(*values: float, dtype: torch.dtype = torch.float32) -> list[nn.Parameter]:
    return [nn.Parameter(torch.tensor([value], dtype=dtype)) for value in values]


def test_gradients_add_up_in_the_order_of_their_parameters():
    first, second, third = parameters(1, 1, 1)
    gradients = ParameterGradients([first, second, third])
    gradients.add(third, torch.tensor([1.0]))
    gradients.add(first, torch.tensor([2.0]))
    gradients.add(third, torch.tensor([4.0]))
    gradients.add(first, None)
    assert gradients.in_order() == [torch.tensor([2.0]), None, torch.tensor([5.0])]


def test_a_gradient_takes_the_type_of_its_parameter():
    (parameter,) = parameters(1, dtype=torch.float64)
    gradients = ParameterGradients([parameter])
    gradients.add(parameter, torch.tensor([0.5], dtype=torch.bfloat16))
    assert gradients.in_order()[0].dtype == torch.float64


def test_a_sum_leaves_its_terms_alone():
    (parameter,) = parameters(1)
    gradients, term = ParameterGradients([parameter]), torch.tensor([1.0])
    gradients.add(parameter, term)
    gradients.add(parameter, term)
    assert term.item() == 1
    assert gradients.in_order()[0].item() == 2


def test_a_gradient_that_nobody_wants_is_dropped():
    wanted, unwanted = parameters(1, 1)  # equal numbers: it is identity that counts
    gradients = ParameterGradients([wanted])
    assert gradients.wants(wanted)
    assert not gradients.wants(unwanted)
    gradients.add(unwanted, torch.tensor([1.0]))
    assert gradients.in_order() == [None]


CHANGED = (
    "a weight of a recomputed chain was modified or replaced before its gradient was computed; call backward first"
)
SWITCHED = (
    "a recomputed chain went from training to evaluation mode, or back, before its gradient was computed; "
    "call backward first"
)


def modify(module: nn.Module) -> None:
    with torch.no_grad():
        module[0].weight.mul_(1)


def replace(module: nn.Module) -> None:
    module[0].weight = nn.Parameter(module[0].weight.detach())


def freeze(module: nn.Module) -> None:
    module[1].eval()


@pytest.mark.parametrize(("change", "sentence"), [(modify, CHANGED), (replace, CHANGED), (freeze, SWITCHED)])
def test_weights_and_modes_are_to_stay(change, sentence):
    module = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2))
    state = ModuleState([module])
    assert state.parameters == list(module.parameters())
    module(random_map(2, 1, 3, 3))  # moves running statistics, which nothing is recomputed from
    state.check()
    change(module)
    with pytest.raises(RuntimeError) as caught:
        state.check()
    assert str(caught.value) == sentence
