"""Takes the weights of the speech check out of the package silero-vad: `python scripts/voice_weights.py`.

It writes svtoolkit/audio/silero_vad.npz, in half precision, and the licence beside it. Needed again only where the
weights are to be those of another release of silero-vad (extra `dev`).
"""

from __future__ import annotations

import importlib.metadata
import shutil
import sys
from pathlib import Path

import numpy as np
import onnx

PACKAGE = "silero-vad"
GRAPH, LICENCE = "silero_vad/data/silero_vad_16k_sequence.onnx", "LICENSE"


def main() -> int:
    files = {str(path): Path(str(path.locate())) for path in importlib.metadata.files(PACKAGE) or []}
    graph = onnx.load(files[GRAPH]).graph
    found = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    (lstm,) = (node for node in graph.node if node.op_type == "LSTM")
    inputs, recurrent, bias = (found[name][0] for name in lstm.input[1:4])
    weights = {
        "lstm.input": inputs.T,
        "lstm.recurrent": recurrent.T,
        "lstm.bias": bias.reshape(2, -1).sum(0),
        "output.weight": found["output.weight"].ravel(),
        "output.bias": found["output.bias"],
    }
    for number in range(4):
        kernel = found[f"encoder.{number}.weight"]
        weights[f"encoder.{number}.weight"] = kernel.reshape(len(kernel), -1).T
        weights[f"encoder.{number}.bias"] = found[f"encoder.{number}.bias"]
    target = Path(__file__).resolve().parents[1] / "svtoolkit" / "audio" / "silero_vad.npz"
    np.savez(target, **{name: np.ascontiguousarray(value, dtype=np.float16) for name, value in weights.items()})
    (licence,) = (path for name, path in files.items() if name.endswith(f"licenses/{LICENCE}"))
    shutil.copyfile(licence, target.with_suffix(".LICENSE"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
