"""The x-vector heads of transformers, on top of the network that hears the waveform.

Built from the values of a config.json by classes that are named here; nothing that a release names is imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from svtoolkit.errors import UserError
from svtoolkit.models.speaker_network import SpeakerNetwork

ARCHITECTURES = {
    "WavLMForXVector": "wavlm",
    "Wav2Vec2ForXVector": "wav2vec2",
    "UniSpeechSatForXVector": "unispeech-sat",
    "Data2VecAudioForXVector": "data2vec-audio",
    "Wav2Vec2ConformerForXVector": "wav2vec2-conformer",
}
"""Class -> the ``model_type`` of its configurations."""

LARGEST_NUMBER, MOST_LAYERS, LONGEST = 1_000_000, 1000, 64
"""Of the sizes of a configuration, of its layers, of its lists and its texts."""

HEADS = ("classifier", "objective")
"""What training alone needs."""

UNUSED = {name: {"masked_spec_embed"} for name in ARCHITECTURES}
UNUSED["Wav2Vec2ConformerForXVector"].add("pos_conv_embed")
"""Parts of them that no embedding depends on, and that would never have a gradient."""

OFF: dict[str, Any] = {"apply_spec_augment": False, "layerdrop": 0.0}
"""Of a config.json, what would mask frames and skip layers in training: some of it draws from numpy's generator."""


class TransformersXVector(SpeakerNetwork):
    """(batch, samples, 1) -> (batch, embedding_dim), the ``embeddings`` of the head.

    Args:
        architecture: one of ``ARCHITECTURES``.
        config: as ``complete_config`` makes it; in training its dropouts count, and ``OFF`` instead of its own.
        freeze_encoder: do not train the convolutions over samples.
    """

    maskable = False

    def __init__(
        self,
        *,
        num_bins: int,
        embedding_dim: int,
        architecture: str,
        config: Mapping[str, Any],
        freeze_encoder: bool = True,
    ) -> None:
        super().__init__()
        network, settings = _classes(architecture)
        known = _known(settings)
        _check(config, known)
        if num_bins != 1 or embedding_dim != config.get("xvector_output_dim", known["xvector_output_dim"]):
            raise ValueError(
                f"num_bins is {num_bins} and embedding_dim {embedding_dim}, expected 1, of the waveform, and "
                f"{config.get('xvector_output_dim')}, its xvector_output_dim"
            )
        self.embedding_dim = embedding_dim
        try:
            self.network = network(settings(**{**config, **OFF}))
        except Exception as error:  # transformers raises what comes
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            raise ValueError(f"transformers makes no {architecture} of its config ({reason})") from error
        for head in HEADS:
            setattr(self.network, head, nn.Identity())
        if freeze_encoder:
            self.network.freeze_feature_encoder()
        for name, parameter in self.network.named_parameters():
            if any(part in UNUSED[architecture] for part in name.split(".")):
                parameter.requires_grad = False

    def forward(self, frames: Tensor) -> Tensor:
        embeddings: Tensor = self.network(frames.squeeze(2), return_dict=True).embeddings
        return embeddings


def complete_config(architecture: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a config.json that shape the network, with the defaults of those that it leaves out.

    Raises:
        ValueError: an architecture that is not known, a value of another kind.
        UserError: transformers cannot be imported.
    """
    known = _known(_classes(architecture)[1])
    values = {key: given.get(key, value) for key, value in known.items()}
    _check(values, known)
    return values


def shortest(config: Mapping[str, Any]) -> int:
    """Samples that make two frames after the last convolution of the head, as a standard deviation needs."""
    length = 2 + sum(
        dilation * (kernel - 1) for kernel, dilation in zip(config["tdnn_kernel"], config["tdnn_dilation"], strict=True)
    )
    if config.get("add_adapter"):
        for _ in range(config["num_adapter_layers"]):  # padded by 1
            length = (length - 1) * config["adapter_stride"] + config["adapter_kernel_size"] - 2
    for kernel, stride in zip(reversed(config["conv_kernel"]), reversed(config["conv_stride"]), strict=True):
        length = (length - 1) * stride + kernel
    return int(length)


def _classes(architecture: str) -> tuple[Any, Any]:
    """Of the network, and of its configuration."""
    if architecture not in ARCHITECTURES:
        raise ValueError(f"architecture is {architecture!r}, expected one of {', '.join(ARCHITECTURES)}")
    try:
        import transformers

        network = getattr(transformers, architecture)
    except Exception as error:  # of a torchaudio that cannot be loaded as of a missing package
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise UserError(
            f"{architecture} needs transformers, which cannot be imported ({reason}); `pip install transformers`, and "
            "uninstall a torchaudio that does not belong to the torch beside it"
        ) from error
    return network, network.config_class


def _known(settings: Any) -> dict[str, Any]:
    """Keys that a configuration has of its own, with their defaults."""
    from transformers import PretrainedConfig

    common = PretrainedConfig().to_dict()
    return {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in settings().to_dict().items()
        if key not in common and not key.startswith("_")
    }


def _check(config: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    """Refuse keys that shape no network, and values that no network has."""
    if unknown := sorted(set(config) - set(known)):
        raise ValueError(f"config has {unknown[0]!r}, expected no other keys than {', '.join(known)}")
    for key, value in config.items():
        most = MOST_LAYERS if "layers" in key else LARGEST_NUMBER
        is_list = isinstance(known[key], list)
        values = value if isinstance(value, list) else [value]
        plain = len(values) <= LONGEST and all(_is_plain(item, most) for item in values)
        if not plain or isinstance(value, list) != is_list:
            kind = "a list of numbers" if is_list else "a word or a number"
            raise ValueError(f"config.{key} is {value!r:.80}, expected {kind} up to {most}")


def _is_plain(value: Any, most: int) -> bool:
    if isinstance(value, str):
        return len(value) <= LONGEST
    return value is None or (isinstance(value, int | float) and abs(value) <= most)
