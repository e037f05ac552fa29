from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import pytest
from shard_material import read_locations, write_corpus

from svtoolkit.audio.shards.location import format_location
from svtoolkit.data.shard_verification import verify_shards
from svtoolkit.data.sharding.writer import write_shards
from svtoolkit.data.tables import Fault, read_table, write_table
from svtoolkit.errors import UserError


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """12 utterances, sorted, in 4 shards."""
    base = tmp_path_factory.mktemp("original")
    write_shards(write_corpus(base), base / "out", per_shard=3, order="sorted")
    return base / "out"


@pytest.fixture
def shards(original: Path, tmp_path: Path) -> Path:
    shutil.copytree(original, tmp_path / "shards")
    return tmp_path / "shards"


def codes(faults: list[Fault]) -> list[tuple[str, str]]:
    return [(fault.code, fault.where) for fault in faults]


def edit_index(shards: Path, **values: str) -> None:
    table = {utt: value for utt, (_, value) in read_table(shards / "shards.scp", []).items()}
    write_table(shards / "shards.scp", table | {name.replace("_", "-"): value for name, value in values.items()})


def update_checksums(shards: Path) -> None:
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()} *{path.name}\n" for path in sorted(shards.glob("*.tar"))]
    (shards / "shards.sha256").write_text("".join(lines))


@pytest.mark.parametrize("jobs", [1, 3])
def test_whole_shards(shards, jobs):
    assert verify_shards(shards, jobs=jobs) == []


@pytest.mark.parametrize("place", [3, 600, 5000, -1])
def test_one_wrong_byte_anywhere(shards, place):
    path = shards / "shard-000002.tar"
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    faults = verify_shards(shards, jobs=2)
    assert codes(faults)[0] == ("checksum", "shards.sha256:3")
    assert f"shard-000002.tar has the digest {hashlib.sha256(content).hexdigest()}, expected " in faults[0].message
    if place == 3:  # in the header of the first member
        assert codes(faults)[1:] == [("wrong-member", "shards.scp:7")]
        assert "there is no tar header before it (bad checksum)" in faults[1].message
        assert faults[1].utterance == "s02-0"
    else:
        assert len(faults) == 1


def test_a_truncated_archive(shards):
    path, place = shards / "shard-000001.tar", read_locations(shards)["s01-1"]
    os.truncate(path, place.offset + place.size - 1)
    faults = verify_shards(shards)
    assert codes(faults) == [
        ("checksum", "shards.sha256:2"), ("beyond-shard", "shards.scp:5"), ("beyond-shard", "shards.scp:6"),
    ]  # fmt: skip
    assert faults[1].utterance == "s01-1"
    end = place.offset + place.size
    assert f"'s01-1' ends at byte {end} of {path}, which has {end - 1}: it is cut off; copy" in str(faults[1])


def test_an_empty_archive(shards):
    os.truncate(shards / "shard-000001.tar", 0)
    faults = verify_shards(shards)
    assert codes(faults) == [
        ("empty-shard", "shard-000001.tar"), *[("beyond-shard", f"shards.scp:{line}") for line in (4, 5, 6)],
    ]  # fmt: skip
    assert "the file has 0 bytes and holds no member; copy the shard again" in str(faults[0])


def test_an_archive_without_the_member(shards):
    """shard-000001.tar is a copy of another one, checksum and all."""
    shutil.copy(shards / "shard-000002.tar", shards / "shard-000001.tar")
    update_checksums(shards)
    faults = verify_shards(shards)
    assert {fault.code for fault in faults} == {"wrong-member"}
    assert [fault.utterance for fault in faults] == ["s01-0", "s01-1", "s01-2"]
    assert "is not the audio of 's01-0': the member there is 's02-0.flac'; the index belongs to another" in str(
        faults[0]
    )


def test_entries_that_lead_elsewhere(shards):
    places = read_locations(shards)
    first = places["s00-0"]
    name = Path(first.archive).name
    edit_index(
        shards,
        s00_0=f"{name}:0:{first.size}",
        s00_1=f"{name}:{first.offset}:{first.size}",
        s00_2=f"{name}:{places['s00-2'].offset}:7",
    )
    faults = verify_shards(shards)
    assert codes(faults) == [("wrong-member", f"shards.scp:{line}") for line in (1, 2, 3)]
    assert "byte 0 of" in faults[0].message
    assert "there is no tar header before it (empty header)" in faults[0].message
    assert "the member there is 's00-0.flac'" in faults[1].message
    assert f"the member there has {places['s00-2'].size} bytes instead of 7" in faults[2].message


