"""What all benchmarks have in common: their command line, and what a figure was measured by and on."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from svtoolkit.system.atomic import atomic_write


def open_command(page: str | None, arguments: Sequence[str] | None) -> tuple[list[str], argparse.ArgumentParser]:
    """The words of a command, and what parses them: explained by the page of its module, with ``--output``."""
    parser = argparse.ArgumentParser(description=page, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="JSON file to write")
    return list(sys.argv[1:] if arguments is None else arguments), parser


def write_record(path: Path, benchmark: str, words: Sequence[str], packages: Sequence[str], **found: object) -> None:
    """Write what was found by ``python -m benchmarks.<benchmark> <words>`` as JSON, command and machine first."""
    record = {"command": command_line(benchmark, words), "machine": describe_machine(*packages), **found}
    with atomic_write(path) as stream:
        json.dump(record, stream, indent=1)
        stream.write("\n")


END = "<!-- end -->"


def write_page(path: Path, begin: str, text: str) -> None:
    """Put text between a line of a page that begins it and ``END``."""
    before, rest = path.read_text(encoding="utf-8").split(begin)
    with atomic_write(path) as stream:
        stream.write(before + begin + text + END + rest.split(END, 1)[1])


def command_line(benchmark: str, words: Sequence[str]) -> str:
    return shlex.join(["python", "-m", f"benchmarks.{benchmark}", *words])


def describe_machine(*packages: str) -> dict[str, object]:
    """System, processor, cores, Python, and the versions of these packages."""
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor_name(),
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        **{package: version(package) for package in packages},
    }


def load_average() -> float:
    """Processes that want a processor, over the last minute."""
    return round(os.getloadavg()[0], 1)


def _processor_name() -> str:
    """As Linux names it, with what tells generations of that name apart; what Python knows elsewhere."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text(encoding="utf-8").splitlines() if information.is_file() else []
    known = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in reversed(lines))}
    words = [f"{word} {known[key]}" for word, key in (("family", "cpu family"), ("model", "model")) if key in known]
    return ", ".join([known["model name"], *words]) if "model name" in known else platform.processor()


def runs_before(path: Path, command: str) -> list[dict[str, Any]]:
    """Those that the same command has done."""
    record = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return record["runs"] if record.get("command") == command else []
