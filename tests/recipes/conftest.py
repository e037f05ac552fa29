"""Recipes call an `svt` that starts at once, and share what takes long to make."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from made_once import made_once


@pytest.fixture(autouse=True, scope="module")
def recipes_call_the_warm_program(warm_svt: Path) -> Iterator[None]:
    from warm_svt import in_bash

    with pytest.MonkeyPatch.context() as patch:
        for name, value in in_bash(warm_svt).items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="session")
def corpora(shared_folder: Path) -> Path:
    """The miniature corpora of VoxCeleb's recipe, in a path with a space; not to be changed."""
    pytest.importorskip("av", reason="PyAV (extra voxceleb) is not installed")
    from voxceleb_material import write_corpora

    return made_once(shared_folder, "vox celeb", write_corpora)
