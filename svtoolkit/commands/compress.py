"""svt compress: a released model with layers of low rank, cut without training, and what each layer loses."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from svtoolkit.checkpoints.released import ModelDescription, write_released
from svtoolkit.checkpoints.releases import pinned, read_release
from svtoolkit.compression.factors import truncated, with_ranks
from svtoolkit.compression.layers import find_layers
from svtoolkit.compression.outputs import check_outputs, cut_weights, outputs_of
from svtoolkit.compression.sensitivity import CutWeights, Measure, cut_layers, mean_cosine, table_lines
from svtoolkit.compression.spectrum import Spectrum, choose_ranks
from svtoolkit.config import CompressModelConfig
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.data.trials import read_trials
from svtoolkit.data.validation import find_trials
from svtoolkit.deploy.recordings import evenly
from svtoolkit.device import choose_device
from svtoolkit.errors import UserError
from svtoolkit.models import build_model
from svtoolkit.models.front_ends import front_end_of
from svtoolkit.scoring.extraction import EmbeddingExtractor
from svtoolkit.scoring.trial_eer import trial_eer
from svtoolkit.system.atomic import atomic_folder, atomic_write
from svtoolkit.system.output import say_next

log = logging.getLogger(__name__)

VARIANCE = 0.9
TABLE = "sensitivity.json"


def run(config: CompressModelConfig, _command_line: str) -> int:
    """Choose ranks, measure, and write the model, whole or not at all."""
    out = Path(config.out)
    if out.exists() or out.is_symlink():
        raise UserError(f"{out}: is there already; choose another folder with out=DIR, or remove it")
    _check(config)
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    model = pinned(config.model)
    released, description = read_release(model, front_end=config.front_end)
    whole = {key: value for key, value in description.model.items() if key != "ranks"}
    network = build_model(**whole)
    network.load_state_dict(with_ranks(released.state_dict(), {}))
    layers = find_layers(network, config.layers, min_values=config.min_values)
    if not layers:
        raise UserError(
            f"{config.model}: {description.model['name']} has no such layer with a matrix of min_values="
            f"{config.min_values} values or more; lower it, or name other layers"
        )
    spectra, cut = _components(config, network, layers, description)
    total = sum(parameter.numel() for parameter in network.parameters())
    ranks = _ranks(config, spectra, total)
    small = build_model(**whole, ranks=ranks).eval()
    small.load_state_dict(with_ranks(cut(network.state_dict(), ranks), ranks))
    measure = measure_of(config, network, description)
    before = None if measure is None else measure()
    cuts = list(cut_layers(network.eval(), spectra, ranks, cut, before, measure))
    for line in table_lines(cuts):
        log.info("%s", line)
    kept = sum(parameter.numel() for parameter in small.parameters())
    content = {"parameters": total, "kept": kept, "layers": [asdict(cut) for cut in cuts]}
    measure_small = measure_of(config, small, description)
    if before is not None and measure_small is not None:
        (eer, vectors), (cut_eer, small_vectors) = before, measure_small()
        content |= {"eer": eer, "eer_compressed": cut_eer, "cosine": mean_cosine(vectors, small_vectors)}
        rates = "" if eer is None or cut_eer is None else f"EER {100 * eer:.3f} % -> {100 * cut_eer:.3f} %, "
        log.info("all of them: %scosine %.4f", rates, content["cosine"])
    training = {**description.training, "compressed_from": model}
    described = replace(
        description, model={**whole, "ranks": ranks}, training=training, verification={}, weights_sha256=None
    )
    with atomic_folder(out) as folder:
        write_released(folder, small.state_dict(), described)
        with atomic_write(folder / TABLE) as stream:
            stream.write(json.dumps(content, indent=1) + "\n")
    log.info(
        "%.2f M parameters -> %.2f M, %.2f times fewer; a threshold is left out: %s",
        total / 1e6, kept / 1e6, total / kept, out,
    )  # fmt: skip
    say_next("svt", "train", "--init-from", str(out), "--data.train", "TRAIN_DIR", "--exp-dir", "EXP_DIR")
    return 0


def _components(
    config: CompressModelConfig, network: nn.Module, layers: dict[str, Any], description: ModelDescription
) -> tuple[dict[str, Spectrum], CutWeights]:
    """Of each layer what a rank keeps, and what cuts to it: of the weights, or of what they make of recordings.

    Raises:
        UserError: recordings that are missing, or of which a layer makes nothing.
    """
    if config.calibration is None:
        return {name: Spectrum.of(layer.weight) for name, layer in layers.items()}, truncated
    utterances = KaldiDir.read(config.calibration, config.root).utterances()
    chosen = evenly(utterances, config.calibration_utterances)
    device = choose_device(config.device)
    # one at a time: what is added to make utterances as long as others is no speech
    extractor = EmbeddingExtractor(network.eval(), front_end_of(description.features), device, batch_size=1, threads=0)
    with outputs_of(layers) as found:
        failures = extractor.extract(chosen).failures
    if failures:
        raise UserError(
            f"{config.calibration}: {len(failures)} of {len(chosen)} recordings have no embedding, the first because: "
            f"{next(iter(failures.values()))}; correct the directory, or leave it out"
        )
    check_outputs(found)
    network.cpu()
    return {name: outputs.spectrum for name, outputs in found.items()}, partial(cut_weights, found=found)


def measure_of(config: CompressModelConfig, network: nn.Module, description: ModelDescription) -> Measure | None:
    """What embeds the data with a network; None without data.

    Raises:
        UserError: trials of other utterances, or none.
    """
    if config.data is None:
        return None
    kaldi_dir = KaldiDir.read(config.data, config.root)
    lists = [Path(config.trials)] if config.trials is not None else find_trials(config.data)[:1]
    trials = read_trials(lists[0]) if lists else None
    extractor = EmbeddingExtractor(network, front_end_of(description.features), choose_device(config.device))
    utterances = kaldi_dir.utterances()
    return lambda: trial_eer(extractor, utterances, trials)


def _check(config: CompressModelConfig) -> None:
    given = [key for key in ("variance", "parameters", "rank") if getattr(config, key) is not None]
    if len(given) > 1:
        raise UserError(f"{' and '.join(given)} are given; expected one of variance, parameters and rank")
    if config.variance is not None and not 0 < config.variance <= 1:
        raise UserError(f"variance is {config.variance}, expected a share above 0, at most 1")
    if config.parameters is not None and not config.parameters > 0:
        raise UserError(f"parameters is {config.parameters}, expected a number above 0")
    if config.rank is not None and config.rank < 1:
        raise UserError(f"rank is {config.rank}, expected 1 or more")
    if config.threads is not None and config.threads < 1:
        raise UserError(f"threads is {config.threads}, expected 1 or more, or null")
    if config.trials is not None and config.data is None:
        raise UserError("trials is given, and data is null; say where the utterances are")
    if config.calibration_utterances < 1:
        raise UserError(f"calibration_utterances is {config.calibration_utterances}, expected 1 or more")


def _ranks(config: CompressModelConfig, spectra: dict[str, Spectrum], total: int) -> dict[str, int]:
    """Of the layers that become smaller.

    Raises:
        UserError: no layer does, or a budget is too small.
    """
    if config.rank is not None:
        ranks = {name: config.rank for name, spectrum in spectra.items() if spectrum.saves(config.rank)}
    else:
        variance = VARIANCE if config.parameters is None and config.variance is None else config.variance
        ranks, _ = choose_ranks(spectra, variance=variance, parameters=config.parameters, total=total)
    if not ranks:
        raise UserError(
            f"{config.model}: no layer would become smaller; lower variance, parameters or rank, or train with "
            "compress=trace_norm"
        )
    return ranks
