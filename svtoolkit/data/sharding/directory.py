"""The data directory around shards: its tables, and what is taken over from the one that they were made of."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from svtoolkit.audio.shards.location import ShardLocation, format_location
from svtoolkit.data.kaldi_dir import further_tables
from svtoolkit.data.shard_index import CHECKSUMS, INDEX
from svtoolkit.data.sharding.shard_file import ShardRecord
from svtoolkit.data.tables import write_table
from svtoolkit.data.trials import parse_trials
from svtoolkit.data.utt2spk import invert
from svtoolkit.data.validation import find_trials
from svtoolkit.system.atomic import atomic_write

log = logging.getLogger(__name__)


def write_index(out: Path, records: Mapping[str, ShardRecord], utt2spk: Mapping[str, str]) -> None:
    """Write the tables that the shards themselves tell, `shards.scp` last: where it is, the directory is whole.

    Args:
        out: the directory of the shards.
        records: name of each archive -> what it holds.
        utt2spk: speakers of all utterances, of which some may be in no shard.
    """
    entries = {utt: (name, entry) for name, record in records.items() for utt, entry in record.entries.items()}
    kept = {utterance: utt2spk[utterance] for utterance in entries}
    write_table(out / "utt2spk", kept)
    write_table(out / "spk2utt", {speaker: " ".join(utterances) for speaker, utterances in invert(kept).items()})
    write_table(out / "utt2dur", {utterance: repr(entry.seconds) for utterance, (_, entry) in entries.items()})
    with atomic_write(out / CHECKSUMS) as stream:
        stream.writelines(f"{records[name].sha256}  {name}\n" for name in sorted(records) if records[name].size)
    locations = {utt: ShardLocation(name, entry.offset, entry.size) for utt, (name, entry) in entries.items()}
    write_table(out / INDEX, {utterance: format_location(location) for utterance, location in locations.items()})


def carry_tables(source: Path, out: Path, utt2spk: Mapping[str, str], *, kept_as: str = "in the shards") -> None:
    """Take over the trial lists and the further tables of utterances and speakers (utt2*, spk2*, text).

    Args:
        source: data directory that the shards were made of.
        out: the directory of the shards.
        kept_as: how the warning goes on about utterances that are there.
        utt2spk: utterances that are in the shards; lines about others are left out, of trials with a warning.
    """
    for name, table in further_tables(source, utt2spk):
        if table:
            write_table(out / name, table)
    for file in find_trials(source):
        found = [(line, trial) for _, line, trial in parse_trials(file)]
        lines = [line for line, _ in found]
        usable = [line for line, trial in found if isinstance(trial, str) or {trial[0], trial[1]} <= utt2spk.keys()]
        if len(usable) < len(lines):
            log.warning("%s: %d of %d trials are of utterances %s", file, len(usable), len(lines), kept_as)
        with atomic_write(out / file.name, "wb") as stream:
            # Results are compared by the hash of their list: one that loses nothing keeps every byte.
            whole = len(usable) == len(lines)
            stream.write(file.read_bytes() if whole else "".join(f"{line}\n" for line in usable).encode())
