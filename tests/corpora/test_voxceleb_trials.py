from __future__ import annotations

import dataclasses
import gzip
import hashlib

import pytest
from paths import SHARED

from svtoolkit.corpora import voxceleb_trials
from svtoolkit.corpora.voxceleb_trials import OFFICIAL_LISTS, as_utterance, read_voxceleb_trials
from svtoolkit.data.trials import read_trials, write_trials
from svtoolkit.errors import UserError

LISTS = SHARED / "data" / "voxceleb_trials"
CONTENT = (
    "1 id10270/x6uYqmx31kE/00001.wav id10270/8jEAjG6SegY/00008.wav\n"
    "0 id10270/x6uYqmx31kE/00001.wav id10300/-ze_eiCFEg0/00003.wav\n"
    "0 id10270/8jEAjG6SegY/00008.wav id10300/-ze_eiCFEg0/00003.wav\n"
)
UTT2SPK = {
    "id10270-x6uYqmx31kE-00001": "id10270",
    "id10270-8jEAjG6SegY-00008": "id10270",
    "id10300--ze_eiCFEg0-00003": "id10300",
}


class Everyone(dict):
    """A data directory that has every utterance."""

    def __contains__(self, utterance: object) -> bool:
        return True


@pytest.fixture
def official(monkeypatch) -> None:
    """CONTENT is the published veri_test2.txt, of which the sha256 is known, and the E list, of which it is not."""
    content = CONTENT.encode()
    hashes = {"trials": 3, "md5": hashlib.md5(content).hexdigest(), "sha256": hashlib.sha256(content).hexdigest()}
    of_e = CONTENT.replace("1 ", "1  ").encode()
    lists = (
        dataclasses.replace(OFFICIAL_LISTS[0], **hashes),
        dataclasses.replace(OFFICIAL_LISTS[1], trials=3, md5=hashlib.md5(of_e).hexdigest(), sha256=None),
        *OFFICIAL_LISTS[2:],
    )
    monkeypatch.setattr(voxceleb_trials, "OFFICIAL_LISTS", lists)


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("name", ["veri_test2.txt", "vox1-O(cleaned).txt"])
def test_an_official_list_is_known_by_its_content(name, compressed, official, tmp_path):
    path = tmp_path / (f"{name}.gz" if compressed else name)
    path.write_bytes(gzip.compress(CONTENT.encode()) if compressed else CONTENT.encode())
    found, trials = read_voxceleb_trials(path, UTT2SPK)
    assert found == "trials_O"
    write_trials(tmp_path / found, trials)
    assert (tmp_path / found).read_text() == (
        "id10270-x6uYqmx31kE-00001 id10270-8jEAjG6SegY-00008 target\n"
        "id10270-x6uYqmx31kE-00001 id10300--ze_eiCFEg0-00003 nontarget\n"
        "id10270-8jEAjG6SegY-00008 id10300--ze_eiCFEg0-00003 nontarget\n"
    )
    assert read_trials(tmp_path / found).utterances == set(UTT2SPK)


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_an_official_list_that_passed_through_windows(mark, official, tmp_path):
    path = tmp_path / "veri_test2.txt"
    path.write_bytes(mark + CONTENT.replace("\n", "\r\n").encode())
    found, trials = read_voxceleb_trials(path, UTT2SPK)
    assert (found, len(trials)) == ("trials_O", 3)
    path.write_bytes(mark + CONTENT.replace("\n", " \r\n").encode() + b"\r\n")
    with pytest.raises(UserError, match="has md5"):
        read_voxceleb_trials(path, UTT2SPK)
    found, again = read_voxceleb_trials(path, UTT2SPK, allow_other=True)
    assert (found, list(again.enrol), list(again.test)) == ("trials_veri_test2", list(trials.enrol), list(trials.test))


def test_where_the_sha256_is_unknown_the_md5_decides(official, tmp_path):
    path = tmp_path / "list_test_all2.txt"
    path.write_text(CONTENT.replace("1 ", "1  "))
    assert read_voxceleb_trials(path, UTT2SPK)[0] == "trials_E"


@pytest.mark.parametrize("official_list", OFFICIAL_LISTS, ids=lambda official_list: official_list.file)
def test_the_published_lists(official_list):
    path = LISTS / f"{official_list.file}.gz"
    if not path.is_file():
        pytest.skip(f"{path.name} is not in the shared data pack")
    name, trials = read_voxceleb_trials(path, Everyone())
    assert name == f"trials_{official_list.name}"
    assert len(trials) == official_list.trials
    speakers = [[utterance[:7] for utterance in side] for side in (trials.enrol, trials.test)]
    assert all((one == other) == target for one, other, target in zip(*speakers, trials.target, strict=True))


def test_the_table_of_lists():
    assert [official_list.name for official_list in OFFICIAL_LISTS] == [
        "O", "E", "H", "O_original", "E_original", "H_original",
    ]  # fmt: skip
    for column in ("file", "name", "trials", "md5"):
        assert len({getattr(official_list, column) for official_list in OFFICIAL_LISTS}) == 6
    assert all(len(official_list.md5) == 32 for official_list in OFFICIAL_LISTS)
    unknown = [official_list.name for official_list in OFFICIAL_LISTS if official_list.sha256 is None]
    assert unknown == ["E", "H"]


