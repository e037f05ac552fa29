"""Training and evaluation speakers of one corpus: nobody stands in both."""

from __future__ import annotations

import random
from collections.abc import Mapping

from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.errors import UserError


def split_speakers(kaldi_dir: KaldiDir, *, eval_speakers: int, seed: int) -> tuple[KaldiDir, KaldiDir]:
    """Split a directory by speaker.

    Args:
        kaldi_dir: the directory to split.
        eval_speakers: number of speakers for evaluation, drawn among those with two utterances or more: the others
            can make no target trial.
        seed: the same seed and speakers give the same split.

    Returns:
        (training, evaluation); no speaker and no utterance is in both, and none is lost.

    Raises:
        UserError: fewer than one evaluation speaker asked for, not enough of them, or none left to train on.
    """
    counts = {speaker: len(utterances) for speaker, utterances in kaldi_dir.spk2utt.items()}
    chosen = draw_eval_speakers(counts, eval_speakers=eval_speakers, seed=seed)
    evaluation = [utterance for utterance, speaker in kaldi_dir.utt2spk.items() if speaker in chosen]
    training = [utterance for utterance, speaker in kaldi_dir.utt2spk.items() if speaker not in chosen]
    return kaldi_dir.subset(training), kaldi_dir.subset(evaluation)


LARGEST_SHARE = 5
"""A fifth of the speakers at most is held out where nobody says how many."""


def fitting_eval_speakers(counts: Mapping[str, int], most: int) -> int:
    """How many speakers can be held out of a corpus without taking much of it: at most ``most``, and a fifth of all.

    Args:
        counts: speaker id -> number of utterances.

    Returns:
        their number; 0 where it would be less than the two that trials need.
    """
    candidates = sum(count > 1 for count in counts.values())
    fitting = min(most, len(counts) // LARGEST_SHARE, candidates)
    return fitting if fitting > 1 else 0


def draw_eval_speakers(counts: Mapping[str, int], *, eval_speakers: int, seed: int) -> set[str]:
    """Draw the speakers of an evaluation, as ``split_speakers`` does.

    Args:
        counts: speaker id -> number of utterances, speakers sorted.
        eval_speakers, seed: as there.

    Raises:
        UserError: as there.
    """
    if eval_speakers < 1:
        raise UserError(f"eval_speakers is {eval_speakers}, expected 1 or more")
    candidates = [speaker for speaker, count in counts.items() if count > 1]
    if eval_speakers > len(candidates):
        raise UserError(
            f"eval_speakers is {eval_speakers}, but only {len(candidates)} of {len(counts)} speakers have two "
            "utterances or more, which target trials need; lower it"
        )
    if eval_speakers == len(counts):
        raise UserError(f"eval_speakers is {eval_speakers}, which leaves none of {len(counts)} to train on; lower it")
    return set(random.Random(seed).sample(candidates, eval_speakers))
