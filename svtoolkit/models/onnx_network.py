"""A network that is an ONNX graph: its one weight is the file, and onnxruntime runs it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from svtoolkit.errors import UserError
from svtoolkit.models.onnx_graph import LARGEST, Input, input_of, open_session, reason_of
from svtoolkit.models.speaker_network import SpeakerNetwork

if TYPE_CHECKING:
    from onnxruntime import InferenceSession, RunOptions


class OnnxNetwork(SpeakerNetwork):
    """(batch, frames, bins) -> (batch, embedding_dim), in float32 and without gradients.

    A graph that fixes the batch is given so many at once. One that fixes the number of frames is given stretches of it
    that cover an utterance evenly, and the embedding is the mean of theirs, each of length 1; an utterance that is
    shorter is repeated.

    Args:
        graph_bytes: size of the file.
        output: name of the embedding among the outputs.
        bins_first: the graph takes (batch, bins, frames).
    """

    maskable = False
    only_float32 = True
    graph: Tensor

    def __init__(
        self, *, num_bins: int, embedding_dim: int, graph_bytes: int, output: str, bins_first: bool = False
    ) -> None:
        super().__init__()
        if not 1 <= graph_bytes <= LARGEST:
            raise ValueError(f"graph_bytes is {graph_bytes}, expected 1 to {LARGEST}")
        self.num_bins, self.embedding_dim = num_bins, embedding_dim
        self.output, self.bins_first = output, bins_first
        self.register_buffer("graph", torch.zeros(graph_bytes, dtype=torch.uint8))
        self._opened: tuple[InferenceSession, Input] | None = None
        self._opened_for: tuple[torch.device, int] | None = None

    def forward(self, frames: Tensor) -> Tensor:
        session, taken = self._open()
        features = frames.detach().float().cpu()
        if taken.length is not None and features.shape[1] != taken.length:
            embeddings = torch.stack([self._of_stretches(session, taken, each) for each in features])
        else:
            embeddings = self._run(session, taken, features)
        return embeddings.to(frames.device)

    def _open(self) -> tuple[InferenceSession, Input]:
        """The session, made anew where the device or torch's number of threads is another."""
        wanted = self.graph.device, torch.get_num_threads()
        if self._opened is None or self._opened_for != wanted:
            content = self.graph.cpu().numpy().tobytes()
            try:
                session = open_session(content, device=str(wanted[0]), threads=wanted[1])
                self._opened = session, input_of(session, bins_first=self.bins_first)
            except ValueError as error:
                raise UserError(
                    f"the ONNX graph cannot be run: {error}; download it again, or export it anew"
                ) from error
            self._opened_for = wanted
        return self._opened

    def _of_stretches(self, session: InferenceSession, taken: Input, utterance: Tensor) -> Tensor:
        assert taken.length is not None
        missing = taken.length - len(utterance)
        if missing > 0:
            utterance = utterance.repeat(math.ceil(taken.length / len(utterance)), 1)[: taken.length]
        last = len(utterance) - taken.length
        starts = np.linspace(0, last, math.ceil(len(utterance) / taken.length)).round().astype(int)
        stretches = torch.stack([utterance[start : start + taken.length] for start in starts])
        return functional.normalize(self._run(session, taken, stretches)).mean(0)

    def _run(self, session: InferenceSession, taken: Input, features: Tensor) -> Tensor:
        together = taken.batch or len(features)
        rows = []
        for part in features.split(together):
            filled = torch.cat([part, part[-1:].expand(together - len(part), -1, -1)])
            found = run_graph(session, taken, self.output, filled)
            if found.shape != (together, self.embedding_dim):
                raise UserError(
                    f"the output {self.output!r} of the ONNX graph is {tuple(found.shape)}, expected "
                    f"{(together, self.embedding_dim)}; export it for any batch and length"
                )
            rows.append(found[: len(part)])
        return torch.cat(rows)


def run_graph(
    session: InferenceSession, taken: Input, output: str, features: Tensor, options: RunOptions | None = None
) -> Tensor:
    """Features (batch, frames, bins) on the CPU -> an output of a graph, (batch, values) float32.

    Raises:
        UserError: onnxruntime refuses them.
    """
    given = (features.transpose(1, 2) if taken.bins_first else features).contiguous().numpy()
    feeds = {taken.frames: given}
    if taken.lengths is not None:
        feeds[taken.lengths] = np.full(len(features), features.shape[1], dtype=np.int64)
    try:
        found = np.array(session.run([output], feeds, options)[0], dtype=np.float32)
    except Exception as error:  # its own kinds have no base but this
        raise UserError(
            f"the ONNX graph cannot run on features of shape {given.shape} ({reason_of(error)}); give a longer "
            "recording, or a graph that was exported for any batch and length"
        ) from error
    return torch.from_numpy(found).flatten(1)
