"""The loader benchmark in small: it measures what it says, and the common way computes the same."""

from __future__ import annotations

import json
import sys
import time

import numpy as np
import pytest
import soundfile
import torch
from paths import SHARED

pytest.importorskip("kaldi_native_fbank", reason="the common way needs kaldi-native-fbank (extra dev)")

from benchmarks import loader as benchmark
from benchmarks import loader_reading
from benchmarks.common_pipeline import CommonPipeline, kaldi_native_features, torch_features
from benchmarks.loader_material import RATE, Material, describe, make_material
from benchmarks.loader_parts import PARTS, REST, Stopwatch
from benchmarks.page_cache import cached_share, drop_from_cache
from svtoolkit.config import AugmentConfig
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.errors import UserError
from svtoolkit.features import build_front_end

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into the page cache as Linux has it")
DATA = SHARED / "data"


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Material:
    """Four synthetic utterances of exactly a crop."""
    folder = tmp_path_factory.mktemp("material")
    return make_material(folder, None, utterances=4, seconds=32240 / RATE, per_shard=3)


def test_everything_is_measured(tmp_path, capsys):
    output = tmp_path / "loader.json"
    sizes = ["--utterances", "6", "--seconds", "3", "--batch", "3", "--batches", "2", "--rounds", "1"]
    threads = torch.get_num_threads()
    try:
        assert benchmark.main(["--output", str(output), *sizes]) == 0
    finally:
        torch.set_num_threads(threads)
    record = json.loads(output.read_text())
    assert record["command"].startswith("python -m benchmarks.loader --output ")
    assert record["material"]["note"].startswith("synthetic")
    results = record["results"]
    assert len(results["speed"]) == 7
    for row in results["speed"].values():
        assert 0 < row["utterances_per_second"] <= row["utterances_per_second_fastest"]
        assert row["processor_ms"] > 0
    assert results["speed"][benchmark.COMMON]["times_common"] == 1.0
    assert results["speed"][benchmark.COMMON_WAV]["times_common"] == 1.0
    for parts in results["parts_ms"].values():
        assert set(parts) <= {*PARTS, REST}
        assert {"open, seek and decode the crop", "dither", "collate", "filter bank", REST} <= set(parts)
        assert min(parts.values()) >= 0
    assert set(results["reading"]["warm_ms"]) == {"files", "shards"}
    assert ("cold_ms" in results["reading"]) == results["reading"]["cold"].startswith("forgotten")
    assert sum("met" in bar for bar in results["bars"].values()) == 3
    printed = capsys.readouterr().out
    assert "| augmented in the batch | " in printed
    assert "| filter bank | " in printed


@pytest.mark.parametrize("with_kaldi", [True, False])
def test_the_common_way_gives_the_same_features(material, with_kaldi):
    """Without noise and reverberation, at the speed as it is, of utterances that are as long as the crop."""
    sources = benchmark.Sources(material)
    front_end = build_front_end()
    bank = kaldi_native_features(80) if with_kaldi else torch_features(front_end)
    training_set = sources.training_set(speeds=(1.0,))
    never = AugmentConfig(probability=0.0)
    pipeline = CommonPipeline(training_set, *sources.noise_libraries["flac"], never, sources.samples, bank)
    theirs = pipeline.load([(0, 2), (0, 0)])
    ours = front_end(torch.from_numpy(np.stack([sources.plain("files")[0, entry].samples for entry in (2, 0)])))
    assert theirs.shape == ours.shape == (2, 200, 80)
    # Dither of one step of 16 bits moves the features a little; another utterance is 3 away.
    assert float((theirs - ours).abs().mean()) < 0.1
    assert float((theirs - ours.flip(0)).abs().mean()) > 1.0


def test_the_common_way_changes_as_many_crops_as_ours(material):
    sources = benchmark.Sources(material)
    plain, common = sources.common(), sources.common()
    plain.augment = AugmentConfig(probability=0.0)
    changed = []
    for pipeline in (plain, common):
        crops: list[np.ndarray] = []
        pipeline.features = lambda crop, rng, crops=crops: crops.append(crop) or np.zeros((1, 1), np.float32)
        pipeline.load([(epoch, 0) for epoch in range(100)])
        changed.append(crops)
    shares = np.mean([not np.array_equal(before, after) for before, after in zip(*changed, strict=True)])
    assert shares == pytest.approx(0.6, abs=0.12)
    assert all(crop.dtype == np.float32 and crop.shape == (32240,) for crop in changed[1])


