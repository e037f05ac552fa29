"""A run is the same, bit for bit, whatever becomes of its activations."""

from __future__ import annotations

import pytest
from tiny_runs import assert_same_run, tiny_config

from svtoolkit.config import CheckpointConfig, PlannedConfig, RecomputeNormConfig
from svtoolkit.training.experiment import train

STRATEGIES = {
    "recursive": CheckpointConfig("checkpoint", segments="recursive"),
    "norms": RecomputeNormConfig("recompute_norm", expansions=True),
    "planned": PlannedConfig("planned", times=1.2),
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_run_under_each(speech, tmp_path, finished, name):
    config = tiny_config(speech, tmp_path)
    config.memory = STRATEGIES[name]
    train(config)
    assert_same_run(tmp_path, finished)