@pytest.mark.parametrize("lines", [2, 4])
def test_a_list_with_another_number_of_trials(lines, official, tmp_path):
    path = tmp_path / "veri_test2.txt"
    path.write_text("".join((CONTENT.splitlines(keepends=True) * 2)[:lines]))
    with pytest.raises(UserError, match=rf"veri_test2\.txt: holds {lines} trials, the published list of that name 3; "):
        read_voxceleb_trials(path, UTT2SPK)
    name, trials = read_voxceleb_trials(path, UTT2SPK, allow_other=True)
    assert (name, len(trials)) == ("trials_veri_test2", lines)


def test_a_list_with_another_hash(official, tmp_path):
    path = tmp_path / "veri_test2.txt"
    path.write_text(CONTENT.replace("0 id10270/x", "1 id10270/x"))
    with pytest.raises(
        UserError, match=r"veri_test2\.txt: has md5 \w{32}, the published list of that name \w{32}; downlo"
    ):
        read_voxceleb_trials(path, UTT2SPK)


def test_a_list_of_one_s_own(official, tmp_path):
    path = tmp_path / "my pairs.txt"
    path.write_text("\n".join(CONTENT.splitlines()[:2]) + "\n\n")
    with pytest.raises(
        UserError,
        match=r"is none of the lists of VoxCeleb1 \(veri_test2\.txt, .*\), by its 2 trials and .*; other_trials=true",
    ):
        read_voxceleb_trials(path, UTT2SPK)
    name, trials = read_voxceleb_trials(path, UTT2SPK, allow_other=True)
    assert (name, len(trials)) == ("trials_my_pairs", 2)


def test_an_utterance_that_the_data_directory_lacks(official, tmp_path):
    path = tmp_path / "veri_test2.txt"
    path.write_text(CONTENT)
    known = {utterance: speaker for utterance, speaker in UTT2SPK.items() if speaker == "id10270"}
    for allow_other in (False, True):
        with pytest.raises(
            UserError, match=r"veri_test2\.txt:2: names 'id10300--ze_eiCFEg0-00003', which is not in the"
        ):
            read_voxceleb_trials(path, known, allow_other=allow_other)


@pytest.mark.parametrize(
    "line",
    [
        "2 id1/a/1.wav id1/b/2.wav",
        "1 id1/a/1.wav",
        "1 id1/a/1.wav id1/b/2.wav x",
        "1 id1/a.wav id1/b/2.wav",
        "1 id1//1.wav id1/b/2.wav",
    ],
)
def test_a_line_of_another_form(line, official, tmp_path):
    path = tmp_path / "mine.txt"
    path.write_text(CONTENT + line + "\n")
    for allow_other in (False, True):
        with pytest.raises(UserError) as error:
            read_voxceleb_trials(path, Everyone(), allow_other=allow_other)
        assert str(error.value).startswith(f"{path}:4: found {line!r}, expected `1 <speaker>/<video>/<file>.wav ")


def test_files_that_are_no_lists(tmp_path, monkeypatch):
    with pytest.raises(UserError, match=r"gone\.txt: there is no such trial list; expected lines `1 <speaker>"):
        read_voxceleb_trials(tmp_path / "gone.txt", UTT2SPK)
    (tmp_path / "empty.txt").write_text("\n\n")
    with pytest.raises(UserError, match=r"empty\.txt: the trial list is empty"):
        read_voxceleb_trials(tmp_path / "empty.txt", UTT2SPK)
    (tmp_path / "utf16.txt").write_bytes(CONTENT.encode("utf-16"))
    with pytest.raises(UserError, match=r"utf16\.txt: is no UTF-8 text; save it as UTF-8"):
        read_voxceleb_trials(tmp_path / "utf16.txt", UTT2SPK)
    (tmp_path / "cut.txt.gz").write_bytes(gzip.compress(CONTENT.encode())[:-12])
    with pytest.raises(UserError, match=r"cut\.txt\.gz: cannot be decompressed \(.*\); download it again"):
        read_voxceleb_trials(tmp_path / "cut.txt.gz", UTT2SPK)
    monkeypatch.setattr(voxceleb_trials, "LONGEST_LIST", 1000)
    (tmp_path / "long.gz").write_bytes(gzip.compress(bytes(1001)))
    with pytest.raises(UserError, match=r"long\.gz: .*unfolds to more than 1000 bytes"):
        read_voxceleb_trials(tmp_path / "long.gz", UTT2SPK)
    (tmp_path / "page.gz").write_bytes(b"\x1f\x8b not gzip at all")
    with pytest.raises(UserError, match=r"page\.gz: cannot be decompressed"):
        read_voxceleb_trials(tmp_path / "page.gz", UTT2SPK)


@pytest.mark.parametrize(
    ("file", "utterance"),
    [
        ("id10001/Y8hIVOBuels/00001.wav", "id10001-Y8hIVOBuels-00001"),
        ("id10001/-8h.VOBuels/00001.m4a", "id10001--8h.VOBuels-00001"),
        ("id10001/00001.wav", ""),
        ("/id10001/x/00001.wav", ""),
    ],
)
def test_the_id_of_a_file(file, utterance):
    assert as_utterance(file) == utterance
