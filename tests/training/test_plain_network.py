"""A network that is nothing but a module with an embedding_dim: trained, averaged, released, used for embeddings."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tiny_runs import read_records, tiny_config
from torch import Tensor, nn

from svtoolkit.cli import main
from svtoolkit.errors import UserError
from svtoolkit.memory import apply_strategy
from svtoolkit.scoring.speaker_model import SpeakerModel


class Plain(nn.Module):
    """No stem, no stages, no pooling, no embedding layer of that name."""

    def __init__(self, num_bins: int, embedding_dim: int) -> None:
        super().__init__()
        self.embedding_dim = embedding_dim
        self.rows = nn.GRU(num_bins, embedding_dim, batch_first=True)

    def forward(self, frames: Tensor) -> Tensor:
        return self.rows(frames)[0].mean(dim=1)


def test_training_release_and_embedding_ask_for_nothing_else(speech, tmp_path, monkeypatch):
    from svtoolkit.training.experiment import train

    def build(name: str, *, num_bins: int, embedding_dim: int, **options: object) -> Plain:
        return Plain(num_bins, embedding_dim)

    monkeypatch.setattr("svtoolkit.planning.assembly.build_model", build)
    monkeypatch.setattr("svtoolkit.checkpoints.released.build_model", build)
    exp_dir = tmp_path / "exp"
    assert train(tiny_config(speech, exp_dir, trainer__epochs=1)) is None
    losses = [record["loss"] for record in read_records(exp_dir) if record["kind"] == "step"]
    assert len(losses) == 13
    assert np.isfinite(losses).all()

    assert main(["average", f"exp_dir={exp_dir}", "num=1"]) == 0
    model = SpeakerModel.load(exp_dir / "model", device="cpu")
    assert isinstance(model.extractor.network, Plain)
    samples = np.random.default_rng(0).normal(0, 0.1, 16000).astype(np.float32)
    assert model.embed(samples).shape == (16,)


def test_it_can_be_stored_and_the_refusal_to_recompute_it_says_what_to_choose():
    network = Plain(8, 4)
    assert apply_strategy(network) == "store"
    with pytest.raises(UserError, match=r"reversible stages.*choose memory=store.*model=revnet57"):
        apply_strategy(network, "reversible")
    network(torch.randn(2, 5, 8)).sum().backward()
    assert all(parameter.grad is not None for parameter in network.parameters())
