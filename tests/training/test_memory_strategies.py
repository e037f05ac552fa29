"""A run is the same whatever becomes of its activations: bit for bit, or, under a plan, up to rounding."""

from __future__ import annotations

import pytest
from tiny_runs import assert_same_run, read_records, tiny_config

from svtoolkit.config import CheckpointConfig, PlannedConfig, RecomputeNormConfig
from svtoolkit.training.experiment import train

STRATEGIES = {
    "recursive": CheckpointConfig("checkpoint", segments="recursive"),
    "norms": RecomputeNormConfig("recompute_norm", expansions=True),
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_run_under_each(speech, tmp_path, finished, name):
    config = tiny_config(speech, tmp_path)
    config.memory = STRATEGIES[name]
    train(config)
    assert_same_run(tmp_path, finished)


def test_a_run_under_a_plan(speech, tmp_path, finished):
    config = tiny_config(speech, tmp_path)
    config.memory = PlannedConfig("planned", times=1.2)
    train(config)
    found, wanted = (
        [record["loss"] for record in read_records(folder) if record["kind"] == "step"]
        for folder in (tmp_path, finished)
    )
    assert found == pytest.approx(wanted, rel=1e-3)
