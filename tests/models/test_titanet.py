"""TitaNet and SpeakerNet: sizes, dropout, and what makes no network; their embeddings are tested with NeMo's files."""

from __future__ import annotations

import pytest
import torch
from network_material import narrow, on_meta
from tiny_runs import assert_same_run, fail_after, tiny_config

from svtoolkit.checkpoints.released import ModelDescription, write_released
from svtoolkit.config import TitaNetConfig
from svtoolkit.config.front_ends import Nemo80Config
from svtoolkit.errors import UserError
from svtoolkit.models import build_model
from svtoolkit.models.titanet import ContextPooling
from svtoolkit.training.experiment import train
from svtoolkit.training.initialisation import read_start

torch.set_num_threads(1)


@pytest.mark.parametrize(
    ("name", "options", "millions"),
    [
        ("titanet_large", {"embedding_dim": 192}, 22.122),
        ("titanet_small", {"embedding_dim": 192}, 6.825),
        ("speakernet", {"num_bins": 64}, 4.010),
    ],
)
def test_as_large_as_published_without_the_classes(name, options, millions):
    found = sum(parameter.numel() for parameter in on_meta(name, **options).parameters())
    assert round(found / 1e6, 3) == millions


def test_dropout_is_of_the_residual_blocks_and_of_training_alone():
    torch.manual_seed(0)
    network = narrow("titanet_small", num_bins=8, embedding_dim=4, dropout=0.5)
    x = torch.randn(4, 16, 40)
    for block in network.stages[:-1]:
        given = x if block.units[0][0].in_channels == 16 else torch.randn(4, 8, 40)
        with torch.no_grad():
            assert torch.equal(block.eval()(given), block(given))
            first, second = block.train()(given), block(given)
        assert torch.equal(first, second) == (block.shortcut is None)
    still = narrow("titanet_small", num_bins=8, embedding_dim=4, dropout=0.0)
    frames = torch.randn(2, 30, 8)
    assert torch.equal(still(frames), still(frames))


def test_pooling_of_one_frame_and_of_what_does_not_vary():
    """A deviation of 1e-5, and a gradient that is finite."""
    pooling = ContextPooling(3)
    for frames in (1, 7):
        maps = torch.full((2, 3, frames), 2.5, requires_grad=True)
        pooled = pooling(maps)
        torch.testing.assert_close(pooled, torch.tensor([[2.5] * 3 + [1e-5] * 3] * 2))
        pooled.sum().backward()
        assert maps.grad.isfinite().all()


def test_attention_is_the_formula_written_out():
    torch.manual_seed(1)
    pooling = ContextPooling(4, hidden=5).double().eval()
    maps = torch.randn(2, 4, 9, dtype=torch.float64)
    mean, deviation = maps.mean(-1), maps.var(-1, correction=0).sqrt()
    context = torch.cat([mean, deviation], 1).unsqueeze(-1).expand(-1, -1, 9)
    hidden = torch.relu(pooling.linear1(torch.cat([maps, context], 1)))
    weights = pooling.linear2(torch.tanh(pooling.norm(hidden))).softmax(-1)
    first = (weights * maps).sum(-1)
    second = ((weights * maps.square()).sum(-1) - first.square()).sqrt()
    torch.testing.assert_close(pooling(maps), torch.cat([first, second], 1))


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"base_width": 7}, "a block has 7 channels, expected 8 or more"),
        ({"base_width": 0}, "base_width is 0, expected a whole number of 1 or more"),
        ({"map_channels": -1}, "map_channels is -1, expected a whole number of 1 or more"),
        ({"dropout": 1.0}, "dropout is 1.0, expected a share from 0 to below 1"),
        ({"dropout": float("nan")}, "dropout is nan"),
    ],
)
def test_sizes_that_make_no_network(options, found):
    with pytest.raises(UserError) as caught:
        build_model("titanet_small", **options)
    assert f"network titanet_small: {found}" in str(caught.value)


def test_a_run_with_dropout_resumes_bit_for_bit(speech, tmp_path, monkeypatch):
    short = {"trainer__epochs": 1, "trainer__batch_size": 18, "validation__speakers": 0}

    def config(name):
        network = TitaNetConfig("titanet_small", embedding_dim=8, base_width=8, map_channels=12)
        features = Nemo80Config(num_bins=24)
        return tiny_config(speech, tmp_path / name, model=network, features=features, **short)

    assert train(config("whole")) is None
    fail_after(monkeypatch, 4)
    with pytest.raises(RuntimeError, match="the power is gone"):
        train(config("stopped"))
    monkeypatch.undo()
    assert train(config("stopped")) is None
    assert_same_run(tmp_path / "whole", tmp_path / "stopped")


def test_a_run_may_be_initialised_with_another_dropout(speech, tmp_path):
    model = {"name": "titanet_small", "num_bins": 24, "embedding_dim": 8, "base_width": 8, "map_channels": 12}
    released = build_model(**model)
    write_released(
        tmp_path, released.state_dict(), ModelDescription(model | {"dropout": 0.1}, Nemo80Config(num_bins=24))
    )
    network = TitaNetConfig("titanet_small", embedding_dim=8, base_width=8, map_channels=12, dropout=0.0)
    config = tiny_config(speech, tmp_path / "run", model=network, features=Nemo80Config(num_bins=24))
    config.init_from = str(tmp_path)
    start = read_start(config)
    assert all(torch.equal(tensor, start.network[name]) for name, tensor in released.state_dict().items())
    network.map_channels = 13
    with pytest.raises(UserError, match=r"model\.map_channels is 12 there and 13 here; they must be the same"):
        read_start(config)
