"""How an artefact was made: its command line, kept with it, and the way back from results to all commands.

Where commands are kept: prepared data in made_by.yaml of its folder, a training run in logs/commands.txt, a released
model in model.yaml, embeddings and scores in the YAML beside them, an evaluation in its result.
"""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from svtoolkit.system.atomic import atomic_write

log = logging.getLogger(__name__)

DATA_RECORD = "made_by.yaml"
RUN_RECORD = Path("logs", "commands.txt")


def write_record(path: str | Path, command: str, settings: Mapping[str, Any]) -> None:
    """Write what made an artefact: the command line, then its settings and facts, as YAML."""
    with atomic_write(path) as stream:
        yaml.safe_dump({"command": command, **settings}, stream, sort_keys=False, allow_unicode=True, width=1 << 16)


def read_record(path: str | Path) -> dict[str, Any]:
    """Read such a record; empty where there is none or something else."""
    file = Path(path)
    if not file.is_file():
        return {}
    try:
        record = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError):
        record = None
    if isinstance(record, dict):
        return record
    log.warning("%s: is no YAML mapping and is left out", file)
    return {}


def append_command(path: str | Path, command: str) -> None:
    """Add a line to the commands of a run, unless it is there: a run may be continued with the same command."""
    file = Path(path)
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    if command not in lines:
        with atomic_write(file) as stream:
            stream.writelines(f"{line}\n" for line in [*lines, command])


def commands_behind(
    results: Sequence[Mapping[str, Any]], *, exp_dir: str | Path | None = None, model: str | Path | None = None
) -> list[str]:
    """The commands that led to some results, in the order to run them: data, training, models, embeddings, scores.

    Args:
        results: as `svt evaluate` writes them.
        exp_dir: folder of the training run.
        model: the released model.

    Returns:
        the command lines, each once; relative paths are those of the folder they were run in. The log names
        artefacts that no record tells about; data directories may come from elsewhere and are not named.
    """
    scores = _records(f"{result['scores_file']}.yaml" for result in results)
    scp_files = [record[key] for record in scores.values() for key in ("embeddings", "cohort") if record.get(key)]
    embeddings = _records(Path(scp).with_suffix(".yaml") for scp in scp_files)
    models = [model, *(record.get("model") for record in embeddings.values())]
    descriptions = _records(Path(folder) / "model.yaml" for folder in models if folder)
    of_models = {path: record.get("training") or {} for path, record in descriptions.items()}
    folders = [record.get("data") for record in embeddings.values()]
    training: list[str] = []
    if exp_dir is not None:
        folders.insert(0, (read_record(Path(exp_dir) / "config.yaml").get("data") or {}).get("train"))
        training = _run_commands(Path(exp_dir) / RUN_RECORD)
    commands = [command for folder in folders if folder for command in _data_commands(Path(folder), set())] + training
    for records in (of_models, embeddings, scores):
        commands += [record["command"] for record in records.values() if record.get("command")]
        for path in (path for path, record in records.items() if not record.get("command")):
            log.warning("%s: tells no command, so that the report lacks how this was made", path)
    commands += [result["command"] for result in results if result.get("command")]
    return list(dict.fromkeys(commands))


def source_commit(folder: Path) -> str | None:
    """Commit of the source tree that a folder of Python files is part of, with + where files were changed.

    None where the folder is not under version control, even if it lies in a repository, as a .venv may.
    """
    try:
        tracked = ["git", "ls-files", "--error-unmatch", "--", "*.py"]
        subprocess.run(tracked, cwd=folder, capture_output=True, check=True)
        describe = ["git", "describe", "--always", "--dirty=+", "--abbrev=12", "--exclude=*"]
        return subprocess.run(describe, cwd=folder, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def _records(paths: Iterable[str | Path]) -> dict[str, dict[str, Any]]:
    return {path: read_record(path) for path in dict.fromkeys(map(str, paths))}


def _run_commands(file: Path) -> list[str]:
    if file.is_file():
        return file.read_text(encoding="utf-8").splitlines()
    log.warning("%s: there is no such file, so that the report lacks how the network was trained", file)
    return []


def _data_commands(folder: Path, seen: set[Path]) -> Iterator[str]:
    """The command that wrote a data directory, after those that wrote the directories it was made of."""
    if folder in seen:
        return
    seen.add(folder)
    record = read_record(folder / DATA_RECORD)
    sources = record.get("source") or []
    for source in [sources] if isinstance(sources, str) else sources:
        yield from _data_commands(Path(source), seen)
    if record.get("command"):
        yield record["command"]
