"""Settings of the command that exports."""

from __future__ import annotations

from dataclasses import dataclass

from svtoolkit.config.data import RESAMPLE, ROOT
from svtoolkit.config.scoring import FRONT_END
from svtoolkit.config.setting import REQUIRED, setting


@dataclass
class ExportConfig:
    """`svt export`: a released model as one file that runs without torch, compared with torch before it is written."""

    model: str = setting(
        REQUIRED, "released model, ours or another toolkit's, or hf://org/name (docs/released_models.md)"
    )
    out: str = setting(REQUIRED, "file to write, ending with .onnx")
    format: str = setting("onnx", "onnx")
    input: str = setting(
        "features",
        "what the graph takes: features (their mean is subtracted inside; sherpa-onnx and WeSpeaker's runtime) or "
        "waveform (the whole front end is inside)",
    )
    precision: str = setting(
        "fp32", "fp32, fp16 or bf16 (weights of half the bytes), or int8 (arithmetic in 8 bits, needs calibration)"
    )
    calibration: str | None = setting(
        None, "int8: data directory, wav.scp or folder of recordings such as it will hear; needed there"
    )
    calibration_utterances: int = setting(64, "int8: recordings taken of these at most, evenly over the list")
    data: str | None = setting(
        None, "recordings that embeddings are compared on, as calibration; null: those of calibration, or made ones"
    )
    data_utterances: int = setting(200, "recordings taken of data at most where no trials are given")
    trials: str | None = setting(None, "trial list of data: its scores and equal error rates are compared; null: pairs")
    check: list[str] = setting(
        ["onnxruntime"], "runtimes that are compared with torch: onnxruntime, openvino, ncnn, sherpa-onnx"
    )
    min_cosine: float | None = setting(
        None, "least cosine to torch's embedding; null: 0.9999 (fp32, fp16), 0.999 (bf16), 0.98 (int8)"
    )
    max_difference: float | None = setting(
        None, "greatest difference of a score; null: 0.001 (fp32, fp16), 0.01 (bf16), 0.05 (int8)"
    )
    results: list[str] = setting([], "files of svt evaluate of this model, which the file keeps")
    front_end: str | None = setting(None, FRONT_END)
    root: str | None = setting(None, ROOT)
    resample: bool = setting(False, RESAMPLE)