def test_missing_archives_and_extra_ones(shards):
    os.rename(shards / "shard-000003.tar", shards / "mine.tar")
    faults = verify_shards(shards)
    assert codes(faults) == [
        ("unlisted-shard", "mine.tar"), ("no-checksum", "mine.tar"), ("missing-shard", "shards.scp:10"),
    ]  # fmt: skip
    assert "shards.scp lists no utterance in it" in faults[0].message
    assert (
        f"there is no file {shards}/shard-000003.tar, and with it the audio of 3 utterances; copy" in faults[2].message
    )
    edit_index(shards, **{f"s03_{n}": "mine.tar:512:1" for n in range(3)})
    assert ("missing-shard", "shards.sha256:4") in codes(verify_shards(shards))


def test_missing_tables(shards):
    (shards / "shards.sha256").unlink()
    faults = verify_shards(shards)
    assert codes(faults) == [("missing-table", "shards.sha256")]
    assert "the file is missing, which shows damaged shards" in faults[0].message
    (shards / "shards.scp").unlink()
    faults = verify_shards(shards)
    assert codes(faults) == [("missing-table", "shards.scp"), ("missing-table", "shards.sha256")]
    assert "the file is missing, which finds the utterances in the shards" in faults[0].message


def test_tables_of_another_form(shards):
    with (shards / "shards.sha256").open("a") as stream:
        stream.write("\nshard-000009.tar\n")
    edit_index(shards, s00_1="shard-000000.tar", s99="a.wav")
    faults = verify_shards(shards)
    assert codes(faults) == [
        ("malformed", "shards.scp:2"), ("malformed", "shards.scp:13"), ("malformed", "shards.sha256:6"),
    ]  # fmt: skip
    assert "found 'shard-000000.tar', expected `<archive>.tar:<offset>:<size>`; write" in faults[0].message
    assert faults[1].utterance == "s99"
    assert "found 'shard-000009.tar', expected `digest  archive` as `sha256sum` prints it" in faults[2].message


def test_an_empty_index(shards):
    (shards / "shards.scp").write_text("")
    assert codes(verify_shards(shards))[0] == ("empty-table", "shards.scp")


def test_archives_elsewhere(shards, tmp_path):
    other = tmp_path / "other disk"
    other.mkdir()
    moved = {}
    for utterance, place in read_locations(shards).items():
        if place.archive.endswith("3.tar"):
            moved[utterance] = format_location(place).replace(str(shards), str(other))
        elif place.archive.endswith("2.tar"):
            moved[utterance] = format_location(place).replace(str(shards), "https://host")
    shutil.move(shards / "shard-000003.tar", other)
    edit_index(shards, **{utterance.replace("-", "_"): value for utterance, value in moved.items()})
    (shards / "shard-000002.tar").unlink()
    lines = (shards / "shards.sha256").read_text().splitlines()
    lines[3] = f"{lines[3].split()[0]}  {other}/shard-000003.tar"
    (shards / "shards.sha256").write_text("\n".join([lines[0], lines[1], lines[3]]) + "\n")
    faults = verify_shards(shards)
    assert codes(faults) == [("remote-shard", "shards.scp:7")]
    assert "https://host/shard-000002.tar is at a URL; check it where it lies" in str(faults[0])


def test_an_archive_that_cannot_be_read(shards):
    (shards / "shard-000001.tar").unlink()
    (shards / "shard-000001.tar").mkdir()
    assert codes(verify_shards(shards)) == [("unreadable-shard", "shard-000001.tar")]


def test_what_cannot_be_verified(tmp_path, shards):
    with pytest.raises(UserError, match=r"none: there is no such data directory; expected a folder with shards\.scp"):
        verify_shards(tmp_path / "none")
    with pytest.raises(UserError, match="jobs is 0, expected 1 or more"):
        verify_shards(shards, jobs=0)
