"""The mean of checkpoints against numpy in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from svtoolkit.checkpoints.averaging import average_weights
from svtoolkit.errors import UserError
from svtoolkit.models import build_model

torch.set_num_threads(1)


def weights(seed: int, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "conv.weight": torch.randn(4, 3, generator=generator).to(dtype),
        "bn.running_var": torch.rand(4, generator=generator).to(dtype),
        "bn.num_batches_tracked": torch.tensor(1000 + seed),
    }


def test_the_mean_is_taken_in_float64():
    several = [weights(seed) for seed in range(7)]
    found = average_weights(several)
    assert list(found) == list(several[0])
    for name in ("conv.weight", "bn.running_var"):
        mean = np.mean([state[name].double().numpy() for state in several], axis=0)
        assert found[name].dtype == torch.float32
        np.testing.assert_array_equal(found[name].numpy(), mean.astype(np.float32))


def test_small_terms_are_not_lost_in_float32():
    """1e8 + 1 + ... + 1 stays 1e8 where it is summed in float32."""
    terms = [1e8, *[1.0] * 9]
    found = average_weights({"w": torch.tensor([term])} for term in terms)["w"]
    assert found.item() == np.float32((1e8 + 9) / 10)
    assert found.item() != np.float32(1e8 / 10)


def test_counters_take_the_largest_value_and_stay_integers():
    found = average_weights([weights(3), weights(9), weights(5)])["bn.num_batches_tracked"]
    assert found.dtype == torch.int64
    assert found.item() == 1009


def test_a_large_counter_stays_exact():
    found = average_weights([{"n": torch.tensor(2**60 + 1)}, {"n": torch.tensor(2**60)}])["n"]
    assert found.item() == 2**60 + 1


def test_flags_stay_flags():
    found = average_weights([{"on": torch.tensor([True, False])}, {"on": torch.tensor([False, False])}])["on"]
    assert found.dtype == torch.bool
    assert found.tolist() == [True, False]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_every_type_is_kept(dtype):
    several = [weights(seed, dtype) for seed in range(3)]
    found = average_weights(several)["conv.weight"]
    assert found.dtype == dtype
    mean = sum(state["conv.weight"].double() for state in several) / 3
    assert torch.equal(found, mean.to(dtype))


def test_half_precision_does_not_overflow_on_the_way():
    found = average_weights([{"w": torch.tensor([60_000.0], dtype=torch.float16)}] * 3)["w"]
    assert found.item() == 60_000


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_a_single_checkpoint_comes_back_to_the_last_bit(dtype):
    only = weights(1, dtype)
    only["odd"] = torch.tensor([-0.0, float("inf"), -float("inf"), 1e-7, 0.1]).to(dtype)
    found = average_weights([only])
    for name, tensor in only.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor)
    assert found["odd"][0].signbit()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_averaged_is_not_changed(dtype):
    several = [weights(seed, dtype) for seed in range(3)]
    found = average_weights(several)
    found["conv.weight"].zero_()
    found["bn.num_batches_tracked"].zero_()
    for seed, state in enumerate(several):
        for name, tensor in weights(seed, dtype).items():
            assert torch.equal(state[name], tensor), f"{name} of checkpoint {seed}"


def test_a_generator_is_read_once_and_one_at_a_time():
    alive: list[int] = []

    def one_by_one():
        for seed in range(3):
            alive.append(seed)
            yield weights(seed)

    found = average_weights(one_by_one())
    assert alive == [0, 1, 2]
    assert torch.equal(found["conv.weight"], average_weights([weights(seed) for seed in range(3)])["conv.weight"])


@pytest.mark.parametrize("name", ["resnet10", "gemini_df_resnet60", "revnet_tiny"])
def test_the_average_of_networks_is_a_network(name):
    networks = [build_model(name, embedding_dim=4) for _ in range(2)]
    networks[0].load_state_dict(average_weights(network.state_dict() for network in networks))
    assert networks[0].eval()(torch.randn(1, 20, 80)).isfinite().all()


def changed(**tensors: torch.Tensor | None) -> dict[str, torch.Tensor]:
    state: dict[str, torch.Tensor | None] = {**weights(2), **tensors}
    return {name: tensor for name, tensor in state.items() if tensor is not None}


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (changed(more=torch.zeros(1)), "'more' is 1 float32 in checkpoint 3 and missing in checkpoint 1"),
        (changed(**{"conv.weight": None}), "'conv.weight' is missing in checkpoint 3"),
        (changed(**{"conv.weight": torch.zeros(4, 5)}), "'conv.weight' is 4x5 float32 in checkpoint 3 and 4x3 float32"),
        (changed(**{"conv.weight": torch.zeros(4, 3).half()}), "is 4x3 float16 in checkpoint 3 and 4x3 float32 in"),
        (
            changed(**{"bn.num_batches_tracked": torch.tensor(1.5)}),
            "is scalar float32 in checkpoint 3 and scalar int64",
        ),
    ],
)
def test_checkpoints_of_different_networks_are_refused(other, message):
    with pytest.raises(UserError) as caught:
        average_weights([weights(0), weights(1), other])
    assert message in str(caught.value)
    assert "cannot be averaged; give those of one run" in str(caught.value)


def test_nothing_to_average_is_refused():
    with pytest.raises(UserError, match="there is no checkpoint to average; train at least one epoch first"):
        average_weights([])
