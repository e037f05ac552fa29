"""Equal error rates of several runs side by side, on reports made up for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import learning

COMMON = ["experiment=mini", "trainer.epochs=16"]


def write_run(folder: Path, system: str, seed: int, eer: float, loss: float = 2.5, **changes: Any) -> Path:
    """A finished run; EER of AS-Norm is half of the cosine's."""
    path = folder / f"{system}_{seed}"
    (path / "report").mkdir(parents=True)
    (path / "logs").mkdir()
    chosen = [*COMMON, *learning.SYSTEMS[system], f"seed={seed}", *changes.get("training", [])]
    result = {
        "facts": {
            "seed": changes.get("stated_seed", seed),
            "git commit": "abc",
            "parameters": 7,
            "commands": ["svt prepare x=1", f"svt train --exp-dir {path} --data.train {path}/d {' '.join(chosen)}"],
        },
        "results": [
            {
                "evaluation": "eval_real",
                "scores": scores,
                "eer": value,
                "trials": 100,
                "trials_sha256": changes.get("sha", "f00"),
            }
            for scores, value in (("cosine", eer), ("as-norm", eer / 2))
        ],
    }
    (path / "report" / "result.json").write_text(json.dumps(result))
    records = [
        {"kind": "step", "step": 1, "loss": 9.0},
        {"kind": "epoch", "step": 2, "epoch": 1, "loss": 5.0},
        {"kind": "epoch", "step": 4, "epoch": 2, "loss": loss},
    ]
    (path / "logs" / "history.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.fixture
def exp(tmp_path: Path) -> Path:
    """Two systems, three seeds: the second is worse by 1, 2 and 3 %."""
    for seed, (first, second) in enumerate([(0.05, 0.06), (0.06, 0.08), (0.04, 0.07)], start=1):
        write_run(tmp_path / "exp", "resnet10_sgd", seed, first, loss=2 + seed / 10)
        write_run(tmp_path / "exp", "revnet_tiny_sgd", seed, second)
    return tmp_path / "exp"


def words(exp: Path, *more: str, systems: str = "resnet10_sgd,revnet_tiny_sgd") -> list[str]:
    return ["--exp", str(exp), "--systems", systems, "--output", str(exp.parent / "learning.json"), *more]


def test_means_deviations_and_differences(exp: Path, capsys: Any) -> None:
    assert learning.main(words(exp)) == 0
    document = json.loads((exp.parent / "learning.json").read_text())
    rows = {(row["scores"], row["system"]): row for row in document["results"]}
    assert len(rows) == 4
    base, other = rows["cosine", "resnet10_sgd"], rows["cosine", "revnet_tiny_sgd"]
    assert base["evaluation"] == "real"
    assert base["eer"] == {"1": 0.05, "2": 0.06, "3": 0.04}
    assert (base["eer_mean"], base["eer_std"]) == (pytest.approx(0.05), pytest.approx(0.01))
    assert "difference_to" not in base
    assert other["difference_to"] == "resnet10_sgd"
    assert other["differences"] == pytest.approx([0.01, 0.02, 0.03])
    assert (other["difference_mean"], other["difference_std"]) == (pytest.approx(0.02), pytest.approx(0.01))
    assert rows["as-norm", "revnet_tiny_sgd"]["difference_mean"] == pytest.approx(0.01)
    losses = {row["system"]: row for row in document["losses"]}
    assert losses["resnet10_sgd"]["last_training_loss"] == {"1": 2.1, "2": 2.2, "3": 2.3}
    assert losses["resnet10_sgd"]["loss_mean"] == pytest.approx(2.2)
    run = document["runs"]["revnet_tiny_sgd_2"]
    assert run["training"] == [*COMMON, "model=revnet_tiny", "memory=reversible", "seed=2"]
    assert str(exp) not in json.dumps(document["runs"])
    printed = capsys.readouterr().out
    assert "| real | cosine | resnet10_sgd | 5.00 | 6.00 | 4.00 | 5.00 ± 1.00 | – | 2.200 |" in printed
    assert "| real | cosine | revnet_tiny_sgd | 6.00 | 8.00 | 7.00 | 7.00 ± 1.00 | +2.00 ± 1.00 | 2.500 |" in printed


def test_a_single_seed_has_no_deviation(exp: Path, capsys: Any) -> None:
    assert learning.main(words(exp, "--seeds", "3")) == 0
    row = json.loads((exp.parent / "learning.json").read_text())["results"][1]
    assert (row["system"], row["eer_std"], row["difference_std"]) == ("revnet_tiny_sgd", None, None)
    assert "| real | cosine | revnet_tiny_sgd | 7.00 | 7.00 | +3.00 | 2.500 |" in capsys.readouterr().out


def error_of(capsys: Any, arguments: list[str]) -> str:
    assert learning.main(arguments) == 1
    return capsys.readouterr().err


def test_a_run_that_is_not_finished_is_named(exp: Path, capsys: Any) -> None:
    message = error_of(capsys, words(exp, "--seeds", "1,4"))
    assert "resnet10_sgd_4/report/result.json: there is no such file; finish the run, or let --run do it" in message
    assert not (exp.parent / "learning.json").exists()


def test_runs_that_cannot_be_compared_are_refused(exp: Path, capsys: Any) -> None:
    write_run(exp, "resnet10_sgd_8bit", 1, 0.05, sha="other")
    message = error_of(capsys, words(exp, "--seeds", "1", systems="resnet10_sgd,resnet10_sgd_8bit"))
    assert "resnet10_sgd_8bit_1: has scores of other trials for real, cosine" in message
    write_run(exp, "resnet10_sgd_8bit", 2, 0.05, training=["optim.lr=0.3"])
    message = error_of(capsys, words(exp, "--seeds", "2", systems="resnet10_sgd,resnet10_sgd_8bit"))
    assert "resnet10_sgd_8bit_2: was trained with experiment=mini optim.lr=0.3 trainer.epochs=16" in message
    assert "resnet10_sgd_2 with experiment=mini trainer.epochs=16" in message


def test_an_evaluation_that_one_run_lacks_is_named(exp: Path, capsys: Any) -> None:
    path = exp / "revnet_tiny_sgd_1" / "report" / "result.json"
    content = json.loads(path.read_text())
    content["results"].pop()
    path.write_text(json.dumps(content))
    assert "revnet_tiny_sgd_1: has no scores for real, as-norm" in error_of(capsys, words(exp, "--seeds", "1"))


@pytest.mark.parametrize("content", ["{", "[]", '{"facts": {}, "results": []}', '{"facts": {}, "results": [{}]}'])
def test_another_file_is_no_report(exp: Path, capsys: Any, content: str) -> None:
    (exp / "resnet10_sgd_1" / "report" / "result.json").write_text(content)
    assert "resnet10_sgd_1/report/result.json: is not the report of a run" in error_of(capsys, words(exp))


def test_a_report_of_another_seed_and_a_history_without_epochs(exp: Path, capsys: Any) -> None:
    write_run(exp, "resnet10_sgd", 7, 0.05, stated_seed=8)
    assert "is of seed 8, expected 7 as in the folder's name" in error_of(capsys, words(exp, "--seeds", "7"))
    (exp / "resnet10_sgd_1" / "logs" / "history.jsonl").write_text('{"kind": "step", "step": 1, "loss": 2.0}\n')
    assert "history.jsonl: holds no epoch with a loss" in error_of(capsys, words(exp, "--seeds", "1"))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--systems", "resnet10_sgd,resnet11"], "--systems: there is no system 'resnet11'; expected some of"),
        (["--seeds", "1,two"], "--seeds: found 'two', expected whole numbers"),
        (["--data", "corpus"], "--data and what stands after -- concern the training of runs; add --run"),
        (["--", "trainer.epochs=2"], "--data and what stands after -- concern the training of runs; add --run"),
    ],
)
def test_what_is_asked_for_must_make_sense(exp: Path, capsys: Any, arguments: list[str], sentence: str) -> None:
    assert sentence in error_of(capsys, words(exp, *arguments))


