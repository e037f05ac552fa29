"""SGD and AdamW with 8-bit state: the update is torch's, whatever the parameters look like and however they are cut."""

from __future__ import annotations

import itertools

import pytest
import torch
from eight_bit_material import (
    ALL_8,
    ALL_32,
    BOTH,
    SETTINGS,
    SGD,
    THIRTY_TWO,
    assert_all_close,
    gradients_of,
    make_parameters,
    run,
)
from torch import Tensor, nn

from svtoolkit.optim import AdamW8bit, SGD8bit
from svtoolkit.optim.dynamic_map import dequantise, quantise

torch.set_num_threads(1)

pytestmark = pytest.mark.usefixtures("small_chunks")


@BOTH
@pytest.mark.parametrize(
    "changes", [{}, {"weight_decay": 0.0}, {"nesterov": False}, {"nesterov": False, "momentum": 0}]
)
def test_small_parameters_are_updated_as_by_torch(kind, changes):
    settings = {**SETTINGS[kind], **{key: value for key, value in changes.items() if key in SETTINGS[kind]}}
    ours, theirs = make_parameters(), make_parameters()
    found = run(kind(ours, **settings, **ALL_32), ours, steps=6)
    expected = run(THIRTY_TWO[kind](theirs, **settings), theirs, steps=6)
    assert_all_close(found, expected, rtol=1e-5, atol=1e-6)


@BOTH
def test_the_first_step_needs_no_state_and_is_torchs(kind):
    """The update takes the moments before they are coded: the error begins with the second step."""
    ours, theirs = make_parameters(), make_parameters()
    found = run(kind(ours, **SETTINGS[kind], **ALL_8), ours, steps=1)
    expected = run(THIRTY_TWO[kind](theirs, **SETTINGS[kind]), theirs, steps=1)
    assert_all_close(found, expected, rtol=1e-5, atol=1e-6)


def rounded(moment: Tensor, signed: bool) -> Tensor:
    """What is left of a moment when it is decoded, blocks of 16 counted in the parameter's own order."""
    codes, absmax = quantise(moment.float().flatten(), 16, signed=signed)
    return dequantise(codes, absmax, 16, signed=signed).view(moment.shape).to(moment.dtype)


def sgd_by_hand(value: Tensor, gradients: list[Tensor]) -> Tensor:
    buffer = torch.zeros_like(value)
    for gradient in gradients:
        whole = gradient.double() + 1e-2 * value
        buffer = 0.8 * buffer + whole
        value = value - 0.3 * (whole + 0.8 * buffer)
        buffer = rounded(buffer, signed=True)
    return value


def adamw_by_hand(value: Tensor, gradients: list[Tensor]) -> Tensor:
    first, second = torch.zeros_like(value), torch.zeros_like(value)
    for step, gradient in enumerate(gradients, start=1):
        first = 0.7 * first + 0.3 * gradient.double()
        second = 0.95 * second + 0.05 * gradient.double() ** 2
        adapted = (first / (1 - 0.7**step)) / ((second / (1 - 0.95**step)).sqrt() + 1e-6)
        value = value - 0.02 * (adapted + 0.07 * value)
        first, second = rounded(first, signed=True), rounded(second, signed=False)
    return value


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize(
    ("kind", "by_hand"), [(SGD8bit, sgd_by_hand), (AdamW8bit, adamw_by_hand)], ids=["sgd", "adamw"]
)
def test_updates_by_hand(kind, by_hand, dtype, memory_format):
    """Five steps in float64 with moments that are coded after each; a code at a boundary may fall either way."""
    parameters = make_parameters(dtype, memory_format)
    before = [parameter.detach().double().clone() for parameter in parameters]
    found = run(kind(parameters, **SETTINGS[kind], **ALL_8), parameters, steps=5)
    history = list(zip(*gradients_of(parameters, 5), strict=True))
    tolerance = {torch.float32: 2e-6, torch.float64: 2e-6, torch.bfloat16: 2e-2}[dtype]
    for ours, value, gradients in zip(found, before, history, strict=True):
        assert ours.dtype == dtype
        expected = by_hand(value, list(gradients))
        far = ((ours.double() - expected).abs() > tolerance * (1 + expected.abs())).double().mean()
        assert far < (0.05 if dtype == torch.bfloat16 else 0.01)
        assert (ours.double() - expected).abs().max() < 0.1


@BOTH
def test_memory_layout_of_parameters_and_gradients_makes_no_difference(kind):
    plain, last = make_parameters(), make_parameters(memory_format=torch.channels_last)
    assert last[0].stride() != plain[0].stride()
    ours, theirs = (kind(parameters, **SETTINGS[kind], **ALL_8) for parameters in (plain, last))
    for gradients, number in zip(gradients_of(plain, 4), itertools.count()):
        for one, other, gradient in zip(plain, last, gradients, strict=True):
            one.grad = gradient.clone()
            other.grad = gradient.clone()
            if gradient.dim() == 4 and number % 2:
                other.grad = gradient.to(memory_format=torch.channels_last)
        ours.step()
        theirs.step()
    for one, other in zip(plain, last, strict=True):
        assert torch.equal(one, other)
        for key, value in ours.state[one].items():
            assert torch.equal(torch.as_tensor(value), torch.as_tensor(theirs.state[other][key])), key
    assert last[0].is_contiguous(memory_format=torch.channels_last)


