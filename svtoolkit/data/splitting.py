"""Training and evaluation speakers of one corpus: nobody stands in both."""

from __future__ import annotations

import random

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
    if eval_speakers < 1:
        raise UserError(f"eval_speakers is {eval_speakers}, expected 1 or more")
    spk2utt = kaldi_dir.spk2utt
    candidates = [speaker for speaker, utterances in spk2utt.items() if len(utterances) > 1]
    if eval_speakers > len(candidates):
        raise UserError(
            f"eval_speakers is {eval_speakers}, but only {len(candidates)} of {len(spk2utt)} speakers have two "
            "utterances or more, which target trials need; lower it"
        )
    if eval_speakers == len(spk2utt):
        raise UserError(f"eval_speakers is {eval_speakers}, which leaves none of {len(spk2utt)} to train on; lower it")
    chosen = set(random.Random(seed).sample(candidates, eval_speakers))
    evaluation = [utterance for utterance, speaker in kaldi_dir.utt2spk.items() if speaker in chosen]
    training = [utterance for utterance, speaker in kaldi_dir.utt2spk.items() if speaker not in chosen]
    return kaldi_dir.subset(training), kaldi_dir.subset(evaluation)
