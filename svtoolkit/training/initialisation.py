"""Weights that a new run begins with: of a released model, and of the head of the run that made it."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml
from torch import Tensor, nn

from svtoolkit.checkpoints.full_state import load_latest_state
from svtoolkit.checkpoints.released import DESCRIPTION, read_released
from svtoolkit.config import TrainConfig
from svtoolkit.data.training_set import TrainingSet
from svtoolkit.errors import UserError
from svtoolkit.losses.sharded import ShardedHead
from svtoolkit.training.exp_dir import CHECKPOINTS, CONFIG

log = logging.getLogger(__name__)

HEADS = ("new", "keep", "cut")

IRRELEVANT = ("backend",)
"""Of the features: how they are computed, not what they are."""


@dataclass(frozen=True)
class Start:
    """What a run begins with.

    Attributes:
        network: weights of the whole network.
        head: weights of the classification head; None: new ones.
    """

    network: dict[str, Tensor]
    head: dict[str, Tensor] | None

    @property
    def num_classes(self) -> int | None:
        """Of the head; None where it is new."""
        return None if self.head is None else len(self.head["weight"])

    def put_into(self, network: nn.Module, head: nn.Module) -> None:
        """Give both their weights.

        Raises:
            UserError: the head is of another loss.
        """
        network.load_state_dict(self.network)
        if self.head is None:
            return
        try:
            head.load_state_dict(self.head)
        except RuntimeError as error:
            raise UserError(
                f"the head of init_from does not fit loss={_name_of(head)} "
                f"({' '.join(str(error).split())[:200]}); choose the loss of that run, or init_head=new"
            ) from error


def _name_of(head: nn.Module) -> str:
    whole = head.local if isinstance(head, ShardedHead) else head
    return type(whole).__name__.removesuffix("Head").lower()


def speakers_digest(training_set: TrainingSet) -> str:
    """Of the speakers that the classes of a head stand for, in their order."""
    return hashlib.sha256("\n".join(training_set.speakers).encode()).hexdigest()


def read_start(config: TrainConfig, training_set: TrainingSet) -> Start | None:
    """Read what ``init_from`` and ``init_head`` ask for; None where they ask for nothing.

    Raises:
        UserError: an unknown word, a model that is not there, or one of another network, other features or speakers.
    """
    if config.init_head not in HEADS:
        raise UserError(f"init_head is {config.init_head!r}, expected one of {', '.join(HEADS)}")
    if config.init_from is None:
        if config.init_head != "new":
            raise UserError(f"init_head is {config.init_head}, but init_from is null; say which run it is of")
        return None
    origin = Path(config.init_from)
    is_run = (origin / CONFIG).is_file()
    if config.init_head != "new" and not is_run:
        raise UserError(
            f"{origin}: init_head={config.init_head} needs the exp_dir of a run, whose state has the head; "
            "found a released model, which has none: give that folder, or init_head=new"
        )
    weights = _read_network(config, origin, is_run)
    head = None if config.init_head == "new" else _read_head(config, training_set, origin)
    log.info(
        "begins with the weights of %s, %s head",
        origin,
        {"new": "a new", "keep": "its", "cut": "its cut"}[config.init_head],
    )
    return Start(weights, head)


def _read_network(config: TrainConfig, origin: Path, is_run: bool) -> dict[str, Tensor]:
    folder = origin / "model" if is_run else origin
    if not (folder / DESCRIPTION).is_file():
        what = "svt average makes it of the run" if is_run else "expected a released model or the exp_dir of a run"
        raise UserError(f"{folder / DESCRIPTION}: there is no such file; {what}; correct init_from")
    network, description = read_released(folder)
    wanted = {"num_bins": config.features.num_bins, **asdict(config.model)}
    _refuse_differences(folder, "model", description.model, wanted)
    _refuse_differences(folder, "features", asdict(description.features), asdict(config.features))
    return dict(network.state_dict())


def _refuse_differences(folder: Path, section: str, found: dict[str, Any], wanted: dict[str, Any]) -> None:
    differing = [key for key in sorted(found.keys() | wanted.keys()) if found.get(key) != wanted.get(key)]
    differing = [key for key in differing if key not in IRRELEVANT]
    if differing:
        listed = ", ".join(
            f"{section}.{key} is {found.get(key)!r} there and {wanted.get(key)!r} here" for key in differing
        )
        raise UserError(
            f"{folder / DESCRIPTION}: {listed}; a run goes on with the network and the features it began with"
        )


def _read_head(config: TrainConfig, training_set: TrainingSet, origin: Path) -> dict[str, Tensor]:
    """The head of the run's newest state, all of it or the classes of speed 1."""
    found = load_latest_state(origin / CHECKPOINTS)
    if found is None:
        raise UserError(f"{origin / CHECKPOINTS}: holds no state of the run; use init_head=new")
    state = found[1]
    if state["facts"].get("speakers") != speakers_digest(training_set):
        raise UserError(
            f"{origin}: its head is of other training speakers than data.train={config.data.train} "
            f"with validation.speakers={config.validation.speakers} and seed={config.seed}; "
            "give the same, or use init_head=new"
        )
    trained = [
        float(speed) for speed in yaml.safe_load((origin / CONFIG).read_text(encoding="utf-8"))["data"]["speeds"]
    ]
    speeds, speakers = [float(speed) for speed in config.data.speeds], len(training_set.speakers)
    if config.init_head == "keep":
        if speeds != trained[: len(speeds)]:
            raise UserError(
                f"data.speeds is {speeds}, and the head of {origin} was trained at {trained}; "
                "init_head=keep needs the same, or the first of them"
            )
        return dict(state["head"])
    if speeds != [1.0] or 1.0 not in trained:
        raise UserError(
            f"data.speeds is {speeds}, and the head of {origin} was trained at {trained}; "
            "init_head=cut keeps the classes of speed 1 alone: set data.speeds=[1.0]"
        )
    first = trained.index(1.0) * speakers
    return {name: tensor[first : first + speakers].clone() for name, tensor in state["head"].items()}
