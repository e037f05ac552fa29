"""How an artefact was made: its command line, kept with it, and the way back from results to all commands.

Where commands are kept: prepared data in made_by.yaml of its folder, a training run in logs/commands.txt, a released
model in model.yaml, embeddings and scores in the YAML beside them, an evaluation in its result.
"""

from __future__ import annotations

import io
import logging
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from svtoolkit.config.scoring import MFCC_STATISTICS
from svtoolkit.errors import hide_credentials
from svtoolkit.system.atomic import atomic_write
from svtoolkit.system.plain_data import MalformedError, read_yaml, write_yaml
from svtoolkit.system.regular_file import is_regular

log = logging.getLogger(__name__)

DATA_RECORD = "made_by.yaml"
RUN_RECORD = Path("logs", "commands.txt")


def write_record(path: str | Path, command: str, settings: Mapping[str, Any]) -> None:
    """Write what made an artefact: the command line, then its settings and facts, as YAML, without credentials."""
    text = io.StringIO()
    write_yaml({"command": command, **settings}, text, allow_unicode=True, width=1 << 16)
    with atomic_write(path) as stream:
        stream.write(hide_credentials(text.getvalue()))


def read_record(path: str | Path) -> dict[str, Any]:
    """Read such a record; empty where there is none or something else."""
    file = Path(path)
    if not is_regular(file):
        return {}
    try:
        record = read_yaml(file)
    except MalformedError:
        record = None
    if isinstance(record, dict):
        return record
    log.warning("%s: is no YAML mapping and is left out", file)
    return {}


def append_command(path: str | Path, command: str) -> None:
    """Add a line to the commands of a run, unless it is there: a run may be continued with the same command.

    Credentials of URLs are left out.
    """
    file, command = Path(path), hide_credentials(command)
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines() if is_regular(file) else []
    if command not in lines:
        with atomic_write(file) as stream:
            stream.writelines(f"{line}\n" for line in [*lines, command])


def commands_behind(
    results: Sequence[Mapping[str, Any]],
    *,
    exp_dir: str | Path | None = None,
    model: str | Path | None = None,
    locate: Callable[[str], Path] = Path,
) -> list[str]:
    """The commands that led to some results, in the order to run them: data, training, models, embeddings, scores.

    Args:
        results: as `svt evaluate` writes them.
        exp_dir: folder of the training run.
        model: the released model.
        locate: the folder of a released model by what it is called in a record.

    Returns:
        the command lines, each once; relative paths are those of the folder they were run in. The log names
        artefacts that no record tells about; data directories may come from elsewhere and are not named.
    """
    judged = _records(f"{result['scores_file']}.yaml" for result in results)
    scores = _records(f"{file}.yaml" for record in judged.values() for file in _fused(record)) | judged
    backends = _records(f"{path}.yaml" for record in scores.values() if (path := _text(record, "backend")))
    scp_files = [_text(record, key) for record in scores.values() for key in ("embeddings", "cohort")]
    scp_files += [_text(record, "embeddings") for record in backends.values()]
    embeddings = _records(Path(scp).with_suffix(".yaml") for scp in scp_files if Path(scp).name)
    models = [model, *(_model(record) for record in embeddings.values())]
    descriptions = _records(locate(str(folder)) / "model.yaml" for folder in dict.fromkeys(models) if folder)
    of_models = {path: _mapping(record, "training") for path, record in descriptions.items()}
    folders = [_text(record, "data") for record in embeddings.values()]
    training: list[str] = []
    if exp_dir is not None:
        folders.insert(0, _text(_mapping(read_record(Path(exp_dir) / "config.yaml"), "data"), "train"))
        training = _run_commands(Path(exp_dir) / RUN_RECORD)
    commands = [command for folder in folders if folder for command in _data_commands(Path(folder), set())] + training
    for records in (of_models, embeddings, backends, scores):
        commands += [_text(record, "command") for record in records.values()]
        for path in (path for path, record in records.items() if not _text(record, "command")):
            log.warning("%s: tells no command, so that the report lacks how this was made", path)
    commands += [_text(result, "command") for result in results]
    return list(dict.fromkeys(filter(None, commands)))


class ModelBehind(NamedTuple):
    """What some embeddings were made with.

    Attributes:
        path: of the released model.
        front_end: what `svt embed` was told of its features; None: nothing.
    """

    path: str
    front_end: str | None = None


def model_behind(scores_file: str | Path) -> ModelBehind | None:
    """The released model that the embeddings behind a score file were made with; None where no record tells."""
    embeddings = Path(_text(read_record(f"{scores_file}.yaml"), "embeddings"))
    record = read_record(embeddings.with_suffix(".yaml")) if embeddings.name else {}
    path = _model(record)
    return ModelBehind(path, _text(record, "front_end") or None) if path else None


def _text(record: Mapping[str, Any], key: str) -> str:
    """Text of a record that anyone may have written; empty where there is none."""
    value = record.get(key)
    return value if isinstance(value, str) else ""


def _model(record: Mapping[str, Any]) -> str:
    """The model that a record of embeddings names; empty where there is none, as of statistics."""
    return "" if (model := _text(record, "model")) == MFCC_STATISTICS else model


def _fused(record: Mapping[str, Any]) -> Iterator[str]:
    """The files that a record of `svt fuse` names: scores and quality, of the training and of what was fused."""
    for key in ("train_scores", "scores", "train_quality", "quality"):
        value = record.get(key)
        yield from (file for file in (value if isinstance(value, list) else [value]) if isinstance(file, str))


def _mapping(record: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = record.get(key)
    return value if isinstance(value, dict) else {}


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
    if is_regular(file):
        return file.read_text(encoding="utf-8", errors="replace").splitlines()
    log.warning("%s: there is no such file, so that the report lacks how the network was trained", file)
    return []


def _data_commands(folder: Path, seen: set[Path]) -> Iterator[str]:
    """The command that wrote a data directory, after those that wrote the directories it was made of."""
    if folder in seen:
        return
    seen.add(folder)
    record = read_record(folder / DATA_RECORD)
    sources = record.get("source") or []
    for source in sources if isinstance(sources, list) else [sources]:
        if isinstance(source, str):
            yield from _data_commands(Path(source), seen)
    yield _text(record, "command")
