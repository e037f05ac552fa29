"""What 8 bits cost a trained network: equal error rates of the same trials by torch and by exported files.

    python -m benchmarks.int8_eer --fold MODEL TRAIN EVAL --output benchmarks/results/int8_eer.json

MODEL is a released model, TRAIN the data directory that it was trained on, of which some recordings calibrate the 8-bit
file, and EVAL one of other speakers, with their trials. `svt crossval` leaves such folds; of several (--fold again) the
scores are pooled. Besides the list, all pairs of a fold's recordings are trials (``all pairs``), whose error rate has
finer steps. ``difference`` is that to torch, in points of EER, with its interval by a paired bootstrap over speakers
(95 %, each row by itself), and ``relative`` the same as a share of torch's rate.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks.machine import open_command, write_record
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.data.trials import Trials, read_trials
from svtoolkit.deploy.export import calibration_inputs, describe_export
from svtoolkit.deploy.gate import embed_all
from svtoolkit.deploy.graph import export_graph
from svtoolkit.deploy.metadata import with_metadata
from svtoolkit.deploy.precision import quantise
from svtoolkit.deploy.recordings import Recording, read_recordings
from svtoolkit.runtime.model import RuntimeModel
from svtoolkit.scoring.bootstrap import trial_speakers
from svtoolkit.scoring.cosine import EmbeddingTable, cosine_scores
from svtoolkit.scoring.metrics import eer_from_rates, equal_error_rate
from svtoolkit.scoring.paired import compare_systems
from svtoolkit.scoring.speaker_model import SpeakerModel

PACKAGES = ("torch", "onnxruntime", "openvino")
SYSTEMS = {
    "onnxruntime fp32": ("fp32", "onnx"),
    "onnxruntime int8": ("int8", "onnx"),
    "OpenVINO int8": ("int8", "openvino"),
}
"""Row -> precision of the file, and what runs it."""
LISTS = ("list", "all pairs")


class Fold(NamedTuple):
    """What was found of one.

    Attributes:
        speakers: utterance -> speaker.
        trials: list of ``LISTS`` -> its trials.
        scores: the same -> torch's and those of ``SYSTEMS``, (systems, trials).
        cosines: to torch's embeddings, (systems, recordings).
    """

    speakers: dict[str, str]
    trials: dict[str, Trials]
    scores: dict[str, np.ndarray]
    cosines: np.ndarray


def measure(folder: str, train: str, evaluated: str, root: str | None, utterances: int) -> Fold:
    model = SpeakerModel.load(folder, device="cpu")
    rate = model.sample_rate
    recordings = read_recordings(evaluated, sample_rate=rate, root=root)
    calibration = read_recordings(train, sample_rate=rate, root=root, most=utterances)
    tables = [embed_all(model.embed, recordings)]
    files = export_files(model, calibration)
    for precision, runtime in SYSTEMS.values():
        tables.append(embed_all(RuntimeModel.of(files[precision], runtime=runtime, threads=1).embed, recordings))
    units = [table / np.linalg.norm(table, axis=1, keepdims=True) for table in tables]
    names = [each.name for each in recordings]
    speakers = KaldiDir.read(evaluated, root).utt2spk
    pairs = [(a, b, speakers[a] == speakers[b]) for a, b in itertools.combinations(names, 2)]
    trials = dict(zip(LISTS, (read_trials(Path(evaluated) / "trials"), Trials.of(pairs)), strict=True))
    return Fold(
        dict(speakers),
        trials,
        {
            key: np.stack([cosine_scores(EmbeddingTable(names, table), each) for table in tables])
            for key, each in trials.items()
        },
        np.stack([np.einsum("nd,nd->n", unit, units[0]) for unit in units]),
    )


def export_files(model: SpeakerModel, calibration: Sequence[Recording]) -> dict[str, bytes]:
    """Precision -> content."""
    whole = export_graph(model.extractor.network, model.extractor.front_end, waveform=False)
    fp32, int8 = (
        describe_export(model, waveform=False, precision=precision, weights_sha256=None)
        for precision in ("fp32", "int8")
    )
    narrow = quantise(whole, int8.input, calibration_inputs(int8, calibration))
    return {"fp32": with_metadata(whole, fp32), "int8": with_metadata(narrow, int8)}


def summarise(folds: Sequence[Fold], resamples: int) -> list[dict[str, Any]]:
    """A row for torch and for each system, of each list of trials."""
    speakers = {name: speaker for fold in folds for name, speaker in fold.speakers.items()}
    cosines = np.concatenate([fold.cosines for fold in folds], axis=1)
    rows: list[dict[str, Any]] = []
    for key in LISTS:
        listed = [fold.trials[key] for fold in folds]
        trials = Trials(
            [name for each in listed for name in each.enrol], [name for each in listed for name in each.test],
            np.concatenate([each.target for each in listed]),
        )  # fmt: skip
        scores = np.concatenate([fold.scores[key] for fold in folds], axis=1)
        sides = trial_speakers(trials, speakers)
        reference = float(equal_error_rate(scores[0], trials.target)[0])
        counts = {"targets": int(trials.target.sum()), "nontargets": int((~trials.target).sum())}
        rows.append({"trials": key, **counts, "system": "torch fp32", "eer": round(100 * reference, 4)})
        for system, found, cosine in zip(SYSTEMS, scores[1:], cosines[1:], strict=True):
            (compared,) = compare_systems(
                [found, scores[0]], *sides, trials.target, [eer_from_rates], resamples=resamples
            )[0]
            rows.append(
                {
                    "trials": key, "system": system,
                    "eer": round(100 * float(equal_error_rate(found, trials.target)[0]), 4),
                    "difference": round(100 * compared.difference, 4),
                    "interval": [round(100 * bound, 4) for bound in compared.interval],
                    "relative": round(compared.difference / reference, 4),
                    "relative_interval": [round(bound / reference, 4) for bound in compared.interval],
                    "least_cosine": round(float(cosine.min()), 5), "mean_cosine": round(float(cosine.mean()), 5),
                    "most_score": round(float(np.abs(found - scores[0]).max()), 4),
                }
            )  # fmt: skip
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    words, parser = open_command(__doc__, arguments)
    parser.add_argument("--fold", nargs=3, action="append", required=True, metavar=("MODEL", "TRAIN", "EVAL"))
    parser.add_argument("--root", help="folder that relative paths of wav.scp are taken from")
    parser.add_argument("--utterances", type=int, default=100, help="recordings that calibrate")
    parser.add_argument("--resamples", type=int, default=1000)
    options = parser.parse_args(words)
    torch.set_num_threads(1)
    folds = [measure(*fold, options.root, options.utterances) for fold in options.fold]
    rows = summarise(folds, options.resamples)
    for row in rows:
        print(row)
    names = dict(zip(("MODEL", "TRAIN", "EVAL"), zip(*options.fold, strict=True), strict=True))
    hidden = {path: name for name, paths in names.items() for path in paths} | {str(options.root): "ROOT"}
    write_record(
        options.output, "int8_eer", [hidden.get(word, word) for word in words], PACKAGES,
        network=SpeakerModel.load(options.fold[0][0], device="cpu").description.model, folds=len(folds),
        speakers=len({speaker for fold in folds for speaker in fold.speakers.values()}), rows=rows,
    )  # fmt: skip
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
