"""Runs on shards: the numbers of the run on files, from a folder, from a URL, shard by shard."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tiny_runs import assert_same_run, fail_after, files_of, read_records, tiny_config

from svtoolkit.audio.shards.reader import configure_remote
from svtoolkit.crops.manifest import Manifest
from svtoolkit.crops.sampler import BatchSampler, Windows
from svtoolkit.crops.training_data import TrainingData
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.data.sharding.writer import write_shards
from svtoolkit.data.validation import validate
from svtoolkit.errors import UserError
from svtoolkit.training.experiment import train


@pytest.fixture(scope="module")
def shards(speech, tmp_path_factory) -> Path:
    """The corpus of the tiny run in shards of ten utterances."""
    folder = tmp_path_factory.mktemp("shards") / "data"
    write_shards(KaldiDir.read(speech), folder, per_shard=10, tables_from=speech)
    return folder


@pytest.fixture(autouse=True)
def no_cache_is_left():
    yield
    configure_remote(None)


def test_a_directory_of_shards_holds_the_same_utterances(shards, speech):
    files, ours = KaldiDir.read(speech), KaldiDir.read(shards)
    assert not (shards / "wav.scp").exists()
    assert ours.utt2spk == files.utt2spk
    assert ours.utt2dur == pytest.approx(files.utt2dur or ours.utt2dur)
    assert list(Manifest.read(shards)) == list(Manifest.of(ours))
    assert validate(shards).faults == []


def test_shards_of_a_directory_that_was_moved(shards, tmp_path):
    shutil.copytree(shards, tmp_path / "elsewhere")
    paths = [str(utterance.path) for utterance in Manifest.read(tmp_path / "elsewhere")]
    assert all(path.startswith(f"{tmp_path}/elsewhere/shard-") for path in paths)


def test_where_there_are_both_the_source_decides(shards, speech, tmp_path):
    both = tmp_path / "both"
    shutil.copytree(shards, both)
    shutil.copyfile(speech / "wav.scp", both / "wav.scp")
    files, first = KaldiDir.read(speech), min(KaldiDir.read(speech).utt2spk)
    for source, is_sharded in ((None, False), ("files", False), ("shards", True)):
        for directory in (KaldiDir.read(both, None, source), Manifest.read(both, None, source).kaldi_dir()):
            assert (directory.audio_path(first) != files.audio_path(first)) == is_sharded
    with pytest.raises(UserError, match=r"data\.source is 'tar', expected files, shards or features, or null for what"):
        Manifest.read(both, None, "tar")
    with pytest.raises(UserError, match=r"shards\.scp: the file is missing"):
        Manifest.read(speech, None, "shards")


def test_a_run_may_go_on_from_shards(shards, speech, finished, tmp_path, monkeypatch):
    """The corpus was moved into them while the run was stopped."""
    data = tmp_path / "data"
    shutil.copytree(shards, data)
    shutil.copyfile(speech / "wav.scp", data / "wav.scp")
    with monkeypatch.context() as patched:
        fail_after(patched, 4)
        with pytest.raises(RuntimeError):
            train(tiny_config(data, tmp_path / "exp", data__source="files"))
    assert train(tiny_config(data, tmp_path / "exp", data__source="shards", data__num_workers=1)) is None
    assert_same_run(tmp_path / "exp", finished)


def test_shards_at_a_url_are_streamed_into_the_cache(shards, finished, server, tmp_path, monkeypatch):
    """Its user and password serve a run that is resumed, too, and no file of it shows them."""
    tables = tmp_path / "tables"
    shutil.copytree(shards, tables)
    for archive in tables.glob("*.tar"):
        server.files[f"/{archive.name}"] = archive.read_bytes()
        archive.unlink()
    url = server.url("").replace("http://", "http://someone:secret@")
    config = tiny_config(
        tables, tmp_path / "exp", data__root=url, data__cache_dir=str(tmp_path / "cache"), data__num_workers=2
    )
    with monkeypatch.context() as patched:
        fail_after(patched, 7)
        with pytest.raises(RuntimeError):
            train(config)
    shutil.rmtree(tmp_path / "cache")
    del server.asked[:]
    assert train(config) is None
    assert_same_run(tmp_path / "exp", finished)
    assert list((tmp_path / "cache").rglob("*.tar"))
    assert server.asked
    shown = [path for path, content in files_of(tmp_path / "exp").items() if b"secret" in content]
    assert shown == []
    assert yaml.safe_load((tmp_path / "exp" / "config.yaml").read_text())["data"]["root"].startswith("http://***@127")


def test_shuffled_shard_by_shard(shards, tmp_path):
    assert train(tiny_config(shards, tmp_path / "exp", data__shuffle_shards=2, trainer__epochs=1)) is None
    assert [record["kind"] for record in read_records(tmp_path / "exp")].count("epoch") == 1
    windows = TrainingData(tiny_config(shards, tmp_path, data__shuffle_shards=2)).windows()
    assert windows is not None
    assert len(windows.group) == 36 * 3
    assert set(windows.group) == set(range(5))


@given(st.lists(st.integers(0, 5), min_size=6, max_size=40), st.integers(1, 4), st.integers(0, 3))
def test_windows_keep_all_entries_and_hold_few_groups(groups, size, epoch):
    group = [0, 1, 2, 3, 4, 5, *groups]
    sampler = BatchSampler(len(group), batch_size=1, micro_batch=1, seed=1, windows=Windows(np.array(group), size))
    order = sampler.shuffle(epoch)
    assert sorted(order) == list(range(len(group)))
    assert (order == sampler.shuffle(epoch)).all()
    met: list[set[int]] = [set()]
    for entry in order:
        if group[entry] not in met[-1] and len(met[-1]) == size:
            met.append(set())
        met[-1].add(group[entry])
    assert sum(map(len, met)) == 6, "no group comes twice"
    assert len(met) == -(-6 // size)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"data__cache_dir": "/tmp/cache"},
            r"data\.cache_dir is /tmp/cache, and the audio of .* is local; leave it out",
        ),
        ({"data__root": "https://host/shards"}, r"data\.cache_dir is None, and the audio of .* is at a URL; give a"),
    ],
)
def test_a_cache_is_for_a_url(shards, tmp_path, changes, says):
    with pytest.raises(UserError, match=says):
        TrainingData(tiny_config(shards, tmp_path, **changes))


def test_files_are_not_shuffled_by_shards(speech, tmp_path):
    with pytest.raises(UserError, match=r"data\.shuffle_shards is 2, but .* is read from files; leave it out"):
        TrainingData(tiny_config(speech, tmp_path, data__shuffle_shards=2)).windows()


def test_damaged_shards_are_found(shards, tmp_path):
    broken = tmp_path / "broken"
    shutil.copytree(shards, broken)
    archive = broken / "shard-000001.tar"
    archive.write_bytes(archive.read_bytes()[:5000])
    faults = validate(broken).faults
    assert any("shard-000001.tar" in str(fault) for fault in faults)
    with pytest.raises(UserError, match=r"shard-000001\.tar"):
        train(tiny_config(broken, tmp_path / "exp", validation__speakers=0))
