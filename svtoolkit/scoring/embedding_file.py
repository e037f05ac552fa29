"""Embeddings as Kaldi ark/scp, through kaldiio."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import kaldiio
import numpy as np

from svtoolkit.errors import UserError
from svtoolkit.scoring.cosine import EmbeddingTable


def write_embeddings(stem: str | Path, utterances: Sequence[str], matrix: np.ndarray) -> Path:
    """Write <stem>.ark and <stem>.scp (float32 vectors) and return the scp's path; the scp comes last.

    The scp names the ark by its absolute path, as Kaldi's tools expect.
    """
    ark, scp = Path(f"{stem}.ark").absolute(), Path(f"{stem}.scp").absolute()
    ark.parent.mkdir(parents=True, exist_ok=True)
    aside = ark.with_name(f".{ark.name}.{os.getpid()}.tmp")
    offsets = aside.with_suffix(".offsets")
    try:
        vectors = dict(zip(utterances, matrix.astype(np.float32), strict=True))
        kaldiio.save_ark(str(aside), vectors, scp=str(offsets))
        lines = offsets.read_text(encoding="utf-8").splitlines()
        os.replace(aside, ark)
        staged = scp.with_name(f".{scp.name}.{os.getpid()}.tmp")
        staged.write_text("".join(f"{line.replace(str(aside), str(ark))}\n" for line in lines), encoding="utf-8")
        os.replace(staged, scp)
    finally:
        aside.unlink(missing_ok=True)
        offsets.unlink(missing_ok=True)
    return scp


def read_embeddings(scp: str | Path) -> EmbeddingTable:
    """Read all embeddings that an scp lists.

    Raises:
        UserError: missing or malformed file, vectors of different sizes; names file and line.
    """
    path = Path(scp)
    if not path.is_file():
        raise UserError(f"{path}: there is no such file; expected the scp that `svt embed` wrote")
    utterances, vectors = [], []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        name, _, location = line.strip().partition(" ")
        if not location:
            raise UserError(f"{path}:{number}: found {line!r}, expected `utterance file.ark:offset`")
        try:
            vector = np.asarray(kaldiio.load_mat(location))
        except Exception as error:  # kaldiio has no exception of its own
            raise UserError(
                f"{path}:{number}: {location} cannot be read ({error}); extract the embeddings again"
            ) from error
        if vector.ndim != 1 or (vectors and vector.shape != vectors[0].shape):
            raise UserError(
                f"{path}:{number}: {name!r} has shape {vector.shape}, expected a vector like the others; "
                "extract all embeddings with one model"
            )
        utterances.append(name)
        vectors.append(vector)
    if not vectors:
        raise UserError(f"{path}: lists no embedding; extract some with `svt embed`")
    return EmbeddingTable(utterances, np.stack(vectors))