def test_material_is_the_same_speech_in_files_and_shards(material):
    sources = benchmark.Sources(material)
    for entry in range(4):
        files, shards = (sources.plain(name)[0, entry].samples for name in ("files", "shards"))
        np.testing.assert_array_equal(files, shards)
    assert len(material.audio()["shards"]) == 2
    about = describe(material)
    assert (about["utterances"], about["rooms"], about["noise_files"]["music"]) == (4, 20, 10)
    flac, wav = (KaldiDir.read(folder).utt2dur for folder in (material.noise, material.noise_wav))
    assert flac == wav


def test_real_utterances_are_joined_to_one_length(tmp_path):
    if not DATA.is_dir():
        pytest.skip("needs the shared recordings")
    real = make_material(tmp_path, DATA, utterances=5, seconds=8.0, per_shard=2)
    kaldi_dir = KaldiDir.read(real.files)
    assert set(kaldi_dir.utt2dur.values()) == {8.0}
    assert len(kaldi_dir.speakers) > 1
    assert "rounded away" in describe(real)["note"]


def test_too_few_recordings_are_refused(tmp_path):
    data = tmp_path / "data"
    kaldi_dir = KaldiDir(root=data)
    for name in ("ann-1", "ann-2"):
        (data / "audio").mkdir(parents=True, exist_ok=True)
        soundfile.write(data / "audio" / f"{name}.wav", np.full(1500, 0.1), RATE)
        kaldi_dir.wav_scp[name], kaldi_dir.utt2spk[name] = f"audio/{name}.wav", "ann"
    kaldi_dir.write(data / "speechocean762" / "train")
    (tmp_path / "out").mkdir()
    with pytest.raises(UserError, match=r"gives 1 utterances of 0\.1 s, expected 2"):
        make_material(tmp_path / "out", data, utterances=2, seconds=0.1, per_shard=2)


def test_more_crops_than_there_are_utterances_are_refused():
    with pytest.raises(UserError, match=r"3 batches of 4 crops need as many utterances, found 11"):
        benchmark.choose_batches(11, 4, 3)
    chosen = benchmark.choose_batches(12, 4, 3)
    assert sorted(entry for items in chosen for _, entry in items) == list(range(12))


def test_what_stays_in_memory_is_not_called_cold(tmp_path, monkeypatch):
    path = tmp_path / "sound"
    path.write_bytes(bytes(10_000))
    ways = {"files": path.read_bytes, "shards": path.read_bytes}
    monkeypatch.setattr(loader_reading, "drop_from_cache", lambda paths: None)
    record = loader_reading.compare_reading(ways, {"files": [path], "shards": [path]}, 1, 1)
    assert record["cold"] == "not measured: the system keeps 100 % of the files in memory"
    assert "cold_ms" not in record


def test_a_part_is_timed_without_what_it_calls(monkeypatch):
    clock = iter([0.0, 1.0, 3.0, 10.0])  # outer begins, inner begins, inner ends, outer ends
    monkeypatch.setattr(time, "process_time", lambda: next(clock))
    watch = Stopwatch()
    inner = watch.timed("inner", lambda: "result")
    assert watch.timed("outer", inner)() == "result"
    assert watch.seconds == {"inner": 2.0, "outer": 8.0}


def test_what_is_watched_is_left_as_it_was():
    before = [getattr(owner, name) for owner, name in PARTS.values()]
    with Stopwatch().watching():
        assert all(getattr(owner, name) is not old for (owner, name), old in zip(PARTS.values(), before, strict=True))
    assert [getattr(owner, name) for owner, name in PARTS.values()] == before


def test_the_page_cache_is_looked_into(tmp_path):
    path = tmp_path / "sound"
    path.write_bytes(bytes(100_000))
    assert cached_share([path]) == 1.0
    drop_from_cache([path])
    assert 0.0 <= cached_share([path]) <= 1.0  # what lives in memory stays
    path.read_bytes()
    assert cached_share([path]) == 1.0
