"""Weights that a new run is initialised from: of a released model, and of the head of the run that made it."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from svtoolkit.checkpoints.kinds import RUN
from svtoolkit.checkpoints.released import DESCRIPTION
from svtoolkit.checkpoints.releases import Release, find_release, read_release
from svtoolkit.config import TrainConfig
from svtoolkit.crops.training_set import TrainingSet
from svtoolkit.errors import UserError
from svtoolkit.losses import Head
from svtoolkit.losses.low_rank import head_with_rank
from svtoolkit.models.build import complete_model
from svtoolkit.models.front_ends import KALDI
from svtoolkit.models.registry import check_trainable
from svtoolkit.runs.exp_dir import CHECKPOINTS, CONFIG
from svtoolkit.runs.full_state import load_latest_state
from svtoolkit.system.plain_data import read_yaml
from svtoolkit.system.regular_file import is_regular
from svtoolkit.training.run_state import check_state

log = logging.getLogger(__name__)

HEADS = {
    "new": "new",
    "keep": "its own, all classes",
    "original_speakers": "its own, the classes of speed 1 and no warp",
}
"""Values of ``init_head``, and what the log calls them."""

FACTORS = ("speeds", "warps")
"""Keys of data that make classes of the speakers."""

ORIGINAL = (1.0, 1.0)
"""Speed and warp of the speakers as they are."""

OF_TRAINING = ("dropout", "freeze_encoder")
"""How settings of a network end that change no embedding: a new run may have others than the model that it is of."""


@dataclass(frozen=True)
class Start:
    """What a run is initialised from.

    Attributes:
        network: weights of the whole network.
        head: weights of the classification head; None: new ones.
        speakers: digest of those that its classes stand for.
        variants: speed and warp that they were trained at, in the order of its classes.
    """

    network: dict[str, Tensor]
    head: dict[str, Tensor] | None
    speakers: str | None = None
    variants: tuple[tuple[float, float], ...] = ()

    @property
    def num_classes(self) -> int | None:
        """Of the head; None where it is new."""
        return None if self.head is None else len(self.head["weight"])

    def put_into(self, network: nn.Module, head: Head) -> None:
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
                f"the head of init_from does not fit loss={head.loss_name} "
                f"({' '.join(str(error).split())[:200]}); choose the loss of that run, or init_head=new"
            ) from error


def speakers_digest(training_set: TrainingSet) -> str:
    """Of the speakers that the classes of a head stand for, in their order."""
    return hashlib.sha256("\n".join(training_set.speakers).encode()).hexdigest()


def read_start(config: TrainConfig) -> Start | None:
    """Read what ``init_from`` and ``init_head`` ask for, a head with all its classes; None where they ask for nothing.

    It needs no data, so that what is wrong is said before they are read.

    Raises:
        UserError: an unknown word, no such model, or one of another network, other features, speeds or warps.
    """
    if config.init_head not in HEADS:
        raise UserError(f"init_head is {config.init_head!r}, expected one of {', '.join(HEADS)}")
    if config.init_from is None:
        if config.init_head != "new":
            raise UserError(f"init_head is {config.init_head}, but init_from is null; say which run it is of")
        if config.front_end is not None:
            raise UserError(
                f"front_end is {config.front_end!r}, but init_from is null; say which release it is of, or choose "
                "features=... instead"
            )
        return None
    release = find_release(config.init_from)
    origin = Path(config.init_from)
    is_run = is_regular(origin / CONFIG) and (release is None or release.kind is RUN)
    if config.init_head != "new" and not is_run:
        raise UserError(
            f"{config.init_from}: init_head={config.init_head} needs the exp_dir of a run, whose state has the head; "
            "found a released model, which has none: name that folder, or use init_head=new"
        )
    from_hub = None if release is None else release.origin
    start = Start(_read_network(config, from_hub or origin, release, is_run), None)
    if config.init_head != "new":
        start = _with_head(start, config, origin)
    log.info("initialised from %s; head: %s", from_hub or origin, HEADS[config.init_head])
    return start


def choose_classes(start: Start, config: TrainConfig, training_set: TrainingSet) -> Start:
    """The same with the classes that ``init_head`` asks for.

    Raises:
        UserError: the head is of other training speakers.
    """
    if start.head is None:
        return start
    origin = Path(str(config.init_from))
    if start.speakers != speakers_digest(training_set):
        held_out = config.validation.speakers
        raise UserError(
            f"{origin}: its head is of other training speakers than data.train={config.data.train} "
            f"with validation.speakers={'null' if held_out is None else held_out} and seed={config.seed}; "
            "give the same, or use init_head=new"
        )
    head = start.head
    if config.init_head != "keep":
        speakers = len(training_set.speakers)
        first = start.variants.index(ORIGINAL) * speakers
        head = {name: rows[first : first + speakers].clone() for name, rows in head.items()}
    return replace(start, head=head_with_rank(head, config.loss.rank))


def _read_network(config: TrainConfig, origin: str | Path, release: Release | None, is_run: bool) -> dict[str, Tensor]:
    if release is None:
        folder = Path(origin, "model") if is_run else Path(origin)
        what = "svt average makes it of the run" if is_run else "expected a released model or the exp_dir of a run"
        raise UserError(f"{folder / DESCRIPTION}: there is no such file; {what}; correct init_from")
    network, description = read_release(origin, front_end=config.front_end)
    check_trainable(description.model["name"], release.source)
    wanted = {"num_bins": config.features.num_bins, **asdict(config.model)}
    _check_same(release.source, "model", complete_model(description.model), wanted)
    _check_same(release.source, "features", asdict(description.features), asdict(config.features))
    return dict(network.state_dict())


def _check_same(file: Path, section: str, found: dict[str, Any], wanted: dict[str, Any]) -> None:
    found, wanted = _flat(found), _flat(wanted)
    differing = [key for key in sorted(found.keys() | wanted.keys()) if found.get(key) != wanted.get(key)]
    if section == "features" and {found.get("backend"), wanted.get("backend")} <= KALDI:
        differing = [key for key in differing if key != "backend"]
    if section == "model":
        differing = [key for key in differing if not key.endswith(OF_TRAINING)]
        differing = ["name"] if "name" in differing else differing
    if differing:
        listed = ", ".join(
            f"{section}.{key} is {found.get(key)!r} there and {wanted.get(key)!r} here" for key in differing
        )
        raise UserError(f"{file}: {listed}; they must be the same")


def _flat(settings: dict[str, Any]) -> dict[str, Any]:
    """With dotted keys for the values of a mapping among them."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        inner = value if isinstance(value, dict) else None
        flat |= {key: value} if inner is None else {f"{key}.{name}": each for name, each in inner.items()}
    return flat


