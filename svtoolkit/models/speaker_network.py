"""The contract of every network, of those that pool a map of frames, and of those that are a chain of stages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from torch import Tensor, nn

from svtoolkit.reversible import ReversibleSequence, run_in_chain


class SpeakerNetwork(nn.Module):
    """(batch, frames, bins) -> (batch, embedding_dim).

    Training, scoring and checkpoints assume nothing else; any ``nn.Module`` of this form will do.

    Attributes:
        embedding_dim: size of the embedding.
        maskable: utterances may be padded (``svtoolkit.models.padded``); False: each goes as long as it is.
    """

    embedding_dim: int
    maskable: bool = True

    def frames_used(self, frames: int) -> int:
        """Frames of the first map that is made of so many."""
        return frames


class PooledNetwork(SpeakerNetwork):
    """A network that makes a map of the frames, statistics of the map and the embedding of these.

    Attributes:
        pooling: (batch, channels, frames) or (batch, channels, bins, frames) -> (batch, statistics).
        embedding: (batch, statistics) -> (batch, embedding_dim).
        layers: convolutions of the main path and the last Linear, where the authors count them for the network's name.
    """

    pooling: nn.Module
    embedding: nn.Module
    layers: int | None = None

    def feature_map(self, frames: Tensor) -> Tensor:
        """(batch, frames, bins) -> what ``pooling`` takes."""
        raise NotImplementedError

    def forward(self, frames: Tensor) -> Tensor:
        """(batch, frames, bins) -> (batch, embedding_dim)."""
        return self.embedding(self.pooling(self.feature_map(frames)))


class ChainNetwork(PooledNetwork):
    """A network whose stages run one after the other, for whoever works on it stage by stage or block by block.

    Attributes:
        stem: (batch, 1, bins, frames) -> (batch, channels, ...).
        stages: ModuleList of sequential stages.
        pooling: (batch, channels, ..., frames) -> (batch, statistics).
        embedding: (batch, statistics) -> (batch, embedding_dim); its last layer is a Linear.
        layers: convolutions of the main path and the last Linear, as the authors count them for the network's name.
    """

    def __init__(
        self,
        stem: nn.Module,
        stages: Iterable[nn.Module],
        pooling: nn.Module,
        embedding: nn.Linear | nn.Sequential,
        *,
        layers: int | None = None,
    ) -> None:
        super().__init__()
        self.layers = layers
        self.stem = stem
        self.stages = nn.ModuleList(stages)
        self.pooling = pooling
        self.embedding = embedding
        last = embedding[-1] if isinstance(embedding, nn.Sequential) else embedding
        assert isinstance(last, nn.Linear)
        self.embedding_dim = last.out_features

    def feature_map(self, frames: Tensor) -> Tensor:
        """(batch, frames, bins) -> (batch, channels, ..., frames)."""
        return run_in_chain([self.stem, *self.stages], frames.transpose(1, 2).unsqueeze(1))

    def blocks(self) -> Iterator[nn.Module]:
        """What stages consist of, in order, each of which can be recomputed by itself; couplings one by one."""
        for stage in self.stages:
            for block in stage.children():
                if isinstance(block, ReversibleSequence):
                    yield from block.units()
                else:
                    yield block
