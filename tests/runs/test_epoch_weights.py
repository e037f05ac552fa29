"""Which epochs' weights are kept, and which are chosen for averaging."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from svtoolkit.errors import UserError
from svtoolkit.runs.epoch_weights import (
    best_epochs,
    choose_epochs,
    drop_epoch_weights,
    kept_epochs,
    load_epoch_weights,
    save_epoch_weights,
    weights_path,
)


def record(epoch, eer=None):
    return {"kind": "epoch", "epoch": epoch} | ({} if eer is None else {"validation_eer": eer})


def write_epochs(folder, epochs):
    for epoch in epochs:
        weights_path(folder, epoch).write_bytes(b"weights")


def test_weights_come_back_bit_for_bit(tmp_path):
    weights = {
        "conv": torch.randn(3, 2, 4, 5).to(memory_format=torch.channels_last),
        "bias": torch.tensor([math.pi, -0.0, 1e-40]),
        "half": torch.randn(7).bfloat16(),
        "num_batches_tracked": torch.tensor(12),
    }
    path = save_epoch_weights(tmp_path / "new", 3, weights)
    assert path == weights_path(tmp_path / "new", 3)
    loaded = load_epoch_weights(path)
    assert loaded.keys() == weights.keys()
    for name, tensor in weights.items():
        assert loaded[name].dtype == tensor.dtype
        assert torch.equal(loaded[name], tensor)
    assert math.copysign(1, loaded["bias"][1]) == -1
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["epoch-0003.safetensors"]


def test_damaged_weights_are_named(tmp_path):
    path = save_epoch_weights(tmp_path, 1, {"a": torch.ones(100)})
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(UserError, match=r"epoch-0001\.safetensors: cannot be read .*; choose other epochs to average"):
        load_epoch_weights(path)
    with pytest.raises(UserError, match=r"epoch-0002\.safetensors: cannot be read"):
        load_epoch_weights(weights_path(tmp_path, 2))


def test_kept_epochs_are_counted_by_their_names(tmp_path):
    write_epochs(tmp_path, [12, 3, 101])
    for name in (
        "epoch-12.safetensors",
        "epoch-0004.safetensors.tmp",
        ".epoch-0005.safetensors.x.tmp",
        "epoch-0006.pt",
    ):
        (tmp_path / name).touch()
    assert kept_epochs(tmp_path) == [3, 12, 101]
    assert kept_epochs(tmp_path / "missing") == []


def test_the_best_epochs_have_the_lowest_eer_and_the_earlier_wins_a_tie():
    records = [record(1, 0.3), record(2), record(3, 0.1), record(4, 0.2), record(5, 0.1), record(6, None)]
    assert best_epochs(records, 3) == [3, 5, 4]
    assert best_epochs(records, 0) == []
    assert best_epochs(records, 9) == [3, 5, 4, 1]


@given(
    eers=st.lists(st.one_of(st.none(), st.sampled_from([0.1, 0.2, 0.3, 0.4])), min_size=1, max_size=14),
    keep_last=st.integers(0, 12),
    keep_best=st.integers(0, 4),
)
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_after_every_epoch_the_newest_and_the_best_are_there_and_no_others(
    tmp_path_factory, eers, keep_last, keep_best
):
    folder = tmp_path_factory.mktemp("epochs")
    records = []
    for epoch, eer in enumerate(eers, start=1):
        records.append(record(epoch, eer))
        write_epochs(folder, [epoch])
        drop_epoch_weights(folder, records, keep_last=keep_last, keep_best=keep_best)
        newest = range(max(1, epoch - keep_last + 1), epoch + 1)
        validated = [number for number in range(1, epoch + 1) if eers[number - 1] is not None]
        best = sorted(validated, key=lambda number: (eers[number - 1], number))[:keep_best]
        assert kept_epochs(folder) == sorted({*newest, *best})


def test_ten_epochs_are_kept_while_there_are_no_more_than_ten(tmp_path):
    write_epochs(tmp_path, range(1, 8))
    drop_epoch_weights(tmp_path, [record(epoch) for epoch in range(1, 8)], keep_last=10, keep_best=1)
    assert kept_epochs(tmp_path) == list(range(1, 8))


def test_weights_of_epochs_that_a_resumed_run_comes_to_later_push_nothing_out(tmp_path):
    """A run that fell back to an older state finds the weights of epochs that its history no longer has."""
    write_epochs(tmp_path, range(1, 7))
    drop_epoch_weights(tmp_path, [record(epoch) for epoch in range(1, 4)], keep_last=2, keep_best=0)
    assert kept_epochs(tmp_path) == [2, 3, 4, 5, 6]


def test_last_and_best_epochs_are_chosen_among_those_that_are_there(tmp_path):
    write_epochs(tmp_path, [2, 5, 6, 7])
    records = [record(1, 0.01), record(2, 0.1), record(5, 0.3), record(6, 0.2), record(7)]
    assert choose_epochs(tmp_path, records, choose="last", num=3) == [5, 6, 7]
    assert choose_epochs(tmp_path, records, choose="best", num=2) == [2, 6]
    assert choose_epochs(tmp_path, records, choose="best", num=3) == [2, 5, 6]


def test_where_fewer_are_there_all_are_chosen(tmp_path):
    write_epochs(tmp_path, [2, 5, 6, 7])
    records = [record(2, 0.1), record(5, 0.3), record(6, 0.2), record(7)]
    assert choose_epochs(tmp_path, records, choose="last", num=5) == [2, 5, 6, 7]
    assert choose_epochs(tmp_path, records, choose="best", num=4) == [2, 5, 6]


@pytest.mark.parametrize("choose", ["last", "best"])
def test_at_least_one_is_chosen(tmp_path, choose):
    with pytest.raises(UserError, match="num is 0, expected 1 or more"):
        choose_epochs(tmp_path, [record(2, 0.1)], choose=choose, num=0)
    with pytest.raises(UserError, match=r"no epoch can be averaged .*trainer\.keep_last"):
        choose_epochs(tmp_path, [record(2, 0.1)], choose=choose, num=3)


def test_epochs_are_chosen_by_last_or_best_alone(tmp_path):
    with pytest.raises(UserError, match="choose is 'worst', expected last, best or ema"):
        choose_epochs(tmp_path, [], choose="worst", num=1)
