from __future__ import annotations

import io
import json
import tarfile
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svtoolkit.data.shard_members import ShardStream, describe, explain_header, member_key

wds_keys = pytest.importorskip("webdataset.tariterators", reason="webdataset is not installed")

# What can stand as a key of a table: no white space, no NUL, a UTF-8 form.
IDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=200).filter(
    lambda text: text.split() == [text] and "\0" not in text
)


def write_archive(members: dict[str, bytes]) -> tuple[bytes, dict[str, int]]:
    archive = io.BytesIO()
    shard = ShardStream(archive)
    offsets = {name: shard.add(name, content) for name, content in members.items()}
    shard.finish()
    assert shard.size == len(archive.getvalue())
    return archive.getvalue(), offsets


@pytest.mark.parametrize(
    ("utterance", "key"),
    [
        ("id10270-x6uYqmx31kE-00001", "id10270-x6uYqmx31kE-00001"),
        ("id10270/x6uYqmx31kE/00001.wav", "id10270%2Fx6uYqmx31kE%2F00001%2Ewav"),
        ("100%", "100%25"),
        ("%2F", "%252F"),
        ("a\\b", "a%5Cb"),
        ("жук-1", "жук-1"),
        (".", "%2E"),
    ],
)
def test_keys(utterance, key):
    assert member_key(utterance) == key
    assert unquote(key) == utterance


@given(IDS)
def test_a_key_is_what_webdataset_takes_for_the_key(utterance):
    key = member_key(utterance)
    assert unquote(key) == utterance
    for extension in ("flac", "json", "m4a"):
        assert wds_keys.base_plus_ext(f"{key}.{extension}") == (key, extension)


@given(st.lists(st.tuples(IDS, st.binary(max_size=1500)), max_size=4, unique_by=lambda item: item[0]))
def test_python_reads_what_is_written_and_every_header_names_its_utterance(items):
    members = {f"{member_key(utterance)}.flac": content for utterance, content in items}
    archive, offsets = write_archive(members)
    assert len(archive) % tarfile.RECORDSIZE == 0
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:", encoding="utf-8") as read:
        assert [info.name for info in read] == list(members)
        for info in read.getmembers():
            assert info.offset_data == offsets[info.name]
            assert read.extractfile(info).read() == members[info.name]
            assert (info.mtime, info.uid, info.gid, info.uname, info.gname, info.mode) == (0, 0, 0, "", "", 0o644)
    for utterance, content in items:
        offset = offsets[f"{member_key(utterance)}.flac"]
        header = archive[offset - 512 : offset]
        assert explain_header(header, utterance, len(content)) is None
        assert explain_header(header, utterance, len(content) + 1) is not None
        if len(f"{member_key(utterance)}.flac".encode()) < 100:
            assert explain_header(header, f"{utterance}x", len(content)) is not None
            assert explain_header(header, utterance[:-1], len(content)) is not None
        assert explain_header(header, f"x{utterance}", len(content)) is not None or set(utterance[:100]) == {"x"}


def test_what_is_wrong_with_a_header():
    archive, offsets = write_archive({"a.flac": b"audio", "a.json": b"{}", "b.flac": b"other"})

    def explain(offset: int, utterance: str, size: int) -> str | None:
        return explain_header(archive[offset - 512 : offset], utterance, size)

    assert explain(offsets["a.flac"], "a", 5) is None
    assert explain(offsets["b.flac"], "a", 5) == "the member there is 'b.flac'"
    assert explain(offsets["a.json"], "a", 2) == "the member there is 'a.json'"
    assert explain(offsets["a.flac"], "a", 7) == "the member there has 5 bytes instead of 7"
    assert explain(offsets["a.flac"] + 7, "a", 5).startswith("there is no tar header before it")
    assert explain(0, "a", 5) == "there is no tar header before it (empty header)"
    assert explain(len(archive), "a", 5) == "there is no tar header before it (end of file header)"


def test_a_folder_is_no_audio():
    folder = tarfile.TarInfo("a.flac")
    folder.type = tarfile.DIRTYPE
    assert explain_header(folder.tobuf(), "a", 0) == "the member there is 'a.flac'"


def test_the_description_holds_the_id_as_it_is():
    text = describe("a/жук.1", "жук", 1.25, 16000)
    assert json.loads(text) == {"utterance_id": "a/жук.1", "speaker": "жук", "seconds": 1.25, "sample_rate": 16000}
    assert list(json.loads(text)) == sorted(json.loads(text))
