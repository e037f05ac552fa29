"""NeMo's TitaNet and SpeakerNet by their own code, and the .nemo files that hold them."""

from __future__ import annotations

import io
import logging
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import yaml
from foreign_networks import randomise
from toolkit_modules import toolkit_modules
from torch import Tensor, nn

from svtoolkit.features.mel_scales import slaney_filters

MODULES = "nemo.collections.asr.modules."


def preprocessor(**changes: Any) -> dict[str, Any]:
    """That of titanet-large.yaml."""
    return {
        "_target_": f"{MODULES}AudioToMelSpectrogramPreprocessor",
        "normalize": "per_feature", "window_size": 0.025, "sample_rate": 16000, "window_stride": 0.01,
        "window": "hann", "features": 80, "n_fft": 512, "frame_splicing": 1, "dither": 1e-5, **changes,
    }  # fmt: skip


def block(filters: int, repeat: int, kernel: int, dropout: float, *, residual: bool, **more: Any) -> dict[str, Any]:
    return {
        "filters": filters, "repeat": repeat, "kernel": [kernel], "stride": [1], "dilation": [1], "dropout": dropout,
        "residual": residual, "separable": True, **more,
    }  # fmt: skip


def titanet(filters: int, last: int, *, size: int = 192, **changes: Any) -> dict[str, Any]:
    """The model_config.yaml of a TitaNet, as far as it is read; 1024 and 3072 filters make the large one."""
    more = {"se": True, "se_context_size": -1}
    jasper = [
        block(filters, 1, 3, 0.0, residual=False, **more),
        *(block(filters, 3, kernel, 0.1, residual=True, **more) for kernel in (7, 11, 15)),
        block(last, 1, 1, 0.0, residual=False, **more),
    ]
    return _config(jasper, 80, {"pool_mode": "attention", "emb_sizes": size}, **changes)


def speakernet(filters: int, last: int, *, size: int = 256, **changes: Any) -> dict[str, Any]:
    """That of SpeakerNet_verification_3x2x256.yaml, where filters are 512 and 1500."""
    jasper = [
        block(filters, 1, 3, 0.5, residual=True),
        *(block(filters, 2, kernel, 0.5, residual=True) for kernel in (7, 11, 15)),
        block(last, 1, 1, 0.0, residual=False),
    ]
    made = _config(jasper, 64, {"pool_mode": "xvector", "emb_sizes": size, "angular": True})
    return {**made, "preprocessor": preprocessor(features=64, window_size=0.02), **changes}


def _config(jasper: list[dict[str, Any]], bins: int, decoder: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        "target": "nemo.collections.asr.models.label_models.EncDecSpeakerLabelModel",
        "preprocessor": preprocessor(),
        "encoder": {
            "_target_": f"{MODULES}ConvASREncoder", "feat_in": bins, "activation": "relu", "conv_mask": True,
            "jasper": jasper,
        },
        "decoder": {
            "_target_": f"{MODULES}SpeakerDecoder", "feat_in": jasper[-1]["filters"], "num_classes": 7, **decoder,
        },
        **changes,
    }  # fmt: skip


class _Plain:
    """Stands in for the mixins: none of what they add is switched on."""

    def is_access_enabled(self, *_: Any) -> bool:
        return False

    def is_adapter_available(self) -> bool:
        return False


def _as_it_is(*_: Any, **__: Any) -> Callable[[Any], Any]:
    return lambda function: function


