"""svt export: a released model as one file that runs without torch, refused where it is not the same model."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from svtoolkit.checkpoints.exported import SUFFIX
from svtoolkit.checkpoints.releases import pinned, require_release
from svtoolkit.config import ExportConfig
from svtoolkit.data.trials import read_trials
from svtoolkit.deploy.export import describe_export, export
from svtoolkit.deploy.gate import TOLERANCES, Tolerance
from svtoolkit.deploy.recordings import Recording, made_recordings, read_recordings
from svtoolkit.errors import UserError
from svtoolkit.reporting.result_file import read_result
from svtoolkit.scoring.extraction import too_short
from svtoolkit.scoring.speaker_model import SpeakerModel
from svtoolkit.system.atomic import atomic_write
from svtoolkit.system.checksum import hash_file
from svtoolkit.system.output import say_next

log = logging.getLogger(__name__)

INPUTS = ("features", "waveform")


def run(config: ExportConfig, _command_line: str) -> int:
    """Export, compare, and write the file, whole or not at all."""
    _check(config)
    results = [_facts(read_result(Path(path))) for path in config.results]
    name = pinned(config.model)
    model = SpeakerModel.load(name, device="cpu", front_end=config.front_end)
    exported = describe_export(
        model,
        waveform=config.input == "waveform",
        precision=config.precision,
        weights_sha256=hash_file(require_release(name).weights),
        results=results,
    )
    calibration = _read(config, model, config.calibration, config.calibration_utterances)
    compared = _compared(config, model) or calibration or made_recordings(model.sample_rate)
    if len(compared) < 2:
        source = config.data or config.calibration
        raise UserError(f"{source}: one recording was read of it, expected two or more, whose scores can be compared")
    usual = TOLERANCES[config.precision]
    tolerance = Tolerance(
        usual.cosine if config.min_cosine is None else config.min_cosine,
        usual.score if config.max_difference is None else config.max_difference,
    )
    try:
        result = export(
            model,
            exported,
            compared,
            calibration=calibration,
            trials=None if config.trials is None else read_trials(config.trials),
            check=config.check,
            tolerance=tolerance,
            progress=lambda said: log.info("%s", said),
        )
    except UserError as error:
        raise UserError(f"{config.model}: {error}") from error
    with atomic_write(config.out, "wb") as stream:
        stream.write(result.content)
    for remark in result.remarks:
        log.warning("%s", remark)
    log.info(
        "%s -> %s: %s in, %s, %.1f MB", config.model, config.out, config.input, config.precision,
        len(result.content) / 1e6,
    )  # fmt: skip
    say_next("svt", "verify", config.out, "A.wav", "B.wav")
    return 0


def _check(config: ExportConfig) -> None:
    if config.format != "onnx":
        raise UserError(f"format is {config.format!r:.80}, expected onnx")
    if config.input not in INPUTS:
        raise UserError(f"input is {config.input!r:.80}, expected features or waveform")
    if not config.out.endswith(SUFFIX):
        raise UserError(f"out is {config.out}, expected a file that ends with {SUFFIX}")
    if Path(config.out).is_dir():
        raise UserError(f"{config.out}: is a folder; choose another name with out=FILE{SUFFIX}")
    for key in ("calibration_utterances", "data_utterances"):
        if getattr(config, key) < 1:
            raise UserError(f"{key} is {getattr(config, key)}, expected 1 or more")
    if config.calibration is not None and config.precision != "int8":
        raise UserError(f"calibration is of precision=int8, found precision={config.precision}; leave it out")
    if config.trials is not None and config.data is None:
        raise UserError("trials is a list of recordings of data, which is not given; add data=DIR")


def _compared(config: ExportConfig, model: SpeakerModel) -> list[Recording]:
    return _read(config, model, config.data, None if config.trials else config.data_utterances)


def _read(config: ExportConfig, model: SpeakerModel, path: str | None, most: int | None) -> list[Recording]:
    if path is None:
        return []
    found = read_recordings(path, sample_rate=model.sample_rate, most=most, root=config.root, resample=config.resample)
    front_end = model.extractor.front_end
    for each in found:
        if len(each.samples) < front_end.num_samples(1):
            raise UserError(f"{each.name}: {too_short(each.samples, front_end)}")
    return found


def _facts(result: dict[str, Any]) -> dict[str, Any]:
    """What of a result others may read: no paths."""
    return {key: value for key, value in result.items() if not key.endswith(("_file", "_sha256"))}