# ---- training ----


def test_only_what_has_no_report_is_run(exp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (exp / "revnet_tiny_sgd_2" / "report" / "result.json").unlink()
    commands = []

    def execute(command: list[str]) -> int:
        commands.append(command)
        write_run(exp.parent / "new", "revnet_tiny_sgd", 2, 0.08)
        (exp.parent / "new" / "revnet_tiny_sgd_2" / "report").rename(exp / "revnet_tiny_sgd_2" / "report")
        return 0

    (exp / "revnet_tiny_sgd_2" / "report").rmdir()
    monkeypatch.setattr(learning.subprocess, "call", execute)
    run = ["--run", "--data", "corpora/a", "--data", "corpora/b", "--", "data.root=corpora", "trainer.epochs=16"]
    assert learning.main(words(exp, *run)) == 0
    assert commands == [
        [
            "bash", str(learning.RECIPE), "--exp-dir", str(exp / "revnet_tiny_sgd_2"), "--data", "corpora/a",
            "--data", "corpora/b", "model=revnet_tiny", "memory=reversible", "seed=2", "data.root=corpora",
            "trainer.epochs=16",
        ]
    ]  # fmt: skip
    assert learning.RECIPE.is_file()
    document = json.loads((exp.parent / "learning.json").read_text())
    assert len(document["runs"]) == 6


def test_a_run_that_fails_ends_the_benchmark(exp: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning.subprocess, "call", lambda command: 3)
    message = error_of(capsys, words(exp, "--seeds", "9", "--run"))
    assert "resnet10_sgd_9: the recipe ended with exit code 3" in message


def test_every_system_is_of_the_mini_recipe() -> None:
    assert all("=" in override for overrides in learning.SYSTEMS.values() for override in overrides)
    assert len({tuple(overrides) for overrides in learning.SYSTEMS.values()}) == len(learning.SYSTEMS)
