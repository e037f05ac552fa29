"""Reading full states: damage is noticed and passed over, code in them is not executed."""

from __future__ import annotations

import logging
import pickle
import zipfile
from pathlib import Path

import pytest
import torch
from state_material import a_state, bits, same

from svtoolkit.errors import UserError
from svtoolkit.runs.full_state import list_states, load_latest_state, read_verified, save_state

torch.set_num_threads(1)


def test_no_folder_and_no_state_is_none(tmp_path):
    assert load_latest_state(tmp_path / "missing") is None
    (tmp_path / "state-7.pt").write_text("not one of ours")
    assert load_latest_state(tmp_path) is None


@pytest.fixture
def two_states(tmp_path) -> Path:
    """Two whole states; the newer one."""
    save_state(tmp_path, 1, a_state(1), keep=2)
    return save_state(tmp_path, 2, a_state(2), keep=2)


@pytest.mark.parametrize("length", [0, 1, 10, 500, -500, -22, -1])
def test_a_truncated_state_is_passed_over_and_named(two_states, caplog, length):
    content = two_states.read_bytes()
    two_states.write_bytes(content[:length])
    with caplog.at_level(logging.WARNING):
        found = load_latest_state(two_states.parent)
    assert same(found, (1, a_state(1)))
    (record,) = caplog.records
    assert record.getMessage().startswith(f"{two_states} cannot be read (")
    assert record.getMessage().endswith("): falling back to the state before it")


def test_a_flipped_bit_anywhere_is_noticed_or_harmless(two_states):
    """In every byte of the file once. Harmless are the padding and what of the zip format nobody reads."""
    content = two_states.read_bytes()
    noticed = 0
    with two_states.open("r+b", buffering=0) as file:  # in place: a file written anew takes longer than its check
        for position, byte in enumerate(content):
            file.seek(position)
            file.write(bytes([byte ^ 1 << position % 8]))
            try:
                found = read_verified(two_states)
            except Exception:
                noticed += 1
            else:
                assert same(found, a_state(2)), f"byte {position} of {len(content)}"
            file.seek(position)
            file.write(bytes([byte]))
    assert two_states.read_bytes() == content
    assert noticed > len(content) / 3


def test_a_tensor_marked_as_a_folder_is_noticed(two_states, caplog):
    """The one bit that no checksum covers and torch minds: it would hand out memory that nothing was read into."""
    content = bytearray(two_states.read_bytes())
    entry = content.rindex(b"PK\x01\x02", 0, content.rindex(b"data/0"))
    content[entry + 38] ^= 0x10
    two_states.write_bytes(content)
    assert same(load_latest_state(two_states.parent), (1, a_state(1)))
    assert "data/0 is marked as a folder" in caplog.text


def test_a_flipped_bit_in_a_tensor_is_noticed(two_states, caplog):
    content = two_states.read_bytes()
    weight = bits(a_state(2)["network"]["weight"])
    assert content.count(weight) == 1
    damaged = bytearray(content)
    damaged[content.index(weight) + len(weight) // 2] ^= 16
    two_states.write_bytes(damaged)
    assert same(load_latest_state(two_states.parent), (1, a_state(1)))
    assert "checksum of " in caplog.text
    assert "is wrong" in caplog.text


def test_several_damaged_states_are_passed_over_one_by_one(tmp_path, caplog):
    for step in (1, 2, 3):
        save_state(tmp_path, step, a_state(step), keep=3)
    (tmp_path / "state-0000000002.pt").write_bytes(b"")
    (tmp_path / "state-0000000003.pt").unlink()
    (tmp_path / "state-0000000003.pt").mkdir()
    assert same(load_latest_state(tmp_path), (1, a_state(1)))
    assert ["0000000003" in caplog.messages[0], "0000000002" in caplog.messages[1]] == [True, True]


def test_nothing_but_damaged_states_is_an_error(two_states):
    for path in list_states(two_states.parent):
        path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(UserError) as caught:
        load_latest_state(two_states.parent)
    assert str(caught.value) == (
        f"{two_states.parent}: none of 2 full states can be read; restore one from a backup, "
        "or start again in another exp_dir"
    )
    assert len(list_states(two_states.parent)) == 2


class Payload:
    """Unpickled carelessly, it makes a file."""

    def __init__(self, evidence: Path) -> None:
        self.evidence = evidence

    def __reduce__(self):
        return (Path.touch, (self.evidence,))


@pytest.mark.parametrize("form", ["torch", "plain pickle", "old torch"])
def test_code_in_a_pickle_is_refused_and_not_executed(two_states, tmp_path, caplog, form):
    evidence = tmp_path / "executed"
    if form == "plain pickle":
        two_states.write_bytes(pickle.dumps({"network": Payload(evidence)}))
    else:
        torch.save({"network": Payload(evidence)}, two_states, _use_new_zipfile_serialization=form == "torch")
    assert same(load_latest_state(two_states.parent), (1, a_state(1)))
    assert str(two_states) in caplog.text
    assert not evidence.exists()
    two_states.with_name("state-0000000001.pt").unlink()
    with pytest.raises(UserError, match="none of 1 full states can be read"):
        load_latest_state(two_states.parent)
    assert not evidence.exists()
    if form == "torch":
        torch.load(two_states, weights_only=False)
        assert evidence.exists(), "the file does hold code that runs"


def test_a_zip_file_of_something_else_is_passed_over(two_states, caplog):
    with zipfile.ZipFile(two_states, "w") as archive:
        archive.writestr("notes.txt", "hello")
    assert same(load_latest_state(two_states.parent), (1, a_state(1)))
    assert str(two_states) in caplog.text


def test_states_are_read_onto_the_cpu(two_states, monkeypatch):
    asked = {}

    def load(path, **options):
        asked.update(options)
        return {}

    monkeypatch.setattr(torch, "load", load)
    read_verified(two_states)
    assert asked == {"map_location": "cpu", "weights_only": True}
