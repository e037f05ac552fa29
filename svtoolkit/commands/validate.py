"""svt validate: every fault of a data directory, or a repaired copy of it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from svtoolkit.config import ValidateConfig
from svtoolkit.data.audio_table import AUDIO_TABLES, find_source
from svtoolkit.data.bad_files import BAD_FILES, check_max_bad
from svtoolkit.data.dropping import drop_bad_audio
from svtoolkit.data.repair import repair
from svtoolkit.data.validation import validate
from svtoolkit.errors import UserError
from svtoolkit.runs.provenance import DATA_RECORD, write_record
from svtoolkit.system.progress import show_progress


def run(config: ValidateConfig, command_line: str) -> int:
    """Print the faults; the exit status is 1 where there is one (with fix: where the copy could not be made)."""
    check_max_bad(config.max_bad)
    if config.max_bad > 0 and config.fix is not None:
        raise UserError("max_bad takes bad utterances out of the directory itself, fix writes a copy: give one of them")
    return _list_faults(config) if config.fix is None else _write_copy(config, config.fix, command_line)


def _list_faults(config: ValidateConfig) -> int:
    with _progress(config) as progress:
        found = validate(config.data, progress=progress, **_options(config))
    if config.max_bad > 0:
        dropped, found = drop_bad_audio(config.data, found, root=config.root, max_bad=config.max_bad)
        if dropped:
            for item in dropped:
                print(f"left out: {item.utterance_id}: {item.reason}")
            print(f"{config.data}/{BAD_FILES}: {len(dropped)} utterances were taken out of the tables and listed there")
    for fault in found.faults:
        print(f"{config.data}/{fault}", file=sys.stderr)
    rates = "".join(f", {count} files at {rate} Hz" for rate, count in sorted(found.rates.items()))
    print(f"{config.data}: {found.speakers} speakers, {found.utterances} utterances, {found.hours:.2f} h{rates}")
    if found.ok:
        print("no fault found")
        return 0
    print(
        f"error: {len(found.faults)} faults; `svt validate {config.data} --fix NEW_DIR` writes a repaired copy",
        file=sys.stderr,
    )
    return 1


def _write_copy(config: ValidateConfig, out: str, command_line: str) -> int:
    with _progress(config) as progress:
        repaired = repair(config.data, out, progress=progress, **_options(config))
    # The directory that was repaired is its source, as in what `svt prepare` records.
    write_record(Path(out) / DATA_RECORD, command_line, {"source": config.data, **asdict(config)})
    for utterance, reason in repaired.dropped:
        print(f"dropped {utterance}: {reason}")
    for name in repaired.rewritten:
        print(f"rewritten: {name}")
    for name, reason in repaired.left_out:
        print(f"left out: {name}: {reason}")
    print(f"{out}: written, {len(repaired.dropped)} utterances dropped; {config.data} is untouched")
    return 0


def _options(config: ValidateConfig) -> dict[str, Any]:
    """What `validate` and `repair` both take."""
    return {name: value for name, value in vars(config).items() if name != "data"}


@contextmanager
def _progress(config: ValidateConfig) -> Iterator[Callable[[int], object]]:
    """Takes the number of recordings that are done and shows it."""
    table = Path(config.data) / AUDIO_TABLES[find_source(Path(config.data), None)]
    total = len(table.read_bytes().splitlines()) if table.is_file() else None
    with show_progress("validate", total, "file", shown=config.check_audio) as progress:
        yield lambda done: progress.update(done - progress.n)
