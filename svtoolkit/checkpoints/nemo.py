"""NeMo's .nemo file of a TitaNet or SpeakerNet: model_config.yaml describes the network of model_weights.ckpt."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from svtoolkit.checkpoints.foreign_file import NEMO_SETTINGS, is_tar, read_weights
from svtoolkit.checkpoints.layout import Layout, Part, list_names, rename_to_ours
from svtoolkit.checkpoints.released import ModelDescription
from svtoolkit.config import FeaturesConfig
from svtoolkit.config.front_ends import Nemo80Config
from svtoolkit.errors import UserError
from svtoolkit.models.build import complete_model
from svtoolkit.models.front_ends import features_config, front_end_of
from svtoolkit.models.titanet import FAMILIES, REDUCTION, BlockShape, Family
from svtoolkit.system.regular_file import is_regular

HEADS = "decoder.final."
"""What the names of the classification head begin with."""

FEATURIZER = "preprocessor.featurizer."
TABLES = {"window": "window", "fb": "filters"}
"""Buffers of the featurizer -> those of our front end."""

POOLINGS = {"titanet": "attention", "speakernet": "xvector"}
"""Family -> decoder.pool_mode."""

_BATCH_NORM = "(weight|bias|running_mean|running_var|num_batches_tracked)"
_STATISTICS = "(running_mean|running_var|num_batches_tracked)"
_LINEAR = "(weight|bias)"

ANY = object()
"""What a key that changes no embedding may be: what training alone does, and what a checkpoint has outgrown."""

PREPROCESSOR = {
    "sample_rate": 16000, "features": ANY, "window_size": ANY, "n_window_size": ANY, "window_stride": ANY,
    "n_window_stride": ANY, "window": "hann", "normalize": "per_feature", "n_fft": ANY, "preemph": 0.97, "lowfreq": 0,
    "highfreq": ANY, "log": True, "log_zero_guard_type": "add", "log_zero_guard_value": 2**-24, "dither": ANY,
    "pad_to": ANY, "frame_splicing": 1, "exact_pad": False, "pad_value": ANY, "mag_power": 2.0, "rng": ANY,
    "nb_augmentation_prob": ANY, "nb_max_freq": ANY, "mel_norm": "slaney", "use_torchaudio": False,
    "stft_exact_pad": False, "stft_conv": False,
}  # fmt: skip
ENCODER = {
    "feat_in": ANY, "activation": "relu", "jasper": ANY, "normalization_mode": "batch", "residual_mode": "add",
    "norm_groups": ANY, "conv_mask": ANY, "frame_splicing": 1, "init_mode": ANY, "quantize": False,
}  # fmt: skip
BLOCK = {
    "filters": ANY, "repeat": ANY, "kernel": ANY, "stride": [1], "dilation": [1], "dropout": ANY, "residual": ANY,
    "groups": 1, "separable": True, "heads": -1, "residual_mode": "add", "residual_dense": False, "se": ANY,
    "se_reduction_ratio": REDUCTION, "se_context_size": ANY, "se_interpolation_mode": ANY, "kernel_size_factor": 1.0,
    "stride_last": ANY, "future_context": -1,
}  # fmt: skip
DECODER = {
    "feat_in": ANY, "num_classes": ANY, "emb_sizes": ANY, "pool_mode": ANY, "angular": ANY, "attention_channels": 128,
    "init_mode": ANY,
}  # fmt: skip
"""Keys of the sections, and what they have to be, if they are there."""


def find_weights(path: Path) -> Path | None:
    """The file itself, by its name or because it is a tar, or the only .nemo of a folder.

    Raises:
        UserError: a folder with several.
    """
    if not path.is_dir():
        return path if is_regular(path) and (path.suffix == ".nemo" or is_tar(path)) else None
    files = sorted(file for file in path.glob("*.nemo") if is_regular(file))
    if len(files) > 1:
        raise UserError(
            f"{path}: holds several models, {list_names([file.name for file in files])}; give the file of one of them"
        )
    return files[0] if files else None


def read(weights: Path, _front_end: str | None) -> tuple[dict[str, Tensor], ModelDescription]:
    """Weights under our names, and what model_config.yaml says.

    Raises:
        UserError: damage, a network or a front end that is not known, weights that are no network's.
    """
    found = read_weights(weights)
    config = found.settings
    if not isinstance(config, Mapping):
        raise UserError(f"is no .nemo file with a {NEMO_SETTINGS}; download it again from its publisher")
    encoder = _section(config, "encoder", "ConvASREncoder", ENCODER)
    decoder = _section(config, "decoder", "SpeakerDecoder", DECODER)
    features = _features(_section(config, "preprocessor", "AudioToMelSpectrogramPreprocessor", PREPROCESSOR))
    family, model = _network(encoder, decoder, features.num_bins)
    _compare_tables(found.weights, features)
    kept = {name: value for name, value in found.weights.items() if not name.startswith((HEADS, FEATURIZER))}
    masked = encoder.get("conv_mask", True) is not False
    ours = rename_to_ours(kept, [_layout(family, masked=masked)], "NeMo")
    training = {"toolkit": "NeMo", "release": weights.name}
    last = "embedding.1.weight"
    if last in ours and ours[last].ndim == 3:  # a convolution of one frame
        ours[last] = ours[last].squeeze(-1)
    return ours, ModelDescription(complete_model(model), features, training)


def _section(config: Mapping[str, Any], name: str, target: str, known: Mapping[str, Any]) -> Mapping[str, Any]:
    section = config.get(name)
    if not isinstance(section, Mapping):
        raise UserError(f"{NEMO_SETTINGS} has no section {name}, expected the configuration of a speaker network")
    found = str(section.get("_target_")).rpartition(".")[2]
    if found != target:
        raise UserError(
            f"{NEMO_SETTINGS}: {name} is a {found:.80}, and {target} (TitaNet, SpeakerNet) alone is known here"
        )
    _check_keys(name, {key: value for key, value in section.items() if key != "_target_"}, known)
    return section


def _check_keys(name: str, section: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    for key, value in section.items():
        if key not in known:
            raise UserError(f"{NEMO_SETTINGS}: {name} has {key!r:.80}, expected no other keys than {', '.join(known)}")
        if known[key] is not ANY and (value != known[key] or isinstance(value, bool) != isinstance(known[key], bool)):
            raise UserError(f"{NEMO_SETTINGS}: {name}.{key} is {value!r:.80}, and {known[key]!r} alone is known here")


def _features(section: Mapping[str, Any]) -> FeaturesConfig:
    """The front end; what is not said is the default of the preprocessor."""
    rate = Nemo80Config.sample_rate
    window, shift = (
        _whole(f"preprocessor.n_{key}", section[f"n_{key}"])
        if section.get(f"n_{key}") is not None
        else _samples(f"preprocessor.{key}", section.get(key, seconds), rate)
        for key, seconds in (("window_size", 0.02), ("window_stride", 0.01))
    )
    fft = 1 << (window - 1).bit_length()
    for key, value, expected in (
        ("window_stride", shift / rate, 0.01),
        ("n_fft", section.get("n_fft") or fft, 512),
        ("highfreq", section.get("highfreq") or rate / 2, rate / 2),
    ):
        if value != expected:
            raise UserError(
                f"{NEMO_SETTINGS}: preprocessor.{key} is {section.get(key)!r:.80}, and {expected} alone is known here"
            )
    bins = _whole("preprocessor.features", section.get("features", 64))
    built = features_config({"backend": "nemo80", "num_bins": bins, "frame_length_ms": window * 1000 / rate})
    front_end_of(built)
    return built


def _samples(name: str, seconds: Any, rate: int) -> int:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < 10:
        raise UserError(f"{NEMO_SETTINGS}: {name} is {seconds!r:.80}, expected seconds")
    return int(seconds * rate)


def _whole(name: str, value: Any) -> int:
    if type(value) is not int or not 1 <= value <= 1_000_000:
        raise UserError(f"{NEMO_SETTINGS}: {name} is {value!r:.80}, expected a whole number of 1 or more")
    return value


def _network(encoder: Mapping[str, Any], decoder: Mapping[str, Any], bins: int) -> tuple[Family, dict[str, Any]]:
    """The family of the blocks, and the arguments of ``build_model``."""
    blocks = encoder.get("jasper")
    if not isinstance(blocks, list) or len(blocks) < 2 or not all(isinstance(block, Mapping) for block in blocks):
        raise UserError(f"{NEMO_SETTINGS}: encoder.jasper is no list of blocks")
    for index, block in enumerate(blocks):
        _check_keys(f"encoder.jasper[{index}]", block, BLOCK)
    shapes = tuple(_shape(index, block) for index, block in enumerate(blocks))
    excited = [block.get("se", False) for block in blocks]
    if odd := [value for value in excited if type(value) is not bool]:
        raise UserError(f"{NEMO_SETTINGS}: encoder.jasper.se is {odd[0]!r:.80}, expected true or false")
    widths = [_whole("encoder.jasper.filters", block.get("filters")) for block in blocks]
    found = [name for name, family in FAMILIES.items() if (family.blocks, {family.excited}) == (shapes, set(excited))]
    if not found or len(set(widths[:-1])) > 1:
        said = ", ".join(
            f"{width} of {shape.kernel_size}x{shape.repeats}" for width, shape in zip(widths, shapes, strict=True)
        )
        raise UserError(
            f"{NEMO_SETTINGS}: encoder.jasper has blocks of filters {said}, and those of TitaNet and SpeakerNet alone "
            "are known here"
        )
    name = found[0]
    mode = decoder.get("pool_mode", "xvector")
    if mode != POOLINGS[name]:
        raise UserError(
            f"{NEMO_SETTINGS}: decoder.pool_mode is {mode!r:.80}, and {POOLINGS[name]!r} alone is known here"
        )
    for key, value, expected in (
        ("encoder.feat_in", encoder.get("feat_in"), bins),
        ("decoder.feat_in", decoder.get("feat_in"), widths[-1]),
    ):
        if value != expected:
            raise UserError(f"{NEMO_SETTINGS}: {key} is {value!r:.80}, expected {expected}, as what is before it makes")
    sizes = decoder.get("emb_sizes", 256)
    if isinstance(sizes, list) and len(sizes) == 1:
        sizes = sizes[0]
    model = {
        "name": "speakernet" if name == "speakernet" else "titanet_small" if widths[0] == 256 else "titanet_large",
        "num_bins": bins,
        "embedding_dim": _whole("decoder.emb_sizes", sizes),
        "map_channels": widths[-1],
    }
    if widths[0] not in (256, 1024) if name == "titanet" else widths[0] != 512:
        model["base_width"] = widths[0]
    return FAMILIES[name], model


def _shape(index: int, block: Mapping[str, Any]) -> BlockShape:
    name = f"encoder.jasper[{index}]"
    kernel, residual = block.get("kernel"), block.get("residual")
    if not isinstance(kernel, list) or len(kernel) != 1 or type(residual) is not bool:
        raise UserError(
            f"{NEMO_SETTINGS}: {name} has kernel {kernel!r:.80} and residual {residual!r:.80}, expected "
            "a list of one number, and true or false"
        )
    return BlockShape(_whole(f"{name}.kernel", kernel[0]), _whole(f"{name}.repeat", block.get("repeat")), residual)


def _compare_tables(weights: Mapping[str, Tensor], features: FeaturesConfig) -> None:
    """Refuse a window or filters of the file that are not those of the front end which its configuration names."""
    ours = front_end_of(features).filter_bank
    for theirs, name in TABLES.items():
        given = weights.get(f"{FEATURIZER}{theirs}")
        if given is None:
            continue
        expected = getattr(ours, name)
        found = given.squeeze(0).T if theirs == "fb" and given.ndim == 3 else given
        if found.shape != expected.shape or not torch.allclose(found.float(), expected, rtol=0, atol=1e-5):
            raise UserError(
                f"{FEATURIZER}{theirs} is not that of the front end nemo80 with the sizes of {NEMO_SETTINGS}"
            )
    if odd := [name for name in weights if name.startswith(FEATURIZER) and name.removeprefix(FEATURIZER) not in TABLES]:
        raise UserError(f"{list_names(odd)} are of another front end than nemo80")


def _layout(family: Family, *, masked: bool) -> Layout:
    """``masked``: whether each convolution is in a MaskedConv1d."""
    conv = "conv." if masked else ""
    parts = []
    for index, shape in enumerate(family.blocks):
        ours, theirs = f"stages.{index}.", f"encoder.encoder.{index}."
        for unit in range(shape.repeats):
            at = f"{theirs}mconv."
            parts += [
                Part(f"{ours}units.{unit}.0.", f"{at}{5 * unit}.{conv}", "weight"),
                Part(f"{ours}units.{unit}.1.", f"{at}{5 * unit + 1}.{conv}", "weight"),
                Part(f"{ours}units.{unit}.2.", f"{at}{5 * unit + 2}.", _BATCH_NORM),
            ]
        if family.excited:
            at = f"{theirs}mconv.{5 * shape.repeats - 2}.fc."
            parts += [
                Part(f"{ours}excitation.squeeze.", f"{at}0.", "weight"),
                Part(f"{ours}excitation.excite.", f"{at}2.", "weight"),
            ]
        if shape.residual:
            parts += [
                Part(f"{ours}shortcut.0.", f"{theirs}res.0.0.{conv}", "weight"),
                Part(f"{ours}shortcut.1.", f"{theirs}res.0.1.", _BATCH_NORM),
            ]
    if family.attentive:
        attention = "decoder._pooling.attention_layer."
        parts += [
            Part("pooling.linear1.", f"{attention}0.conv_layer.", _LINEAR),
            Part("pooling.norm.", f"{attention}0.bn.", _BATCH_NORM),
            Part("pooling.linear2.", f"{attention}2.", _LINEAR),
            Part("embedding.0.", "decoder.emb_layers.0.0.", _BATCH_NORM),
            Part("embedding.1.", "decoder.emb_layers.0.1.", _LINEAR),
        ]
    else:
        parts += [
            Part("embedding.0.", "decoder.emb_layers.0.0.", _LINEAR),
            Part("embedding.1.", "decoder.emb_layers.0.1.", _STATISTICS),
        ]
    name = "TitaNet" if family.attentive else "SpeakerNet"
    return Layout(name, "encoder.encoder, decoder._pooling and decoder.emb_layers", tuple(parts))
