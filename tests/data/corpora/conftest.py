from __future__ import annotations

from collections.abc import Iterator

import pytest

from svtoolkit.data.corpora.espeak import Synthesiser, open_synthesiser


@pytest.fixture(scope="module")
def synthesiser() -> Iterator[Synthesiser]:
    with open_synthesiser() as opened:
        yield opened
