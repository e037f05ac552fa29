"""Training in two stages: full rank under a penalty, then low rank from the truncated SVD (Kliegl et al. 2017).

The transition is a resumption: stage one ends with a full state, and stage two resumes from it with smaller matrices.
So a run that is stopped anywhere comes to the same numbers. Carried over are steps, learning rate, random numbers,
weights, and the optimizer's state of all parameters that stay what they are. Factors are new parameters, whose
optimizer state begins anew.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from svtoolkit.compression.factors import ranks_of, weight_of, with_ranks
from svtoolkit.compression.layers import LowRank, find_layers
from svtoolkit.compression.penalty import Penalty
from svtoolkit.compression.spectrum import Spectrum, choose_ranks
from svtoolkit.config import TrainConfig, TwoStageConfig
from svtoolkit.errors import UserError
from svtoolkit.losses import ClassificationHead, Head, build_pairwise
from svtoolkit.losses.low_rank import head_with_rank, rows_of
from svtoolkit.planning.assembly import build_network, build_whole_head, optimizer_of
from svtoolkit.training.carried_state import carry_over
from svtoolkit.training.initialisation import Start
from svtoolkit.training.run_state import EMA, UnfitStateError
from svtoolkit.training.stage_settings import CLASS_HEAD, VARIANCE, transition_of

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Stage:
    """Where a run in two stages is.

    Attributes:
        number: 1 or 2.
        layers: that get a low rank, by name; ``CLASS_HEAD`` may be among them.
        strength: of the penalty of stage one.
        ends_at: step after which stage two begins; None: the run ends with this stage.
    """

    number: int
    layers: tuple[str, ...]
    strength: float
    ends_at: int | None

    def undecayed(self, network: nn.Module, head: Head) -> list[nn.Parameter]:
        """Parameters without weight decay: factors, and in stage one whole matrices under the penalty."""
        found: list[nn.Parameter] = []
        for name in self.layers:
            layer = head if name == CLASS_HEAD else network.get_submodule(name)
            if isinstance(layer, LowRank):
                found += layer.factors
            elif isinstance(layer, ClassificationHead) and layer.projection is not None:
                found += [layer.weight, layer.projection]
            elif self.number == 1:
                found.append(layer.weight)  # type: ignore[arg-type]  # Linear, Conv1d, Conv2d or ClassificationHead
        return [parameter for parameter in found if parameter.requires_grad]

    def penalty(self, network: nn.Module, head: Head) -> Penalty | None:
        """Of stage one; None where there is none."""
        if self.number != 1 or self.strength == 0:
            return None
        return Penalty(self.undecayed(network, head), self.strength)

    @torch.no_grad()
    def figures(self, network: nn.Module, head: Head) -> dict[str, float]:
        """What the history tells of an epoch: the stage, the parameters of the network, and nu of each layer."""
        nu = {}
        for name in self.layers:
            if name == CLASS_HEAD:
                assert isinstance(head, ClassificationHead)
                weight = rows_of(head.class_weights)
            else:
                weight = network.get_submodule(name).weight  # type: ignore[assignment]  # of LowRank, too
            nu[f"nu.{name}"] = Spectrum.of(weight).trace_norm_coefficient
        parameters = sum(parameter.numel() for parameter in network.parameters())
        return {"stage": self.number, "network_parameters": parameters, **nu}


def enter_stage(
    config: TrainConfig, state: dict[str, Any] | None, *, num_classes: int, steps_per_epoch: int
) -> tuple[TrainConfig, dict[str, Any] | None, Stage | None]:
    """The stage that a run is in, with its configuration and state.

    Args:
        config: of the whole run.
        state: that the run resumes from; None: it begins.
        num_classes: of the head.

    Returns:
        the configuration with the ranks of the stage; the state, truncated where stage two begins with it; the stage,
        None of a run in one.

    Raises:
        UserError: layers that are not there, a budget that is too small.
    """
    compress = config.compress
    if not isinstance(compress, TwoStageConfig):
        return config, state, None
    epochs = transition_of(config)
    ends_at = None if epochs == config.trainer.epochs else epochs * steps_per_epoch
    with torch.device("meta"):
        network, head = build_network(config.model, config.features.num_bins), _head(config, num_classes)
    shapes = _shapes(compress, network, head)
    full = {name: min(shape) for name, shape in shapes.items()} if compress.name == "trace_norm" else {}
    first = Stage(1, tuple(shapes), compress.strength, ends_at)
    of_first = _with_ranks(config, full)
    done = 0 if state is None else state["facts"]["finished_steps"]
    if state is None or ends_at is None or done < ends_at:
        return of_first, state, first
    second = Stage(2, tuple(shapes), 0.0, None)
    if done > ends_at:
        return _with_ranks(config, _ranks_of(state)), state, second
    truncated = _truncate(state, compress, second.layers, sum(each.numel() for each in network.parameters()))
    of_second = _with_ranks(config, _ranks_of(truncated))
    before, _ = _groups(of_first, first, num_classes)
    carried = carry_over(state["optimizer"], before, *_groups(of_second, second, num_classes))
    return of_second, {**truncated, "optimizer": carried}, second


def new_weights(config: TrainConfig, num_classes: int) -> Start:
    """Weights of whole matrices, which a run begins with that has no others."""
    whole = _with_ranks(config, {})
    network = build_network(whole.model, config.features.num_bins)
    return Start(network.state_dict(), _head(whole, num_classes).state_dict())


def factored(start: Start, config: TrainConfig) -> Start:
    """The same weights with the ranks of a stage."""
    head = None if start.head is None else head_with_rank(start.head, config.loss.rank)
    return replace(start, network=with_ranks(start.network, config.model.ranks), head=head)


def _head(config: TrainConfig, num_classes: int) -> ClassificationHead:
    return build_whole_head(config.loss, config.model.embedding_dim, num_classes)


def _shapes(compress: TwoStageConfig, network: nn.Module, head: ClassificationHead) -> dict[str, torch.Size]:
    """Of the matrices that may get a low rank, by the name of their layer.

    Raises:
        UserError: there are none.
    """
    patterns = [pattern for pattern in compress.layers if pattern != CLASS_HEAD]
    found: dict[str, torch.Size] = {}
    if patterns or not compress.layers:
        try:
            layers = find_layers(network, patterns, min_values=compress.min_values)
        except UserError as error:
            raise UserError(f"compress.{error}") from error
        found = {name: layer.weight.flatten(1).shape for name, layer in layers.items()}
    matrix = rows_of(head.weight).shape
    if CLASS_HEAD in compress.layers and min(matrix) > 1:
        found[CLASS_HEAD] = matrix
    if not found:
        raise UserError(
            f"compress.layers={compress.layers}: no such layer has a matrix of compress.min_values="
            f"{compress.min_values} values or more; lower it, or name other layers"
        )
    return found


def _with_ranks(config: TrainConfig, ranks: Mapping[str, int]) -> TrainConfig:
    of_network = {name: rank for name, rank in ranks.items() if name != CLASS_HEAD}
    return replace(
        config,
        model=replace(config.model, ranks=of_network),
        loss=replace(config.loss, rank=ranks.get(CLASS_HEAD)),
    )


def _ranks_of(state: Mapping[str, Any]) -> dict[str, int]:
    projection = state["head"].get("projection")
    return ranks_of(state["network"]) | ({} if projection is None else {CLASS_HEAD: len(projection)})


def _truncate(state: dict[str, Any], compress: TwoStageConfig, layers: tuple[str, ...], total: int) -> dict[str, Any]:
    """The state of stage one with the weights that stage two begins with.

    Args:
        total: parameters of the network with whole layers.
    """
    weights = {name: _weight(state, name) for name in layers}
    if bad := [name for name, weight in weights.items() if not weight.isfinite().all()]:
        raise UnfitStateError(f"the saved state has weights of {bad[0]} that are NaN or infinite; use another exp_dir")
    spectra = {name: Spectrum.of(weight) for name, weight in weights.items()}
    budgeted = {name: spectrum for name, spectrum in spectra.items() if name != CLASS_HEAD}
    variance = compress.variance
    if variance is None and compress.parameters is None:
        variance = VARIANCE
    try:
        ranks, variance = choose_ranks(budgeted, variance=variance, parameters=compress.parameters, total=total)
    except UserError as error:
        raise UserError(f"compress.{error}") from error
    ranks |= choose_ranks({name: spectra[name] for name in layers if name == CLASS_HEAD}, variance=variance)[0]
    for name, spectrum in spectra.items():
        rank = ranks.get(name)
        kept, lost = (spectrum.size, 0.0) if rank is None else (spectrum.kept(rank), spectrum.error(rank))
        log.info(
            "%s (%d x %d): %s, nu %.3f, %d of %d parameters, relative error %.3f",
            name, spectrum.rows, spectrum.columns, "whole" if rank is None else f"rank {rank}",
            spectrum.trace_norm_coefficient, kept, spectrum.size, lost,
        )  # fmt: skip
    network = with_ranks(state["network"], {name: rank for name, rank in ranks.items() if name != CLASS_HEAD})
    state = {part: each for part, each in state.items() if part != EMA}  # of whole layers: begins anew
    log.info("stage two begins after step %d", state["facts"]["finished_steps"])
    return {**state, "network": network, "head": head_with_rank(state["head"], ranks.get(CLASS_HEAD))}


def _weight(state: Mapping[str, Any], name: str) -> Tensor:
    if name == CLASS_HEAD:
        return rows_of(head_with_rank(state["head"], None)["weight"])
    return weight_of(state["network"], name)


def _groups(
    config: TrainConfig, stage: Stage, num_classes: int
) -> tuple[list[list[tuple[str, torch.Size]]], list[dict[str, Any]]]:
    """Name and shape of the parameters of the optimizer, group by group, and the settings of each group."""
    with torch.device("meta"):
        network, head = build_network(config.model, config.features.num_bins), _head(config, num_classes)
        pairwise = build_pairwise(config.pairwise)
        groups = optimizer_of(network, head, config.optim, stage.undecayed(network, head), pairwise).param_groups
    names = {
        id(parameter): (f"{part}.{name}", parameter.shape)
        for part, module in (("network", network), ("pairwise", pairwise), ("head", head))
        for name, parameter in (module.named_parameters() if module is not None else ())
    }
    settings = [{key: value for key, value in group.items() if key != "params"} for group in groups]
    return [[names[id(parameter)] for parameter in group["params"]] for group in groups], settings
