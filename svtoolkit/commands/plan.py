"""svt plan: the ways to train a network that fit a card, the quickest first, as words of `svt train`."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from svtoolkit.composition.groups import GROUPS
from svtoolkit.composition.train_words import words_of_run, words_of_step
from svtoolkit.config import MemoryPredictionConfig, OptimConfig, PlanConfig
from svtoolkit.errors import UserError
from svtoolkit.planning.cards import GIB, Card, card_here, find_card
from svtoolkit.planning.network_plans import FittingNetwork, fitting_networks
from svtoolkit.planning.profiles import strategies_tried
from svtoolkit.planning.published_eers import SOURCE
from svtoolkit.planning.training_plan import Plan, Way, plan_training
from svtoolkit.system.progress import show_progress

ALL = "all"
"""The option of model=... that is no network."""

BAR_DELAY = 2.0
"""Seconds before a progress bar is shown."""

ROW = "{:>5}  {:>8}  {:>11}  {}"


def run(config: PlanConfig, command_line: str) -> int:
    """Print the table or the data.

    Raises:
        UserError: a setting out of range, a card that is not known, or nothing fits.
    """
    _check(config)
    card = card_here(config.gib) if config.gpu is None else find_card(config.gpu, config.gib)
    if config.model.name == ALL:
        networks = fitting_networks(config, card)
        print(_all_as_json(card, networks) if config.format == "json" else _all_as_table(card, networks))
        return 0
    plan = _plan(config, card)
    if not plan.ways:
        raise UserError(_what_would(config, plan))
    print(_as_json(config, plan) if config.format == "json" else _as_table(config, plan))
    return 0


def _all_as_table(card: Card, networks: list[FittingNetwork]) -> str:
    width = max(len(each.name) for each in networks)
    row = f"{{:<{width}}}  {{:>6}}  {{:<10}}  {{:>11}}  {{:>8}}  {{:>9}}".format
    lines = [
        row(
            each.name,
            each.layers or "-",
            each.strategy,
            each.micro_batch or "-",
            f"{each.peak_bytes / GIB:.2f}",
            "-" if each.eer is None else f"{each.eer:.2f}",
        )
        for each in networks
    ]
    return "\n".join(
        [
            row("network", "layers", "strategy", "micro-batch", "peak/GiB", "Vox1-O/%"),
            *lines,
            "",
            *_highlights(card, networks),
            "micro-batch: in fp32 with SGD, activations stored or, in reversible networks, recomputed; -: not one crop "
            f"fits so. `svt plan model=resnet34` has all ways of a network. Error rates: {SOURCE}",
        ]
    )


def _highlights(card: Card, networks: list[FittingNetwork]) -> list[str]:
    fitting = [each for each in networks if each.micro_batch]
    deep = [each for each in fitting if each.layers]
    published = [each for each in fitting if each.eer is not None]
    found = []
    if deep:
        deepest = max(deep, key=lambda each: each.layers or 0)
        found.append(f"the deepest that fits {card.title}: {deepest.name}, {deepest.layers} layers")
    if published:
        best = min(published, key=lambda each: each.eer or 0.0)
        found.append(f"the strongest published that fits: {best.name}, EER {best.eer:.2f} % on Vox1-O")
    return found or [f"no network fits {card.title} so"]


def _all_as_json(card: Card, networks: list[FittingNetwork]) -> str:
    return json.dumps({"gpu": card.title, "gib": card.gib, "networks": [asdict(each) for each in networks]}, indent=2)


def _check(config: PlanConfig) -> None:
    for key in ("gpus", "effective_batch", "frames", "num_classes", "num_bins"):
        if getattr(config, key) < 1:
            raise UserError(f"{key} is {getattr(config, key)}, expected 1 or more")
    if config.top < 0:
        raise UserError(f"top is {config.top}, expected 0, which shows all, or more")
    if config.effective_batch % config.gpus:
        raise UserError(
            f"effective_batch is {config.effective_batch}, which {config.gpus} cards cannot share; expected a multiple "
            "of gpus"
        )
    if config.format not in ("table", "json"):
        raise UserError(f"format is {config.format!r}, expected table or json")
    if config.model.name == ALL and config.distillation.model is not None:
        raise UserError("model=all answers from figures stored without a larger network; leave distillation.model out")
    if not config.optims:
        raise UserError("optims is empty, expected at least one optimizer, as optims=[sgd]")
    if config.loss.shard and config.gpus == 1:
        raise UserError(
            "loss.shard=true needs several cards to divide the classes among, and gpus is 1; set gpus=2 or more"
        )


def _plan(config: PlanConfig, card: Card) -> Plan:
    question = MemoryPredictionConfig(
        frames=config.frames, num_bins=config.num_bins, num_classes=config.num_classes, devices=config.gpus,
        ema=config.ema, device="cpu", model=config.model, loss=config.loss, distillation=config.distillation,
    )  # fmt: skip
    optims = [_optim(name) for name in config.optims]
    steps = len(strategies_tried()) * len({*card.precisions, "fp32"}) + len(optims)
    with show_progress("plan", steps, "profile", leave=False, delay=BAR_DELAY) as progress:
        return plan_training(
            question, card, config.effective_batch // config.gpus, optims=optims, progress=progress.update
        )


def _optim(name: str) -> OptimConfig:
    try:
        settings = GROUPS["optim"][name].settings
    except KeyError:
        raise UserError(f"optims names {name!r}, expected some of {', '.join(GROUPS['optim'])}") from None
    assert isinstance(settings, OptimConfig)
    return settings


def _as_table(config: PlanConfig, plan: Plan) -> str:
    shown = plan.ways[: config.top or None]
    best = plan.ways[0]
    parts = ", ".join(f"{kind} {size / GIB:.2f}" for kind, size in best.peak.items())
    return "\n".join(
        [
            f"{config.model.name} on {_cards(config, plan.card)}: {len(plan.ways)} of {plan.tried} ways fit",
            "",
            f"svt train {' '.join(_common_words(config))} and one line:",
            "",
            ROW.format("time", "peak/GiB", "micro-batch", "overrides"),
            *(
                ROW.format(f"{way.relative:.2f}", f"{way.peak_bytes / GIB:.2f}", way.micro_batch, " ".join(_words(way)))
                for way in shown
            ),
            "",
            f"time: predicted, of stored activations in fp32 if all {config.effective_batch // config.gpus} crops "
            "fitted; gradients of stash8 are slightly off, those of all others exact",
            f"peak of the first, GiB: {parts}",
        ]
    )


def _as_json(config: PlanConfig, plan: Plan) -> str:
    facts: dict[str, Any] = {
        "model": config.model.name,
        "gpu": plan.card.title,
        "gib": plan.card.gib,
        "gpus": config.gpus,
        "effective_batch": config.effective_batch,
        "frames": config.frames,
        "num_classes": config.num_classes,
        "tried": plan.tried,
        "fitting": len(plan.ways),
        "ways": [
            {
                "overrides": [*_common_words(config), *_words(way)],
                "memory": asdict(way.memory),
                "precision": way.precision,
                "optim": way.optim.name,
                "micro_batch": way.micro_batch,
                "peak_bytes": way.peak_bytes,
                "peak": way.peak,
                "seconds": way.seconds,
                "relative_time": way.relative,
            }
            for way in plan.ways[: config.top or None]
        ],
    }
    return json.dumps(facts, indent=2)


def _cards(config: PlanConfig, card: Card) -> str:
    several = f"{config.gpus} x " if config.gpus > 1 else ""
    return f"{several}{card.title} ({card.gib:g} GiB)"


def _common_words(config: PlanConfig) -> list[str]:
    """What all ways have in common."""
    return words_of_run(
        config.model, config.loss, batch_size=config.effective_batch, frames=config.frames, num_bins=config.num_bins,
        devices=config.gpus, ema=config.ema, distillation=config.distillation,
    )  # fmt: skip


def _words(way: Way) -> list[str]:
    return words_of_step(way.memory, way.precision, way.optim, way.micro_batch)


def _what_would(config: PlanConfig, plan: Plan) -> str:
    """The sentence where nothing fits."""
    least, other = plan.least, plan.card_that_holds
    larger = f"{other.title} holds that (gpu={other.key})" if other else "no card of the table holds that"
    return (
        f"{config.model.name} does not fit {plan.card.title} in any of {plan.tried} ways: the least is "
        f"{least.peak_bytes / GIB:.2f} GiB of {plan.card.gib:g}, by {' '.join(_words(least))}; {larger}; else take "
        "fewer frames, or another network (`svt plan model=all` lists those that fit)"
    )
