"""What the tests of the service send."""

from __future__ import annotations

import io

import numpy as np
import soundfile
from command_material import RATE

LOCAL = "http://127.0.0.1"


def recording(samples: np.ndarray, form: str = "WAV", rate: int = RATE) -> bytes:
    stream = io.BytesIO()
    soundfile.write(stream, samples, rate, format=form)
    return stream.getvalue()
