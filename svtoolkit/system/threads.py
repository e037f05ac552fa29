"""Work on many files at a time. Threads suffice: libsndfile decodes without holding the interpreter's lock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import TypeVar

from svtoolkit.errors import UserError

Item = TypeVar("Item")
Result = TypeVar("Result")

AHEAD = 16
"""Items submitted ahead of the result that is waited for, a thread: a corpus of millions needs no million futures."""


def map_in_order(function: Callable[[Item], Result], items: Iterable[Item], jobs: int) -> Iterator[Result]:
    """Apply ``function`` to every item with ``jobs`` threads; results come in the order of the items.

    Raises:
        UserError: ``jobs`` is below 1.
    """
    if jobs < 1:
        raise UserError(f"jobs is {jobs}, expected 1 or more")
    if jobs == 1:
        return map(function, items)
    return _map_in_pool(function, items, jobs)


def _map_in_pool(function: Callable[[Item], Result], items: Iterable[Item], jobs: int) -> Iterator[Result]:
    pool = ThreadPoolExecutor(jobs)
    try:
        yield from submit_ahead(pool, function, items, AHEAD * jobs)
    finally:
        # After an error or Ctrl-C nothing that is still queued is started.
        pool.shutdown(cancel_futures=True)


def submit_ahead(
    pool: Executor, function: Callable[[Item], Result], items: Iterable[Item], ahead: int
) -> Generator[Result, None, None]:
    """Results in the order of the items, of which at most ``ahead`` wait in the pool for the one that comes next."""
    pending: deque[Future[Result]] = deque()
    for item in items:
        pending.append(pool.submit(function, item))
        if len(pending) > ahead:
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()
