"""A file of ONNX as a release: sherpa-onnx's, which say what they take, and those that WeSpeaker and 3D-Speaker export.

Of its metadata are read those that sherpa-onnx writes (scripts/wespeaker, scripts/3dspeaker, scripts/nemo): framework,
sample_rate, output_dim, normalize_samples, feature_normalize_type, feat_dim, window_size_ms, window_stride_ms. The
features are those that the framework trains with, which for WeSpeaker's are not what sherpa-onnx computes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from svtoolkit.checkpoints.exported import KEY, WAVEFORM, parse_exported
from svtoolkit.checkpoints.layout import list_names
from svtoolkit.checkpoints.released import ModelDescription
from svtoolkit.config import FeaturesConfig
from svtoolkit.config.limits import explain_excess
from svtoolkit.errors import UserError
from svtoolkit.models.front_ends import BACKENDS, FRONT_ENDS, RELEASED_FRONT_ENDS, features_config
from svtoolkit.models.onnx_graph import (
    LARGEST,
    LONGEST,
    PROBE_FRAMES,
    Input,
    bounded_run,
    input_of,
    open_session,
)
from svtoolkit.models.onnx_network import run_graph
from svtoolkit.system.regular_file import is_regular

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

SUFFIX = ".onnx"

STATED = ("fbank80", *(name for name in FRONT_ENDS.rows if name not in BACKENDS | RELEASED_FRONT_ENDS))
"""What a user may state."""

FRAMEWORKS = {"wespeaker": ("fbank80", "0"), "3d-speaker": ("kaldi_3d", "1"), "nemo": ("nemo80", "1")}
"""framework -> its front end, and the normalize_samples that go with it: 1 for samples in [-1, 1]."""

NORMALISATIONS = {"wespeaker": ("", "global-mean"), "3d-speaker": ("", "global-mean"), "nemo": ("per_feature",)}

EXPORTERS = {
    ("feats", "embs"): "as of WeSpeaker's exports, whose features are fbank80, or kaldi_3d of its two converted assets",
    ("feature", "embedding"): "as of 3D-Speaker's exports, whose features are kaldi_3d",
}
"""Names of input and output."""

OUTPUTS = ("embs", "embedding", "embeddings")

FACTS = ("language", "url", "comment", "maintainer")


def find_weights(path: Path) -> Path | None:
    """The file itself, or the only one of its folder.

    Raises:
        UserError: there are several.
    """
    if path.suffix == SUFFIX and is_regular(path):
        return path
    files = sorted(file for file in path.glob(f"*{SUFFIX}") if is_regular(file)) if path.is_dir() else []
    if len(files) > 1:
        raise UserError(
            f"{path}: holds several ONNX files, {list_names([file.name for file in files])}; give the file of one"
        )
    return files[0] if files else None


def read(weights: Path, front_end: str | None) -> tuple[dict[str, Tensor], ModelDescription]:
    """The file as the one weight of its network, and what its metadata and its graph say.

    Raises:
        UserError: damage, a graph that takes no features or that onnxruntime does not run, features that are not said.
    """
    if weights.stat().st_size > LARGEST:
        raise UserError(f"has {weights.stat().st_size} bytes, expected {LARGEST} at most")
    content = weights.read_bytes()
    try:
        session = open_session(content)
        said: dict[str, str] = dict(session.get_modelmeta().custom_metadata_map)
        _refuse_waveforms(said)
        taken = input_of(session, bins_first=True if said.get("framework") == "nemo" else None)
        output = _output_of(session, said)
    except ValueError as error:  # of names that are no text, too
        raise UserError(f"cannot be used: {error}; download it again, or export it anew") from error
    exported = parse_exported(said) if KEY in said else None
    if exported is not None and front_end is not None:
        raise UserError(f"front_end is {front_end!r}, but a file of `svt export` says its own; leave it out")
    features = _features(said, taken, front_end, output) if exported is None else exported.features
    model: dict[str, Any] = {
        "name": "onnx",
        "num_bins": features.num_bins,
        "embedding_dim": 1,
        "graph_bytes": len(content),
        "output": output,
        "bins_first": taken.bins_first,
    }
    graph = torch.frombuffer(bytearray(content), dtype=torch.uint8)
    model["embedding_dim"] = _embedding_dim(session, said, taken, model, content)
    facts = {key: said[key] for key in FACTS if said.get(key)}
    training = {"toolkit": said.get("framework", "ONNX"), "release": weights.stem, **facts}
    verification = {} if exported is None else exported.verification
    return {"graph": graph}, ModelDescription(model, features, training, verification)


def _refuse_waveforms(said: Mapping[str, str]) -> None:
    if KEY in said and parse_exported(said).input == WAVEFORM:
        raise UserError(
            "takes waveforms, and torch has nothing to do for it; `svt verify` and `svt embed` run it, and "
            "`svt export model=...` of what it was made of writes one that takes features"
        )


def _output_of(session: InferenceSession, said: Mapping[str, str]) -> str:
    outputs = [item for item in session.get_outputs() if item.type == "tensor(float)"]
    if len(outputs) > 1:
        named = [item for item in outputs if item.name in OUTPUTS]
        sized = [item for item in outputs if said.get("output_dim", "") in map(str, item.shape[1:])]
        outputs = named if len(named) == 1 else sized
    if len(outputs) != 1:
        found = ", ".join(f"{item.name!r:.80} {item.type} {item.shape}" for item in session.get_outputs())[:LONGEST]
        raise UserError(
            f"its outputs are {found}; expected one of float values, or one that is called {' or '.join(OUTPUTS)}"
        )
    return str(outputs[0].name)


def _embedding_dim(
    session: InferenceSession, said: Mapping[str, str], taken: Input, model: Mapping[str, Any], content: bytes
) -> int:
    """Of the output's shape or the metadata; where the graph leaves a size open, of an embedding of nothing."""
    shape = next(item.shape for item in session.get_outputs() if item.name == model["output"])[1:]
    stated = _whole(said, "output_dim", 0)
    fixed = 0
    if shape and all(isinstance(size, int) and size > 0 for size in shape):
        fixed = int(torch.Size(shape).numel())
    if fixed and stated and fixed != stated:
        raise UserError(f"its metadata say output_dim {stated}, but its output {model['output']!r:.80} has {fixed}")
    if taken.bins and (fixed or stated):
        return fixed or stated
    batch, frames, bins = taken.batch or 1, taken.length or PROBE_FRAMES, model["num_bins"]
    zeros = torch.zeros(batch, frames, bins)
    with bounded_run() as options:
        return run_graph(open_session(content, bounded=True), taken, model["output"], zeros, options).shape[1]


