"""Settings of the optimizers that have a name of their own."""

from __future__ import annotations

from dataclasses import dataclass

from svtoolkit.config.setting import REQUIRED, setting


@dataclass
class OptimConfig:
    """What all optimizers share."""

    name: str = setting(REQUIRED, "optimizer; choose with optim=...")
    lr: float = setting(REQUIRED, "peak learning rate at the effective batch; never rescaled")
    weight_decay: float = setting(0.0, "on every parameter")


@dataclass
class SGDConfig(OptimConfig):
    """SGD with Nesterov momentum, the optimizer of the ResNet recipes."""

    name: str = setting("sgd", "optimizer; choose with optim=...")
    lr: float = setting(0.4, "peak learning rate at a batch of 256 (0.1 at 64, as WeSpeaker); never rescaled")
    weight_decay: float = setting(1e-4, "L2, on every parameter")
    momentum: float = setting(0.9, "share of the last update that is kept")
    nesterov: bool = setting(True, "true: the gradient is taken as if one step of momentum ahead")


@dataclass
class AdamWConfig(OptimConfig):
    """AdamW, the optimizer of the DF-ResNet recipes."""

    name: str = setting("adamw", "optimizer; choose with optim=...")
    lr: float = setting(1e-3, "peak learning rate at the effective batch; never rescaled")
    weight_decay: float = setting(0.05, "decoupled, on every parameter")
    beta1: float = setting(0.9, "decay of the first moment")
    beta2: float = setting(0.999, "decay of the second moment")
    eps: float = setting(1e-8, "added to the root of the second moment")


@dataclass
class MuonConfig(OptimConfig):
    """Muon: orthogonal updates of the kernels of hidden layers; AdamW for norms, biases, first kernel and head."""

    name: str = setting("muon", "optimizer; choose with optim=...")
    lr: float = setting(0.02, "peak learning rate of the matrices; never rescaled")
    weight_decay: float = setting(0.01, "decoupled, on every parameter")
    momentum: float = setting(0.95, "share of the last momentum of a matrix that is kept")
    nesterov: bool = setting(True, "true: the gradient is taken as if one step of momentum ahead")
    ns_steps: int = setting(5, "Newton-Schulz steps towards an orthogonal matrix")
    adjust_lr_fn: str = setting(
        "original",
        "factor of optim.lr by the shape of a matrix: original (Jordan: max(1, rows / columns)**0.5) or "
        "match_rms_adamw (Moonshot: 0.2 * max(rows, columns)**0.5, for rates as of AdamW)",
    )
    adamw_lr: float = setting(1e-3, "peak learning rate of all other parameters, which AdamW has")
    beta1: float = setting(0.9, "AdamW: decay of the first moment")
    beta2: float = setting(0.95, "AdamW: decay of the second moment")
    eps: float = setting(1e-8, "AdamW: added to the root of the second moment")


BLOCK_SIZE = "values of the state that share a scale; bitsandbytes has 256 alone"
MIN_8BIT_SIZE = "parameters with fewer values (BatchNorm, biases) keep float32 state"
BACKEND = "torch, bitsandbytes, or auto: bitsandbytes if it is installed and honours all settings on CUDA"


@dataclass
class SGD8bitConfig(SGDConfig):
    """SGD with a momentum of one byte a value instead of four: the state is quantised in blocks."""

    name: str = setting("sgd_8bit", "optimizer; choose with optim=...")
    block_size: int = setting(2048, BLOCK_SIZE)
    min_8bit_size: int = setting(4096, MIN_8BIT_SIZE)
    backend: str = setting("auto", BACKEND)


@dataclass
class AdamW8bitConfig(AdamWConfig):
    """AdamW with moments of one byte a value each instead of four: the state is quantised in blocks."""

    name: str = setting("adamw_8bit", "optimizer; choose with optim=...")
    block_size: int = setting(2048, BLOCK_SIZE)
    min_8bit_size: int = setting(4096, MIN_8BIT_SIZE)
    backend: str = setting("auto", BACKEND)


@dataclass
class Muon8bitConfig(MuonConfig):
    """Muon with a state of one byte a value instead of four: it is quantised in blocks."""

    name: str = setting("muon_8bit", "optimizer; choose with optim=...")
    block_size: int = setting(2048, "values of the state that share a scale")
    min_8bit_size: int = setting(4096, MIN_8BIT_SIZE)
