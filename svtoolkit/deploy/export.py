"""From a released model to a file whose embeddings are those of torch, or to the reason why there is none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from svtoolkit import __version__
from svtoolkit.checkpoints.exported import FEATURES, WAVEFORM, Exported
from svtoolkit.data.trials import Trials
from svtoolkit.deploy.gate import TOLERANCES, Agreement, Tolerance, compare, embed_all, why_refused
from svtoolkit.deploy.graph import export_graph
from svtoolkit.deploy.metadata import why_not_sherpa, with_metadata
from svtoolkit.deploy.precision import PRECISIONS, quantise, store_in_16_bits
from svtoolkit.deploy.recordings import Recording, with_digital_silence
from svtoolkit.deploy.runtimes import require_runtime
from svtoolkit.errors import UserError
from svtoolkit.models.front_ends import KALDI
from svtoolkit.runtime.filter_bank import NumpyFilterBank
from svtoolkit.scoring.speaker_model import SpeakerModel


@dataclass
class ExportResult:
    """A file that passed.

    Attributes:
        content: of the file.
        agreements: with torch, of each runtime.
        remarks: what is said of runtimes that cannot be exact.
    """

    content: bytes
    agreements: list[Agreement] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


def describe_export(
    model: SpeakerModel, *, waveform: bool, precision: str, weights_sha256: str | None, results: Sequence[Any] = ()
) -> Exported:
    """What the file will say.

    Raises:
        UserError: an unknown precision; features that only a graph computes, where it is to take features.
    """
    if precision not in PRECISIONS:
        raise UserError(f"precision is {precision!r:.80}, expected {', '.join(PRECISIONS)}")
    description = model.description
    features = description.features
    if not waveform and features.backend not in KALDI:
        raise UserError(
            f"the features {features.backend} are computed by torch alone; export with input=waveform, which puts them "
            "into the graph"
        )
    return Exported(
        model=dict(description.model),
        features=features,
        input=WAVEFORM if waveform else FEATURES,
        precision=precision,
        training=dict(description.training),
        verification=dict(description.verification),
        results=list(results),
        weights_sha256=weights_sha256,
        model_digest=model.digest,
        exported_by=f"svtoolkit {__version__}",
    )


def export(
    model: SpeakerModel,
    exported: Exported,
    recordings: Sequence[Recording],
    *,
    calibration: Sequence[Recording] = (),
    trials: Trials | None = None,
    check: Sequence[str] = ("onnxruntime",),
    tolerance: Tolerance | None = None,
    progress: Callable[[str], object] = lambda said: None,
) -> ExportResult:
    """Make the file and compare it with torch.

    Args:
        model: on the CPU, in float32.
        exported: of ``describe_export``.
        recordings: to compare on, two or more.
        calibration: of int8.
        trials: of recordings, for scores and equal error rates; None: every pair.
        check: words of ``svtoolkit.deploy.runtimes``.
        tolerance: None: that of the precision.
        progress: told what is found.

    Raises:
        UserError: no form as a graph, a runtime that is missing, or embeddings too far from torch's.
    """
    rows = {name: require_runtime(name) for name in check}
    if not rows or all(row.own_features for row in rows.values()):
        raise UserError("check needs onnxruntime, openvino or ncnn, with which embeddings can be equal to torch's")
    waveform = exported.input == WAVEFORM
    content = export_graph(model.extractor.network, model.extractor.front_end, waveform=waveform)
    if exported.precision in ("fp16", "bf16"):
        content = store_in_16_bits(content, exported.precision)
    elif exported.precision == "int8":
        content = quantise(content, exported.input, calibration_inputs(exported, calibration))
    tolerance = tolerance or TOLERANCES[exported.precision]
    expected = embed_all(model.embed, recordings)
    described = with_metadata(content, exported)
    result = ExportResult(described)
    for name, row in rows.items():
        reason = why_not_sherpa(exported) if row.own_features else None
        if reason is not None:
            result.remarks.append(f"{name} cannot use this file: {reason}")
            continue
        found = embed_all(row.open(described, model.sample_rate), recordings)
        agreement = compare(name, found, expected, recordings, trials)
        progress(str(agreement))
        result.agreements.append(agreement)
        refused = why_refused(agreement, tolerance, _fewest(trials))
        if refused is not None and not row.own_features:
            raise UserError(f"the exported graph is not the model: with {name} {refused}; nothing was written")
        if refused is not None:
            result.remarks.append(
                f"{name} computes features of its own, with which {refused}: its scores are near those of torch, not "
                "equal; for equal scores export with input=waveform, and run that file with onnxruntime or OpenVINO"
            )
    checked = {"tolerance": vars(tolerance), "agreements": [each.as_dict() for each in result.agreements]}
    result.content = with_metadata(content, replace(exported, checked=checked))
    return result


def calibration_inputs(exported: Exported, recordings: Sequence[Recording]) -> list[np.ndarray]:
    """What the graph takes of recordings that calibrate, some once more with digital silence: (1, ...) each.

    Raises:
        UserError: there are none.
    """
    if not recordings:
        raise UserError(
            "precision=int8 needs recordings to see how large activations are; give calibration=DIR, a data directory "
            "or a folder of a few dozen recordings of speech such as it will hear"
        )
    seen = with_digital_silence(recordings)
    if exported.input == WAVEFORM:
        return [each.samples[np.newaxis] for each in seen]
    bank = NumpyFilterBank(exported.features)
    return [bank(each.samples)[np.newaxis] for each in seen]


def _fewest(trials: Trials | None) -> int | None:
    if trials is None:
        return None
    return int(min(trials.target.sum(), (~trials.target).sum())) or None
