from __future__ import annotations

import contextlib

import pytest

from svtoolkit.data.bad_files import BadFile, count_allowed, listing_bad_files
from svtoolkit.errors import UserError

BAD = [BadFile(f"s{number}", f"/audio/s{number}.wav", f"s{number}: why\n\tit is  bad") for number in (2, 0, 3, 1)]


def list_them(folder, bad):
    with listing_bad_files(folder, len(bad), 1.0) as found:
        found.add(bad)
    return found


def test_they_are_listed_in_the_order_of_their_ids(tmp_path):
    list_them(tmp_path, BAD)
    head, *lines = (tmp_path / "bad_files.tsv").read_text().splitlines()
    assert head.split("\t") == ["utterance", "file", "reason"]
    assert lines == [f"s{number}\t/audio/s{number}.wav\ts{number}: why it is bad" for number in range(4)]


def test_a_list_of_nothing_is_no_file(tmp_path):
    list_them(tmp_path, [])
    assert list(tmp_path.iterdir()) == []
    list_them(tmp_path, BAD)
    list_them(tmp_path, [])
    assert list(tmp_path.iterdir()) == []


def test_the_first_three_reasons_are_shown(tmp_path):
    assert f" may be: {'; '.join(item.reason for item in BAD[:3])}; " in str(list_them(tmp_path, BAD).refusal())
    assert f" may be: {BAD[0].reason}; " in str(list_them(tmp_path, BAD[:1]).refusal())


@pytest.mark.parametrize(
    ("max_bad", "utterances", "allowed"),
    [(0.0, 1000, 0), (0.001, 10, 1), (0.001, 1000, 1), (0.001, 2999, 2), (0.5, 9, 4), (1.0, 9, 9), (1e-9, 0, 1)],
)
def test_how_many_may_be(max_bad, utterances, allowed):
    assert count_allowed(max_bad, utterances) == allowed


def test_too_many_end_the_block_and_are_listed(tmp_path):
    def fill() -> None:
        with listing_bad_files(tmp_path, 9, 0.3) as bad:
            for number in range(4):
                bad.add(BAD[number : number + 1])
                assert bad.found == BAD[: number + 1]

    with pytest.raises(UserError) as error:
        fill()
    message = str(error.value)
    assert message.startswith("3 of 9 files cannot be used, with max_bad=0.3 2 may be: s2: why")
    assert f"{tmp_path}/bad_files.tsv lists them: repair or drop them" in message
    assert len((tmp_path / "bad_files.tsv").read_text().splitlines()) == 4


@pytest.mark.parametrize("error", [None, KeyboardInterrupt])
def test_what_was_found_is_listed_however_the_block_ends(tmp_path, error):
    with pytest.raises(error) if error else contextlib.nullcontext(), listing_bad_files(tmp_path, 9, 0.3) as bad:
        bad.add(BAD[:1])
        if error:
            raise error
    assert len((tmp_path / "bad_files.tsv").read_text().splitlines()) == 2
