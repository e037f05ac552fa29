from __future__ import annotations

from datetime import date
from pathlib import Path

import numpy as np
import pytest

from svtoolkit.errors import UserError
from svtoolkit.reporting.formatting import fact, file_stem, percent, plain


def test_plain_makes_json_of_what_python_holds():
    value = {
        1: np.float32(0.5),
        "array": np.arange(2),
        "path": Path("a/b"),
        "day": date(2020, 1, 2),
        "infinite": float("inf"),
        "nested": ({"x": np.int64(3)}, None, True),
    }
    assert plain(value) == {
        "1": 0.5,
        "array": [0, 1],
        "path": "a/b",
        "day": "2020-01-02",
        "infinite": None,
        "nested": [{"x": 3}, None, True],
    }
    with pytest.raises(UserError, match=r"facts\.model of the report: found a object"):
        plain({"model": object()}, "facts")


def test_values_read_well():
    assert percent(0.0312) == "3.12 %"
    assert percent(None) == "–"
    assert fact([1, 2.5, {"a": False}, None]) == "1, 2.5, a no, –"
    assert file_stem("../a b", "ü?") == "a-b-ü"
    assert file_stem("x" * 500) == "x" * 150
    assert file_stem("xx" + "语" * 500) == "xx" + "语" * 49
    assert file_stem("..") == "unnamed"
