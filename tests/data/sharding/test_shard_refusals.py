"""Audio that cannot be used is left out, listed, and in the end too much; options that do not go together."""

from __future__ import annotations

import io
import os

import numpy as np
import pytest
import soundfile
from shard_material import RATE, decode, noise, read_locations, read_shards, write_corpus, write_recording
from small_directories import write_noise

from svtoolkit.audio.shards.reader import read_member
from svtoolkit.data.kaldi_dir import KaldiDir, Segment
from svtoolkit.data.sharding.writer import write_shards
from svtoolkit.data.utt2spk import read_utt2spk
from svtoolkit.errors import UserError

pytestmark = pytest.mark.usefixtures("forked_workers")  # test_shard_resume has spawned ones

PER_SHARD = 5  # of 12 utterances: 3 shards


def test_bad_files_are_left_out_and_listed(tmp_path, caplog):
    kaldi_dir = write_corpus(tmp_path)
    (tmp_path / "audio" / "s01-1.wav").write_bytes(b"no\taudio")
    (tmp_path / "data" / "utt2lang").write_text("s01-1 en\ns02-0 nl\n")
    (tmp_path / "data" / "spk2gender").write_text("s00 f\ns09 m\n")
    (tmp_path / "data" / "trials_own").write_text("s00-0  s00-1 target\ns01-1 s00-0 nontarget\n")
    out = tmp_path / "out"
    done = write_shards(kaldi_dir, out, per_shard=PER_SHARD, tables_from=tmp_path / "data")
    assert (done.utterances, [item.utterance_id for item in done.bad]) == (11, ["s01-1"])
    head, line = (out / "bad_files.tsv").read_text().splitlines()
    assert head == "utterance\tfile\treason"
    assert line.startswith(f"s01-1\t{tmp_path}/audio/s01-1.wav\t{tmp_path}/audio/s01-1.wav: cannot be read as audio")
    kept = sorted(set(kaldi_dir.utt2spk) - {"s01-1"})
    assert sorted(read_locations(out)) == kept
    assert read_utt2spk(out / "utt2spk") == {utt: kaldi_dir.utt2spk[utt] for utt in kept}
    assert "s01-1" not in (out / "spk2utt").read_text() + (out / "utt2dur").read_text() + (out / "trials").read_text()
    assert (out / "trials").read_text()
    assert (out / "trials_own").read_text() == "s00-0  s00-1 target\n"
    assert (out / "utt2lang").read_text() == "s02-0 nl\n"
    assert (out / "spk2gender").read_text() == "s00 f\n"
    assert f"{tmp_path}/data/trials_own: 1 of 2 trials are of utterances in the shards" in caplog.text
    assert "1 utterances are left out for bad audio; the first: " in caplog.text
    write_shards(kaldi_dir, tmp_path / "again", per_shard=PER_SHARD, jobs=2, tables_from=tmp_path / "data")
    assert read_shards(tmp_path / "again") == read_shards(out)


def test_a_speaker_and_a_shard_of_whom_nothing_is_left(tmp_path):
    kaldi_dir = write_corpus(tmp_path, speakers=2, utterances=1)
    (tmp_path / "audio" / "s00-0.wav").unlink()
    out = tmp_path / "out"
    done = write_shards(kaldi_dir, out, per_shard=1, order="sorted")
    assert done.shards == 1
    assert [path.name for path in out.glob("*.tar")] == ["shard-000001.tar"]
    assert (out / "spk2utt").read_text() == "s01 s01-0\n"
    assert (out / "shards.sha256").read_text().endswith("  shard-000001.tar\n")
    assert "there is no such file" in (out / "bad_files.tsv").read_text()
    alone = kaldi_dir.subset(["s00-0"])
    with pytest.raises(UserError, match=r"no utterance is left to write; bad_files.tsv there says why"):
        write_shards(alone, tmp_path / "none")
    assert not (tmp_path / "none" / "shards.scp").exists()


@pytest.mark.parametrize("jobs", [1, 2])
def test_too_many_bad_files(tmp_path, jobs):
    kaldi_dir = write_corpus(tmp_path)
    for name in ("s00-0", "s01-1", "s03-2"):
        (tmp_path / "audio" / f"{name}.wav").write_bytes(b"no audio")
    out = tmp_path / "out"
    with pytest.raises(
        UserError,
        match=r"cannot be used, with max_bad=0.001 1 may be: .*audio/s.*cannot be read as audio.*or raise max_bad",
    ):
        write_shards(kaldi_dir, out, per_shard=PER_SHARD, jobs=jobs)
    assert not (out / "shards.scp").exists()
    listed = [line.split("\t")[0] for line in (out / "bad_files.tsv").read_text().splitlines()[1:]]
    assert set(listed) <= {"s00-0", "s01-1", "s03-2"}
    assert len(listed) >= 2
    # What is repaired is tried again.
    for name in ("s00-0", "s01-1", "s03-2"):
        number = int(name[1:3]) * 100 + int(name[-1]) * 10
        write_recording(tmp_path / "audio" / f"{name}.wav", 3000 + number)
    write_shards(kaldi_dir, out, per_shard=PER_SHARD, jobs=jobs)
    assert not (out / "bad_files.tsv").exists()
    write_shards(write_corpus(tmp_path), tmp_path / "fresh", per_shard=PER_SHARD)
    assert read_shards(out) == read_shards(tmp_path / "fresh")


