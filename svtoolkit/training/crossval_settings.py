"""What a cross-validation is told: whether its settings go together."""

from __future__ import annotations

from svtoolkit.config import CrossvalConfig
from svtoolkit.distributed.rank import rank_in_environment
from svtoolkit.errors import UserError
from svtoolkit.scoring.bootstrap import check_confidence
from svtoolkit.scoring.systems import systems_of
from svtoolkit.training.run_state import EMA


def check_crossval(config: CrossvalConfig) -> None:
    """Refuse what the words alone contradict, before anything is read or written.

    Raises:
        UserError: names the key, what was found and what is expected.
    """
    if rank_in_environment() is not None:
        raise UserError("torchrun is for `svt train`; start svt crossval without it, with trainer.devices=N")
    if len(set(config.only) & set(range(1, config.folds + 1))) < len(config.only):
        raise UserError(f"only is {config.only}, expected folds from 1 to {config.folds}, each once, or [] for all")
    if len(set(config.seeds)) < len(config.seeds):
        raise UserError(f"seeds is {config.seeds}, expected each seed once")
    if config.ensemble and len(config.seeds) < 2:
        raise UserError(f"ensemble=true is of several networks, and seeds is {config.seeds}; give seeds=[42,43]")
    for name in ("average", "targets_per_speaker"):
        if getattr(config, name) < 1:
            raise UserError(f"{name} is {getattr(config, name)}, expected 1 or more")
    if config.choose == EMA and config.trainer.ema is None:
        raise UserError("choose=ema needs a moving average, and trainer.ema is null; set trainer.ema=0.999")
    if config.choose == "best" and config.validation.speakers == 0:
        raise UserError("choose=best needs validation, and validation.speakers is 0; leave one of them out")
    if config.top_n < 2:
        raise UserError(f"top_n is {config.top_n}, expected 2 or more")
    if config.minutes is not None and config.minutes <= 0:
        raise UserError(f"minutes is {config.minutes:g}, expected more than 0, or null")
    if config.crops is not None and config.crops < 1:
        raise UserError(f"crops is {config.crops}, expected 1 or more, or null")
    if config.crop_seconds <= 0:
        raise UserError(f"crop_seconds is {config.crop_seconds:g}, expected more than 0 seconds")
    if config.resamples < 0 or config.resamples == 1:
        raise UserError(f"resamples is {config.resamples}, expected 2 or more, such as 1000, or 0: no intervals")
    check_confidence(config.confidence)
    systems_of(config.backends, key="backends")
