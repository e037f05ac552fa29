from __future__ import annotations

import logging
import os
import re
from pathlib import Path

import numpy as np
import pytest
import soundfile
from m4a_material import write_m4a

from svtoolkit.corpora import voxceleb
from svtoolkit.corpora.voxceleb import VOX2_TEST, prepare_voxceleb1, prepare_voxceleb2
from svtoolkit.errors import UserError

RATE = 16000
VOX1 = (  # speaker/video/number; a video id may have dashes and begin with one
    "id10001/1zcIwhmdeo4/00001", "id10001/-1zcIwh_eo4/00002", "id10001/utrA-v8pPm4/00001", "id10309/0b1inHMAr6o/00001",
    "id10269/0b1inHMAr6o/00001", "id10310/zzzzzzzzzzz/00009",
)  # fmt: skip
VOX2_DEV = ("id00012/21Uxsk56VDQ/00001", "id00012/2DLq_Kkc1r8/00017", "id09272/u7VNkYraCw0/00027")
VOX2_TEST_FILES = ("id00017/01dfn2spqyE/00001", "id09017/-0tzkU6DVWI/00001")


def touch(folder: Path, files: tuple[str, ...], extension: str) -> Path:
    for file in files:
        path = folder / f"{file}{extension}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return folder


def write_wavs(folder: Path, files: tuple[str, ...], extension: str = ".wav") -> Path:
    for number, file in enumerate(files):
        path = folder / f"{file}{extension}"
        path.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(path, np.full(1600 * (number + 1), 0.1), RATE)
    return folder


def ids(files: tuple[str, ...]) -> list[str]:
    return sorted(file.replace("/", "-") for file in files)


@pytest.mark.parametrize("jobs", [1, 3])
@pytest.mark.parametrize("inner", ["wav", "dev/wav", "vox1_dev/wav", "."])
def test_voxceleb1_as_the_archives_unpack(inner, jobs, tmp_path):
    write_wavs(tmp_path / "vox" / inner, VOX1)
    kaldi_dir = prepare_voxceleb1(tmp_path / "vox", jobs=jobs)
    assert list(kaldi_dir.wav_scp) == list(kaldi_dir.utt2spk) == ids(VOX1)
    assert kaldi_dir.utt2spk["id10001--1zcIwh_eo4-00002"] == "id10001"
    assert kaldi_dir.speakers == ["id10001", "id10269", "id10309", "id10310"]
    for utterance, path in kaldi_dir.wav_scp.items():
        assert os.path.isabs(path)
        assert utterance == "-".join(Path(path).with_suffix("").parts[-3:])
    assert kaldi_dir.utt2dur["id10001-1zcIwhmdeo4-00001"] == 0.1
    assert kaldi_dir.utt2dur["id10310-zzzzzzzzzzz-00009"] == pytest.approx(0.6)


def test_the_order_is_that_of_the_c_locale(tmp_path):
    write_wavs(tmp_path / "wav", VOX1)
    kaldi_dir = prepare_voxceleb1(tmp_path)
    kaldi_dir.write(tmp_path / "data")
    for name in ("wav.scp", "utt2spk", "spk2utt", "utt2dur"):
        lines = (tmp_path / "data" / name).read_bytes().splitlines()
        assert lines == sorted(lines)
    # Sorted by utterance is sorted by speaker.
    speakers = [line.split()[1] for line in (tmp_path / "data" / "utt2spk").read_text().splitlines()]
    assert speakers == sorted(speakers)


@pytest.mark.parametrize(
    ("part", "speakers"), [("dev", {"id10001", "id10269", "id10310"}), ("test", {"id10309"}), ("all", None)]
)
@pytest.mark.parametrize("merged", [True, False])
def test_a_part_of_voxceleb1_is_known_by_its_speakers(part, speakers, merged, tmp_path):
    test = tuple(file for file in VOX1 if "id10309" in file)
    write_wavs(tmp_path / ("wav" if merged else "dev/wav"), tuple(file for file in VOX1 if file not in test))
    write_wavs(tmp_path / ("wav" if merged else "test/wav"), test)
    found = set(prepare_voxceleb1(tmp_path, part=part).speakers)
    assert found == (speakers or {"id10001", "id10269", "id10309", "id10310"})


