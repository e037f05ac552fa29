"""data.warps=...: vocal tracts of other lengths as further classes, from the sampler to the head."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pytest
import torch
import yaml
from larger_network import larger, learning_from
from tiny_runs import assert_same_run, fail_after, read_run, tiny_config

from svtoolkit.commands.average import run as average
from svtoolkit.config import AverageConfig
from svtoolkit.config.front_ends import Nemo80Config
from svtoolkit.errors import UserError
from svtoolkit.features import FilterBank, FilterBankOptions
from svtoolkit.training.experiment import Experiment, train
from svtoolkit.training.run_summary import name_utterances

WARPED = {"data__warps": [1.0, 0.9, 1.1], "data__speeds": [1.0, 0.9], "validation__speakers": 0}


def batches_of(config, start_step=0):
    experiment = Experiment(config)
    experiment.sampler.start_step = experiment.loop.finished_steps = start_step
    batches = experiment.batches()
    found = list(itertools.islice(batches, 6))
    batches.close()
    return experiment, found


def test_every_speaker_is_a_class_at_every_speed_and_warp(speech, tmp_path, caplog):
    with caplog.at_level("INFO"):
        experiment, batches = batches_of(tiny_config(speech, tmp_path, **WARPED))
    assert "8 speakers x 2 speeds x 3 warps = 48 classes" in caplog.text
    assert experiment.step.head.num_classes == 48
    training_set = experiment.data.training_set
    assert experiment.sampler.num_entries == len(training_set) == 6 * len(training_set.utterances)
    for batch in batches:
        assert torch.equal(batch.warps, batch.labels // 16)
    assert {int(warp) for batch in batches for warp in batch.warps} == {0, 1, 2}
    utterance = training_set.utterances[0].utterance_id
    assert name_utterances(training_set, [0, len(training_set.utterances) * 5]) == (
        f"{utterance} (speed 1, warp 1), {utterance} (speed 0.9, warp 1.1)"
    )


def test_crops_and_their_warps_depend_on_neither_workers_nor_stops(speech, tmp_path):
    _, alone = batches_of(tiny_config(speech, tmp_path, **WARPED))
    _, loaded = batches_of(tiny_config(speech, tmp_path, **WARPED, data__num_workers=2))
    _, later = batches_of(tiny_config(speech, tmp_path, **WARPED), start_step=3)
    for ours, theirs in [*zip(alone, loaded, strict=True), *zip(alone[3:], later, strict=False)]:
        for key in ("waveforms", "labels", "masks", "entries", "warps"):
            assert torch.equal(getattr(ours, key), getattr(theirs, key)), key


def test_the_network_hears_the_filters_of_the_class(speech, tmp_path):
    experiment, (batch, *_) = batches_of(tiny_config(speech, tmp_path, **WARPED, augment__spec_probability=0.0))
    heard = []
    experiment.step.network.register_forward_pre_hook(lambda module, inputs: heard.append(inputs[0]))
    experiment.step(iter([batch]))
    for crop, warp, features in zip(batch.waveforms, batch.warps, heard[0], strict=True):
        bank = FilterBank(FilterBankOptions(num_bins=24, warp=(1.0, 0.9, 1.1)[warp]))
        expected = bank(crop[None])[0]
        torch.testing.assert_close(features, expected - expected.mean(dim=0), rtol=0, atol=1e-4)


def test_a_run_is_resumed_bit_for_bit_and_its_model_has_no_warp(speech, tmp_path, monkeypatch):
    changes = {**WARPED, "data__speeds": [1.0], "validation__speakers": 2, "trainer__epochs": 1}
    assert train(tiny_config(speech, tmp_path / "whole", **changes)) is None
    config = tiny_config(speech, tmp_path / "exp", **changes)
    with monkeypatch.context() as patch:
        fail_after(patch, 7)
        with pytest.raises(RuntimeError, match="the power is gone"):
            train(config)
    assert train(config) is None
    assert_same_run(tmp_path / "exp", tmp_path / "whole")
    assert average(AverageConfig(exp_dir=str(tmp_path / "exp"), num=1), "svt average") == 0
    assert "warp" not in (tmp_path / "exp" / "model" / "model.yaml").read_text()


@pytest.fixture(scope="module")
def base(speech, tmp_path_factory) -> Path:
    """exp_dir of a run at two warps, released."""
    exp_dir = tmp_path_factory.mktemp("warped") / "exp"
    changes = {"data__warps": [1.0, 0.9], "data__speeds": [0.9, 1.0], "trainer__epochs": 1, "trainer__batch_size": 36}
    assert train(tiny_config(speech, exp_dir, **changes)) is None
    assert average(AverageConfig(exp_dir=str(exp_dir), num=1), "svt average") == 0
    return exp_dir


def begun(speech, tmp_path, base, init_head, **changes) -> Experiment:
    return Experiment(tiny_config(speech, tmp_path / "exp", init_from=str(base), init_head=init_head, **changes))


def test_a_head_goes_on_with_its_classes(base, speech, tmp_path):
    weight = read_run(base)["state"]["head"]["weight"]
    assert len(weight) == 24
    kept = begun(speech, tmp_path, base, "keep", data__warps=[1.0], data__speeds=[0.9])
    assert torch.equal(kept.step.head.weight, weight)
    same = begun(speech, tmp_path, base, "keep", data__warps=[1.0, 0.9], data__speeds=[0.9, 1.0])
    assert torch.equal(same.step.head.weight, weight)
    original = begun(speech, tmp_path, base, "original_speakers", data__speeds=[1.0])
    assert torch.equal(original.step.head.weight, weight[6:12])


@pytest.mark.parametrize(
    ("init_head", "changes", "message"),
    [
        (
            "keep",
            {"data__speeds": [0.9], "data__warps": [1.0, 0.9]},
            r"speeds is \[0\.9\], .* trained at \[0\.9, 1\.0",
        ),
        (
            "keep",
            {"data__speeds": [0.9, 1.0], "data__warps": [0.9]},
            r"data\.warps is \[0\.9\], and the head of",
        ),
        (
            "original_speakers",
            {"data__speeds": [1.0], "data__warps": [1.0, 0.9]},
            r"data\.warps is \[1\.0, 0\.9\], .*without a warp: set data\.speeds=\[1\.0\] data\.warps=\[1\.0\]",
        ),
    ],
)
def test_classes_that_the_head_has_not_are_refused(base, speech, tmp_path, init_head, changes, message):
    with pytest.raises(UserError, match=message):
        begun(speech, tmp_path, base, init_head, **changes)


def test_a_head_of_before_there_were_warps(base, speech, tmp_path):
    origin = tmp_path / "old"
    shutil.copytree(base, origin)
    config = yaml.safe_load((origin / "config.yaml").read_text())
    del config["data"]["warps"]
    (origin / "config.yaml").write_text(yaml.safe_dump(config))
    with pytest.raises(UserError, match=r"data\.warps is \[1\.0, 0\.9\], and the head of .* was trained at \[1\.0\]"):
        begun(speech, tmp_path, origin, "keep", data__warps=[1.0, 0.9], data__speeds=[0.9, 1.0])


@pytest.mark.parametrize("own", [{}, {"num_bins": 40}], ids=["same features", "features of its own"])
def test_a_larger_network_hears_the_same_vocal_tract(speech, tmp_path, own):
    config = learning_from(larger(tmp_path / "larger", **own), speech, tmp_path / "exp", data__warps=[1.0, 0.8])
    experiment, batches = batches_of(config)
    batch = next(batch for batch in batches if 0 < batch.warps.sum() < len(batch.warps))
    heard = []
    experiment.step.teacher.network.register_forward_pre_hook(lambda module, inputs: heard.append(inputs[0].clone()))
    experiment.step(iter([batch]))
    for crop, warp, features in zip(batch.waveforms, batch.warps, heard[0], strict=True):
        bank = FilterBank(FilterBankOptions(**{"num_bins": 24, **own}, warp=(1.0, 0.8)[warp]))
        expected = bank(crop[None])[0]
        torch.testing.assert_close(features, expected - expected.mean(dim=0), rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("warps", "message"),
    [
        ([], r"data\.warps is \[\], expected different factors above 0"),
        ([1.0, 1.0], r"data\.warps is \[1\.0, 1\.0\], expected different"),
        ([3.0], r"data\.warps is \[3\.0\], expected numbers from 0\.5 to 2"),
    ],
)
def test_warps_that_are_none_are_refused(warps, message, speech, tmp_path):
    with pytest.raises(UserError, match=message):
        train(tiny_config(speech, tmp_path, data__warps=warps))


def test_features_that_cannot_be_warped_are_refused_before_anything_is_written(speech, tmp_path):
    config = tiny_config(speech, tmp_path / "exp", data__warps=[1.0, 0.9])
    config.features = Nemo80Config()
    with pytest.raises(
        UserError, match=r"data\.warps is .*the features are 'nemo80'; train with data\.warps=\[1\.0\] or"
    ):
        train(config)
    assert not (tmp_path / "exp").exists()
