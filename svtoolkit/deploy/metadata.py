"""What an exported file tells the runtimes that read it."""

from __future__ import annotations

from svtoolkit.checkpoints.exported import FEATURES, KEY, Exported
from svtoolkit.config import FeaturesConfig
from svtoolkit.deploy.graph import import_onnx
from svtoolkit.models.front_ends import KALDI

SHERPA_BINS, SHERPA_FRAME_MS, SHERPA_SHIFT_MS = 80, 25.0, 10.0
"""The features that sherpa-onnx computes for a speaker model of WeSpeaker or 3D-Speaker."""


def with_metadata(content: bytes, exported: Exported) -> bytes:
    """The content of a file with its description, and what sherpa-onnx asks for where it can use the file."""
    onnx = import_onnx()
    model = onnx.load_from_string(content)
    onnx.helper.set_model_props(model, {KEY: exported.to_json(), **for_sherpa(exported)})
    model.producer_name, _, model.producer_version = exported.exported_by.partition(" ")
    return bytes(model.SerializeToString())


def for_sherpa(exported: Exported) -> dict[str, str]:
    """Metadata of sherpa-onnx's speaker models; none where it cannot compute what the graph takes.

    Source: sherpa-onnx 2.0.1, csrc/speaker-embedding-extractor-model.cc. The mean of the features is removed inside the
    graph, so that feature_normalize_type is left out.
    """
    if why_not_sherpa(exported) is not None:
        return {}
    features = exported.features
    return {
        "framework": "wespeaker" if features.int16_scale else "3d-speaker",
        "language": str(exported.training.get("language", "unknown")),
        "output_dim": str(exported.model["embedding_dim"]),
        "sample_rate": str(features.sample_rate),
        "normalize_samples": "0" if features.int16_scale else "1",
        "comment": f"exported by {exported.exported_by}; the mean is subtracted inside the graph",
    }


def why_not_sherpa(exported: Exported) -> str | None:
    """Why sherpa-onnx cannot compute what the graph takes, even nearly; None: it can."""
    if exported.input != FEATURES:
        return "it computes features itself, and the graph takes waveforms"
    features: FeaturesConfig = exported.features
    found = features.num_bins, features.frame_length_ms, features.frame_shift_ms
    if features.backend not in KALDI or found != (SHERPA_BINS, SHERPA_FRAME_MS, SHERPA_SHIFT_MS):
        return f"it computes {SHERPA_BINS} bins of Kaldi's filter bank every 10 ms, and the graph takes others"
    return None
