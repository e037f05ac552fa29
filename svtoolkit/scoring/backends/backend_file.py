"""Back ends on disk: matrices in a file of safetensors, settings and facts in its header. Plain data, no pickle."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from svtoolkit.errors import UserError
from svtoolkit.scoring.backends.backend import Backend
from svtoolkit.scoring.backends.stage import Stage
from svtoolkit.system.atomic import atomic_write
from svtoolkit.system.regular_file import is_regular

FORM = "svtoolkit back end 1"


def write_backend(path: str | Path, backend: Backend) -> None:
    """Write a back end; the same one gives the same bytes."""
    arrays = {} if backend.between is None else {"between": backend.between}
    for number, stage in enumerate(backend.stages):
        arrays |= {f"{number}.offset": stage.offset, f"{number}.matrix": stage.matrix}
    header = {"kind": backend.kind, "unit": [stage.unit for stage in backend.stages], "facts": dict(backend.facts)}
    content = save({name: np.ascontiguousarray(array) for name, array in arrays.items()}, {FORM: json.dumps(header)})
    with atomic_write(path, "wb") as stream:
        stream.write(content)


def read_backend(path: str | Path) -> Backend:
    """Read what :func:`write_backend` wrote.

    Raises:
        UserError: missing, another kind of file, or damaged; names the file.
    """
    if not is_regular(path):
        raise UserError(f"{path}: there is no such file; expected a back end, which `svt backend` writes")
    try:
        with safe_open(path, framework="numpy") as content:
            metadata = content.metadata() or {}
            if FORM not in metadata:
                raise ValueError("its header does not say that it is one")
            header = json.loads(metadata[FORM])
            arrays = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118 - is no mapping
        units = header["unit"]
        stages = tuple(Stage(arrays[f"{n}.offset"], arrays[f"{n}.matrix"], bool(unit)) for n, unit in enumerate(units))
        backend = Backend(str(header["kind"]), stages, arrays.get("between"), dict(header["facts"]))
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(
            f"{path}: is no back end ({reason}); expected what `svt backend` writes, train it again"
        ) from error
    _check(Path(path), backend, arrays)
    return backend


def _check(path: Path, backend: Backend, arrays: dict[str, Any]) -> None:
    """Refuse numbers that are not finite, and matrices that do not follow each other."""
    sizes = [stage.matrix.shape for stage in backend.stages]
    fits = bool(sizes) and all(
        stage.matrix.ndim == 2 and stage.offset.shape == stage.matrix.shape[1:] for stage in backend.stages
    )
    fits = fits and all(before[0] == after[1] for before, after in itertools.pairwise(sizes))
    if backend.between is not None:
        fits = fits and backend.between.shape == sizes[-1][:1] and bool((backend.between >= 0).all())
    if not fits or not all(array.dtype == np.float64 and np.isfinite(array).all() for array in arrays.values()):
        raise UserError(f"{path}: the matrices of the back end are damaged (shapes {sizes}); train it again")
