"""The runtimes that a file is compared in, by the words of ``check=``."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from svtoolkit.errors import UserError
from svtoolkit.runtime.model import RuntimeModel

Embed = Callable[[np.ndarray], np.ndarray]
"""Samples (samples,) -> embedding (embedding_dim,)."""


class CheckedRuntime(NamedTuple):
    """A row of the table.

    Attributes:
        package: that is imported.
        remedy: how it is installed.
        open: content of a file, its sample rate -> what embeds with it.
        own_features: it computes features itself, so that no file makes it exact.
    """

    package: str
    remedy: str
    open: Callable[[bytes, int], Embed]
    own_features: bool = False


def _onnxruntime(content: bytes, _rate: int) -> Embed:
    return RuntimeModel.of(content).embed


def _openvino(content: bytes, _rate: int) -> Embed:
    return RuntimeModel.of(content, runtime="openvino").embed


def _ncnn(content: bytes, _rate: int) -> Embed:
    return RuntimeModel.of(content, runtime="ncnn").embed


def _sherpa(content: bytes, rate: int) -> Embed:
    import sherpa_onnx

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(content)
        config = sherpa_onnx.SpeakerEmbeddingExtractorConfig(model=str(path), num_threads=1, provider="cpu")
        if not config.validate():
            raise UserError("sherpa-onnx refuses the file")
        extractor = sherpa_onnx.SpeakerEmbeddingExtractor(config)

    def embed(samples: np.ndarray) -> np.ndarray:
        stream = extractor.create_stream()
        stream.accept_waveform(rate, samples)
        stream.input_finished()
        return np.array(extractor.compute(stream), dtype=np.float32)

    return embed


CHECKED: dict[str, CheckedRuntime] = {
    "onnxruntime": CheckedRuntime("onnxruntime", "`pip install onnxruntime`", _onnxruntime),
    "openvino": CheckedRuntime("openvino", "`pip install openvino`", _openvino),
    "ncnn": CheckedRuntime("ncnn", "`pip install ncnn`", _ncnn),
    "sherpa-onnx": CheckedRuntime("sherpa_onnx", "`pip install sherpa-onnx`", _sherpa, own_features=True),
}


def require_runtime(name: str) -> CheckedRuntime:
    """A row of the table whose package is installed.

    Raises:
        UserError: an unknown name, a package that is missing.
    """
    if name not in CHECKED:
        raise UserError(f"check holds {name!r:.80}, expected {', '.join(CHECKED)}")
    row = CHECKED[name]
    if importlib.util.find_spec(row.package) is None:
        raise UserError(f"check={name} needs {name}, which is not installed; {row.remedy}, or leave it out")
    return row
