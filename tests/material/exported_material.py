"""Exported files of tiny models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from command_material import write_model

from svtoolkit.cli import main

BLOCKED = """
import importlib.abc, sys

class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name.partition(".")[0])

sys.meta_path.insert(0, Missing())
"""
"""Python that begins with this has no package of these."""


def write_exported(folder: Path, *words: str, **stored: object) -> Path:
    """folder/model.onnx of ``command_material.write_model``, whose model.yaml has this section verification."""
    model = write_model(folder / "model")
    if stored:
        import yaml

        path = model / "model.yaml"
        content = yaml.safe_load(path.read_text())
        content["verification"] = stored
        path.write_text(yaml.safe_dump(content))
    assert main(["export", str(model), str(folder / "model.onnx"), *words]) == 0
    return folder / "model.onnx"


def change(path: Path, out: Path, how: Callable[[onnx.ModelProto], object]) -> Path:
    """A copy of a file that ``how`` has changed."""
    graph = onnx.load(path)
    how(graph)
    out.write_bytes(graph.SerializeToString())
    return out


def cosine_of(first: np.ndarray, second: np.ndarray) -> float:
    return float(first @ second / np.linalg.norm(first) / np.linalg.norm(second))
