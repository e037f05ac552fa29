"""Crops of utterances: where they lie, their mean, and what fails with one."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from svtoolkit.data.kaldi_dir import Utterance
from svtoolkit.errors import UserError
from svtoolkit.scoring.crop_extraction import TOGETHER, CropExtractor
from svtoolkit.scoring.extracted import Embedded


def utterance(seconds: float | None, name: str = "u", offset: float = 0.0) -> Utterance:
    return Utterance(name, "s", Path(f"/{name}.wav"), offset, seconds, whole_file=offset == 0)


def vector(crop: Utterance) -> np.ndarray:
    """As long as the crop, in a direction that tells where it begins."""
    return np.array([np.cos(crop.offset), np.sin(crop.offset)], np.float32) * crop.duration


def extractor(calls: list[list[Utterance]], broken: str = "", zero: str = "") -> Any:
    """Which gives embeddings from the last to the first, two at a time."""

    def embed(utterances: list[Utterance], is_done: Any) -> Any:
        calls.append(list(utterances))
        rows = [row for row in reversed(range(len(utterances))) if not is_done(row)]
        for pair in (rows[first : first + 2] for first in range(0, len(rows), 2)):
            bad = [row for row in pair if utterances[row].utterance_id == broken]
            good = [row for row in pair if row not in bad]
            scale = [0.0 if utterances[row].utterance_id == zero else 1.0 for row in good]
            vectors = [factor * vector(utterances[row]) for factor, row in zip(scale, good, strict=True)]
            yield Embedded(good, vectors, dict.fromkeys(bad, "cut off"), 1.0)

    return SimpleNamespace(stored=False, batch_seconds=9.0, limit=9.0, embed=embed)


def test_crops_are_evenly_placed_from_the_first_sample_to_the_last():
    cutter = CropExtractor(extractor([]), 4, 2.0)
    crops = cutter.cut(utterance(5.0, offset=10.0), 5.0)
    assert [crop.offset for crop in crops] == [10.0, 11.0, 12.0, 13.0]
    assert {(crop.duration, crop.whole_file) for crop in crops} == {(2.0, False)}
    (middle,) = CropExtractor(extractor([]), 1, 2.0).cut(utterance(5.0), 5.0)
    assert (middle.offset, middle.duration) == (1.5, 2.0)


@pytest.mark.parametrize("seconds", [0.7, 2.0])
def test_an_utterance_no_longer_than_a_crop_is_whole(seconds):
    whole = utterance(seconds)
    assert CropExtractor(extractor([]), 4, 2.0).cut(whole, seconds) == [whole]


def test_products_of_means_are_mean_similarities_of_all_pairs_of_crops():
    calls: list[list[Utterance]] = []
    both = [utterance(5.0, "a"), utterance(3.0, "b")]
    cutter = CropExtractor(extractor(calls), 5, 2.0)
    found: dict[int, np.ndarray] = {}
    for batch in cutter.embed(both):
        found |= dict(zip(batch.rows, batch.embeddings, strict=True))
        assert batch.audio_seconds == (8.0 if batch.rows else 0.0)
    crops = [[vector(crop) / crop.duration for crop in cutter.cut(each, each.duration)] for each in both]
    similarities = np.array([[one @ other for other in crops[1]] for one in crops[0]])
    assert similarities.shape == (5, 5)
    assert found[0] @ found[1] == pytest.approx(similarities.mean(), rel=1e-6)
    assert found[0].dtype == np.float32
    assert np.linalg.norm(found[0]) < 1


def test_one_crop_that_fails_costs_the_utterance():
    three = [utterance(5.0, name) for name in ("a", "b", "c")]
    batches = list(CropExtractor(extractor([], broken="b", zero="c"), 3, 2.0).embed(three))
    assert [row for batch in batches for row in batch.rows] == [0]
    failures = {row: reason for batch in batches for row, reason in batch.failures.items()}
    assert failures == {1: "cut off", 2: "/c.wav: the embedding of a crop is zero"}
    assert sum(batch.finished for batch in batches) == 3


def test_a_header_that_cannot_be_read(tmp_path):
    missing = Utterance("m", "s", tmp_path / "missing.wav")
    batches = list(CropExtractor(extractor([]), 3, 2.0).embed([utterance(5.0, "a"), missing]))
    failures = {row: reason for batch in batches for row, reason in batch.failures.items()}
    assert list(failures) == [1]
    assert "missing.wav" in failures[1]


def test_what_is_resumed_has_the_batches_of_what_was_not():
    count = 2 * TOGETHER + 5
    utterances = [utterance(3.0 + row / 100, f"u{row}") for row in range(count)]
    whole: list[list[Utterance]] = []
    rows = [batch.rows for batch in CropExtractor(extractor(whole), 2, 2.0).embed(utterances) if batch.rows]
    assert [len(batch) for batch in rows] == [TOGETHER, TOGETHER, 5]
    assert rows[0][0] == count - 1  # the longest first
    done = set(rows[0])
    resumed: list[list[Utterance]] = []
    again = CropExtractor(extractor(resumed), 2, 2.0).embed(utterances, done.__contains__)
    assert [batch.rows for batch in again if batch.rows] == rows[1:]
    assert resumed == whole[1:]


def test_limits_are_those_of_the_extractor():
    inner = extractor([])
    cutter = CropExtractor(inner, 2, 2.0)
    cutter.batch_seconds, cutter.limit = 7.0, 5.0
    assert (inner.batch_seconds, inner.limit) == (cutter.batch_seconds, cutter.limit) == (7.0, 5.0)


@pytest.mark.parametrize(
    ("crops", "seconds", "message"),
    [(0, 2.0, "crops is 0, expected 1 or more, or null"), (2, 0.0, "crop_seconds is 0, expected more than 0")],
)
def test_numbers_that_make_none(crops, seconds, message):
    with pytest.raises(UserError, match=message):
        CropExtractor(extractor([]), crops, seconds)
