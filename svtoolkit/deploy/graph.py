"""A network and its front end as the content of an ONNX file, for any batch and length, in float32."""

from __future__ import annotations

import io
import warnings
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from svtoolkit.checkpoints.exported import EMBEDDING, FEATURES, WAVEFORM
from svtoolkit.deploy.front_end_graph import Normalised, filter_bank_graph
from svtoolkit.errors import UserError
from svtoolkit.features import FrontEnd
from svtoolkit.models.onnx_graph import input_of, open_session
from svtoolkit.models.onnx_network import OnnxNetwork
from svtoolkit.models.repvgg import for_inference

OPSET = 17
"""Of the graph: the newest that torch's exporter of traced graphs writes, and all runtimes read."""
SECONDS = 1.57
"""Of the audio that a network is traced with: an odd number of frames, for no step to hold by chance alone."""
FRONT_END = "front_end"
"""What the names of the front end's nodes and constants begin with."""


class _Whole(nn.Module):
    """Input of the file -> embedding."""

    def __init__(self, front_end: FrontEnd, network: nn.Module | None, *, waveform: bool) -> None:
        super().__init__()
        steps = [filter_bank_graph(front_end)] if waveform else []
        self.front_end = nn.Sequential(*steps, Normalised(front_end))
        self.network = network

    def forward(self, values: Tensor) -> Tensor:
        features = self.front_end(values)
        return features if self.network is None else self.network(features)


def import_onnx() -> ModuleType:
    """The package onnx.

    Raises:
        UserError: it is missing.
    """
    try:
        import onnx
    except ImportError as error:
        raise UserError(f"svt export needs onnx, which cannot be imported ({error}); `pip install onnx`") from error
    return onnx


def export_graph(network: nn.Module, front_end: FrontEnd, *, waveform: bool) -> bytes:
    """The content of an ONNX file.

    Args:
        network: in eval mode, on the CPU.
        front_end: of the model.
        waveform: the graph takes samples, (batch, samples); otherwise features before their mean is removed,
            (batch, frames, bins).

    Raises:
        UserError: a network that has no form as one graph, and why.
    """
    if getattr(network, "partials", None) is not None:
        raise UserError(
            f"a {type(network).__name__} embeds overlapping stretches of a recording and averages them, which one "
            "graph for any length cannot; use it with torch"
        )
    if isinstance(network, OnnxNetwork):
        return _before_a_graph(network, front_end, waveform=waveform)
    return _traced(_Whole(front_end, for_inference(network), waveform=waveform), front_end, waveform=waveform)


def _traced(module: nn.Module, front_end: FrontEnd, *, waveform: bool, opset: int = OPSET) -> bytes:
    samples = round(SECONDS * front_end.sample_rate)
    generator = torch.Generator().manual_seed(0)
    if waveform:
        example = torch.randn(2, samples, generator=generator) * 0.1
    else:
        example = torch.randn(2, front_end.num_frames(samples), front_end.num_bins, generator=generator)
    name = WAVEFORM if waveform else FEATURES
    content = io.BytesIO()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the tracer: that Python's conditions are taken as they fell
        try:
            torch.onnx.export(
                module.eval(),
                (example,),
                content,  # type: ignore[arg-type]  # a file object, which its annotation leaves out
                input_names=[name],
                output_names=[EMBEDDING],
                dynamic_axes={name: {0: "batch", 1: "samples" if waveform else "frames"}, EMBEDDING: {0: "batch"}},
                opset_version=opset,
                dynamo=False,
            )
        except (torch.onnx.errors.OnnxExporterError, RuntimeError) as error:
            reason = " ".join(str(error).split())[:300]
            raise UserError(f"the network has no form as an ONNX graph: {reason}") from error
    return content.getvalue()


def _before_a_graph(network: OnnxNetwork, front_end: FrontEnd, *, waveform: bool) -> bytes:
    """A released ONNX graph, with what it lacks before it."""
    onnx = import_onnx()
    content = network.graph.numpy().tobytes()
    taken = input_of(open_session(content), bins_first=network.bins_first)
    if taken.batch is not None or taken.length is not None or taken.lengths is not None:
        raise UserError(
            "the ONNX graph fixes the batch or the length, or asks for the number of frames; export it from the "
            "weights that it was made of"
        )
    model = onnx.load_from_string(content)
    opset = next(each.version for each in model.opset_import if each.domain in ("", "ai.onnx"))
    if not 11 <= opset <= OPSET:
        raise UserError(f"the ONNX graph is of opset {opset}, expected 11 to {OPSET}; export it from its weights")
    before = onnx.load_from_string(
        _traced(_before(front_end, network, waveform=waveform), front_end, waveform=waveform, opset=opset)
    )
    before.ir_version = model.ir_version = max(before.ir_version, model.ir_version)
    del model.opset_import[:]
    model.opset_import.extend(before.opset_import)
    before = onnx.compose.add_prefix(before, f"{FRONT_END}_", rename_inputs=False)
    joined = onnx.compose.merge_models(
        before, model, io_map=[(before.graph.output[0].name, taken.frames)], outputs=[network.output]
    )
    _rename_output(joined.graph, network.output)
    return bytes(joined.SerializeToString())


def _before(front_end: FrontEnd, network: OnnxNetwork, *, waveform: bool) -> nn.Module:
    steps: list[nn.Module] = [_Whole(front_end, None, waveform=waveform)]
    return nn.Sequential(*steps, _BinsFirst()) if network.bins_first else steps[0]


class _BinsFirst(nn.Module):
    def forward(self, features: Tensor) -> Tensor:
        return features.transpose(1, 2)


def _rename_output(graph: Any, name: str) -> None:
    for node in graph.node:
        for names in (node.input, node.output):
            for place, each in enumerate(names):
                if each == name:
                    names[place] = EMBEDDING
    graph.output[0].name = EMBEDDING
