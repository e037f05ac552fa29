"""x-vector heads of transformers in training: what is drawn, what is frozen, what is predicted of a step."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers_material import KINDS, original

from svtoolkit.config import MemoryPredictionConfig, TransformersXVectorConfig
from svtoolkit.models import build_model
from svtoolkit.models.transformers_xvector import ARCHITECTURES, complete_config
from svtoolkit.planning.memory_prediction import predict_memory

MASKED = {"apply_spec_augment": True, "mask_time_prob": 0.5, "mask_time_length": 2, "layerdrop": 0.5}
"""Of which transformers' own class masks half of a crop, and leaves out every other layer."""

FEW = {"conv_dim": [16, 16], "conv_kernel": [40, 8], "conv_stride": [40, 8], "num_hidden_layers": 1}

FRAMES = torch.randn(2, 6_400, 1, generator=torch.Generator().manual_seed(0))


def settings(architecture: str, **options) -> dict:
    config = complete_config(architecture, original(architecture, **options).config.to_dict())
    return {
        "name": "transformers_xvector", "num_bins": 1, "embedding_dim": config["xvector_output_dim"],
        "architecture": architecture, "config": config | {key: 0.0 for key in config if key.endswith("dropout")},
    }  # fmt: skip


def drawn(network: torch.nn.Module, seed: int) -> torch.Tensor:
    torch.manual_seed(seed)
    np.random.seed(seed)
    with torch.no_grad():
        return network(FRAMES)


def frozen_parts(network: torch.nn.Module) -> set[str]:
    names = [name.split(".") for name, parameter in network.named_parameters() if not parameter.requires_grad]
    return {part for name in names for part in name if part.endswith(("extractor", "embed"))}


@pytest.mark.parametrize("architecture", KINDS)
def test_nothing_but_dropout_is_drawn_in_training(architecture):
    network = build_model(**settings(architecture, **MASKED)).train()
    for parameter in network.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    first = drawn(network, 1)
    assert all(torch.equal(first, drawn(network, seed)) for seed in (2, 3))
    network.network.config.apply_spec_augment = True
    assert not torch.equal(first, drawn(network, 2)), "masks make another of it"


@pytest.mark.parametrize("architecture", KINDS)
def test_the_encoder_is_frozen_and_all_else_has_a_gradient(architecture):
    """A parameter that expects a gradient and has none would make DistributedDataParallel fail."""
    said = settings(architecture)
    frozen, whole = (build_model(**said, freeze_encoder=freeze).train() for freeze in (True, False))
    for network in (frozen, whole):
        network(FRAMES).square().sum().backward()
        for name, parameter in network.named_parameters():
            assert (parameter.grad is not None) == parameter.requires_grad, name
    base = ARCHITECTURES[architecture].replace("-", "_")
    encoder = getattr(frozen.network, base).feature_extractor
    assert not any(parameter.requires_grad for parameter in encoder.parameters())
    assert frozen_parts(frozen) - frozen_parts(whole) == {"feature_extractor"}
    conformer = {"pos_conv_embed"} if architecture.startswith("Wav2Vec2Conformer") else set()
    assert frozen_parts(whole) == {"masked_spec_embed"} | conformer


def test_the_memory_of_a_step_is_predicted_without_gradients_of_what_is_frozen():
    said = settings("WavLMForXVector", **FEW)
    model = TransformersXVectorConfig(**{key: value for key, value in said.items() if key != "num_bins"})
    step = MemoryPredictionConfig(frames=6_400, num_bins=1, batch_size=2, num_classes=8, device="cpu", model=model)
    peaks = predict_memory(step, growth=False).whole.highest
    network = build_model(**said)
    trained, all_weights = (
        4 * (sum(p.numel() for p in network.parameters() if p.requires_grad or frozen) + 8 * network.embedding_dim)
        for frozen in (False, True)
    )
    assert (peaks["weights"], peaks["gradients"], peaks["optimizer_state"]) == (all_weights, trained, trained)
    assert peaks["activations"] > 0
