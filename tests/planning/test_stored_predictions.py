"""A prediction that was made before is read, and never where something else is asked or the code is another."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from predictions import predict_once

from svtoolkit.config import AdamWConfig, MemoryPredictionConfig, ResNetConfig
from svtoolkit.planning import stored_predictions
from svtoolkit.planning.stored_predictions import predict_or_recall

CONFIG = MemoryPredictionConfig(
    model=ResNetConfig("resnet10", embedding_dim=16, base_width=4), frames=40, num_bins=24, batch_size=4, num_classes=50
)


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[MemoryPredictionConfig]:
    """What was predicted, by a cache that begins empty."""
    made: list[MemoryPredictionConfig] = []

    def predict(config, progress):
        made.append(config)
        return predict_once(CONFIG)

    monkeypatch.setenv("SVT_CACHE", str(tmp_path))
    monkeypatch.setattr(stored_predictions, "predict_memory", predict)
    return made


def test_the_same_question_is_answered_by_the_same_figures(asked):
    assert predict_or_recall(CONFIG) == predict_or_recall(CONFIG) == predict_once(CONFIG)
    assert predict_or_recall(replace(CONFIG, budget_gib=3.0, format="json")) == predict_once(CONFIG)
    assert len(asked) == 1


@pytest.mark.parametrize(
    "changes", [{"frames": 41}, {"precision": "bf16"}, {"optim": AdamWConfig()}, {"num_classes": 51}]
)
def test_another_question_is_predicted(changes, asked):
    predict_or_recall(CONFIG)
    predict_or_recall(replace(CONFIG, **changes))
    assert len(asked) == 2


def test_other_code_and_other_torch_predict_anew(asked, monkeypatch):
    predict_or_recall(CONFIG)
    monkeypatch.setattr(stored_predictions, "_digest_of_code", lambda: "another")
    predict_or_recall(CONFIG)
    monkeypatch.setattr(stored_predictions.torch, "__version__", "9.9")
    predict_or_recall(CONFIG)
    assert len(asked) == 3


def test_the_digest_is_of_every_line_of_code(tmp_path, monkeypatch):
    monkeypatch.setattr(stored_predictions.svtoolkit, "__file__", str(tmp_path / "__init__.py"))
    (tmp_path / "deep").mkdir()
    digests = set()
    for text in ("a = 1\n", "a = 2\n"):
        (tmp_path / "deep" / "module.py").write_text(text)
        digests.add(stored_predictions._digest_of_code())
    assert len(digests) == 2


def test_what_is_measured_or_of_another_package_is_never_stored(asked, tmp_path):
    for config in (replace(CONFIG, device="cuda"), replace(CONFIG, model=ResNetConfig("mean_network"))):
        for _ in range(2):
            predict_or_recall(config)
    assert len(asked) == 4
    assert not list(tmp_path.rglob("*.json"))


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"whole": 3}', json.dumps({"strategy": "store"})])
def test_a_file_that_is_not_ours_is_replaced(content, asked, tmp_path):
    predict_or_recall(CONFIG)
    (path,) = tmp_path.rglob("*.json")
    path.write_text(content)
    assert predict_or_recall(CONFIG) == predict_once(CONFIG)
    assert predict_or_recall(CONFIG) == predict_once(CONFIG)
    assert len(asked) == 2


def test_a_home_that_cannot_be_written_and_a_full_cache(asked, tmp_path, monkeypatch):
    monkeypatch.setattr(stored_predictions, "MOST_STORED", 3)
    for frames in range(40, 46):
        predict_or_recall(replace(CONFIG, frames=frames))
    assert len(list(tmp_path.rglob("*.json"))) == 3
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SVT_CACHE", str(tmp_path / "file"))
    assert predict_or_recall(CONFIG) == predict_once(CONFIG)
