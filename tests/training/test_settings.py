"""Configurations that cannot be trained: refused by the name of the key, before anything is written to checkpoints."""

from __future__ import annotations

import pytest
from tiny_runs import tiny_config

from svtoolkit.config import TrainerConfig
from svtoolkit.errors import UserError
from svtoolkit.training.experiment import train
from svtoolkit.training.settings import micro_batch_of


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trainer__epochs": 0}, r"trainer\.epochs is 0, expected 1 or more"),
        ({"trainer__log_steps": 0}, r"trainer\.log_steps is 0, expected 1 or more"),
        ({"trainer__keep_states": 0}, r"trainer\.keep_states is 0, expected 1 or more"),
        ({"trainer__keep_last": -1}, r"trainer\.keep_last is -1, expected 0 or more"),
        ({"trainer__threads": 0}, r"trainer\.threads is 0, expected 1 or more"),
        ({"trainer__nonfinite_patience": 0}, r"trainer\.nonfinite_patience is 0, expected 1 or more"),
        ({"trainer__gradient_clip": 0.0}, r"trainer\.gradient_clip is 0\.0, expected a norm above 0, or null for none"),
        ({"trainer__batch_size": 1000}, r"trainer\.batch_size is 1000, but the training set has 108 crops an epoch"),
        (
            {"trainer__batch_size": None, "trainer__max_batch_size": 0},
            r"trainer\.max_batch_size is 0, expected 1 or more",
        ),
        (
            {"trainer__batch_size": 0},
            r"trainer\.batch_size is 0, expected 1 or more",
        ),
        (
            {"trainer__micro_batch": 3},
            r"trainer\.micro_batch is 3, expected a divisor of trainer\.batch_size, which is 8",
        ),
        (
            {"trainer__micro_batch": 0},
            r"trainer\.micro_batch is 0, expected a divisor of trainer\.batch_size, which is 8",
        ),
        ({"trainer__precision": "fp8"}, r"precision is 'fp8', expected one of fp32, bf16, fp16"),
        ({"trainer__device": "tpu"}, r"device is 'tpu', expected auto, cpu, cuda, cuda:N or mps"),
        ({"data__crop_frames": 0}, r"data\.crop_frames is 0, expected 1 or more"),
        ({"data__num_workers": -1}, r"data\.num_workers is -1, expected 0 or more"),
        ({"data__speeds": []}, r"data\.speeds is \[\], expected different factors above 0"),
        ({"data__train": "/nowhere"}, r"/nowhere: there is no such data directory"),
        ({"augment__dither": -1.0}, r"augment\.dither is -1\.0, expected a standard deviation of 0 or more"),
        ({"augment__spec_probability": 2.0}, r"augment\.spec_probability is 2\.0, expected a share from 0 to 1"),
        ({"features__window": "round"}, r"features cannot be computed: features\.window is 'round', expected one of"),
        ({"features__num_bins": 500}, r"features cannot be computed: features\.num_bins is 500, but filter"),
        ({"validation__speakers": -1}, r"validation\.speakers is -1, expected 0 or more"),
        ({"validation__speakers": 1}, r"validation\.speakers is 1, expected 2 or more, .* or 0: no validation"),
        ({"validation__max_speakers": 1}, r"validation\.max_speakers is 1, expected 2 or more"),
        (
            {"validation__speakers": 8},
            r"validation\.speakers is 8: .* leaves none of 8 to train on; .*0: no validation",
        ),
        ({"validation__every_epochs": 0}, r"validation\.every_epochs is 0, expected 1 or more"),
        ({"validation__targets_per_speaker": 0}, r"targets_per_speaker is 0, expected 1 or more"),
        ({"schedule__warmup": 1.0}, r"schedule\.warmup is 1\.0, expected a share of the run"),
        ({"seed": -1}, r"seed is -1, expected a number from 0 to 4294967295"),
        ({"seed": 2**32}, r"seed is 4294967296, expected a number from 0 to 4294967295"),
    ],
)
def test_a_configuration_that_cannot_be_trained_is_refused(changes, message, speech, tmp_path):
    with pytest.raises(UserError, match=message):
        train(tiny_config(speech, tmp_path, **changes))
    assert not (tmp_path / "checkpoints").exists()


@pytest.mark.parametrize("change", ["loss__shard", "trainer__sync_batch_norm"])
def test_what_needs_several_devices_is_refused_before_the_data_are_read(change, tmp_path):
    key = change.replace("__", r"\.")
    with pytest.raises(UserError, match=rf"{key}=true needs several devices, and this run has one; leave it at false"):
        train(tiny_config(tmp_path / "missing", tmp_path / "exp", **{change: True}))


@pytest.mark.parametrize(
    ("batch_size", "micro_batch", "processes", "expected"),
    [
        (256, None, 1, 256),
        (256, None, 8, 32),
        (256, 16, 2, 16),
        (256, 128, 2, 128),
        (256, 128, 8, 32),  # what one GPU holds at once, and more than the share of one of eight
        (256, 256, 2, 128),
        (256, 300, 2, 300),  # nothing that a step can be made of: the sampler refuses it
        (256, 300, 1, 300),
        (256, 0, 2, 0),
    ],
)
def test_a_micro_batch_for_one_gpu_is_one_for_several(batch_size, micro_batch, processes, expected):
    trainer = TrainerConfig(batch_size=batch_size, micro_batch=micro_batch)
    assert micro_batch_of(trainer, batch_size // processes) == expected
