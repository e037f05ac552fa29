"""What a group offers: `optim=adamw` chooses the option adamw of the group optim. Needs neither torch nor Hydra."""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from svtoolkit.config import (
    COMMANDS,
    AngularPrototypicalConfig,
    AugmentConfig,
    CompressConfig,
    DistillationConfig,
    FeaturesConfig,
    MarginScheduleConfig,
    MemoryStrategyConfig,
    PairwiseConfig,
    ScheduleConfig,
    TrainDataConfig,
    TrainerConfig,
    TwoStageConfig,
    ValidationConfig,
)
from svtoolkit.errors import UserError
from svtoolkit.losses.registry import LOSSES
from svtoolkit.memory.registry import STRATEGIES
from svtoolkit.models.front_ends import BACKENDS, FRONT_ENDS, RELEASED_FRONT_ENDS
from svtoolkit.models.registry import FINE_TUNED, NETWORKS, RELEASED_NETWORKS
from svtoolkit.optim.registry import OPTIMIZERS
from svtoolkit.registry import Registry, Row


class Option(NamedTuple):
    """Settings that a choice begins with, and what it is in one line."""

    settings: Any
    help: str = ""


@dataclass(eq=False)
class Registered(Mapping[str, Option]):
    """Options that a registry lists: our rows, those of installed packages and, of optimizers, classes by import path.

    Args:
        registry: of the group; settings of its rows are dataclasses.
        key: that tells options apart.
        changed: name -> values that differ from the defaults of its settings.
        by_path: import path -> settings of what is there; None: a group without.
        hidden: rows that are no option, but a value of the key.
        released: rows of another table, which are no option either: a released model brings them.
    """

    registry: Registry
    key: str = "name"
    changed: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    by_path: Callable[[str], type[Any]] | None = None
    hidden: Collection[str] = ()
    released: Mapping[str, Row] = field(default_factory=dict)

    def __iter__(self) -> Iterator[str]:
        return (name for name in self.registry if name not in self.hidden)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __getitem__(self, name: str) -> Option:
        """Settings and help of an option.

        Raises:
            KeyError: there is none of that name.
            UserError: its package cannot be imported, or nothing is at that import path.
        """
        if self.by_path is not None and is_import_path(name):
            return Option(self.by_path(name)(), f"{name}, by its import path")
        if name not in self.registry and name not in self.released:
            raise KeyError(name)
        row = self.released[name] if name in self.released else self.registry[name]
        assert row.settings is not None, "registries of groups have settings"
        return Option(row.settings(**{self.key: name, **self.changed.get(name, {})}), row.help)


def from_a_package(group: str, option: str) -> str:
    """What to do where an option was meant to come from a package of the user's; empty for groups without any."""
    options = GROUPS.get(group)
    return options.registry.missing_package(option) if isinstance(options, Registered) else ""


def is_import_path(option: str) -> bool:
    """Whether an option is the import path of a class, as torch.optim.NAdam."""
    return "." in option and all(part.isidentifier() for part in option.split("."))


def _optimizer_settings(path: str) -> type[Any]:
    from svtoolkit.optim.by_import_path import settings_of

    return settings_of(path)


TOLD_BY = {"features": "backend", "memory": "strategy"}
"""Group -> key that tells its options apart, where that is not ``name``."""

GROUPS: dict[str, Mapping[str, Option]] = {
    "data": {"crops200": Option(TrainDataConfig(), "crops of 2 s at three speeds")},
    "features": ChainMap(
        {"fbank80": Option(FeaturesConfig(), "80 bins, as WeSpeaker's")},
        Registered(FRONT_ENDS, TOLD_BY["features"], hidden=BACKENDS | RELEASED_FRONT_ENDS),  # type: ignore[arg-type]  # it is only read
    ),
    "model": Registered(NETWORKS, released={name: RELEASED_NETWORKS[name] for name in FINE_TUNED}),
    "memory": ChainMap(
        {
            "auto": Option(
                MemoryStrategyConfig(), "on a GPU the quickest that fits; else recomputed in reversible networks"
            )
        },
        Registered(STRATEGIES, TOLD_BY["memory"]),  # type: ignore[arg-type]  # it is only read
    ),
    "loss": Registered(LOSSES, changed={"softmax": {"margin": 0.0, "scale": 1.0}}),
    "pairwise": {
        "none": Option(PairwiseConfig(), "the loss of the classes alone"),
        "angular_prototypical": Option(
            AngularPrototypicalConfig("angular_prototypical"), "crops of a class against crops of the others"
        ),
    },
    "compress": {
        "none": Option(CompressConfig(), "one stage; layers are as the network has them"),
        "trace_norm": Option(TwoStageConfig("trace_norm"), "stage one under the trace norm, stage two of low rank"),
        "l2": Option(TwoStageConfig("l2"), "the same with L2 in stage one, or no penalty at all"),
    },
    "distillation": {"cosine": Option(DistillationConfig(), "cosine to the embeddings of distillation.model")},
    "margin_schedule": {
        "exponential": Option(MarginScheduleConfig(), "WeSpeaker's ramp"),
        "linear": Option(MarginScheduleConfig("linear"), "a straight ramp"),
        "constant": Option(MarginScheduleConfig("constant", start=0.0, end=0.0), "loss.margin from the first step on"),
    },
    "optim": Registered(OPTIMIZERS, by_path=_optimizer_settings),
    "schedule": {
        "exponential": Option(ScheduleConfig(), "exponential decrease after a linear warm-up"),
        "cosine": Option(ScheduleConfig("cosine"), "half a cosine after a linear warm-up"),
        "one_cycle": Option(
            ScheduleConfig("one_cycle", warmup=0.3, start_factor=0.04, end_factor=2.5e-5), "cosine rise, cosine fall"
        ),
    },
    "augment": {
        "specaug": Option(AugmentConfig(), "dither and SpecAug; noise and reverberation where they are given"),
        "none": Option(
            AugmentConfig(
                dither=0.0,
                spec_probability=0.0,
                time_masks=0,
                time_width=0,
                freq_masks=0,
                freq_width=0,
                probability=0.0,
            ),
            "no random change of the crops",
        ),
    },
    "validation": {
        "held_out": Option(ValidationConfig(), "training speakers held out, scored after each epoch"),
        "none": Option(ValidationConfig(speakers=0, targets_per_speaker=0), "none: the last epochs count"),
    },
    "trainer": {"default": Option(TrainerConfig(), "the training loop")},
}
"""Group -> its options by name."""


def listed_schemas(group: str) -> dict[str, type[Any]]:
    """Options of a group, and what only a released model brings -> class of their settings; without those of a package
    that cannot be imported.
    """
    schemas: dict[str, type[Any]] = {}
    options = GROUPS.get(group, {})
    for name in [*options, *getattr(options, "released", ())]:
        try:
            schemas[name] = type(GROUPS[group][name].settings)
        except UserError:
            continue
    return schemas


def group_classes(command: str) -> dict[str, type[Any]]:
    """Groups that a command composes -> class of the settings that it has by default, in the order of its schema."""
    nodes: dict[str, Any] = {item.name: item.default_factory for item in fields(COMMANDS[command].settings)}
    return {name: node for name, node in nodes.items() if isinstance(node, type)}


def default_option(group: str, schema: type[Any]) -> str:
    """The option whose settings are those that a schema has where nothing is chosen."""
    return next(name for name, option in GROUPS[group].items() if option.settings == schema())


def by_number(option: str) -> list[tuple[int, str]]:
    """Sorts resnet18 before resnet101."""
    return [(int(part or 0) if part.isdigit() else 0, part) for part in re.split(r"(\d+)", option)]
