"""Systems by name: what embeddings go through, and how the scores are normalised."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from svtoolkit.errors import UserError
from svtoolkit.registry import nearest
from svtoolkit.scoring.backends.registry import BACKENDS

AS_NORM = "as-norm"


class System(NamedTuple):
    """A way to score.

    Attributes:
        backend: kind of the back end; None: cosines of the embeddings as they are.
        normalisation: none or as-norm.
    """

    backend: str | None
    normalisation: str


def systems_of(names: Sequence[str], *, key: str) -> dict[str, System]:
    """Systems by their names: cosine, as-norm, a kind of back end, or that with -as-norm.

    Args:
        key: of the configuration, for messages.

    Raises:
        UserError: no name, one that is given twice, or one that is no system.
    """
    known = {"cosine": System(None, "none"), AS_NORM: System(None, AS_NORM)}
    for kind in BACKENDS:
        known |= {kind: System(kind, "none"), f"{kind}-{AS_NORM}": System(kind, AS_NORM)}
    if not names or len(set(names)) < len(names):
        raise UserError(f"{key} is {list(names)}, expected one or more of {', '.join(known)}, each once")
    for name in names:
        if name not in known:
            raise UserError(f"{key}: there is no {name!r:.80}; {nearest(name, known)}(all: {', '.join(known)})")
    return {name: known[name] for name in names}
