"""One file, one score: 1000 trials of real speech through torch, onnxruntime, OpenVINO and sherpa-onnx.

    python -m benchmarks.one_score --data DATA --output benchmarks/results/one_score.json

DATA is a data directory of speech with utt2spk. The network has random convolutions; its embedding layer whitens the
statistics of other speakers' recordings (principal components), so that scores are spread as those of a trained one
are. Each row is a file of `svt export` with WeSpeaker's features or 3D-Speaker's: the least cosine of two embeddings of
a recording, and the greatest difference of a score. ``untouched`` is what sherpa-onnx computes with the same graph
without the removal of the mean, as its own scripts prepare a model of WeSpeaker.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.machine import load_average, open_command, write_record
from svtoolkit.checkpoints.released import ModelDescription, write_released
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.data.trials import Trials
from svtoolkit.deploy.export import describe_export, export
from svtoolkit.deploy.gate import Tolerance, compare, embed_all
from svtoolkit.deploy.recordings import Recording, read_recordings
from svtoolkit.deploy.runtimes import CHECKED
from svtoolkit.models import build_model
from svtoolkit.models.front_ends import features_config, front_end_of
from svtoolkit.scoring.speaker_model import SpeakerModel

PACKAGES = ("torch", "onnxruntime", "openvino", "ncnn", "sherpa-onnx")
RATE = 16000
FEATURES = {"wespeaker": {}, "3d-speaker": {"backend": "kaldi_3d"}}
ROWS = [
    ("wespeaker", "features", "fp32"),
    ("wespeaker", "waveform", "fp32"),
    ("wespeaker", "features", "int8"),
    ("3d-speaker", "features", "fp32"),
    ("3d-speaker", "waveform", "fp32"),
]
ANY = Tolerance(-1.0, 2.0, float("inf"))
"""The figures are what is asked for."""


def split_speakers(data: Path, root: str | None, speakers: int) -> tuple[list[Recording], list[Recording], Trials]:
    """Recordings of so many speakers, those of the others, and 500 target and 500 nontarget trials of the first."""
    kaldi_dir = KaldiDir.read(data, root)
    every = read_recordings(str(data), sample_rate=RATE, root=root)
    chosen = set(kaldi_dir.speakers[:speakers])
    kept = [each for each in every if kaldi_dir.utt2spk[each.name] in chosen]
    names = [each.name for each in kept]
    pairs = [(a, b, kaldi_dir.utt2spk[a] == kaldi_dir.utt2spk[b]) for i, a in enumerate(names) for b in names[:i]]
    listed: list[tuple[str, str, bool]] = []
    for kind in (True, False):
        of_kind = [pair for pair in pairs if pair[2] == kind]
        places = np.linspace(0, len(of_kind) - 1, min(500, len(of_kind))).round().astype(int)
        listed += [of_kind[place] for place in places]
    return kept, [each for each in every if each.name not in set(names)], Trials.of(listed)


@torch.inference_mode()
def write_fitted(
    folder: Path, network: dict[str, Any], settings: dict[str, Any], others: Sequence[Recording]
) -> SpeakerModel:
    """A released model whose embedding layer is fitted in closed form to recordings."""
    torch.manual_seed(0)
    description = ModelDescription({**network, "num_bins": 80, "embedding_dim": 128}, features_config(settings))
    built: Any = build_model(**description.model)
    front_end = front_end_of(description.features)
    frames = [front_end(torch.from_numpy(each.samples)[None]) for each in others]
    built.train()  # the statistics of the batch norms
    for part in frames[:8]:
        built(torch.cat([part[:, :200]] * 2))
    built.eval()
    statistics = torch.cat([built.pooling(built.feature_map(part)) for part in frames]).double()
    mean = statistics.mean(0)
    _, values, directions = torch.linalg.svd(statistics - mean, full_matrices=False)
    size = min(128, len(others) // 6)  # what few recordings hardly show is left out
    weights = torch.zeros(128, statistics.shape[1], dtype=torch.float64)
    weights[:size] = directions[:size] / values[:size, None] * len(others) ** 0.5
    layer = built.embedding
    assert isinstance(layer, nn.Linear)
    layer.weight.copy_(weights)
    layer.bias.copy_(-weights @ mean)
    write_released(folder, built.state_dict(), description)
    return SpeakerModel.load(folder, device="cpu")


def untouched(model: SpeakerModel, recordings: Sequence[Recording], trials: Trials) -> dict[str, Any]:
    """sherpa-onnx with a graph that leaves the mean to others."""
    from svtoolkit.deploy.graph import export_graph
    from svtoolkit.deploy.metadata import with_metadata

    front_end = model.extractor.front_end
    front_end.remove_mean = False
    try:
        content = export_graph(model.extractor.network, front_end, waveform=False)
    finally:
        front_end.remove_mean = True
    exported = describe_export(model, waveform=False, precision="fp32", weights_sha256=None)
    embed = CHECKED["sherpa-onnx"].open(with_metadata(content, exported), RATE)
    found, expected = embed_all(embed, recordings), embed_all(model.embed, recordings)
    return compare("sherpa-onnx", found, expected, recordings, trials).as_dict()


def main(arguments: Sequence[str] | None = None) -> int:
    words, parser = open_command(__doc__, arguments)
    parser.add_argument("--data", type=Path, required=True, help="data directory of speech")
    parser.add_argument("--root", help="folder that relative paths of wav.scp are taken from")
    parser.add_argument("--network", default="resnet34")
    parser.add_argument("--width", type=int, default=16, help="channels of its first stage")
    parser.add_argument("--speakers", type=int, default=12, help="whose recordings are compared")
    parser.add_argument("--fitted", type=int, default=200, help="recordings of others that the embedding is fitted to")
    options = parser.parse_args(words)
    torch.set_num_threads(1)
    kept, others, trials = split_speakers(options.data, options.root, options.speakers)
    network = {"name": options.network, "base_width": options.width}
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for features, settings in FEATURES.items():
            model = write_fitted(Path(folder) / features, network, settings, others[: options.fitted])
            for _, takes, precision in [row for row in ROWS if row[0] == features]:
                exported = describe_export(
                    model, waveform=takes == "waveform", precision=precision, weights_sha256=None
                )
                result = export(
                    model, exported, kept, calibration=others[:32] if precision == "int8" else (), trials=trials,
                    check=list(CHECKED), tolerance=ANY,
                )  # fmt: skip
                for agreement in result.agreements:
                    print(features, takes, precision, agreement, flush=True)
                rows.append(
                    {
                        "features": features, "input": takes, "precision": precision,
                        "megabytes": round(len(result.content) / 1e6, 2),
                        "agreements": [each.as_dict() for each in result.agreements],
                    }
                )  # fmt: skip
            rows.append({"features": features, "input": "features", "untouched": untouched(model, kept, trials)})
            print(rows[-1], flush=True)
    hidden = {str(options.data): "DATA", str(options.root): "ROOT"}
    write_record(
        options.output, "one_score", [hidden.get(word, word) for word in words], PACKAGES,
        network=network, recordings=len(kept), trials=len(trials), load=load_average(), rows=rows,
    )  # fmt: skip
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
