"""SpeechBrain's own networks and features, imported without its packages' __init__ and without torchaudio."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import sys
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from torch import nn

PACKAGES = ("", "dataio", "lobes", "lobes.models", "nnet", "processing", "utils")


def _unchanged(item: Any = None, **_: Any) -> Any:
    return item if item is not None else _unchanged


STAND_INS: dict[str, dict[str, Any]] = {
    "torchaudio": {},
    "speechbrain.dataio.audio_io": {},
    "speechbrain.utils.torch_audio_backend": {
        "check_torchaudio_backend": _unchanged,
        "validate_backend": _unchanged,
    },
    "speechbrain.utils.checkpoints": {
        "mark_as_loader": _unchanged,
        "mark_as_saver": _unchanged,
        "mark_as_transfer": _unchanged,
        "register_checkpoint_hooks": _unchanged,
    },
    "speechbrain.utils.distributed": {"ddp_all_reduce": None},
    "speechbrain.utils.filter_analysis": {"FilterProperties": None},
    "speechbrain.utils.logger": {"get_logger": logging.getLogger},
}
"""Modules that need what is not installed, or do nothing for an embedding."""


@cache
def original() -> SimpleNamespace:
    """Its classes by name: ECAPA_TDNN, Xvector, ResNet, Fbank, InputNormalization, StatisticsPooling."""
    found = importlib.util.find_spec("speechbrain")
    if found is None or found.origin is None:
        pytest.skip("SpeechBrain is not installed: scripts/setup.sh --extras dev")
    folder = Path(found.origin).parent
    kept = dict(sys.modules)
    try:
        for package in PACKAGES:
            stand_in = ModuleType(f"speechbrain.{package}".rstrip("."))
            stand_in.__path__ = [str(folder.joinpath(*package.split(".")))]
            sys.modules[stand_in.__name__] = stand_in
        for name, attributes in STAND_INS.items():
            stand_in = ModuleType(name)
            vars(stand_in).update(attributes)
            sys.modules[name] = stand_in
        sys.modules["speechbrain"].nnet = sys.modules["speechbrain.nnet"]  # type: ignore[attr-defined]
        importlib.import_module("speechbrain.nnet.containers")
        classes = {}
        for module, name in (
            ("lobes.models.ECAPA_TDNN", "ECAPA_TDNN"),
            ("lobes.models.Xvector", "Xvector"),
            ("lobes.models.ResNet", "ResNet"),
            ("lobes.features", "Fbank"),
            ("processing.features", "InputNormalization"),
            ("nnet.pooling", "StatisticsPooling"),
        ):
            classes[name] = getattr(importlib.import_module(f"speechbrain.{module}"), name)
        return SimpleNamespace(**classes)
    finally:
        for name in set(sys.modules) - set(kept):
            if name.partition(".")[0] in ("speechbrain", "torchaudio"):
                del sys.modules[name]
        sys.modules.update({name: module for name, module in kept.items() if name == "torchaudio"})


def as_published(network: nn.Module) -> nn.Module:
    """The embedding as (batch, dim), and without the noise that its pooling adds to means, in evaluation too."""
    for module in network.modules():
        if isinstance(module, original().StatisticsPooling):
            module._get_gauss_noise = lambda *_, **__: 0.0
    network.register_forward_hook(lambda module, given, result: result.flatten(1))
    return network
