"""Results that are malformed or not ours: a sentence, or a report that does without."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from broken_inputs import nested
from command_material import said

from svtoolkit.cli import main

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("undrawn")]


@pytest.fixture
def result(tmp_path) -> Path:
    """A result with its scores and trials."""
    (tmp_path / "trials").write_text("a b target\na c nontarget\nb c nontarget\nc d target\n")
    (tmp_path / "scores").write_text("a b 0.9\na c 0.1\nb c 0.8\nc d 0.5\n")
    assert main(["evaluate", f"scores={tmp_path}/scores", f"trials={tmp_path}/trials"]) == 0
    return tmp_path / "scores.json"


RESULTS = {
    "eer": ["low", None, 7, [0.1]],
    "eer_threshold": ["high", None, float("inf")],
    "eer_interval": ["wide", [0.1], {"low": 1}, ["a", "b"]],
    "min_dcf": [3, {"much": 0.1}, {"0.01": "low"}, [0.1], {"2": 0.1}],
    "scores_file": [3, None, ["scores"], "nowhere", "/dev/zero"],
    "trials_file": [3, None, {}, "nowhere", "/dev/zero"],
    "scores_sha256": [3, "0"],
    "trials_sha256": [None, "0"],
    "evaluation": [3, None, ["x"]],
    "scores": [3, None],
    "missing": ["some", -1, 1.5, None],
    "trials": ["four", 3],
    "cllr": ["low"],
    "confidence": [[0.95]],
}
"""Key of a result -> values that it cannot have."""


@pytest.mark.parametrize(
    ("key", "value"), [(key, value) for key, values in RESULTS.items() for value in values], ids=str
)
def test_results(key, value, result, tmp_path, capsys):
    content = json.loads(result.read_text())
    result.write_text(json.dumps(content | {key: value}))
    assert said(capsys, "report", f"results=[{result}]", f"out={tmp_path}/report").startswith("error: ")
    assert not (tmp_path / "report").exists()


@pytest.mark.parametrize("key", RESULTS)
def test_results_without(key, result, tmp_path):
    content = json.loads(result.read_text())
    content.pop(key, None)
    result.write_text(json.dumps(content))
    main(["report", f"results=[{result}]", f"out={tmp_path}/report"])  # a sentence or a report


@pytest.mark.parametrize(
    ("text", "noun"),
    [
        ("", "is not JSON"),
        ("[]", "lacks eer, evaluation, missing, scores, scores_file"),
        ("{", "is not JSON"),
        (nested(100000), "is not JSON"),
        ('{"a": ' * 40 + "1" + "}" * 40, "is nested deeper than 32"),
        ("\xff", "is not JSON"),
    ],
    ids=["nothing", "a list", "half", "deep", "less deep", "Latin-1"],
)
def test_results_that_are_none(text, noun, result, tmp_path, capsys):
    result.write_bytes(text.encode("latin-1"))
    found = said(capsys, "report", f"results=[{result}]", f"out={tmp_path}/report")
    assert f"error: {result}" in found
    assert noun in found


@pytest.mark.parametrize("name", ["command", "embeddings", "model", "data", "source"])
@pytest.mark.parametrize("value", [3, ["x"], {"a": "b"}])
def test_records_of_something_else(name, value, result, tmp_path):
    """What lies beside scores and says how they were made is information: a report does without."""
    (tmp_path / "scores.yaml").write_text(yaml.safe_dump({"embeddings": f"{tmp_path}/e.scp", name: value}))
    (tmp_path / "e.yaml").write_text(yaml.safe_dump({"model": f"{tmp_path}", "data": f"{tmp_path}", name: value}))
    (tmp_path / "made_by.yaml").write_text(yaml.safe_dump({name: value}))
    (tmp_path / "model.yaml").write_text(yaml.safe_dump({"training": "none", name: value}))
    assert main(["report", f"results=[{result}]", f"out={tmp_path}/report"]) == 0
