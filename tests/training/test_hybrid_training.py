"""A run whose blocks are inverted layer by layer: trained, resumed bit for bit, released, used for embeddings."""

from __future__ import annotations

import numpy as np
import pytest
from tiny_runs import assert_same_run, fail_after, read_records, tiny_config

from svtoolkit.cli import main
from svtoolkit.config import InvertibleConfig, MemoryStrategyConfig, RevNetConfig, TrainConfig
from svtoolkit.scoring.speaker_model import SpeakerModel
from svtoolkit.training.experiment import train

NETWORKS = {
    "revnext": InvertibleConfig(name="revnext_tiny", embedding_dim=16, slope=0.2),
    "revnet": RevNetConfig(name="revnet_tiny", embedding_dim=16, insides="hybrid"),
}


def config_of(speech, folder, name: str = "revnext", strategy: str = "auto", **changes) -> TrainConfig:
    config = tiny_config(speech, folder, trainer__epochs=1, **changes)
    config.model, config.memory = NETWORKS[name], MemoryStrategyConfig(strategy)
    return config


def test_a_run_is_resumed_and_released(speech, tmp_path, monkeypatch):
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    train(config_of(speech, whole))
    with monkeypatch.context() as patch:
        fail_after(patch, 8)
        with pytest.raises(RuntimeError, match="the power is gone"):
            train(config_of(speech, stopped))
    train(config_of(speech, stopped))
    assert_same_run(stopped, whole)

    assert main(["average", f"exp_dir={whole}", "num=1"]) == 0
    model = SpeakerModel.load(whole / "model", device="cpu")
    assert model.extractor.network.stages[0][0][0].f[1].slope == 0.2
    samples = np.random.default_rng(0).normal(0, 0.1, 16000).astype(np.float32)
    assert np.isfinite(model.embed(samples)).all()


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_run_goes_the_way_of_stored_activations(speech, tmp_path, precision):
    """Of inversion no more than rounding is seen in the first losses, after which any rounding grows."""
    losses = []
    for strategy in ("store", "hybrid"):
        folder = tmp_path / strategy
        train(config_of(speech, folder, "revnet", strategy, trainer__precision=precision))
        losses.append([record["loss"] for record in read_records(folder) if record["kind"] == "step"])
    assert len(losses[0]) == 13
    assert losses[0] != losses[1] or precision != "fp32"
    np.testing.assert_allclose(losses[1][:5], losses[0][:5], rtol=5e-3 if precision == "fp32" else 0.05)
