"""Kinds of releases: how one is recognised, how it is read, and what of a repository is fetched."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from svtoolkit.checkpoints import modelscope, nemo, onnx_release, pyannote, redimnet, resemblyzer, transformers_release
from svtoolkit.checkpoints.released import DESCRIPTION, WEIGHTS, ModelDescription
from svtoolkit.checkpoints.speechbrain import release as speechbrain
from svtoolkit.checkpoints.wespeaker import release as wespeaker
from svtoolkit.system.regular_file import is_regular

State = tuple[dict[str, Tensor], ModelDescription]
"""Weights under our names, and what they are of."""


class Kind(NamedTuple):
    """A row of the table.

    Attributes:
        name: what a release of this kind is called.
        files: those that it consists of, for messages.
        find: path -> its file of weights; None: it is no such release.
        read: file of weights and the name of a front end that the user states, or None -> weights and description;
            None: ours, read by ``read_released``.
        on_hub: sets of files, the first of which that a repository has is fetched: words of ``hub.complete``.
        front_ends: those that a user may state, of releases that may not say theirs.
        alone: it counts only where nothing else is found, as of an export that lies beside what it was made of.
    """

    name: str
    files: str
    find: Callable[[Path], Path | None]
    read: Callable[[Path, str | None], State] | None = None
    on_hub: tuple[str, ...] = ()
    front_ends: Collection[str] = ()
    alone: bool = False


def _ours(path: Path) -> Path | None:
    return path / WEIGHTS if is_regular(path / DESCRIPTION) else None


def _run(path: Path) -> Path | None:
    return _ours(path / "model")


RUN = Kind(
    "run",
    "model/model.yaml, as `svt average` writes it into the exp_dir of a run",
    _run,
    on_hub=(f"model/{DESCRIPTION} model/{WEIGHTS}",),
)

KINDS = (
    Kind(
        "svtoolkit",
        f"{DESCRIPTION} and {WEIGHTS}, as written by `svt average`",
        _ours,
        on_hub=(f"{DESCRIPTION} {WEIGHTS}",),
    ),
    RUN,
    Kind(
        "WeSpeaker",
        "avg_model.pt and config.yaml, or NAME.pt and NAME.yaml",
        wespeaker.find_weights,
        wespeaker.read,
        on_hub=("config.yaml avg_model.pt", "config.yaml models/avg_model.pt", "*.yaml *.pt"),
        front_ends=wespeaker.FRONT_ENDS,
    ),
    Kind(
        "3D-Speaker",
        "configuration.json and the weights that it names",
        modelscope.find_weights,
        modelscope.read,
        on_hub=tuple(f"configuration.json *{suffix}" for suffix in modelscope.SUFFIXES),
    ),
    Kind(
        "SpeechBrain",
        "hyperparams.yaml and embedding_model.ckpt",
        speechbrain.find_weights,
        speechbrain.read,
        on_hub=("hyperparams.yaml embedding_model.ckpt",),
    ),
    Kind(
        "pyannote",
        "pytorch_model.bin of a WeSpeakerResNet",
        pyannote.find_weights,
        pyannote.read,
        on_hub=("config.yaml pytorch_model.bin",),
    ),
    Kind("NeMo", "NAME.nemo", nemo.find_weights, nemo.read, on_hub=("*.nemo",)),
    Kind("Resemblyzer", "pretrained.pt", resemblyzer.find_weights, resemblyzer.read, on_hub=("pretrained.pt",)),
    Kind(
        "ReDimNet",
        "NAME.pt with model_config and state_dict",
        redimnet.find_weights,
        redimnet.read,
        on_hub=("*.pt",),
    ),
    Kind(
        "transformers",
        "config.json of an x-vector head, preprocessor_config.json, and model.safetensors or pytorch_model.bin",
        transformers_release.find_weights,
        transformers_release.read,
        on_hub=tuple(
            f"config.json preprocessor_config.json {weights}" for weights in ("model.safetensors", "pytorch_model.bin")
        ),
    ),
    Kind(
        "ONNX",
        "NAME.onnx",
        onnx_release.find_weights,
        onnx_release.read,
        on_hub=("*.onnx",),
        front_ends=onnx_release.STATED,
        alone=True,
    ),
)
