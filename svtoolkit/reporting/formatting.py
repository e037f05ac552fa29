"""Values as text for the reader of a report, and as JSON."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import PurePath
from typing import Any

import numpy as np

from svtoolkit.errors import UserError

NOTHING = "–"  # what a table shows where a value was not measured
KEPT_CONTROLS = "\n\t"


def printable(text: str, *, keep: str = "") -> str:
    """``text`` with every character that XML or a terminal cannot hold (controls, lone surrogates) replaced.

    Args:
        text: any string, a file name with undecodable bytes included.
        keep: unprintable characters that stay, such as ``KEPT_CONTROLS`` in a block of text.
    """
    return "".join(char if char.isprintable() or char in keep else "\N{REPLACEMENT CHARACTER}" for char in text)


def label_of(result: Mapping[str, Any]) -> str:
    """What a result is called in figures, tables and messages."""
    return str(result.get("label") or f"{result['evaluation']}, {result['scores']}")


def percent(share: float | None) -> str:
    """A share between 0 and 1 in percent with two decimals, such as ``3.12 %``."""
    return NOTHING if share is None else f"{100 * share:.2f} %"


def decimal(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.4f}"


def count(value: int | None) -> str:
    return NOTHING if value is None else f"{value:,}"


def fact(value: Any) -> str:
    """One fact on one line: lists joined by commas, mappings as ``key value`` pairs, whole numbers grouped."""
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return count(value)
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {fact(item)}" for key, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(fact, value))
    return str(value)


def file_stem(*names: str) -> str:
    """``names`` joined to a part of a file name that every file system takes: no separators, 150 bytes."""
    joined = "-".join(re.sub(r"[^\w.-]+", "-", name) for name in names)
    return joined.strip(".-").encode()[:150].decode(errors="ignore") or "unnamed"


def plain(value: Any, where: str = "value") -> Any:
    """``value`` as JSON knows it: string keys, lists, numbers; what is not finite becomes None.

    Args:
        value: nested mappings, sequences, NumPy scalars and arrays, paths, dates.
        where: name of the value in an error.

    Raises:
        UserError: a value of a type that JSON cannot hold; names the key.
    """
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, PurePath | date):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [plain(item, f"{where}[{position}]") for position, item in enumerate(value)]
    raise UserError(
        f"{where} of the report: found a {type(value).__name__}, expected text, a number, a list or a mapping of "
        "these; convert it before the report is written"
    )
