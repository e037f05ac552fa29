"""Who speaks in which utterance: utt2spk, and spk2utt, which is the same turned round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from svtoolkit.data.tables import Fault, read_table, require_table
from svtoolkit.system.regular_file import is_regular


def invert(utt2spk: Mapping[str, str]) -> dict[str, list[str]]:
    """Speaker id -> sorted utterance ids, speakers sorted."""
    spk2utt: dict[str, list[str]] = {speaker: [] for speaker in sorted(set(utt2spk.values()))}
    for utterance in sorted(utt2spk):
        spk2utt[utt2spk[utterance]].append(utterance)
    return spk2utt


def read_utt2spk(path: str | Path) -> dict[str, str]:
    """Read one utt2spk file: utterance id -> speaker id.

    Raises:
        UserError: missing, empty or malformed; names file and line.
    """
    table = require_table(Path(path), "`utterance speaker`")
    return {utterance: speaker for utterance, (_, speaker) in table.items()}


def check_spk2utt(path: Path, utt2spk: Mapping[str, str]) -> list[Fault]:
    """What differs in a spk2utt file from the utt2spk beside it."""
    if not is_regular(path):
        return [Fault("no-spk2utt", path.name, "the file is missing; `svt validate --fix` writes it")]
    faults: list[Fault] = []
    table = {speaker: value.split() for speaker, (_, value) in read_table(path, faults).items()}
    # Its keys are speakers, and the table can be rewritten from utt2spk: nothing has to be dropped for it.
    faults = [replace(fault, utterance=None) for fault in faults]
    expected = invert(utt2spk)
    for speaker in sorted(set(table) | set(expected)):
        if sorted(table.get(speaker, [])) != expected.get(speaker, []):
            message = f"the utterances of {speaker!r} differ from those of utt2spk; rewrite it from utt2spk"
            faults.append(Fault("spk2utt-mismatch", path.name, message))
    return faults
