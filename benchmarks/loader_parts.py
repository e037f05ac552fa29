"""Where the time of the loader goes: functions of it are timed while it runs, each without those that it calls."""

from __future__ import annotations

import functools
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from svtoolkit.augmentation.augmenter import Augmenter
from svtoolkit.augmentation.impulse_responses import ImpulseLibrary
from svtoolkit.augmentation.noise import Noise
from svtoolkit.augmentation.reverberation import Reverberation
from svtoolkit.augmentation.sound_files import SoundFiles
from svtoolkit.augmentation.spec_augment import SpecAugment
from svtoolkit.crops import crop as crops
from svtoolkit.features import FrontEnd

PARTS: dict[str, tuple[Any, str]] = {
    "open, seek and decode the crop": (crops, "read_audio"),
    "change its speed": (crops, "convert_rate"),
    "dither": (crops, "dither_noise"),
    "draw masks": (SpecAugment, "draw"),
    "draw noise and response": (Augmenter, "draw"),
    "open, seek and decode noise": (SoundFiles, "read"),
    "room impulse response": (ImpulseLibrary, "response"),
    "reverberation by FFT": (Reverberation, "apply"),
    "mix noise in": (Noise, "apply"),
    "collate": (crops, "collate_crops"),
    "filter bank": (FrontEnd, "forward"),
    "put masks on": (SpecAugment, "apply"),
}
"""What it is -> where the function is looked up."""

REST = "all else"


class Stopwatch:
    """Processor seconds by part."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._inner = [0.0]

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function; what it takes is added to its part, less what is timed inside of it."""

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            self._inner.append(0.0)
            begin = time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                taken = time.process_time() - begin
                self.seconds[part] += taken - self._inner.pop()
                self._inner[-1] += taken

        return run

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Time the parts of the loader for as long as the block lasts."""
        with ExitStack() as stack:
            for part, (owner, name) in PARTS.items():
                stack.enter_context(mock.patch.object(owner, name, self.timed(part, getattr(owner, name))))
            yield


def measure_parts(load: Callable[[], object], rounds: int) -> dict[str, float]:
    """Least processor seconds of each part of ``load`` in any round, in the order of PARTS; REST is what is left."""
    found: dict[str, list[float]] = defaultdict(list)
    for _ in range(rounds):
        watch = Stopwatch()
        with watch.watching():
            watch.timed(REST, load)()
        for part, seconds in watch.seconds.items():
            found[part].append(seconds)
    return {part: min(found[part]) for part in (*PARTS, REST) if part in found}
