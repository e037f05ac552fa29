"""The memory of embedding, predicted on fake tensors as that of a training step is: no audio, no GPU, some seconds."""

from __future__ import annotations

import torch

from svtoolkit.checkpoints.released import ModelDescription
from svtoolkit.device import autocast
from svtoolkit.memory.fake_tensors import QuickFakeTensorMode
from svtoolkit.memory.ledger import MemoryLedger
from svtoolkit.models import build_model
from svtoolkit.models.front_ends import front_end_of
from svtoolkit.scoring.pass_memory import PassMemory, fit_pass

SECONDS = (4.0, 120.0, 480.0)
"""Of audio in the passes that are counted."""


def predict_pass(description: ModelDescription, precision: str) -> PassMemory:
    """Memory of a pass in eval mode over seconds of audio, from three passes that are not computed.

    Raises:
        Exception: of whatever kind, by a network that takes no fake tensors, as an ONNX graph.
    """
    with QuickFakeTensorMode(allow_non_fake_inputs=True), torch.inference_mode():
        network = build_model(**description.model).eval()
        front_end = front_end_of(description.features)
        held = sum(tensor.nbytes for tensor in (*network.parameters(), *network.buffers()))
        peaks = {}
        for seconds in SECONDS:
            with MemoryLedger("cpu") as ledger:
                ledger.count([*network.parameters(), *network.buffers()])
                waveforms = torch.zeros(1, round(seconds * front_end.sample_rate))
                features = front_end.features_of(waveforms)
                if partials := getattr(network, "partials", None):  # of which as many go together
                    _, frames, bins = features.shape
                    features = features.new_zeros(-(-frames // partials.frames), partials.frames, bins)
                with autocast(torch.device("cpu"), precision):
                    network(features)
            peaks[seconds] = float(ledger.peak())
            del waveforms, features
    return fit_pass(float(held), peaks)