def _with_head(start: Start, config: TrainConfig, origin: Path) -> Start:
    """The same with the head of the run's newest state, and what its classes are."""
    theirs, ours = _factors_of(origin), {key: [float(each) for each in getattr(config.data, key)] for key in FACTORS}
    trained, wanted = _variants(**theirs), _variants(**ours)
    differing = " and ".join(
        f"data.{key} is {ours[key]}, and the head of {origin} was trained at {theirs[key]}"
        for key in FACTORS
        if ours[key] != theirs[key] or ours[key] != [1.0]
    )
    if config.init_head == "keep" and wanted != trained[: len(wanted)]:
        raise UserError(
            f"{differing}; init_head=keep needs the same, or the first of them (of the speeds, where there is one warp)"
        )
    if config.init_head == "original_speakers" and (wanted != (ORIGINAL,) or ORIGINAL not in trained):
        raise UserError(
            f"{differing}; init_head=original_speakers keeps the classes of speed 1 alone, without a warp: "
            "set data.speeds=[1.0] data.warps=[1.0]"
        )
    found = load_latest_state(origin / CHECKPOINTS, check_state)
    if found is None:
        raise UserError(f"{origin / CHECKPOINTS}: holds no state of the run; use init_head=new")
    state = found[1]
    head = head_with_rank(state["head"], None)
    return replace(start, head=head, speakers=state["facts"].get("speakers"), variants=trained)


def _variants(speeds: list[float], warps: list[float]) -> tuple[tuple[float, float], ...]:
    """Speed and warp, in the order of the classes."""
    return tuple((speed, warp) for warp in warps for speed in speeds)


def _factors_of(origin: Path) -> dict[str, list[float]]:
    """Speeds and warps that a run trains at; runs of older versions do not say the latter."""
    try:
        data = {"warps": [1.0], **read_yaml(origin / CONFIG)["data"]}
        return {key: [float(each) for each in data[key]] for key in FACTORS}
    except (KeyError, TypeError, ValueError) as error:  # of YAML, too
        raise UserError(
            f"{origin / CONFIG}: is not the configuration of a run, which says at what speeds and warps its head was "
            "trained; restore it, or use init_head=new"
        ) from error
