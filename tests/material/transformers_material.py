"""Small x-vector heads of transformers, by its own classes."""

from __future__ import annotations

import pytest
import torch

transformers = pytest.importorskip(
    "transformers", reason="transformers is not installed: scripts/setup.sh --extras dev"
)

SIZES = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48,
    "conv_dim": [16] * 7, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 2,
    "tdnn_dim": [16, 16, 16, 16, 24], "xvector_output_dim": 12, "num_buckets": 16,
}  # fmt: skip

KINDS = {
    "WavLMForXVector": {"use_weighted_layer_sum": True},
    "Wav2Vec2ForXVector": {"feat_extract_norm": "layer", "do_stable_layer_norm": True, "conv_bias": True},
    "UniSpeechSatForXVector": {"use_weighted_layer_sum": True},
    "Data2VecAudioForXVector": {"conv_pos_kernel_size": 5},
    "Wav2Vec2ConformerForXVector": {"add_adapter": True, "num_adapter_layers": 2, "tdnn_kernel": [3, 1, 1, 1, 1]},
}


def original(architecture: str, **options):
    """As if it were trained: nothing is at its initial value."""
    torch.manual_seed(7)
    network = getattr(transformers, architecture)
    values = {**SIZES, **KINDS[architecture], **options}
    known = network.config_class().to_dict()
    made = network(network.config_class(**{key: value for key, value in values.items() if key in known}))
    for parameter in made.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    return made.eval()


def write(folder, network, *, normalised: bool = True):
    network.save_pretrained(folder)
    extractor = transformers.Wav2Vec2FeatureExtractor(do_normalize=normalised, return_attention_mask=False)
    extractor.save_pretrained(folder)
    return folder