def _mel(sr: int, n_fft: int, n_mels: int, fmin: float, fmax: float, norm: str) -> np.ndarray:
    """librosa.filters.mel."""
    assert norm == "slaney"
    return slaney_filters(np.linspace(0.0, sr / 2, n_fft // 2 + 1), fmin, fmax, n_mels).T


STAND_INS: dict[str, dict[str, Any]] = {
    "librosa": {"filters": SimpleNamespace(mel=_mel)},
    "nemo.collections.asr.parts.preprocessing.perturb": {"AudioAugmentor": None},
    "nemo.collections.asr.parts.preprocessing.segment": {"AudioSegment": None},
    "nemo.collections.asr.parts.utils": {"adapter_utils": None},
    "nemo.collections.common.parts.utils": {"activation_registry": {"relu": nn.ReLU}},
    "nemo.core.classes.common": {"typecheck": _as_it_is},
    "nemo.core.classes.exportable": {"Exportable": type("Exportable", (), {})},
    "nemo.core.classes.mixins": {
        "AccessMixin": type("AccessMixin", (), {"is_access_enabled": _Plain.is_access_enabled}),
        "adapter_mixins": SimpleNamespace(
            AdapterModuleMixin=type("AdapterModuleMixin", (), {"is_adapter_available": _Plain.is_adapter_available}),
            get_registered_adapter=lambda _: True,
        ),
    },
    "nemo.core.classes.mixins.adapter_mixins": {
        "AdapterModuleMixin": type("Adapter", (), {"is_adapter_available": _Plain.is_adapter_available})
    },
    "nemo.core.classes.module": {"NeuralModule": nn.Module},
    "nemo.core.neural_types": dict.fromkeys(
        "AcousticEncodedRepresentation LengthsType LogitsType LogprobsType NeuralType SpectrogramType".split()
    ),
    "nemo.utils": {"logging": logging},
}  # fmt: skip


class Original(nn.Module):
    """EncDecSpeakerLabelModel: its preprocessor, encoder and decoder, called as it calls them."""

    def __init__(self, config: dict[str, Any], features: Any, layers: Any) -> None:
        super().__init__()
        given = config["preprocessor"]
        self.preprocessor = nn.Module()
        self.preprocessor.featurizer = features.FilterbankFeatures(
            sample_rate=16000, n_window_size=int(given["window_size"] * 16000), n_window_stride=160,
            normalize="per_feature", n_fft=512, nfilt=given["features"], dither=given["dither"], pad_to=16,
        )  # fmt: skip
        self.encoder, self.decoder = (
            getattr(layers, config[name]["_target_"].rpartition(".")[2])(
                **{key: value for key, value in config[name].items() if key != "_target_"}
            )
            for name in ("encoder", "decoder")
        )

    def forward(self, waveforms: Tensor) -> Tensor:
        """(batch, samples) -> (batch, embedding)."""
        lengths = torch.full((len(waveforms),), waveforms.shape[1])
        frames, lengths = self.preprocessor.featurizer(waveforms.clone(), lengths)
        encoded, lengths = self.encoder(audio_signal=frames, length=lengths)
        return self.decoder(encoder_output=encoded, length=lengths)[1]


@contextmanager
def original_code() -> Iterator[tuple[Any, Any]]:
    """The modules of features and layers."""
    names = ("collections.asr.parts.preprocessing.features", "collections.asr.modules.conv_asr")
    with toolkit_modules("nemo", *names, given=STAND_INS) as (features, layers):
        yield features, layers


def original_layers(config: dict[str, Any]) -> Original:
    """A fresh network."""
    with original_code() as (features, layers):
        return Original(config, features, layers)


def original(config: dict[str, Any]) -> Original:
    """The network of a configuration, as if it had been trained: its statistics are nearly those of what it sees."""
    torch.manual_seed(4)
    network = randomise(original_layers(config))
    norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm1d)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 1.0
    with torch.no_grad():
        network.train()(torch.randn(8, 16_000) * torch.linspace(0.01, 1.0, 16_000))
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
        norm.running_var *= torch.empty_like(norm.running_var).uniform_(0.8, 1.25)
        norm.running_mean += 0.1 * norm.running_var.sqrt() * torch.randn_like(norm.running_mean)
    return network.eval()


def nemo_file(
    path: Path, config: Any, network: nn.Module | dict[str, Tensor], *, mode: str = "w", **more: bytes
) -> Path:
    """As SaveRestoreConnector writes it, with further members."""
    stream = io.BytesIO()
    torch.save(network if isinstance(network, dict) else network.state_dict(), stream)
    members = {
        "./model_config.yaml": yaml.safe_dump(config).encode(),
        "./model_weights.ckpt": stream.getvalue(),
        **more,
    }
    with tarfile.open(path, mode) as archive:
        root = tarfile.TarInfo(".")
        root.type = tarfile.DIRTYPE
        archive.addfile(root)
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path
