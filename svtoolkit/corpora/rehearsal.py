"""A few speakers of a corpus, always the same ones: for a rehearsal of all that is done with the whole."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import numpy as np

from svtoolkit.data.trials import Trials
from svtoolkit.errors import UserError


def choose_speakers(speakers: Iterable[str], count: int) -> list[str]:
    """So many speakers, sorted: those whose ids have the smallest SHA-256, so that fewer are among more.

    Raises:
        UserError: there are fewer.
    """
    ranked = sorted(set(speakers), key=_rank)
    if not 2 <= count <= len(ranked):
        raise UserError(f"limit_speakers is {count}, expected 2 to {len(ranked)}, the speakers that are there")
    return sorted(ranked[:count])


def choose_trial_speakers(lists: Mapping[str, Trials], utt2spk: Mapping[str, str], count: int) -> list[str]:
    """So many speakers that each list keeps target and nontarget trials among them.

    A list that lacks a kind gives the first pair of its trials, in the order of ``choose_speakers``, that costs the
    fewest speakers; the others are taken in that order.

    Raises:
        UserError: a list keeps both kinds with more speakers alone, or has fewer speakers.
    """
    chosen: set[str] = set()
    everyone: set[str] = set()
    for name, trials in sorted(lists.items()):
        pairs = _pairs(trials, utt2spk)
        everyone |= {speaker for pair in pairs for speaker in pair}
        for same in (False, True):
            kind = [pair for pair in pairs if (pair[0] == pair[1]) == same]
            if not kind:
                raise UserError(f"{name}: has no {'target' if same else 'nontarget'} trial; leave the list out")
            chosen |= min((set(pair) for pair in kind), key=lambda pair: (len(pair - chosen), sorted(map(_rank, pair))))
    if not max(2, len(chosen)) <= count <= len(everyone):
        raise UserError(
            f"limit_speakers is {count}, expected {max(2, len(chosen))} to {len(everyone)}: with fewer a trial list "
            "loses its target or nontarget trials, and there are no more in the lists"
        )
    ranked = sorted(everyone - chosen, key=_rank)
    return sorted([*chosen, *ranked[: count - len(chosen)]])


def restrict_trials(trials: Trials, utt2spk: Mapping[str, str]) -> Trials:
    """The trials both of whose utterances are there, in their order."""
    rows = [one in utt2spk and other in utt2spk for one, other in zip(trials.enrol, trials.test, strict=True)]
    return trials.take(np.flatnonzero(rows))


def _pairs(trials: Trials, utt2spk: Mapping[str, str]) -> set[tuple[str, str]]:
    """Speakers of the trials, each pair once."""
    return {(utt2spk[one], utt2spk[other]) for one, other in zip(trials.enrol, trials.test, strict=True)}


def _rank(speaker: str) -> bytes:
    return hashlib.sha256(speaker.encode()).digest()
