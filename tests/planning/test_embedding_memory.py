"""The budget of embedding: predicted on fake tensors, kept by real passes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from svtoolkit.checkpoints.released import ModelDescription
from svtoolkit.errors import UserError
from svtoolkit.memory.ledger import MemoryLedger
from svtoolkit.models import build_model
from svtoolkit.models.front_ends import features_config, front_end_of
from svtoolkit.planning import embedding_memory
from svtoolkit.planning.embedding_memory import fit_extractor
from svtoolkit.planning.pass_prediction import predict_pass
from svtoolkit.scoring.extraction import EmbeddingExtractor
from svtoolkit.scoring.pass_memory import in_all

RATE, GIB = 16000, 2**30
DESCRIPTION = ModelDescription(
    {"name": "resnet10", "num_bins": 24, "embedding_dim": 16, "base_width": 8}, features_config({"num_bins": 24})
)
torch.set_num_threads(1)


def make_extractor(**options: float) -> EmbeddingExtractor:
    network = build_model(**DESCRIPTION.model).eval()
    return EmbeddingExtractor(network, front_end_of(DESCRIPTION.features), torch.device("cpu"), **options)


def peak_of(extractor: EmbeddingExtractor, seconds: float, together: int) -> int:
    """Bytes of the tensors of real passes over so many recordings."""
    waveforms = [np.random.default_rng(0).normal(0, 0.1, round(seconds * RATE)).astype(np.float32)] * together
    with MemoryLedger("cpu") as ledger:
        ledger.count([*extractor.network.parameters(), *extractor.network.buffers()])
        extractor.forward(waveforms)
    return ledger.peak()


def test_passes_of_any_shape_stay_within_the_budget_and_use_it() -> None:
    room = predict_pass(DESCRIPTION, "fp32").of(40.0)
    extractor = make_extractor()
    fit_extractor(extractor, DESCRIPTION, in_all(room) / GIB)
    assert 15 < extractor.batch_seconds < 40  # waveforms that are read meanwhile count, too
    for seconds, together in ((1.0, 30), (extractor.batch_seconds / 2, 4), (extractor.batch_seconds, 1), (60.0, 1)):
        assert 0.3 * room < peak_of(extractor, seconds, together) <= room, (seconds, together)


def test_the_prediction_is_near_what_a_real_pass_takes() -> None:
    memory = predict_pass(DESCRIPTION, "fp32")
    assert memory.squared == 0.0
    assert 0.6 * memory.of(27.0) < peak_of(make_extractor(), 9.0, 3) <= memory.of(27.0)


@pytest.mark.parametrize(
    ("memory_gib", "message"),
    [
        (0.0, r"^memory_gib is 0, expected a number of GiB above 0, or null$"),
        (float("inf"), r"^memory_gib is inf, expected"),
        (0.1, r"^memory_gib=0\.1 is too little for this model, which is predicted to need 13\d MiB for a second of"),
    ],
)
def test_a_budget_that_cannot_be_is_refused(memory_gib: float, message: str) -> None:
    with pytest.raises(UserError, match=message):
        fit_extractor(make_extractor(), DESCRIPTION, memory_gib)


def test_without_a_budget_a_share_of_what_is_free_counts_the_same_when_a_little_more_is(monkeypatch) -> None:
    limits = []
    for free in (0.7 * GIB, 0.9 * GIB, 2**20, 100 * GIB):
        monkeypatch.setattr(embedding_memory, "free_memory", lambda free=free: free)
        extractor = make_extractor(batch_seconds=1e6)
        fit_extractor(extractor, DESCRIPTION, None)
        limits.append(extractor.batch_seconds)
    assert limits[0] == limits[1]
    assert 1 < limits[2] < limits[0] < limits[3] < 1e6
    monkeypatch.setattr(embedding_memory, "free_memory", lambda: None)
    extractor = make_extractor(batch_seconds=1e6)
    fit_extractor(extractor, DESCRIPTION, None)
    assert (extractor.batch_seconds, extractor.forward.room) == (1e6, None)


def test_a_network_that_takes_no_fake_tensors_has_no_budget(monkeypatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no fakes")

    monkeypatch.setattr(embedding_memory, "predict_or_recall_pass", fail)
    extractor = make_extractor()
    fit_extractor(extractor, DESCRIPTION, None)
    assert extractor.forward.room is None
    with pytest.raises(UserError, match=r"memory_gib is 4, .* of network 'resnet10' cannot be predicted \(RuntimeErr"):
        fit_extractor(extractor, replace(DESCRIPTION), 4.0)
