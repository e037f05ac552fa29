"""The benchmark of whole lists, on a few sounds and a tiny network."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import soundfile
import torch

from benchmarks import bulk
from svtoolkit.data.kaldi_dir import KaldiDir


def test_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)  # those of the other tests stay
    walls, processors = count(), count()  # a millisecond from one look to the next, however fast the machine is
    clock = SimpleNamespace(perf_counter=lambda: next(walls) / 1000, process_time=lambda: next(processors) / 500)
    monkeypatch.setattr(bulk, "time", clock)
    names = [f"s{number}" for number in range(6)]
    lengths = [0.8 + 0.01 * number for number in range(6)]
    for name, seconds in zip(names, lengths, strict=True):
        sound = np.random.default_rng(len(name)).standard_normal(round(seconds * 16000)) * 0.1
        soundfile.write(tmp_path / f"{name}.wav", sound, 16000)
    durations = dict(zip(names, lengths, strict=True))
    paths = {name: str(tmp_path / f"{name}.wav") for name in names}
    KaldiDir(paths, dict.fromkeys(names, "x"), {}, durations).write(tmp_path / "data")
    output = tmp_path / "bulk.json"
    words = f"--data {tmp_path / 'data'} --root {tmp_path} --output {output} --network resnet10 --turns 1 --every 2"
    assert bulk.main(words.split()) == 0
    record = json.loads(output.read_text())
    assert str(tmp_path) not in record["command"]
    assert (record["utterances"], record["audio_seconds"]) == (3, 2.5)
    assert [row["way"] for row in record["rows"]] == [
        "loop",
        *bulk.WAYS,
        "exported, by onnxruntime, beside each other",
        "exported, by OpenVINO, beside each other",
        "exported, by ncnn, beside each other",
    ]
    assert record["rows"][0]["difference"] == 0
    assert all(row["difference"] < 1e-5 for row in record["rows"])
    assert {(row["seconds"], row["processor_seconds"], row["times"]) for row in record["rows"]} == {(0.001, 0.002, 1)}


def test_an_utterance_without_embedding_ends_it(tmp_path: Path) -> None:
    KaldiDir({"a": str(tmp_path / "gone.wav")}, {"a": "x"}, {}, {"a": 1.0}).write(tmp_path / "data")
    utterances = KaldiDir.read(tmp_path / "data", tmp_path).utterances()
    extractor = bulk.EmbeddingExtractor(torch.nn.Identity(), bulk.build_front_end(), torch.device("cpu"))
    with pytest.raises(RuntimeError, match=r"1 have no embedding: .*gone\.wav"):
        bulk.by_lists(extractor, utterances)
