"""Folds of speakers: balanced, disjoint, the same for the same seed; and those of a file."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from svtoolkit.data.folds import draw_folds, read_folds
from svtoolkit.errors import UserError

COUNTS = {f"s{number:02d}": count for number, count in enumerate([9, 7, 5, 5, 4, 4, 3, 2, 2, 2, 1, 1, 1])}


def test_folds_are_balanced_and_repeat():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        counts = {f"s{number}": int(rng.integers(1, 30)) for number in range(int(rng.integers(20, 60)))}
        found = draw_folds(counts, folds=5, seed=seed)
        assert found == draw_folds(dict(reversed(counts.items())), folds=5, seed=seed)
        assert found.keys() == counts.keys()
        sizes = Counter(found.values())
        assert set(sizes) == {1, 2, 3, 4, 5}
        assert max(sizes.values()) - min(sizes.values()) <= 1
        utterances = [sum(counts[speaker] for speaker in counts if found[speaker] == fold) for fold in sizes]
        assert max(utterances) - min(utterances) <= 30 + max(counts.values())
    assert draw_folds(counts, folds=5, seed=0) != draw_folds(counts, folds=5, seed=1)


@pytest.mark.parametrize(
    ("counts", "folds", "message"),
    [
        (COUNTS, 1, "folds is 1, expected 2 or more"),
        (COUNTS, 7, "folds is 7, but there are 13 speakers, and trials of a fold need two; expected 14 speakers"),
        (
            {**dict.fromkeys("abcdef", 1), "g": 2},
            2,
            "fold 2 of 2 has 4 speakers, 0 of them with two utterances or more",
        ),
    ],
)
def test_too_few_speakers(counts, folds, message):
    with pytest.raises(UserError, match=message):
        draw_folds(counts, folds=folds, seed=0)


def test_a_file_of_folds(tmp_path):
    file = tmp_path / "spk2fold"
    lines = [f"{speaker} {number % 3}\n" for number, speaker in enumerate(COUNTS)]
    file.write_text("".join(lines))
    assert read_folds(file, COUNTS, folds=2) == {speaker: number % 3 for number, speaker in enumerate(COUNTS)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({1: "s00 2"}, "spk2fold:2: 's00' is listed twice"),
        (
            {2: "s02 3"},
            "spk2fold:3: found fold '3' of 's02', expected a number from 1 to folds=2, or 0 for",
        ),
        ({2: "s02 first"}, "spk2fold:3: found fold 'first'"),
        ({2: "s02"}, "spk2fold:3: found 's02', expected 2 columns"),
        ({2: "s99 1"}, "spk2fold:3: 's99' is no speaker of the data"),
        ({2: None}, "1 of 13 speakers of the data are not in it .first 's02'."),
        ({n: f"s{n:02d} 1" for n in range(13)}, "spk2fold: fold 2 of 2 has 0 speakers"),
    ],
)
def test_a_file_that_is_none(tmp_path, change, message):
    lines = [f"{speaker} {1 + number % 2}" for number, speaker in enumerate(COUNTS)]
    for place, line in change.items():
        lines[place] = line
    (tmp_path / "spk2fold").write_text("".join(f"{line}\n" for line in lines if line))
    with pytest.raises(UserError, match=message):
        read_folds(tmp_path / "spk2fold", COUNTS, folds=2)
