"""A release of every kind as small as it can be: settings that are plain data, and weights of ours under its names."""

from __future__ import annotations

import enum
import hashlib
import importlib.util
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, make_dataclass, replace
from functools import cache, cached_property
from types import ModuleType
from typing import Any
from unittest import mock

import safetensors.torch
import torch
import yaml
from hostile_files import tar_of, torch_file
from nemo_networks import speakernet

from svtoolkit.checkpoints import nemo, resemblyzer
from svtoolkit.checkpoints.layout import Layout, rename_to_theirs
from svtoolkit.checkpoints.redimnet_config import network_of
from svtoolkit.checkpoints.redimnet_names import REDIMNET
from svtoolkit.checkpoints.speechbrain import to_speechbrain
from svtoolkit.checkpoints.threed_speaker import to_3d_speaker
from svtoolkit.checkpoints.wespeaker import to_wespeaker
from svtoolkit.config import FeaturesConfig
from svtoolkit.models import build_model
from svtoolkit.models.front_ends import features_config, front_end_of
from svtoolkit.models.registry import NETWORKS
from svtoolkit.models.titanet import FAMILIES
from svtoolkit.system.plain_data import Tagged

Files = dict[str, bytes]
"""Name in the folder of a release -> content."""

State = dict[str, torch.Tensor]

BINS, DIM, UNITS = 8, 4, 2
SMALL: dict[str, dict[str, Any]] = {
    "xvector": {"width": 2, "pooled": 2},
    "res2net34_base": {"width": 2, "blocks": (1, 1, 1, 1)},
    "res2net34_large": {"width": 4, "blocks": (1, 1, 1, 1)},
    "resnet34": {"width": 2, "blocks": (1, 1, 1, 1)},
    "sb_xvector": {"pooled": 3},
    "ge2e_lstm": {"hidden": UNITS},
}


@contextmanager
def small_networks() -> Iterator[None]:
    """Within, the names of ``SMALL`` stand for networks of a few hundred weights."""
    rows = {
        name: replace(NETWORKS.rows[name], arguments={**NETWORKS.rows[name].arguments, **arguments})
        for name, arguments in SMALL.items()
    }
    with mock.patch.dict(NETWORKS.rows, rows), mock.patch.object(resemblyzer, "HIDDEN", UNITS):
        yield


def dump_yaml(content: Any) -> bytes:
    return yaml.dump(content, Dumper=_Dumper, allow_unicode=False).encode()


def dump_json(content: Any) -> bytes:
    return json.dumps(content).encode()


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    pass


def _tagged(dumper: Any, value: Tagged) -> yaml.Node:
    if isinstance(value.value, Mapping):
        return dumper.represent_mapping(value.tag, value.value)
    if isinstance(value.value, list):
        return dumper.represent_sequence(value.tag, value.value)
    return dumper.represent_scalar(value.tag, str(value.value))


_Dumper.add_representer(Tagged, _tagged)


@dataclass(frozen=True)
class Sample:
    """A kind of release.

    Attributes:
        network: arguments of ``build_model``.
        content: what its settings say.
        packed: weights under our names -> those of the toolkit, or the file of them where settings are in another.
        made: content and what ``packed`` gave -> its files.
        needs: packages without which there is none.
    """

    network: Mapping[str, Any]
    content: Any
    packed: Callable[[State], Any]
    made: Callable[[Any, Any], Files]
    needs: tuple[str, ...] = ()

    def files(self, content: Any = None, **weights: torch.Tensor) -> Files:
        """Those of other content or with other weights, where they are given."""
        packed = self.packed({**self.weights, **weights}) if weights else self._packed
        return self.made(self.content if content is None else content, packed)

    @cached_property
    def weights(self) -> State:
        """Under our names; within ``small_networks``."""
        torch.manual_seed(0)
        return build_model(**self.network).state_dict()

    @cached_property
    def _packed(self) -> Any:
        return self.packed(self.weights)


@cache
def _tables() -> State:
    """What NeMo's featurizer keeps beside the weights."""
    front_end = front_end_of(features_config({"backend": "nemo80", "num_bins": NEMO_BINS, "frame_length_ms": 20.0}))
    return {
        "preprocessor.featurizer.window": front_end.filter_bank.window.clone(),
        "preprocessor.featurizer.fb": front_end.filter_bank.filters.T.clone()[None],
    }


