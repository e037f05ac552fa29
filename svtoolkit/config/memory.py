"""Settings of the memory strategies: what all have in common, and what one has of its own."""

from __future__ import annotations

from dataclasses import dataclass

from svtoolkit.config.setting import setting


@dataclass
class MemoryStrategyConfig:
    """What becomes of activations between forward and backward pass."""

    strategy: str = setting(
        "auto",
        "store: kept by autograd; reversible: recomputed from the output of each reversible stage; hybrid: the same, "
        "and inverted layer by layer inside the blocks of a RevNeXt, or a RevNet with such insides; checkpoint: "
        "recomputed from the inputs of blocks; stash8: the same, with inputs in 8 bits a value; offload: kept in host "
        "memory; recompute_norm: results of norms and activations are recomputed; planned: the best for each block; "
        "auto: on a GPU the quickest of exact gradients that is predicted to fit, elsewhere hybrid or reversible where "
        "the network is, else store; choose with memory=...",
    )
    exact: bool = setting(True, "exact arithmetic in reversible stages: gradients of stored activations, bit for bit")
    exact_bits: int = setting(14, "exact streams: multiples of 2**-exact_bits, below 2**(24 - exact_bits)")


@dataclass
class CheckpointConfig(MemoryStrategyConfig):
    """Activations recomputed from the inputs of blocks, or of runs of blocks."""

    segments: str = setting(
        "blocks",
        "what is recomputed together: blocks (each by itself), sqrt (as many segments as blocks in each), recursive "
        "(halves of halves: least memory, most time)",
    )


@dataclass
class OffloadConfig(MemoryStrategyConfig):
    """Activations in host memory between forward and backward pass."""

    half: bool = setting(False, "true: float32 travels as float16, in half the time and host memory, and is rounded")
    intensity: float = setting(
        0.0,
        "FLOPs of a block's forward pass for each byte that it moves, below which its activations stay on the GPU; "
        "FLOP/s of the GPU divided by bytes/s of its bus: only those that travel for free leave; 0: all leave",
    )
    folder: str | None = setting(
        None, "on a fast disk, where files are mapped in the place of pinned host memory; null: none are"
    )


@dataclass
class RecomputeNormConfig(MemoryStrategyConfig):
    """Results of BatchNorm and of the activation after it, recomputed from what is kept anyway."""

    expansions: bool = setting(
        False, "true: results of 1x1 convolutions with more channels than they read are recomputed, too"
    )


@dataclass
class PlannedConfig(MemoryStrategyConfig):
    """Every block in the way that is best for the whole: the fastest step in so much memory, or the other way round."""

    gib_per_utterance: float | None = setting(
        None, "the fastest plan that takes at most so many GiB for one more crop; null: as memory.times says"
    )
    times: float | None = setting(
        None,
        "the plan of least memory whose step takes at most so many times as long as with stored activations, by what "
        "is counted; null: 1.35, unless memory.gib_per_utterance is given",
    )
    inexact: bool = setting(
        False, "true: inputs of blocks may be kept in 8 bits a value, with which gradients are slightly off"
    )
    offload: bool = setting(
        False, "true: inputs of blocks may wait in pinned host memory, moved beside the computation; of a GPU alone"
    )
    frames: int | None = setting(None, "of the crops that are planned for; null: those of the run")
    num_bins: int | None = setting(None, "of these crops; null: those of the run")
    precision: str | None = setting(None, "of these crops: fp32, bf16 or fp16; null: that of the run")
    clock: str = setting(
        "counted",
        "times of blocks: counted (by rates that are the same everywhere) or measured (on the device of the run, when "
        "it begins; it resumes with these)",
    )
    seconds: list[float] | None = setting(
        None, "of blocks, as they were measured for another run; null: memory.clock=measured measures them"
    )
