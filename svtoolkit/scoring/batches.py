"""Which utterances go through the network together: of about equal length, by the seconds that they hold in all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from svtoolkit.audio.inspection import inspect_audio
from svtoolkit.data.feature_archive import open_features
from svtoolkit.data.kaldi_dir import Utterance
from svtoolkit.errors import UserError
from svtoolkit.features import FrontEnd
from svtoolkit.system.threads import map_in_order

LEAST_PADDED = 64
"""Frames; of fewer than they need networks say so, which of a batch only the longest would make them do."""


def plan_batches(
    utterances: Sequence[Utterance],
    front_end: FrontEnd,
    *,
    batch_seconds: float,
    batch_size: int,
    jobs: int,
    padding: float = 0.0,
    stored: bool = False,
) -> tuple[list[list[int]], Mapping[int, str]]:
    """Batches of about equal length, those that hold the most audio first.

    What does not fit into the memory then shows at once, and what is left at the end is small. Lengths are those of the
    tables; of an utterance that none tells of, that of the file's header, so that the file is opened twice.

    Args:
        utterances: of a data directory.
        front_end: counts their frames.
        batch_seconds: a batch holds no more seconds of audio, unless one utterance alone does.
        batch_size: nor more utterances.
        jobs: headers read at a time.
        padding: share of its frames by which an utterance may be shorter than the longest of its batch, for which a
            batch is counted as if all were that long; 0: all are.
        stored: they are listed by their features, whose headers say how many frames there are.

    Returns:
        batches of positions in ``utterances``, and position -> reason of those whose header cannot be read.
    """
    readable: list[tuple[int, int]] = []
    failures: dict[int, str] = {}
    count = partial(_num_frames, front_end=front_end, stored=stored)
    for position, frames in enumerate(map_in_order(count, utterances, jobs)):
        if isinstance(frames, str):
            failures[position] = frames
        else:
            readable.append((frames, position))
    batches: list[tuple[int, list[int]]] = []
    for frames, group in group_by_length(readable, padding):
        seconds = front_end.num_samples(max(1, frames)) / front_end.sample_rate
        together = max(1, min(batch_size, int(batch_seconds / seconds)))
        batches += [(frames, group[first : first + together]) for first in range(0, len(group), together)]
    batches.sort(key=lambda batch: -batch[0] * len(batch[1]))
    return [rows for _, rows in batches], failures


def group_by_length(numbered: Sequence[tuple[int, int]], padding: float) -> list[tuple[int, list[int]]]:
    """The frames of the longest of a group, and its positions, the longest first, of pairs (frames, position).

    Args:
        padding: as of ``plan_batches``; of what is shorter than ``LEAST_PADDED`` only equals are a group.
    """
    groups: list[tuple[int, list[int]]] = []
    for frames, position in sorted(numbered, key=lambda pair: (-pair[0], pair[1])):
        longest = groups[-1][0] if groups else -1
        if frames == longest or (longest >= frames >= max(LEAST_PADDED, (1 - padding) * longest)):
            groups[-1][1].append(position)
        else:
            groups.append((frames, [position]))
    return groups


def _num_frames(utterance: Utterance, front_end: FrontEnd, stored: bool) -> int | str:
    """By the tables, or by the header, or the reason why it cannot be read."""
    try:
        if not stored:
            return front_end.num_frames(round(_seconds(utterance) * front_end.sample_rate))
        with open_features(utterance.path, front_end.num_bins) as matrix:
            return matrix.rows
    except UserError as error:
        return str(error)


def _seconds(utterance: Utterance) -> float:
    if utterance.duration is not None:
        return utterance.duration
    info = inspect_audio(utterance.path)
    return info.seconds - utterance.offset