@BOTH
def test_a_parameter_does_not_depend_on_its_neighbours(kind):
    together, alone = make_parameters(), make_parameters()
    optimizer = kind(together, **SETTINGS[kind], **ALL_8)
    run(optimizer, together, steps=4)
    singles = [kind([parameter], **SETTINGS[kind], **ALL_8) for parameter in alone]
    for gradients in gradients_of(alone, 4):
        for single, parameter, gradient in zip(singles, alone, gradients, strict=True):
            parameter.grad = gradient
            single.step()
    for one, other, single in zip(together, alone, singles, strict=True):
        assert torch.equal(one, other)
        for key, value in optimizer.state[one].items():
            assert torch.equal(torch.as_tensor(value), torch.as_tensor(single.state[other][key])), key


@BOTH
def test_state_is_where_the_docstring_says(kind):
    parameters = make_parameters()
    optimizer = kind(parameters, **SETTINGS[kind], block_size=16, min_8bit_size=40)
    run(optimizer, parameters, steps=2)
    names = ["momentum"] if kind is SGD8bit else ["exp_avg", "exp_avg_sq"]
    for parameter in parameters:
        state = {key: (tuple(v.shape), v.dtype) for key, v in optimizer.state[parameter].items() if key != "step"}
        length = parameter.numel()
        if length < 40:
            assert state == dict.fromkeys(names, ((length,), torch.float32))
        else:
            codes = {f"{name}_codes": ((length,), torch.uint8) for name in names}
            assert state == codes | {f"{name}_absmax": ((-(-length // 16),), torch.float32) for name in names}
        assert optimizer.state[parameter].get("step") == (2 if kind is AdamW8bit else None)


def test_groups_have_settings_of_their_own():
    parameters = make_parameters()
    optimizer = SGD8bit(
        [{"params": parameters[:2], "lr": 0.1}, {"params": parameters[2:4], "momentum": 0.0, "nesterov": False}],
        **SGD,
        block_size=16,
        min_8bit_size=0,
    )
    optimizer.add_param_group({"params": parameters[4:], "weight_decay": 0.0, "block_size": 8, "min_8bit_size": 400})
    found = run(optimizer, parameters, steps=1)
    theirs = make_parameters()
    expected = torch.optim.SGD(
        [{"params": theirs[:2], "lr": 0.1}, {"params": theirs[2:4], "momentum": 0.0, "nesterov": False}], **SGD
    )
    expected.add_param_group({"params": theirs[4:], "weight_decay": 0.0})
    assert_all_close(found, run(expected, theirs, steps=1), rtol=1e-5, atol=1e-6)
    assert [set(optimizer.state.get(parameter, {})) for parameter in parameters] == [
        {"momentum_codes", "momentum_absmax"}, {"momentum_codes", "momentum_absmax"}, set(), set(), {"momentum"},
    ]  # fmt: skip


def test_a_rate_that_changes_is_followed():
    ours, theirs = make_parameters(), make_parameters()
    results = []
    for optimizer, parameters in (
        (SGD8bit(ours, **SGD, **ALL_32), ours),
        (torch.optim.SGD(theirs, **SGD), theirs),
    ):
        for gradients, rate in zip(gradients_of(parameters, 3), (0.1, 0.0, 0.4), strict=True):
            optimizer.param_groups[0]["lr"] = rate
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient
            optimizer.step()
        results.append([parameter.detach() for parameter in parameters])
    assert_all_close(*results, rtol=1e-5, atol=1e-6)


@BOTH
def test_parameters_without_a_gradient_stay_and_are_counted_apart(kind):
    """AdamW's bias correction counts the updates of each parameter."""
    ours, theirs = make_parameters(), make_parameters()
    results = []
    for optimizer, parameters in (
        (kind(ours, **SETTINGS[kind], **ALL_32), ours),
        (THIRTY_TWO[kind](theirs, **SETTINGS[kind]), theirs),
    ):
        for number, gradients in enumerate(gradients_of(parameters, 6)):
            optimizer.zero_grad()
            for index, (parameter, gradient) in enumerate(zip(parameters, gradients, strict=True)):
                if number % (index + 1) == 0 and index != 3:
                    parameter.grad = gradient
            optimizer.step()
        assert parameters[3] not in optimizer.state
        results.append([parameter.detach() for parameter in parameters])
    assert_all_close(*results, rtol=1e-5, atol=1e-6)
    assert torch.equal(ours[3], make_parameters()[3])


@BOTH
def test_a_closure_is_called_with_gradients_and_its_result_returned(kind):
    (weight,) = [nn.Parameter(torch.tensor([3.0]))]
    optimizer = kind([weight], lr=0.1)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = (weight**2).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 9.0
    assert weight.item() < 3.0
    assert optimizer.step() is None