@pytest.mark.parametrize("extension", [".m4a", ".M4A"])
def test_voxceleb2_of_m4a_has_no_durations(extension, tmp_path):
    touch(tmp_path / "dev" / "aac", VOX2_DEV, extension)
    touch(tmp_path / "test" / "aac", VOX2_TEST_FILES, extension)
    touch(tmp_path / "dev" / "mp4", VOX2_DEV, ".mp4")
    touch(tmp_path / "dev" / "txt", VOX2_DEV, ".txt")
    touch(tmp_path / "dev" / "aac", ("id00012/21Uxsk56VDQ/.00001", "id00012/21Uxsk56VDQ/notes"), ".txt")
    kaldi_dir = prepare_voxceleb2(tmp_path)
    assert list(kaldi_dir.wav_scp) == ids(VOX2_DEV + VOX2_TEST_FILES)
    assert kaldi_dir.utt2dur == {}
    assert list(prepare_voxceleb2(tmp_path, part="dev").wav_scp) == ids(VOX2_DEV)
    assert list(prepare_voxceleb2(tmp_path, part="test").wav_scp) == ids(VOX2_TEST_FILES)


def test_parts_of_voxceleb2_are_known_where_the_archives_were_unpacked_into_each_other(tmp_path):
    touch(tmp_path / "aac", VOX2_DEV + VOX2_TEST_FILES, ".m4a")
    assert list(prepare_voxceleb2(tmp_path, part="test").wav_scp) == ids(VOX2_TEST_FILES)
    assert list(prepare_voxceleb2(tmp_path / "aac", part="dev").wav_scp) == ids(VOX2_DEV)


@pytest.mark.parametrize("extension", [".wav", ".flac"])
def test_voxceleb2_that_was_converted_has_durations(extension, tmp_path):
    write_wavs(tmp_path / "dev" / "wav", VOX2_DEV, extension)
    assert list(prepare_voxceleb2(tmp_path).utt2dur.values()) == pytest.approx([0.1, 0.2, 0.3])


def test_a_mixture_of_m4a_and_wav_has_no_durations_rather_than_half_of_them(tmp_path):
    write_wavs(tmp_path / "wav", VOX2_DEV[:1])
    write_m4a(tmp_path / "aac" / f"{VOX2_DEV[1]}.m4a", np.zeros(1600))
    kaldi_dir = prepare_voxceleb2(tmp_path)
    assert len(kaldi_dir.wav_scp) == 2
    assert kaldi_dir.utt2dur == {}


def test_links_are_followed(tmp_path):
    write_wavs(tmp_path / "disk" / "wav", VOX1)
    (tmp_path / "vox").mkdir()
    (tmp_path / "vox" / "dev").symlink_to(tmp_path / "disk")
    assert len(prepare_voxceleb1(tmp_path / "vox").wav_scp) == len(VOX1)


def test_known_speakers():
    assert len(VOX2_TEST) == 118
    assert all(re.fullmatch(r"id0\d{4}", speaker) for speaker in VOX2_TEST)
    assert {"id04170", "id05348"}.isdisjoint(VOX2_TEST)
    assert sum(voxceleb.VOXCELEB1.is_test(f"id{number}") for number in range(10001, 11252)) == 40
    sizes = [size for corpus in (voxceleb.VOXCELEB1, voxceleb.VOXCELEB2) for size in corpus.sizes.values()]
    assert [sum(column) for column in zip(*sizes[:2], strict=True)] == [1251, 153_516]
    assert [sum(column) for column in zip(*sizes[2:], strict=True)] == [6112, 1_128_246]


def test_what_is_missing_is_logged(tmp_path, caplog):
    write_wavs(tmp_path / "wav", tuple(file for file in VOX1 if "id10309" not in file))
    with caplog.at_level(logging.INFO, logger="svtoolkit"):
        prepare_voxceleb1(tmp_path)
    assert caplog.messages == [
        "voxceleb1 dev: 3 speakers, 5 utterances: 1208 of 1211 speakers and 148637 of 148642 utterances are missing",
        "voxceleb1 test: 0 speakers, 0 utterances: none of its 40 speakers and 4874 utterances is there",
    ]