WESPEAKER = {
    "model": "XVEC",
    "model_args": {"feat_dim": BINS, "embed_dim": DIM, "pooling_func": "TSTP"},
    "dataset_args": {
        "resample_rate": 16000, "frontend": "fbank", "cmvn": True, "cmvn_args": {"norm_mean": True, "norm_var": False},
        "fbank_args": {"num_mel_bins": BINS, "frame_shift": 10, "frame_length": 25, "dither": 1.0},
    },
    "num_epochs": 150,
}  # fmt: skip
MODELSCOPE = {
    "framework": "pytorch",
    "task": "speaker-verification",
    "model": {
        "type": "res2net-sv",
        "model_config": {"sample_rate": 16000, "fbank_dim": BINS, "embed_dim": DIM, "channels": 2},
        "pretrained_model": "pretrained.ckpt",
        "yesOrno_thr": 0.36,
    },
}
OURS = {
    "format": 1,
    "model": {"name": "xvector", "num_bins": BINS, "embedding_dim": DIM},
    "features": {**FeaturesConfig().__dict__, "num_bins": BINS},
    "training": {"epochs": 3},
    "verification": {"threshold": 0.31, "operating_point": "fa_rate=0.01", "p_miss": 0.03, "p_fa": 0.01},
}
SPEECHBRAIN = {
    "pretrained_path": "speechbrain/spkrec-xvect-voxceleb",
    "sample_rate": 16000,
    "n_mels": 24,
    "compute_features": Tagged("!new:speechbrain.lobes.features.Fbank", {"n_mels": Tagged("!ref", "<n_mels>")}),
    "mean_var_norm": Tagged(
        "!new:speechbrain.processing.features.InputNormalization", {"norm_type": "sentence", "std_norm": False}
    ),
    "embedding_model": Tagged(
        "!new:speechbrain.lobes.models.Xvector.Xvector",
        {
            "in_channels": Tagged("!ref", "<n_mels>"), "activation": Tagged("!name:torch.nn.LeakyReLU", ""),
            "tdnn_channels": [2, 2, 2, 2, 1500], "lin_neurons": DIM,
        },
    ),
}  # fmt: skip
PYANNOTE = {
    "hyper_parameters": {
        "sample_rate": 16000, "num_channels": 1, "num_mel_bins": BINS, "frame_length": 25, "frame_shift": 10,
        "dither": 0.0, "window_type": "hamming", "use_energy": False,
    },
    "architecture": {"module": "pyannote.audio.models.embedding.wespeaker", "class": "WeSpeakerResNet34"},
}  # fmt: skip
NEMO_BINS = 8
NEMO = speakernet(2, 3, size=DIM)
NEMO["preprocessor"]["features"] = NEMO["encoder"]["feat_in"] = NEMO_BINS
REDIMNET_CONFIG = {
    "F": BINS, "C": 4, "stages_setup": [(2, 1, 1, [(3, 3)], None)], "group_divisor": 2,
    "embed_dim": DIM, "block_1d_type": "fc", "feat_type": "pt", "spec_params": {"norm_signal": True}, "hop_length": 160,
    "head_activation": "nn.ReLU(inplace=True)",
}  # fmt: skip
TRANSFORMERS = {
    "config": {
        "architectures": ["WavLMForXVector"], "model_type": "wavlm", "hidden_size": 16, "num_hidden_layers": 1,
        "num_attention_heads": 2, "intermediate_size": 16, "conv_dim": [4, 4], "conv_kernel": [10, 3],
        "conv_stride": [5, 2], "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 4,
        "num_conv_pos_embedding_groups": 2, "tdnn_dim": [4, 4, 4, 4, 4], "xvector_output_dim": DIM, "num_buckets": 8,
    },
    "preprocessor": {
        "feature_extractor_type": "Wav2Vec2FeatureExtractor", "feature_size": 1, "sampling_rate": 16000,
        "do_normalize": True,
    },
}  # fmt: skip
ONNX = {"framework": "wespeaker", "sample_rate": "16000", "output_dim": str(DIM), "language": "English"}


def wespeaker_state(ours: State | None = None) -> State:
    ours = SAMPLES["wespeaker"].weights if ours is None else ours
    return {**to_wespeaker(ours), "projection.weight": torch.zeros(5, DIM)}


def _ours(content: Any, weights: bytes) -> Files:
    return {"model.yaml": dump_yaml({"weights_sha256": digest(weights), **content}), "model.safetensors": weights}


def digest(weights: bytes) -> str:
    return hashlib.sha256(weights).hexdigest()


def _pyannote_state(ours: State) -> State:
    return {f"resnet.{name}": tensor for name, tensor in to_wespeaker(ours).items()}


def _pyannote(content: Any, theirs: State) -> Files:
    with pyannote_classes() as task:
        saved = {
            "state_dict": theirs,
            "hyper_parameters": content["hyper_parameters"],
            "pyannote.audio": {
                "versions": {"torch": torch.torch_version.TorchVersion("2.0.0")},
                "architecture": content["architecture"],
                "specifications": task.Specifications(task.Problem(2), 5.0),
            },
        }
        weights = torch_file(saved)
    return {"config.yaml": b"_target_: pyannote.audio.models.embedding.wespeaker.WeSpeakerResNet34\n",
            "pytorch_model.bin": weights}  # fmt: skip


@contextmanager
def pyannote_classes() -> Iterator[Any]:
    """Those of its task, which have to be there to write a pickle that names them."""
    task: Any = ModuleType("pyannote.audio.core.task")
    task.Problem = enum.Enum("Problem", "A B", module=task.__name__)
    task.Specifications = make_dataclass("Specifications", ["problem", "duration"])
    task.Specifications.__module__ = task.__name__
    packages = {name: ModuleType(name) for name in ("pyannote", "pyannote.audio", "pyannote.audio.core")}
    with mock.patch.dict(sys.modules, {**packages, task.__name__: task}):
        yield task


