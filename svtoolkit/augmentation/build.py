"""From the configuration group ``augment`` to the list of changes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from svtoolkit.augmentation.augmenter import Augmenter
from svtoolkit.augmentation.change import Change
from svtoolkit.augmentation.impulse_responses import ImpulseLibrary
from svtoolkit.augmentation.noise import NoiseKind, NoiseLibrary
from svtoolkit.augmentation.registry import AUGMENTATIONS
from svtoolkit.config import AugmentConfig
from svtoolkit.errors import UserError

LARGEST_DECIBELS = 100.0


def build_augmenter(
    augment: AugmentConfig,
    noises: NoiseLibrary | None = None,
    rirs: ImpulseLibrary | None = None,
    *,
    sample_rate: int,
    added: Mapping[str, Mapping[str, Any]] | None = None,
) -> Augmenter:
    """The changes that a configuration asks for; none where its probability is 0.

    Args:
        augment: how often and how much.
        noises, rirs: what there is to draw from; None: no noise, no reverberation.
        sample_rate: of the crops, in Hz.
        added: changes of other packages, by their name in ``AUGMENTATIONS``: settings that are not the default. They
            are drawn and made after ours, whose draws they leave as they are.

    Raises:
        UserError: as ``check_augment``; the configuration asks for what the libraries do not hold, or never for one of
            them; a telephone line at a rate that is no multiple of its own; an added change that is unknown, has no
            such settings or would never happen.
    """
    check_augment(augment)
    weights = {
        ("noise",): augment.only_noise_weight,
        ("reverberation",): augment.only_reverberation_weight,
        ("noise", "reverberation"): augment.both_weight,
    }
    given = {name for name, library in (("noise", noises), ("reverberation", rirs)) if library is not None}
    combinations = [(frozenset(names), weight) for names, weight in weights.items() if weight > 0 and given >= {*names}]
    _refuse_unused(given, combinations)
    changes: dict[str, Change] = {}
    if rirs is not None:
        changes["reverberation"] = AUGMENTATIONS["reverberation"].load()(rirs, sample_rate)
    if noises is not None:
        kinds = {
            "noise": NoiseKind(augment.noise_weight, augment.noise_snr),
            "music": NoiseKind(augment.music_weight, augment.music_snr),
            "babble": NoiseKind(augment.babble_weight, augment.babble_snr, augment.babble_talkers),
        }
        changes["noise"] = AUGMENTATIONS["noise"].load()(noises, kinds, sample_rate)
    if any(augment.gain) or augment.telephone_probability:  # a line's draw comes after that of a gain, be it 0 dB
        changes["gain"] = AUGMENTATIONS["gain"].load()(augment.gain)
    if augment.telephone_probability:
        changes["telephone"] = AUGMENTATIONS["telephone"].load()(augment.telephone_probability, sample_rate)
    for name, settings in (added or {}).items():
        changes[name] = _added(name, settings, augment.probability, sample_rate)
    return Augmenter(changes if augment.probability else {}, probability=augment.probability, combinations=combinations)


def check_augment(augment: AugmentConfig) -> None:
    """Refuse numbers out of range.

    Raises:
        UserError: names the key.
    """
    for name in ("probability", "telephone_probability"):
        if not 0 <= getattr(augment, name) <= 1:
            raise UserError(f"augment.{name} is {getattr(augment, name)}, expected a share from 0 to 1")
    for names in (
        ("only_noise_weight", "only_reverberation_weight", "both_weight"),
        ("noise_weight", "music_weight", "babble_weight"),
    ):
        _check_weights(augment, names)
    for name in ("noise_snr", "music_snr", "babble_snr", "gain"):
        _check_decibels(augment, name)
    talkers = augment.babble_talkers
    if len(talkers) != 2 or not 1 <= talkers[0] <= talkers[1] or any(number % 1 for number in talkers):
        raise UserError(f"augment.babble_talkers is {list(talkers)}, expected fewest and most talkers, such as [3, 7]")


def _added(name: str, given: Mapping[str, Any], probability: float, sample_rate: int) -> Change:
    row = AUGMENTATIONS[name]
    if row.settings is None:
        raise UserError(f"augmentation {name!r} has keys of its own in the group augment; set those")
    known = [item.name for item in fields(row.settings)]
    for key in given:
        if key not in known:
            raise UserError(f"augmentation {name!r} has no key {key!r}; valid are {', '.join(known)}")
    settings = row.settings(**given)
    if not 0 <= settings.probability <= 1:
        raise UserError(f"probability of {name} is {settings.probability}, expected a share from 0 to 1")
    if not probability:
        raise UserError(f"augment.probability is 0, and {name} would never happen; raise it or leave {name} out")
    return row.load()(**row.arguments, **vars(settings), sample_rate=sample_rate)


def _refuse_unused(given: set[str], combinations: Sequence[tuple[frozenset[str], float]]) -> None:
    for name, other in (("noise", "reverberation"), ("reverberation", "noise")):
        if name in given and not any(name in names for names, _ in combinations):
            raise UserError(
                f"augment.{name} is given but would never be used: augment.only_{name}_weight is 0, and "
                f"augment.both_weight is 0 or augment.{other} null; raise a weight or set augment.{name}=null"
            )


def _check_weights(augment: AugmentConfig, names: Sequence[str]) -> None:
    for name in names:
        if not 0 <= getattr(augment, name) < math.inf:
            raise UserError(f"augment.{name} is {getattr(augment, name)}, expected a weight of 0 or more")
    if not any(getattr(augment, name) for name in names):
        listed = ", ".join(f"augment.{name}" for name in names)
        raise UserError(f"{listed} are all 0, expected one above 0; augment.probability=0 changes no crop")


def _check_decibels(augment: AugmentConfig, name: str) -> None:
    limits = list(getattr(augment, name))
    if len(limits) != 2 or not -LARGEST_DECIBELS <= limits[0] <= limits[1] <= LARGEST_DECIBELS:
        raise UserError(
            f"augment.{name} is {limits}, expected a lower and an upper limit in dB, such as [0, 15], "
            f"from {-LARGEST_DECIBELS:g} to {LARGEST_DECIBELS:g}"
        )
