"""What the tests of reading audio share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import soundfile


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Number of samples of every call by which soundfile has decoded some."""
    counts: list[int] = []

    class Counting(soundfile.SoundFile):
        def read(self, *args: Any, **kwargs: Any) -> np.ndarray:
            samples = super().read(*args, **kwargs)
            counts.append(len(samples))
            return samples

    monkeypatch.setattr(soundfile, "SoundFile", Counting)
    return counts
