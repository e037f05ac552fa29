"""Which utterances go together: of equal length, by seconds and by number, the most audio first."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from svtoolkit.data.feature_archive import write_features
from svtoolkit.data.kaldi_dir import Utterance
from svtoolkit.features import build_front_end
from svtoolkit.memory.ledger import MemoryLedger
from svtoolkit.models import build_model
from svtoolkit.scoring.batches import group_by_length, plan_batches
from svtoolkit.scoring.extraction import EmbeddingExtractor

RATE = 16000
SECONDS = [1.0, 3.0, 1.0, 2.0, 1.0, 3.0, 1.0]


@pytest.fixture
def utterances(tmp_path: Path) -> list[Utterance]:
    found = []
    for number, seconds in enumerate(SECONDS):
        path = tmp_path / f"{number}.wav"
        soundfile.write(path, np.zeros(round(seconds * RATE)), RATE)
        found.append(Utterance(str(number), "x", path))
    return found


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ((120.0, 32), [[1, 5], [0, 2, 4, 6], [3]]),
        ((3.1, 32), [[1], [5], [0, 2, 4], [3], [6]]),
        ((120.0, 2), [[1, 5], [3], [0, 2], [4, 6]]),
        ((1.0, 32), [[1], [5], [3], [0], [2], [4], [6]]),
    ],
)
def test_batches(utterances: list[Utterance], limits: tuple[float, int], expected: list[list[int]]) -> None:
    batches, failures = plan_batches(
        utterances, build_front_end(), batch_seconds=limits[0], batch_size=limits[1], jobs=2
    )
    assert batches == expected
    assert not failures


def test_padded_batches_hold_what_is_little_shorter_than_their_longest() -> None:
    numbered = [(100, 0), (96, 1), (200, 2), (190, 3), (189, 4), (95, 5), (63, 6), (62, 7), (63, 8)]
    groups = group_by_length(numbered, 0.05)
    assert groups == [(200, [2, 3]), (189, [4]), (100, [0, 1, 5]), (63, [6, 8]), (62, [7])]
    assert len(group_by_length(numbered, 0.0)) == 8


def test_no_file_is_opened_whose_length_a_table_tells() -> None:
    listed = [Utterance(str(number), "x", Path("/nowhere"), 0.0, seconds) for number, seconds in enumerate(SECONDS)]
    batches, failures = plan_batches(listed, build_front_end(), batch_seconds=120.0, batch_size=32, jobs=2)
    assert batches == [[1, 5], [0, 2, 4, 6], [3]]
    assert not failures


def test_what_has_no_header_is_in_no_batch(utterances: list[Utterance]) -> None:
    utterances[3].path.write_bytes(b"no audio")
    utterances[0].path.unlink()
    batches, failures = plan_batches(utterances, build_front_end(), batch_seconds=9.0, batch_size=9, jobs=1)
    assert batches == [[1, 5], [2, 4, 6]]
    assert sorted(failures) == [0, 3]
    assert "no such file" in failures[0]


def test_a_batch_of_twenty_seconds_each_is_far_from_filling_a_gpu_of_eleven_gigabytes() -> None:
    seconds = 20.0
    together = int(EmbeddingExtractor.batch_seconds / seconds)
    with FakeTensorMode(allow_non_fake_inputs=True):
        network = build_model("resnet152", num_bins=80, embedding_dim=256).eval()
        features = torch.zeros(together, round(100 * seconds), 80)
        with torch.no_grad(), MemoryLedger("cpu") as ledger:
            network(features)
    held = highest = 0
    for change in ledger.changes:
        held += change.difference
        highest = max(highest, held)
    assert 1 < highest / 2**30 < 3


def test_stored_features_are_planned_by_their_frames(tmp_path: Path) -> None:
    front_end = build_front_end(num_bins=24)
    found = []
    for number, frames in enumerate([98, 298, 98, 198]):
        with (tmp_path / f"{number}.ark").open("wb") as stream:
            offset = write_features(stream, str(number), np.zeros((frames, 24), np.float32), "float32")
        found.append(Utterance(str(number), "x", Path(f"{tmp_path}/{number}.ark:{offset}")))
    (tmp_path / "3.ark").write_bytes(b"3 no features")
    batches, failures = plan_batches(found, front_end, batch_seconds=9.0, batch_size=9, jobs=2, stored=True)
    assert batches == [[1], [0, 2]]
    assert "no features can be read there" in failures[3]
    batches, _ = plan_batches(found, front_end, batch_seconds=1.5, batch_size=9, jobs=1, stored=True)
    assert batches == [[1], [0], [2]]


def test_no_voice_is_looked_for_in_stored_features() -> None:
    network = build_model("resnet10", num_bins=24, embedding_dim=16, base_width=4)
    extractor = EmbeddingExtractor(network, build_front_end(num_bins=24), torch.device("cpu"), stored=True)
    with pytest.raises(ValueError, match=r"min_voice is 0\.5, but stored features hold no waveform"):
        extractor.extract([], min_voice=0.5)