@pytest.mark.parametrize(
    ("size", "verdict"), [((3, 5), "complete"), ((2, 5), "more than its 2 speakers and 5 utterances: other files are")]
)
def test_a_whole_part_is_logged_as_complete(size, verdict, tmp_path, caplog, monkeypatch):
    monkeypatch.setitem(voxceleb.VOXCELEB1.sizes, "dev", size)
    write_wavs(tmp_path / "wav", VOX1)
    with caplog.at_level(logging.INFO, logger="svtoolkit"):
        prepare_voxceleb1(tmp_path, part="dev")
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith(f"voxceleb1 dev: 3 speakers, 5 utterances: {verdict}")


# ---- mistakes ----


def test_no_such_folder(tmp_path):
    with pytest.raises(UserError, match=r"nowhere: there is no such folder; expected voxceleb1, unpacked"):
        prepare_voxceleb1(tmp_path / "nowhere")


def test_no_such_part(tmp_path):
    with pytest.raises(UserError, match="part is 'train', expected one of all, dev, test"):
        prepare_voxceleb1(tmp_path, part="train")


@pytest.mark.parametrize("layout", ["a/b/c/wav/id10001/video", "wav/speaker/video"])
def test_another_layout(layout, tmp_path):
    touch(tmp_path, (f"{layout}/00001",), ".wav")
    with pytest.raises(
        UserError, match=r"no folder of a speaker such as id10001 is in it or 2 levels below; expected "
    ):
        prepare_voxceleb1(tmp_path)


def test_a_speaker_folder_without_videos(tmp_path):
    touch(tmp_path, ("wav/id10001/00001",), ".wav")
    with pytest.raises(
        UserError, match=r"id10001/00001\.wav: the folder of its video is missing; expected <speaker>/<vi"
    ):
        prepare_voxceleb1(tmp_path)


def test_the_other_corpus(tmp_path):
    touch(tmp_path / "aac", VOX2_DEV, ".m4a")
    with pytest.raises(
        UserError, match=r"id00012: is no speaker of voxceleb1 \(2 of 2 folders\); .* corpus=voxceleb2$"
    ):
        prepare_voxceleb1(tmp_path)
    touch(tmp_path / "wav", VOX1, ".wav")
    with pytest.raises(
        UserError, match=r"id10001: is no speaker of voxceleb2 \(4 of 6 folders\); .* corpus=voxceleb1$"
    ):
        prepare_voxceleb2(tmp_path)


def test_a_part_that_is_not_there(tmp_path):
    touch(tmp_path / "aac", VOX2_DEV, ".m4a")
    with pytest.raises(
        UserError, match=r"no audio of part=test is there, only folders of 2 speakers \(dev\); expected "
    ):
        prepare_voxceleb2(tmp_path, part="test")
    touch(tmp_path / "films", VOX2_TEST_FILES, ".mkv")
    with pytest.raises(
        UserError, match=r"no audio of part=test is there, only folders of 4 speakers \(dev, test\); exp"
    ):
        prepare_voxceleb2(tmp_path, part="test")


def test_an_utterance_in_two_places(tmp_path):
    touch(tmp_path / "aac", VOX2_DEV, ".m4a")
    touch(tmp_path / "wav", VOX2_DEV[:1], ".wav")
    with pytest.raises(
        UserError, match=r"'id00012-21Uxsk56VDQ-00001' is both .*/aac/.*\.m4a and .*/wav/.*\.wav; keep one of them"
    ):
        prepare_voxceleb2(tmp_path)


def test_a_wav_that_cannot_be_read(tmp_path):
    write_wavs(tmp_path / "wav", VOX1)
    broken = tmp_path / "wav" / f"{VOX1[0]}.wav"
    broken.write_bytes(b"")
    with pytest.raises(UserError, match=r"1 of 6 audio files cannot be used: .*id10001/1zcIwhmdeo4/00001\.wav: "):
        prepare_voxceleb1(tmp_path)