def nemo_layout() -> Layout:
    return nemo._layout(FAMILIES["speakernet"], masked=True)


def _nemo_state(ours: State) -> State:
    given = {name: ours[name] for name in ours if name.startswith(nemo.FEATURIZER)}
    network = {name: ours[name] for name in ours if name not in given}
    theirs = {**rename_to_theirs(network, [nemo_layout()], "NeMo"), **_tables(), **given}
    return {**theirs, "decoder.final.weight": torch.zeros(7, DIM)}


def nemo_tar(settings: bytes, weights: bytes, **options: Any) -> bytes:
    members = ("./model_config.yaml", settings), ("./model_weights.ckpt", weights)
    return tar_of(*members, **options)


def _resemblyzer_state(ours: State) -> State:
    losses = dict.fromkeys(resemblyzer.HEADS, torch.ones(1))
    return {**rename_to_theirs(ours, [resemblyzer.LAYOUT], "Resemblyzer"), **losses}


def _transformers_weights(ours: State) -> bytes:
    return safetensors.torch.save({name.removeprefix("network."): tensor for name, tensor in ours.items()})


def _transformers_network() -> dict[str, Any]:
    given = TRANSFORMERS["config"]
    config = {key: value for key, value in given.items() if key not in ("architectures", "model_type")}
    return {"name": "transformers_xvector", "num_bins": 1, "embedding_dim": DIM, "architecture": "WavLMForXVector",
            "config": config}  # fmt: skip


def _onnx(content: Any, _weights: None) -> Files:
    from onnx_material import small_graph

    return {"model.onnx": onnx_bytes(small_graph(), content)}


def onnx_bytes(graph: Any, said: Mapping[str, Any]) -> bytes:
    from onnx import helper

    helper.set_model_props(graph, {key: str(value) for key, value in said.items()})
    return bytes(graph.SerializeToString())


_XVECTOR = {"name": "xvector", "num_bins": BINS, "embedding_dim": DIM}


def _pickled(packed: Callable[[State], State]) -> Callable[[State], bytes]:
    return lambda ours: torch_file(packed(ours))


_ALL = {
    "wespeaker": Sample(
        _XVECTOR,
        WESPEAKER,
        _pickled(wespeaker_state),
        lambda content, weights: {"config.yaml": dump_yaml(content), "avg_model.pt": weights},
    ),
    "3d-speaker": Sample(
        {**_XVECTOR, "name": "res2net34_base"},
        MODELSCOPE,
        _pickled(to_3d_speaker),
        lambda content, weights: {"configuration.json": dump_json(content), "pretrained.ckpt": weights},
    ),
    "ours": Sample(_XVECTOR, OURS, safetensors.torch.save, _ours),
    "speechbrain": Sample(
        {**_XVECTOR, "name": "sb_xvector", "num_bins": 24, "base_width": 2},
        SPEECHBRAIN,
        _pickled(to_speechbrain),
        lambda content, weights: {"hyperparams.yaml": dump_yaml(content), "embedding_model.ckpt": weights},
    ),
    "pyannote": Sample(
        {**_XVECTOR, "name": "resnet34", "embedding_layers": 1, "pooling_eps": 0.0},
        PYANNOTE,
        _pyannote_state,
        _pyannote,
    ),
    "NeMo": Sample(
        {**_XVECTOR, "name": "speakernet", "base_width": 2, "map_channels": 3},
        NEMO,
        _pickled(_nemo_state),
        lambda content, weights: {"speakernet.nemo": nemo_tar(dump_yaml(content), weights)},
    ),
    "resemblyzer": Sample(
        {**_XVECTOR, "name": "ge2e_lstm", "num_bins": 40},
        {"step": 3},
        _resemblyzer_state,
        lambda content, theirs: {"pretrained.pt": torch_file({**content, "model_state": theirs})},
    ),
    "redimnet": Sample(
        {**network_of("redimnet", REDIMNET_CONFIG, ""), "pooled_norm": True},
        REDIMNET_CONFIG,
        lambda ours: rename_to_theirs(ours, [REDIMNET], "IDRnD"),
        lambda content, theirs: {"b0-vox2.pt": torch_file({"model_config": content, "state_dict": theirs})},
    ),
    "transformers": Sample(
        _transformers_network(),
        TRANSFORMERS,
        _transformers_weights,
        lambda content, weights: {
            "config.json": dump_json(content["config"]),
            "preprocessor_config.json": dump_json(content["preprocessor"]),
            "model.safetensors": weights,
        },
        ("transformers",),
    ),
    "onnx": Sample(_XVECTOR, ONNX, lambda _: None, _onnx, ("onnx", "onnxruntime")),
}
SAMPLES = {
    kind: sample for kind, sample in _ALL.items() if all(importlib.util.find_spec(name) for name in sample.needs)
}
"""Kind -> sample, of those whose packages are installed."""
