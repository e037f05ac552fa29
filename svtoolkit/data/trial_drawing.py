"""Trials drawn from speakers and their utterances, where a corpus comes without a list."""

from __future__ import annotations

import bisect
import itertools
import math
import random
from collections.abc import Mapping, Sequence

import numpy as np

from svtoolkit.data.trials import Trials
from svtoolkit.errors import UserError


def make_trials(spk2utt: Mapping[str, Sequence[str]], *, seed: int, targets_per_speaker: int = 45) -> Trials:
    """Draw a balanced list: as many non-target trials as target trials, or all there are where they are fewer.

    Every pair of utterances of two speakers is equally likely to become a non-target trial. Pairs are drawn by
    their rank, so that neither time nor memory depends on how many pairs there are.

    Args:
        spk2utt: speaker -> utterances; speakers with a single utterance serve in non-target trials only.
        seed: the same seed and utterances give the same list.
        targets_per_speaker: ceiling on the within-speaker pairs taken of one speaker.

    Returns:
        target trials by speaker, then non-target trials; no pair stands twice, in either order.

    Raises:
        UserError: fewer than two speakers, none with two utterances, or a ceiling below 1.
    """
    if targets_per_speaker < 1:
        raise UserError(f"targets_per_speaker is {targets_per_speaker}, expected 1 or more")
    rng = random.Random(seed)
    groups = [sorted(set(spk2utt[speaker])) for speaker in sorted(spk2utt) if spk2utt[speaker]]
    targets: list[tuple[str, str]] = []
    for utterances in groups:
        pairs = math.comb(len(utterances), 2)
        for rank in sorted(rng.sample(range(pairs), min(targets_per_speaker, pairs))):
            first, second = _pair_within(rank)
            targets.append((utterances[first], utterances[second]))
    if len(groups) < 2 or not targets:
        raise UserError(
            f"{len(groups)} speakers with {len(targets)} within-speaker pairs cannot make trials; "
            "expected two speakers or more, one of them with two utterances"
        )
    listed = targets + _draw_nontargets(groups, len(targets), rng)
    target = np.arange(len(listed)) < len(targets)
    return Trials([enrol for enrol, _ in listed], [test for _, test in listed], target)


def _pair_within(rank: int) -> tuple[int, int]:
    """Rank -> (i, j), i < j, counted as (0, 1), (0, 2), (1, 2), (0, 3), ...: rank = j (j - 1) / 2 + i."""
    second = (1 + math.isqrt(1 + 8 * rank)) // 2
    return rank - second * (second - 1) // 2, second


def _draw_nontargets(groups: Sequence[Sequence[str]], wanted: int, rng: random.Random) -> list[tuple[str, str]]:
    """Distinct pairs of utterances of different groups, each pair equally likely."""
    everyone = [utterance for group in groups for utterance in group]
    # Utterances of a group pair with all that come after the group.
    ends = list(itertools.accumulate(len(group) for group in groups))
    later = [len(everyone) - end for end in ends]
    pairs_up_to = list(itertools.accumulate(len(group) * rest for group, rest in zip(groups, later, strict=True)))
    drawn = []
    for rank in sorted(rng.sample(range(pairs_up_to[-1]), min(wanted, pairs_up_to[-1]))):
        group = bisect.bisect_right(pairs_up_to, rank)
        within = rank - (pairs_up_to[group - 1] if group else 0)
        first, second = divmod(within, later[group])
        drawn.append((groups[group][first], everyone[ends[group] + second]))
    return drawn
