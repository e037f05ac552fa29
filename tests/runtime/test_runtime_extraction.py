"""Many utterances by an exported file: beside each other as by themselves, in order, and long ones one at a time."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile
from command_material import RATE, voice
from exported_material import write_exported

from svtoolkit.data.kaldi_dir import Utterance
from svtoolkit.runtime import engines
from svtoolkit.runtime.extraction import RuntimeExtractor
from svtoolkit.runtime.model import RuntimeModel

SECONDS = (2.0, 0.5, 0.01, 1.5, 1.0, 0.7)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_exported(tmp_path_factory.mktemp("exported"))


@pytest.fixture(scope="module")
def utterances(tmp_path_factory: pytest.TempPathFactory) -> list[Utterance]:
    """The third is too short, the last is missing."""
    folder = tmp_path_factory.mktemp("audio")
    for number, seconds in enumerate(SECONDS[:-1]):
        soundfile.write(folder / f"{number}.wav", voice(number, 0, seconds), RATE)
    return [Utterance(str(number), "x", folder / f"{number}.wav") for number in range(len(SECONDS))]


@pytest.mark.parametrize("runtime", ["onnx", "openvino", "ncnn"])
def test_beside_each_other_as_by_themselves(exported, utterances, runtime):
    if runtime not in engines.installed():
        pytest.skip(f"{runtime} is not installed")
    by_streams = {}
    for threads, streams in ((1, 1), (3, 3)):
        model = RuntimeModel.load(exported, runtime=runtime, threads=threads, streams=streams)
        extractor = RuntimeExtractor(model, num_workers=2, streams=streams)
        found = by_streams[streams] = list(extractor.embed(utterances, lambda row: row == 1))
        assert [each.rows for each in found] == [[0], [], [3], [4], []]
        failures = {row: reason for each in found for row, reason in each.failures.items()}
        assert "samples are shorter than one window" in failures[2]
        assert str(utterances[2].path) in failures[2]
        assert "5.wav" in failures[5]
    for one, other in zip(*by_streams.values(), strict=True):
        np.testing.assert_array_equal(np.array(one.embeddings), np.array(other.embeddings))


@pytest.mark.parametrize(("batch_seconds", "most"), [(120.0, 3), (0.6, 1)])
def test_of_long_ones_one_at_a_time(exported, utterances, monkeypatch, batch_seconds, most):
    model, lock, at_work, seen = RuntimeModel.load(exported, threads=1), threading.Lock(), [0], [0]

    def embed(samples):
        with lock:
            at_work[0] += 1
            seen.append(at_work[0])
        time.sleep(0.2)
        with lock:
            at_work[0] -= 1
        return np.ones(2, dtype=np.float32)

    monkeypatch.setattr(model, "embed", embed)
    extractor = RuntimeExtractor(model, streams=3, batch_seconds=batch_seconds)
    long = [utterances[row] for row in (0, 3, 4)]
    assert [each.rows for each in extractor.embed(long)] == [[0], [1], [2]]
    assert max(seen) == most
