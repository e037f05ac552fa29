from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.data.splitting import fitting_eval_speakers, split_speakers
from svtoolkit.errors import UserError


def make_kaldi_dir(*sizes: int) -> KaldiDir:
    utt2spk = {f"s{spk}-{utt}": f"s{spk}" for spk, size in enumerate(sizes) for utt in range(size)}
    return KaldiDir({utt: f"/{utt}.wav" for utt in utt2spk}, utt2spk, {}, dict.fromkeys(utt2spk, 1.0))


@given(sizes=st.lists(st.integers(1, 4), min_size=2, max_size=9), seed=st.integers(0, 2**32), data=st.data())
def test_speakers_are_split_and_none_is_lost(sizes, seed, data):
    kaldi_dir = make_kaldi_dir(*sizes)
    usable = sum(size > 1 for size in sizes)
    wanted = data.draw(st.integers(1, len(sizes)))
    if wanted > usable or wanted == len(sizes):
        with pytest.raises(UserError, match=f"eval_speakers is {wanted}, (but only {usable} of|which leaves none)"):
            split_speakers(kaldi_dir, eval_speakers=wanted, seed=seed)
        return
    train, evaluation = split_speakers(kaldi_dir, eval_speakers=wanted, seed=seed)
    assert len(evaluation.speakers) == wanted
    assert not set(train.speakers) & set(evaluation.speakers)
    assert train.utt2spk | evaluation.utt2spk == kaldi_dir.utt2spk
    assert train.wav_scp | evaluation.wav_scp == kaldi_dir.wav_scp
    assert train.utt2dur | evaluation.utt2dur == kaldi_dir.utt2dur
    assert all(len(utterances) > 1 for utterances in evaluation.spk2utt.values())
    assert split_speakers(kaldi_dir, eval_speakers=wanted, seed=seed) == (train, evaluation)


def test_seed_changes_the_draw():
    kaldi_dir = make_kaldi_dir(*[2] * 20)
    drawn = {tuple(split_speakers(kaldi_dir, eval_speakers=5, seed=seed)[1].speakers) for seed in range(10)}
    assert len(drawn) > 5


@pytest.mark.parametrize(
    ("sizes", "most", "expected"),
    [
        ([2] * 48, 8, 8),
        ([2] * 56, 20, 11),
        ([2] * 12, 8, 2),
        ([2] * 10, 8, 2),
        ([2] * 9, 8, 0),
        ([2] * 4, 8, 0),
        ([1] * 38 + [2] * 2, 8, 2),
        ([1] * 39 + [2], 8, 0),
    ],
)
def test_a_fifth_is_held_out_at_most(sizes, most, expected):
    counts = {f"s{number:02d}": size for number, size in enumerate(sizes)}
    assert fitting_eval_speakers(counts, most) == expected


def test_no_evaluation_speaker_is_no_split():
    with pytest.raises(UserError, match="eval_speakers is 0, expected 1 or more"):
        split_speakers(make_kaldi_dir(2, 2), eval_speakers=0, seed=0)
