"""Runs that begin with an x-vector head of transformers: composed, stopped and resumed, averaged, used."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tiny_runs import assert_same_run, fail_after, read_run
from transformers_material import original, write

from svtoolkit import composition, load_model
from svtoolkit.checkpoints.releases import read_release
from svtoolkit.cli import main
from svtoolkit.config.front_ends import WaveformConfig
from svtoolkit.errors import UserError
from svtoolkit.planning.micro_batch import step_of
from svtoolkit.training.experiment import Experiment, train
from svtoolkit.training.settings import check_settings

SAMPLES = 6_400
"""Of a crop of 40 frames of 10 ms."""


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    few = {"hidden_size": 16, "num_hidden_layers": 1, "conv_dim": [8] * 7, "intermediate_size": 16}
    return write(tmp_path_factory.mktemp("released") / "tiny", original("WavLMForXVector", **few))


@pytest.fixture
def words(release, speech, tmp_path):
    return [
        f"init_from={release}", f"data.train={speech}", f"exp_dir={tmp_path / 'exp'}", "data.crop_frames=40",
        "data.num_workers=0", "data.speeds=[1.0]", "trainer.batch_size=8", "trainer.epochs=1", "trainer.device=cpu",
        "trainer.threads=1", "trainer.checkpoint_steps=2", "trainer.log_steps=1", "validation.speakers=2",
        "validation.targets_per_speaker=6", "optim=adamw", "optim.lr=0.001", "loss.scale=16",
    ]  # fmt: skip


def compose(words, *more):
    return composition.load("train", [*words, *more])


def test_a_run_is_that_of_the_release_and_resumes_bit_for_bit(words, release, tmp_path, monkeypatch):
    """With dropout and changes of the waveform, by one loader process and by none."""
    changes = ["augment.gain=[-6,6]", "augment.probability=1.0", "trainer.micro_batch=4"]
    whole = compose(words, *changes, f"exp_dir={tmp_path / 'whole'}", "data.num_workers=1")
    assert whole.model.config["hidden_dropout"] == 0.1
    assert train(whole) is None
    config = compose(words, *changes)
    with monkeypatch.context() as patched:
        fail_after(patched, 3)
        with pytest.raises(RuntimeError):
            train(config)
    np.random.seed(1)
    torch.manual_seed(1)
    assert train(config) is None
    assert_same_run(tmp_path / "exp", tmp_path / "whole")
    before = read_release(release)[0].state_dict()
    after = read_run(tmp_path / "exp")["state"]["network"]
    still = {name for name, weight in before.items() if torch.equal(weight, after[name])}
    frozen = {name for name in before if ".feature_extractor.conv" in name or name.endswith("masked_spec_embed")}
    assert still == frozen
    assert main(["average", str(tmp_path / "exp"), "num=1"]) == 0
    model = load_model(tmp_path / "exp", device="cpu")
    assert model.extractor.front_end.sample_rate == 16_000
    waveform = (0.1 * np.random.default_rng(1).standard_normal(9_600)).astype(np.float32)
    first, second = model.embed(waveform), load_model(release, device="cpu").embed(waveform)
    assert np.isfinite(first).all()
    assert first.shape == second.shape
    assert not np.allclose(first, second)


def test_a_crop_is_as_long_as_elsewhere_and_has_no_masks(words, caplog):
    caplog.set_level("INFO")
    config = compose(words, "trainer.precision=bf16", "augment.time_width=4000", "augment.dither=0")
    assert type(config.features) is WaveformConfig
    assert step_of(config, 2, 6).frames == SAMPLES
    experiment = Experiment(config)
    batches = experiment.batches()
    batch = next(batches)
    assert batch.waveforms.shape == (8, SAMPLES)
    assert not batch.masks.any()
    assert "crops of the waveform itself have no masks" in caplog.text
    assert "M of them frozen" in caplog.text
    result = experiment.step(iter([batch]))
    batches.close()
    assert not result.nonfinite_entries
    assert np.isfinite(result.meter.loss)


def test_crops_that_the_network_cannot_take(words):
    check_settings(compose(words, "data.crop_frames=33"))
    with pytest.raises(UserError, match=r"data\.crop_frames is 32, frames of 10 ms, expected 33 or more: the network"):
        check_settings(compose(words, "data.crop_frames=32"))


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("memory=reversible", "memory=reversible needs a network with reversible stages"),
        ("memory=checkpoint", "memory=checkpoint needs a network that lists its blocks"),
        ("model.config={hidden_size:32}", r"model\.config\.hidden_size is 16 there and 32 here; they must be the same"),
        ("model.config={layerdrop:0.2}", r"model\.config\.layerdrop is 0\.1 there and 0\.2 here; they must be the"),
        ("model=resnet10", r"model\.name is 'transformers_xvector' there and 'resnet10' here; they must be the same"),
        ("features=sb80", r"model\.num_bins is 1 there and 80 here"),
        ("init_head=keep", "init_head=keep needs the exp_dir of a run"),
    ],
)
def test_what_is_refused(words, word, says):
    with pytest.raises(UserError, match=says):
        Experiment(compose(words, word))


def test_dropout_and_what_is_frozen_are_settings(words):
    experiment = Experiment(compose(words, "model.config={hidden_dropout:0.25}", "model.freeze_encoder=false"))
    network = experiment.step.network.network
    assert network.config.hidden_dropout == 0.25
    assert all(parameter.requires_grad for parameter in network.wavlm.feature_extractor.parameters())


def test_it_is_chosen_by_a_release_alone(capsys):
    assert main(["train", "model=transformers_xvector", "data.train=x", "exp_dir=y"]) == 1
    assert (
        "is not trained without one: leave model= out, and name the release with init_from=" in capsys.readouterr().err
    )
    assert main(["memory", "model=transformers_xvector"]) == 1
    assert "`svt train --dry-run init_from=RELEASE` says what its training needs" in capsys.readouterr().err
