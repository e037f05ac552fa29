"""`compute_features`: what it writes, how it resumes, what it leaves out and refuses."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kaldiio
import numpy as np
import pytest
import soundfile
import torch
import yaml
from feature_material import BINS, content_of, write_features_of
from killed_rename import run_and_kill
from speech_material import write_speech

from svtoolkit.audio.files import read_audio
from svtoolkit.config import ComputeFeaturesConfig, FeaturesConfig
from svtoolkit.data import archive_writer, feature_task
from svtoolkit.data.feature_writer import compute_features
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.data.sharding.writer import write_shards
from svtoolkit.data.tables import Segment, read_table
from svtoolkit.errors import UserError
from svtoolkit.features import FrontEnd, build_front_end
from svtoolkit.models.front_ends import front_end_of
from svtoolkit.system.file_lock import hold_lock

PER_ARCHIVE = 7  # of 48 utterances: 7 archives


@pytest.fixture(scope="module")
def written(speech, tmp_path_factory) -> Path:
    """float32, undisturbed; not to be changed."""
    out = tmp_path_factory.mktemp("features") / "out"
    write_features_of(speech, out, per_archive=PER_ARCHIVE)
    return out


def table(path: Path) -> dict[str, str]:
    return {key: value for key, (_, value) in read_table(path, []).items()}


def test_features_are_those_of_whole_utterances_before_the_mean_is_removed(speech, written):
    front_end = build_front_end(num_bins=BINS, remove_mean=False)
    kaldi_dir = KaldiDir.read(speech)
    found = kaldiio.load_scp(str(written / "feats.scp"))
    assert sorted(found) == sorted(kaldi_dir.utt2spk)
    for utterance, path in kaldi_dir.wav_scp.items():
        samples = torch.from_numpy(read_audio(path, sample_rate=16000))
        np.testing.assert_allclose(found[utterance], front_end(samples[None])[0].numpy(), atol=1e-5)
        assert found[utterance].dtype == np.float32


def test_features_of_shards_are_those_of_files(speech, written, tmp_path):
    write_shards(KaldiDir.read(speech), tmp_path / "shards", per_shard=20)
    write_features_of(tmp_path / "shards", tmp_path / "out", per_archive=PER_ARCHIVE)
    ours, theirs = content_of(tmp_path / "out"), content_of(written)
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if ours[name] != theirs[name]] == [".features/made_of.json"]


def test_tables_and_settings(speech, written):
    for name in ("utt2spk", "spk2utt"):
        assert (written / name).read_bytes() == (speech / name).read_bytes()
    ours, theirs = table(written / "utt2dur"), table(speech / "utt2dur")
    assert {key: float(value) for key, value in ours.items()} == {key: float(value) for key, value in theirs.items()}
    found = kaldiio.load_scp(str(written / "feats.scp"))
    assert table(written / "utt2num_frames") == {name: str(len(found[name])) for name in found}
    assert not (written / "wav.scp").exists()
    content = yaml.safe_load((written / "features.yaml").read_text())
    assert content == {
        "format": "float32",
        "dither": 0.0,
        "features": {
            "backend": "torch", "sample_rate": 16000, "num_bins": BINS, "frame_length_ms": 25.0,
            "frame_shift_ms": 10.0, "window": "hamming", "preemphasis": 0.97, "low_freq": 20.0, "high_freq": 0.0,
            "int16_scale": True, "remove_mean": False,
        },
    }  # fmt: skip


@pytest.mark.usefixtures("forked_workers")
def test_bytes_depend_neither_on_processes_nor_on_threads(speech, written, tmp_path):
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        told: list[int] = []
        done = write_features_of(speech, tmp_path / "out", told.append, per_archive=PER_ARCHIVE, jobs=2)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert content_of(tmp_path / "out") == content_of(written)
    assert sum(told) == done.utterances == 48
    assert (done.archives, done.reused, done.bad) == (7, 0, [])
    assert done.size == sum(path.stat().st_size for path in written.glob("*.ark"))


def write_archives_of_seven(speech: Path, out: Path) -> None:
    write_features_of(speech, out, per_archive=PER_ARCHIVE)


@pytest.mark.parametrize("moment", ["before the name", "after the name", "amid the tables"])
def test_killed_and_continued(speech, written, tmp_path, moment):
    """Renames: the claim, then archive and record of each, then the tables."""
    number, after = {"before the name": (6, False), "after the name": (6, True), "amid the tables": (18, True)}[moment]
    assert run_and_kill(write_archives_of_seven, number, speech, tmp_path / "out", after=after) == -signal.SIGKILL
    out = tmp_path / "out"
    left, whole = content_of(out), content_of(written)
    archives = [name for name in left if name.endswith(".ark")]
    assert len(archives) == {"before the name": 2, "after the name": 3, "amid the tables": 7}[moment]
    assert all(left[name] == whole[name] for name in left if not Path(name).name.startswith(".feats"))
    assert any(name.startswith(".feats") and name.endswith(".tmp") for name in left) == (moment == "before the name")
    assert "feats.scp" not in left
    told: list[int] = []
    continued = write_features_of(speech, out, told.append, per_archive=PER_ARCHIVE)
    assert continued.reused == {"amid the tables": 7}.get(moment, 2)
    assert sum(told) == 48
    assert content_of(out) == whole


def test_what_is_finished_is_not_computed_again(speech, written, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(feature_task, "compute_frames", lambda *_: pytest.fail("it is computed again"))
    before = content_of(written)
    with caplog.at_level("INFO"):
        done = write_features_of(speech, written, per_archive=PER_ARCHIVE)
    assert (done.archives, done.reused, done.utterances) == (7, 7, 48)
    assert caplog.messages == [f"{written}: all archives are there"]
    assert content_of(written) == before


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda out: (out / "feats-000001.ark").write_bytes(b"half"), "has 4 bytes, was written with"),
        (lambda out: (out / "feats-000001.ark").unlink(), "has 0 bytes, was written with"),
        (lambda out: (out / ".features" / "feats-000001.json").write_text("{"), "is no record of an archive"),
    ],
)
def test_what_is_not_whole_is_made_again(speech, written, tmp_path, harm, message, caplog):
    out = tmp_path / "out"
    write_features_of(speech, out, per_archive=PER_ARCHIVE)
    harm(out)
    assert write_features_of(speech, out, per_archive=PER_ARCHIVE).reused == 6
    assert message in caplog.text
    assert content_of(out) == content_of(written)


@pytest.mark.parametrize("kind", ["files", "shards"])
def test_what_is_older_than_its_audio_is_made_again(tmp_path, caplog, kind):
    data = write_speech(tmp_path / "speech", speakers=2, utterances=4)
    if kind == "shards":
        write_shards(KaldiDir.read(data), tmp_path / "shards", per_shard=4, order="sorted")
        data, changed = tmp_path / "shards", tmp_path / "shards" / "shard-000001.tar"
    else:
        changed = tmp_path / "speech" / "audio" / "spk1-utt2.flac"
    out = tmp_path / "out"
    write_features_of(data, out, per_archive=4)
    assert write_features_of(data, out, per_archive=4).reused == 2
    later = (out / "feats-000001.ark").stat().st_mtime_ns + 10**9
    if kind == "files":
        soundfile.write(changed, soundfile.read(changed)[0] / 2, 16000)
    os.utime(changed, ns=(later, later))
    before = content_of(out)
    assert write_features_of(data, out, per_archive=4).reused == 1
    assert f"{out}/feats-000001.ark: is older than {changed}; it is made again" in caplog.text
    after = content_of(out)
    assert before["feats-000000.ark"] == after["feats-000000.ark"]
    assert (before["feats-000001.ark"] == after["feats-000001.ark"]) == (kind == "shards")


def write_bad(folder: Path) -> Path:
    """Six utterances: two fine, one each no audio, too short, silent samples that are NaN, of another rate."""
    kaldi_dir = KaldiDir()
    rng = np.random.default_rng(0)
    audio = {
        "a-1": (0.1 * rng.standard_normal(8000), 16000),
        "a-2": (0.1 * rng.standard_normal(9000), 16000),
        "b-1": (None, 0),
        "b-2": (np.zeros(399), 16000),
        "c-1": (np.full(8000, np.nan), 16000),
        "c-2": (np.zeros(8000), 8000),
    }
    for name, (samples, rate) in audio.items():
        path = folder / f"{name}.wav"
        path.parent.mkdir(exist_ok=True)
        if samples is None:
            path.write_bytes(b"no audio")
        else:
            soundfile.write(path, samples, rate, subtype="FLOAT")
        kaldi_dir.wav_scp[name], kaldi_dir.utt2spk[name] = str(path), name[0]
    kaldi_dir.write(folder / "data")
    (folder / "data" / "trials").write_text("a-1 a-2 target\na-1 b-1 nontarget\n")
    return folder / "data"


def test_bad_files_are_left_out_and_listed(tmp_path, caplog):
    data = write_bad(tmp_path)
    done = write_features_of(data, tmp_path / "out", max_bad=0.7, per_archive=2)
    assert (done.utterances, done.archives, len(done.bad)) == (2, 1, 4)
    lines = (tmp_path / "out" / "bad_files.tsv").read_text().splitlines()[1:]
    assert [line.split("\t")[0] for line in lines] == ["b-1", "b-2", "c-1", "c-2"]
    for line, reason in zip(
        lines,
        (
            "cannot be read as audio",
            "399 samples are shorter than one window of 400; drop the utterance",
            "gives features that are NaN or infinite; re-create the file or drop it",
            "sample rate is 8000 Hz, expected 16000 Hz; allow resample=true, or convert the audio (`svt convert`)",
        ),
        strict=True,
    ):
        assert reason in line
    assert list(table(tmp_path / "out" / "feats.scp")) == ["a-1", "a-2"]
    assert (tmp_path / "out" / "trials").read_text() == "a-1 a-2 target\n"
    assert f"{data}/trials: 1 of 2 trials are of utterances that have features" in caplog.text
    more = write_features_of(data, tmp_path / "more", max_bad=0.7, resample=True)
    assert len(more.bad) == 3


def test_too_many_bad_files_end_the_work_and_are_tried_again(tmp_path):
    data = write_bad(tmp_path)
    with pytest.raises(UserError, match=r"of 6 files cannot be used, with max_bad=0\.3 1 may be: .*or raise max_bad"):
        write_features_of(data, tmp_path / "out", max_bad=0.3, per_archive=2)
    assert not (tmp_path / "out" / "feats.scp").exists()
    assert (tmp_path / "out" / "bad_files.tsv").is_file()
    for name in ("b-1", "b-2", "c-1", "c-2"):
        soundfile.write(tmp_path / f"{name}.wav", np.zeros(8000), 16000)
    done = write_features_of(data, tmp_path / "out", max_bad=0.3, per_archive=2)
    assert (done.utterances, done.reused, done.bad) == (6, 1, [])
    assert not (tmp_path / "out" / "bad_files.tsv").exists()


def test_segments_are_stretches_of_their_recording(tmp_path):
    samples = (0.1 * np.random.default_rng(0).standard_normal(32000)).astype(np.float32)
    soundfile.write(tmp_path / "tape.wav", samples, 16000, subtype="FLOAT")
    tape = KaldiDir({"tape": str(tmp_path / "tape.wav")}, {"a-1": "a", "b-1": "b"})
    tape.segments = {"a-1": Segment("tape", 0.0, 0.5), "b-1": Segment("tape", 0.75, None)}
    tape.write(tmp_path / "data")
    write_features_of(tmp_path / "data", tmp_path / "out")
    found = kaldiio.load_scp(str(tmp_path / "out" / "feats.scp"))
    front_end = build_front_end(num_bins=BINS, remove_mean=False)
    for name, part in (("a-1", samples[:8000]), ("b-1", samples[12000:])):
        expected = front_end(torch.from_numpy(part)[None])[0].numpy()
        np.testing.assert_allclose(found[name], expected, atol=1e-5)
    assert table(tmp_path / "out" / "utt2dur") == {"a-1": "0.5", "b-1": "1.25"}
    assert not (tmp_path / "out" / "segments").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "float64"}, "format is 'float64', expected one of float32, float16, compressed"),
        ({"jobs": 0}, "jobs is 0, expected 1 or more"),
        ({"per_archive": 0}, "per_archive is 0, expected 1 or more"),
        ({"channel": -1}, "channel is -1, expected 0 or more"),
        ({"max_bad": 1.0}, r"max_bad is 1\.0, expected a share of the utterances"),
        ({"features": FeaturesConfig(num_bins=2)}, r"features\.num_bins is 2, expected 4 filters or more"),
        ({"features": FeaturesConfig(remove_mean=False)}, r"features\.remove_mean is false, but .* give it to `svt tr"),
    ],
)
def test_options_that_cannot_be(speech, tmp_path, options, message):
    with pytest.raises(UserError, match=message):
        write_features_of(speech, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def whole_utterance_front_end() -> FrontEnd:
    """Of a package that says nothing of its frames."""
    made = build_front_end(num_bins=BINS)
    return FrontEnd(made.options, made.filter_bank, remove_mean=True)


def test_a_front_end_that_does_not_say_that_its_frames_can_be_cut_is_refused(speech, tmp_path):
    config = ComputeFeaturesConfig(str(speech), str(tmp_path / "out"), features=FeaturesConfig(backend="mine"))
    with pytest.raises(
        UserError, match=r"features\.backend=mine does not say .* FrontEnd\(\.\.\., framewise=True\); if not, train on"
    ):
        compute_features(config, whole_utterance_front_end)
    assert not (tmp_path / "out").exists()
    assert front_end_of(FeaturesConfig()).framewise


def test_other_settings_and_other_content_are_refused(speech, written, tmp_path):
    with pytest.raises(UserError, match=r"made_of\.json: the folder holds features made of .*float32.*asked for"):
        write_features_of(speech, written, per_archive=PER_ARCHIVE, format="float16")
    with pytest.raises(UserError, match=r"the folder holds features made of"):
        write_features_of(speech, written, per_archive=PER_ARCHIVE, features=FeaturesConfig(num_bins=30))
    with pytest.raises(UserError, match=r"wav\.scp: the folder holds data already; choose another one"):
        write_features_of(speech, speech)
    with (
        hold_lock(written / ".features" / "lock"),
        pytest.raises(UserError, match="another process is computing features there; wait for it or stop it"),
    ):
        write_features_of(speech, written, per_archive=PER_ARCHIVE)


def test_a_killed_worker_is_a_sentence(speech, tmp_path, monkeypatch):
    def die(function: object, tasks: object, jobs: int, *, killed: str) -> Iterator[Any]:
        assert jobs == 2
        raise UserError(killed)
        yield

    monkeypatch.setattr(archive_writer, "map_unordered", die)
    with pytest.raises(UserError, match=r"out: a worker process was killed, .*; finished archives are kept: run"):
        write_features_of(speech, tmp_path / "out", jobs=2)


def test_features_are_no_audio(written, tmp_path):
    """Other commands say what the directory is."""
    with pytest.raises(UserError, match=r"wav\.scp: the file is missing, and of the features of feats\.scp no audio"):
        KaldiDir.read(written)
