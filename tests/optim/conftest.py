"""What the tests of the 8-bit optimizers share."""

from __future__ import annotations

import pytest

from svtoolkit.optim import chunks
from svtoolkit.optim.chunks import plan_chunks


@pytest.fixture
def small_chunks(monkeypatch):
    """Chunks of 64 values: tensors are cut and packed as in large networks."""
    monkeypatch.setattr(chunks, "CHUNK_VALUES", 64)
    plan_chunks.cache_clear()
    yield
    plan_chunks.cache_clear()
