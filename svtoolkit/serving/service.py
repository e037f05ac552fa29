"""What the service does with a recording: a model, a store, and one recording at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from svtoolkit.enrolment.model_identity import identify_model
from svtoolkit.enrolment.store import SpeakerStore, StoreModel, check_name, recognised
from svtoolkit.scoring.verification import Verification
from svtoolkit.serving.recording import decode

if TYPE_CHECKING:
    from svtoolkit.runtime.model import RuntimeModel
    from svtoolkit.scoring.speaker_model import SpeakerModel

Answer = TypeVar("Answer")


class BusyError(Exception):
    """As many requests wait as may."""


@dataclass(frozen=True)
class Limits:
    """What a request may bring, as the settings of `svt serve` say it: bytes, seconds, waiting requests."""

    max_bytes: int = 10_000_000
    max_seconds: float = 60.0
    upload_seconds: float = 15.0
    queue: int = 16
    min_voice: float = 0.3
    channel: int | None = None
    resample: bool = True


class Service:
    """Enrols, verifies and identifies.

    Args:
        model: on its device.
        name: of the model, for messages.
        store: made where it is missing.

    Raises:
        UserError: the store is of another model, or none.
    """

    def __init__(self, model: SpeakerModel | RuntimeModel, name: str, store: SpeakerStore, limits: Limits) -> None:
        self.model, self.store, self.limits = model, store, limits
        self.identity = identify_model(model, name)
        store.prepare(self.identity)
        self.admitted = 0
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="model")

    @asynccontextmanager
    async def admission(self) -> AsyncIterator[None]:
        """A place among the requests that are computed or wait.

        Raises:
            BusyError: there is none.
        """
        if self.admitted > self.limits.queue:
            raise BusyError
        self.admitted += 1
        try:
            yield
        finally:
            self.admitted -= 1

    async def compute(self, work: Callable[[], Answer]) -> Answer:
        """Run what needs the model, after all that was there before; it ends even where the client has left."""
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._worker, work))

    def close(self) -> None:
        """Wait for what was accepted."""
        self._worker.shutdown(wait=True)

    def enrol(self, speaker: str, content: bytes, *, replaces: bool = False) -> int:
        """Add a recording of a speaker; returns how many there are now."""
        check_name(speaker)
        embedding = self._embed(content)
        return self.store.add(self.identity, speaker, embedding[np.newaxis], replace=replaces)

    def verify(self, speaker: str, content: bytes) -> Verification:
        """Decide whether a recording is of a known speaker."""
        known = self.known_model()
        enrolled = self.store.embeddings(speaker)
        found = self.model.decide(enrolled, self._embed(content), threshold=known.threshold)
        if known.threshold == self.model.threshold:
            stored = self.model.stored
            return replace(found, operating_point=stored.operating_point, p_miss=stored.p_miss, p_fa=stored.p_fa)
        return replace(found, operating_point=known.operating_point)

    def identify(self, content: bytes, count: int) -> tuple[str | None, float | None, list[tuple[str, float]]]:
        """The speaker who is recognised, the threshold, and the closest speakers with their scores."""
        known = self.known_model()
        nearest = self.store.nearest(self._embed(content), count)
        return recognised(nearest, known.threshold), known.threshold, nearest

    def known_model(self) -> StoreModel:
        """That of the store, with the threshold that holds now."""
        return self.store.check_model(self.identity)

    def _embed(self, content: bytes) -> np.ndarray:
        samples = decode(
            content,
            sample_rate=self.model.sample_rate,
            max_seconds=self.limits.max_seconds,
            channel=self.limits.channel,
            resample=self.limits.resample,
        )
        return self.model.embed(samples, min_voice=self.limits.min_voice)
