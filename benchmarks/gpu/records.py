"""What a part finds, on disk after every measurement: a part that is killed leaves what it had."""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu.parts import Items, LeftOutError
from benchmarks.machine import describe_machine
from svtoolkit.device import is_out_of_memory
from svtoolkit.errors import UserError
from svtoolkit.system.atomic import atomic_write

ERROR, LEFT_OUT, TOO_LARGE = "error", "left_out", "too_large"
"""Keys of a record in the place of figures."""


def describe_device(device: torch.device) -> dict[str, Any]:
    """What figures are compared under."""
    about: dict[str, Any] = {**describe_machine("torch"), "device": "cpu"}
    if device.type == "cuda":
        found = torch.cuda.get_device_properties(device)
        about |= {
            "device": found.name,
            "memory_bytes": found.total_memory,
            "compute_capability": f"{found.major}.{found.minor}",
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),
            "count": torch.cuda.device_count(),
        }
    return about


def read_document(path: Path) -> dict[str, Any]:
    """What is there of a part; empty where nothing is, or what is there cannot be read."""
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) and "records" in found else {}


def measure(
    items: Items, path: Path, device: torch.device, seconds: float, say: Callable[[str], object]
) -> dict[str, Any]:
    """Measure what the file of this device lacks, until the time is over; returns the document.

    An item that fails leaves its traceback in its place and the others are measured; it is tried again by the next
    call. What is left undone stands under "left".
    """
    about = describe_device(device)
    before = read_document(path)
    records = dict(before["records"]) if before.get("machine") == about else {}
    document = {"machine": about, "left": [], "records": records}
    deadline = time.monotonic() + seconds
    for key, run in items:
        if key in records and ERROR not in records[key]:
            continue
        if time.monotonic() >= deadline:
            document["left"].append(key)
            continue
        begin = time.perf_counter()
        records[key] = attempt(run)
        records[key]["seconds"] = round(time.perf_counter() - begin, 2)
        say(f"{key}: {outcome(records[key])} ({records[key]['seconds']:.1f} s)")
        write(path, document)
    write(path, document)
    return document


def attempt(run: Callable[[], Any]) -> dict[str, Any]:
    """A record: figures, or why there are none."""
    try:
        found = run()
        return found if isinstance(found, dict) else {"value": found}
    except (LeftOutError, UserError) as reason:
        return {LEFT_OUT: str(reason)}
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] in ("svtoolkit", "benchmarks"):
            return {ERROR: traceback.format_exc()}
        return {LEFT_OUT: f"{missing.name} is not installed"}
    except Exception as error:
        if is_out_of_memory(error):
            return {TOO_LARGE: True}
        return {ERROR: traceback.format_exc()}


def outcome(record: dict[str, Any]) -> str:
    """A record in a few words."""
    if ERROR in record:
        return "FAILED, " + record[ERROR].strip().splitlines()[-1]
    if LEFT_OUT in record:
        return f"left out, {record[LEFT_OUT]}"
    if TOO_LARGE in record:
        return "does not fit"
    shown = {key: value for key, value in record.items() if isinstance(value, (int, float, bool, str))}
    return ", ".join(
        f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in shown.items()
    )


def write(path: Path, document: dict[str, Any]) -> None:
    with atomic_write(path) as stream:
        json.dump(document, stream, indent=1)
        stream.write("\n")