def test_an_empty_segment_is_a_bad_file(tmp_path):
    path = write_recording(tmp_path / "tape.wav", RATE)
    kaldi_dir = KaldiDir({"tape": str(path)}, {"a-1": "a"}, {"a-1": Segment("tape", 2.0, 3.0)})
    with pytest.raises(UserError, match=r"tape.wav: there are no samples at 2 s, where 'a-1' begins"):
        write_shards(kaldi_dir, tmp_path / "out", max_bad=0)
    soundfile.write(tmp_path / "empty.wav", np.zeros(0, dtype=np.int16), RATE)
    empty = KaldiDir({"a-1": str(tmp_path / "empty.wav")}, {"a-1": "a"})
    for audio_format in ("flac", "original"):
        with pytest.raises(UserError, match=r"no samples at 0 s|holds no sample"):
            write_shards(empty, tmp_path / audio_format, format=audio_format, max_bad=0)


@pytest.mark.parametrize("audio_format", ["flac", "original"])
@pytest.mark.parametrize("name", ["cut.flac", "cut.mp3"])
@pytest.mark.parametrize("kept", [0.5, 0.9])
def test_a_recording_that_is_cut_off_is_a_bad_file(name, kept, audio_format, tmp_path):
    """Its header says that it is whole."""
    path = write_noise(tmp_path / name, 3 * RATE)
    kaldi_dir = KaldiDir({"a-1": str(path)}, {"a-1": "a"})
    assert not write_shards(kaldi_dir, tmp_path / "whole", format=audio_format, max_bad=0).bad
    os.truncate(path, int(kept * path.stat().st_size))
    with pytest.raises(
        UserError, match=rf"with max_bad=0 0 may be: {path}: .*(the file is cut off|cannot be read as audio)"
    ):
        write_shards(kaldi_dir, tmp_path / "out", format=audio_format, max_bad=0)


@pytest.mark.parametrize("broken", [np.nan, -np.inf])
def test_samples_that_are_no_numbers_are_a_bad_file(broken, tmp_path):
    path = tmp_path / "tape.wav"
    soundfile.write(path, np.array([0.0, broken, 0.0]), RATE, subtype="FLOAT")
    kaldi_dir = KaldiDir({"a-1": str(path)}, {"a-1": "a"})
    with pytest.raises(
        UserError, match=rf"with max_bad=0 0 may be: {path}: has samples that are NaN or infinite; re-create the file"
    ):
        write_shards(kaldi_dir, tmp_path / "out", max_bad=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"per_shard": 0}, "per_shard is 0, expected 1 or more"),
        ({"jobs": 0}, "jobs is 0, expected 1 or more"),
        ({"sample_rate": 0}, "sample_rate is 0, expected 1 or more"),
        ({"format": "mp3"}, "format is 'mp3', expected one of flac, original"),
        ({"order": "random"}, "order is 'random', expected one of shuffled, sorted"),
        ({"max_bad": 1.0}, "max_bad is 1.0, expected a share of the utterances"),
        ({"max_bad": -0.1}, "max_bad is -0.1, expected a share of the utterances"),
        ({"channel": -1}, "channel is -1, expected 0 or more"),
        ({"resample": True}, "resample=true needs the rate to convert to"),
        ({"format": "original", "channel": 0}, "format=original keeps files as they are; leave out channel"),
        (
            {"format": "original", "resample": True, "sample_rate": 8000},
            "format=original keeps files as they are",
        ),
    ],
)
def test_options_that_cannot_be(tmp_path, options, message):
    with pytest.raises(UserError, match=message):
        write_shards(write_corpus(tmp_path), tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_a_directory_without_utterances(tmp_path):
    with pytest.raises(UserError, match="the data directory holds no utterance"):
        write_shards(KaldiDir(), tmp_path / "out")


def test_rates_and_channels(tmp_path):
    low = write_recording(tmp_path / "low.wav", 4000, 8000)
    both = tmp_path / "both.wav"
    soundfile.write(both, np.stack([noise("left", 4000), noise("right", 4000)], axis=1), RATE)
    low_dir = KaldiDir({"a-1": str(low)}, {"a-1": "a"})
    write_shards(low_dir, tmp_path / "kept", max_bad=0)
    assert soundfile.info(io.BytesIO(read_member(read_locations(tmp_path / "kept")["a-1"]))).samplerate == 8000
    with pytest.raises(
        UserError, match=r"sample rate is 8000 Hz, expected 16000 Hz; set sample_rate=8000, or resample"
    ):
        write_shards(low_dir, tmp_path / "refused", sample_rate=RATE, max_bad=0)
    write_shards(low_dir, tmp_path / "converted", sample_rate=RATE, resample=True, max_bad=0)
    assert len(decode(read_locations(tmp_path / "converted")["a-1"])) == 8000
    assert (tmp_path / "converted" / "utt2dur").read_text() == "a-1 0.5\n"
    both_dir = KaldiDir({"a-1": str(both)}, {"a-1": "a"})
    with pytest.raises(UserError, match=r"both.wav: 2 channels, expected one; choose one with channel=0"):
        write_shards(both_dir, tmp_path / "two", max_bad=0)
    with pytest.raises(UserError, match=r"both.wav: there is no channel 2, the file has 2"):
        write_shards(both_dir, tmp_path / "three", channel=2, max_bad=0)
    write_shards(both_dir, tmp_path / "right", channel=1, max_bad=0)
    np.testing.assert_array_equal(decode(read_locations(tmp_path / "right")["a-1"]), noise("right", 4000))
