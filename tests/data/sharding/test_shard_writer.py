"""What is written: archives that WebDataset and tar read, tables that stand alone, same bytes for same input."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import tarfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import soundfile
from m4a_material import write_ffmpeg
from shard_material import RATE, decode, noise, read_locations, read_shards, write_corpus, write_recording

from svtoolkit.audio.files import read_audio
from svtoolkit.audio.shards.reader import read_member
from svtoolkit.data.kaldi_dir import KaldiDir, Segment
from svtoolkit.data.sharding import encoding
from svtoolkit.data.sharding.writer import write_shards
from svtoolkit.data.tables import read_table
from svtoolkit.data.utt2spk import invert, read_utt2spk
from svtoolkit.errors import UserError

pytestmark = pytest.mark.usefixtures("forked_workers")  # test_shard_resume has spawned ones

PER_SHARD = 5  # of 12 utterances: 3 shards


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, KaldiDir]:
    base = tmp_path_factory.mktemp("corpus")
    return base, write_corpus(base)


@pytest.fixture(scope="module")
def shards(corpus: tuple[Path, KaldiDir], tmp_path_factory: pytest.TempPathFactory) -> Path:
    base, kaldi_dir = corpus
    out = tmp_path_factory.mktemp("shards") / "out"
    write_shards(kaldi_dir, out, per_shard=PER_SHARD, tables_from=base / "data")
    return out


def order_in(archive: Path) -> list[str]:
    with tarfile.open(archive) as members:
        return [name.removesuffix(".flac") for name in members.getnames() if name.endswith(".flac")]


@pytest.mark.parametrize("extension", ["wav", "flac"])
def test_any_utterance_and_any_crop_is_that_of_the_file(tmp_path, extension):
    kaldi_dir = write_corpus(tmp_path, extension=extension)
    write_shards(kaldi_dir, tmp_path / "out", per_shard=PER_SHARD)
    locations = read_locations(tmp_path / "out")
    assert sorted(locations) == sorted(kaldi_dir.utt2spk)
    rng = np.random.default_rng(0)
    for utterance in rng.permutation(sorted(locations)):
        whole, rate = soundfile.read(kaldi_dir.wav_scp[utterance], dtype="int16")
        assert rate == RATE
        np.testing.assert_array_equal(whole, noise(utterance, len(whole)))
        np.testing.assert_array_equal(decode(locations[utterance]), whole)
        for first, count in [(0, 1), (len(whole) - 1, 1), *rng.integers(0, len(whole) // 2, (4, 2))]:
            np.testing.assert_array_equal(decode(locations[utterance], first, count), whole[first : first + count])


def test_webdataset_itself_reads_them(shards, corpus):
    webdataset = pytest.importorskip("webdataset", reason="webdataset is not installed")
    kaldi_dir = corpus[1]
    archives = [str(path) for path in sorted(shards.glob("shard-*.tar"))]
    assert len(archives) == 3
    samples = list(webdataset.WebDataset(archives, shardshuffle=False))
    assert [sample["__key__"] for sample in samples] == [utt for path in archives for utt in order_in(Path(path))]
    for sample in samples:
        utterance = sample["__key__"]
        assert {key for key in sample if not key.startswith("__")} == {"flac", "json"}
        facts = json.loads(sample["json"])
        assert facts == {
            "utterance_id": utterance,
            "speaker": kaldi_dir.utt2spk[utterance],
            "seconds": kaldi_dir.utt2dur[utterance],
            "sample_rate": RATE,
        }
        assert sample["flac"] == read_member(read_locations(shards)[utterance])


def test_webdataset_finds_keys_in_ids_with_dots_slashes_and_great_length(tmp_path):
    webdataset = pytest.importorskip("webdataset", reason="webdataset is not installed")
    ids = ["id1/video.1/00001.wav", "жук-100%", "long-" + "я" * 70, "l" * 120, "a\\b"]
    path = write_recording(tmp_path / "one.wav")
    kaldi_dir = KaldiDir({utt: str(path) for utt in ids}, dict.fromkeys(ids, "жук"))
    write_shards(kaldi_dir, tmp_path / "out")
    samples = list(webdataset.WebDataset(str(tmp_path / "out" / "shard-000000.tar"), shardshuffle=False))
    assert sorted(json.loads(sample["json"])["utterance_id"] for sample in samples) == sorted(ids)
    assert all(soundfile.info(io.BytesIO(sample["flac"])).frames == RATE // 4 for sample in samples)
    assert sorted(read_locations(tmp_path / "out")) == sorted(ids)


def test_the_index_is_what_tarfile_finds(shards):
    locations = read_locations(shards)
    found = {}
    for archive in shards.glob("*.tar"):
        with tarfile.open(archive) as members:
            for info in members:
                if info.name.endswith(".flac"):
                    found[info.name.removesuffix(".flac")] = (str(archive), info.offset_data, info.size)
    assert {utt: (place.archive, place.offset, place.size) for utt, place in locations.items()} == found
    lines = (shards / "shards.scp").read_text().splitlines()
    assert lines == sorted(lines)
    assert lines[0].startswith("s00-0 shard-00000")


def test_sha256sum_checks_the_archives(shards, tmp_path):
    if shutil.which("sha256sum") is None:
        pytest.skip("there is no sha256sum on this system")
    copy = tmp_path / "copy"
    shutil.copytree(shards, copy)
    check = ["sha256sum", "--check", "--strict", "shards.sha256"]
    done = subprocess.run(check, cwd=copy, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"shard-{number:06d}.tar: OK" for number in range(3)]
    with (copy / "shard-000001.tar").open("r+b") as stream:
        stream.seek(700)
        stream.write(b"x")
    assert subprocess.run(check, cwd=copy, capture_output=True).returncode == 1


def test_the_directory_stands_alone(shards, corpus, tmp_path):
    base, kaldi_dir = corpus
    moved = tmp_path / "elsewhere"
    shutil.copytree(shards, moved)
    assert {path.name for path in moved.iterdir()} == {
        *(f"shard-{number:06d}.tar" for number in range(3)),
        "shards.scp", "shards.sha256", "utt2spk", "spk2utt", "utt2dur", "trials", ".shards",
    }  # fmt: skip
    for name in ("utt2spk", "spk2utt", "trials"):
        assert (moved / name).read_bytes() == (base / "data" / name).read_bytes()
    durations = {utt: float(value) for utt, (_, value) in read_table(moved / "utt2dur", []).items()}
    assert durations == kaldi_dir.utt2dur
    for utterance, location in read_locations(moved).items():
        assert location.archive.startswith(str(moved))
        np.testing.assert_array_equal(decode(location), noise(utterance, round(durations[utterance] * RATE)))


@pytest.mark.parametrize("jobs", [1, 2])
def test_the_bytes_depend_neither_on_jobs_nor_on_the_order_of_the_list(corpus, shards, tmp_path, jobs):
    base, kaldi_dir = corpus
    backwards = KaldiDir(
        dict(reversed(kaldi_dir.wav_scp.items())), dict(reversed(kaldi_dir.utt2spk.items())), utt2dur=kaldi_dir.utt2dur
    )
    told: list[int] = []
    done = write_shards(
        backwards, tmp_path / "out", per_shard=PER_SHARD, jobs=jobs, tables_from=base / "data", progress=told.append
    )
    assert read_shards(tmp_path / "out") == read_shards(shards)
    assert sorted(told) == [2, 5, 5]
    assert (done.shards, done.reused, done.utterances, done.bad) == (3, 0, 12, [])
    assert done.seconds == pytest.approx(sum(kaldi_dir.utt2dur.values()))


def test_orders(corpus, shards, tmp_path):
    kaldi_dir = corpus[1]
    ids = sorted(kaldi_dir.utt2spk)

    def order(name: str, **options: object) -> list[str]:
        write_shards(kaldi_dir, tmp_path / name, per_shard=PER_SHARD, **options)
        return [utt for path in sorted((tmp_path / name).glob("*.tar")) for utt in order_in(path)]

    assert order("sorted", order="sorted") == ids
    shuffled = [utt for path in sorted(shards.glob("*.tar")) for utt in order_in(path)]
    other = order("other", seed=1)
    assert sorted(shuffled) == sorted(other) == ids
    assert len({tuple(ids), tuple(shuffled), tuple(other)}) == 3


def test_any_few_shards_hold_many_speakers(tmp_path):
    """40 speakers of 5: sorted, a shard of 20 holds 4 of them."""
    path = write_recording(tmp_path / "one.wav", 100)
    utt2spk = {f"s{speaker:02d}-{number}": f"s{speaker:02d}" for speaker in range(40) for number in range(5)}
    write_shards(KaldiDir(dict.fromkeys(utt2spk, str(path)), utt2spk), tmp_path / "out", per_shard=20)
    for archive in (tmp_path / "out").glob("*.tar"):
        assert len(Counter(utt2spk[utt] for utt in order_in(archive))) >= 12


def test_segments_are_cut_out(tmp_path):
    path = write_recording(tmp_path / "tape.wav", RATE)
    kaldi_dir = KaldiDir(
        {"tape": str(path)},
        {"a-1": "a", "a-2": "a", "b-1": "b"},
        {"a-1": Segment("tape", 0.0, 0.25), "a-2": Segment("tape", 0.2500625, 0.5), "b-1": Segment("tape", 0.75, None)},
    )
    write_shards(kaldi_dir, tmp_path / "out")
    locations, tape = read_locations(tmp_path / "out"), noise("tape", RATE)
    np.testing.assert_array_equal(decode(locations["a-1"]), tape[:4000])
    np.testing.assert_array_equal(decode(locations["a-2"]), tape[4001:8000])
    np.testing.assert_array_equal(decode(locations["b-1"]), tape[12000:])
    durations = {utt: float(value) for utt, (_, value) in read_table(tmp_path / "out" / "utt2dur", []).items()}
    assert durations == {"a-1": 0.25, "a-2": 3999 / RATE, "b-1": 0.25}
    assert not (tmp_path / "out" / "segments").exists()
    with pytest.raises(
        UserError, match=r"segments: 'a-1' is a stretch of .*tape.wav; format=original keeps whole files"
    ):
        write_shards(kaldi_dir, tmp_path / "other", format="original")


def test_original_files_are_kept_byte_for_byte(tmp_path):
    files = {"a-1": "audio/one.WAV", "a-2": "audio/two.flac", "b.1": "audio/three.x.ogg"}
    for name in files.values():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        soundfile.write(tmp_path / name, noise(name, 4000), RATE)
    kaldi_dir = KaldiDir(files, {"a-1": "a", "a-2": "a", "b.1": "b"}, root=tmp_path)
    write_shards(kaldi_dir, tmp_path / "out", format="original", sample_rate=RATE)
    with tarfile.open(tmp_path / "out" / "shard-000000.tar") as members:
        names = {name for name in members.getnames() if not name.endswith(".json")}
    assert names == {"a-1.wav", "a-2.flac", "b%2E1.ogg"}
    for utterance, location in read_locations(tmp_path / "out").items():
        assert read_member(location) == (tmp_path / files[utterance]).read_bytes()
    shutil.copy(tmp_path / "audio" / "one.WAV", tmp_path / "audio" / "tape")
    kaldi_dir.wav_scp["a-1"] = "audio/tape"
    with pytest.raises(UserError, match=r"audio/tape: '' is no extension of an audio format"):
        write_shards(kaldi_dir, tmp_path / "other", format="original")


def test_m4a_becomes_flac_and_is_decoded_once(tmp_path, monkeypatch):
    source = write_ffmpeg(tmp_path / "one.m4a", (noise("one", RATE) / 2**17).astype(np.float32), RATE)
    opened: list[Path] = []

    def open_audio(path: Path):
        opened.append(path)
        return plain(path)

    plain = encoding.open_audio
    monkeypatch.setattr(encoding, "open_audio", open_audio)
    kaldi_dir = KaldiDir({"a-1": str(source)}, {"a-1": "a"})
    write_shards(kaldi_dir, tmp_path / "out")
    assert opened == [source], "each time it would be decoded as a whole"
    samples = np.rint(32768 * read_audio(source, sample_rate=RATE)).astype(int)
    np.testing.assert_array_equal(decode(read_locations(tmp_path / "out")["a-1"]), samples)
    write_shards(kaldi_dir, tmp_path / "original", format="original")
    assert read_member(read_locations(tmp_path / "original")["a-1"]) == source.read_bytes()


def test_spk2utt_is_that_of_the_utterances(shards):
    table = {speaker: value.split() for speaker, (_, value) in read_table(shards / "spk2utt", []).items()}
    assert table == invert(read_utt2spk(shards / "utt2spk"))