def _features(said: Mapping[str, str], taken: Input, stated: str | None, output: str) -> FeaturesConfig:
    name = stated or _front_end(said, taken, output)
    backend = FeaturesConfig.backend if name == "fbank80" else name
    row = FRONT_ENDS[backend]
    features = features_config({"backend": backend})
    features.sample_rate = _whole(said, "sample_rate", features.sample_rate)
    bins = taken.bins or _whole(said, "feat_dim", features.num_bins)
    for key, found in (("num_bins", bins), ("sample_rate", features.sample_rate)):
        if problem := explain_excess(f"features.{key}", found):
            raise UserError(f"{key} is {found}, {problem}")
        if found != row.arguments.get(key, found):
            raise UserError(f"{key} is {found}, but the front end {name} has {row.arguments[key]} alone")
    features.num_bins = bins
    for key, setting in (("window_size_ms", "frame_length_ms"), ("window_stride_ms", "frame_shift_ms")):
        if _whole(said, key, int(getattr(features, setting))) != getattr(features, setting):
            raise UserError(
                f"its metadata say {key} {said[key]}, but the front end {name} has {getattr(features, setting):g}"
            )
    return features


def _front_end(said: Mapping[str, str], taken: Input, output: str) -> str:
    framework = said.get("framework", "")
    if framework in FRAMEWORKS:
        name, scale = FRAMEWORKS[framework]
        contradicting = [
            f"{key} {said[key]!r:.80}"
            for key, expected in (
                ("normalize_samples", (scale,)),
                ("feature_normalize_type", NORMALISATIONS[framework]),
            )
            if key in said and said[key] not in expected
        ]
        if not contradicting:
            return name
        why = f"its metadata say framework {framework!r}, and {' and '.join(contradicting)}, which is not how it trains"
    elif framework:
        why = f"its metadata say framework {framework!r:.80}, expected {' or '.join(FRAMEWORKS)}"
    else:
        exporter = EXPORTERS.get((taken.frames, output), "which tell nothing")
        why = (
            f"its metadata name no framework; input {taken.frames!r:.80} and output {output!r:.80} are named {exporter}"
        )
    raise UserError(
        f"does not say what features it takes: {why}; say it, as front_end=fbank80 or front_end=kaldi_3d "
        f"(all: {', '.join(STATED)})"
    )


def _whole(said: Mapping[str, str], key: str, default: int) -> int:
    text = said.get(key)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and int(text[:9]) > 0 and len(text) < 9):
        raise UserError(f"its metadata say {key} {text[:40]!r}, expected a whole number above 0")
    return int(text)
