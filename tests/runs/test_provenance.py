"""Records of how artefacts were made, and the way back from a result to all commands."""

from __future__ import annotations

import logging
import subprocess
from pathlib import Path

import pytest
import yaml

from svtoolkit.runs.provenance import (
    append_command,
    commands_behind,
    model_behind,
    read_record,
    source_commit,
    write_record,
)


def test_a_record_is_yaml_with_the_command_first(tmp_path):
    command = "svt embed --data 'söme: #dir' " + "x" * 200
    write_record(tmp_path / "new" / "e.yaml", command, {"data": "d", "batch_size": 3, "root": None})
    text = (tmp_path / "new" / "e.yaml").read_text(encoding="utf-8")
    assert text.splitlines()[0].startswith("command: ")
    assert "söme" in text.splitlines()[0]  # on one line, legible
    assert read_record(tmp_path / "new" / "e.yaml") == {"command": command, "data": "d", "batch_size": 3, "root": None}


def test_no_record_is_an_empty_one(tmp_path, caplog):
    assert read_record(tmp_path / "none.yaml") == {}
    assert not caplog.records


@pytest.mark.parametrize("content", [b"a: [", b"- a\n", b"word\n", b"\xff\xfe\x00"])
def test_what_is_no_mapping_is_left_out_and_spoken_of(tmp_path, caplog, content):
    (tmp_path / "e.yaml").write_bytes(content)
    assert read_record(tmp_path / "e.yaml") == {}
    assert caplog.messages == [f"{tmp_path}/e.yaml: is no YAML mapping and is left out"]


def test_a_command_is_appended_once(tmp_path):
    file = tmp_path / "logs" / "commands.txt"
    for command in ("svt train a", "svt train a", "svt train b", "svt train a"):
        append_command(file, command)
    assert file.read_text() == "svt train a\nsvt train b\n"


@pytest.fixture
def folder_of_runs(tmp_path, monkeypatch) -> Path:
    """All artefacts of a recipe as records, named by relative paths."""
    monkeypatch.chdir(tmp_path)
    write_record("raw/made_by.yaml", "svt validate raw0 --fix raw", {"source": "raw0"})
    for name in ("train", "eval"):
        write_record(f"data/{name}/made_by.yaml", f"svt prepare {name}", {"source": ["raw", "elsewhere"]})
        write_record(f"e/{name}.v1.yaml", f"svt embed {name}", {"model": "exp/model", "data": f"data/{name}"})
    Path("exp").mkdir()
    Path("exp/config.yaml").write_text("data: {train: data/train}\n")
    append_command("exp/logs/commands.txt", "svt train")
    append_command("exp/logs/commands.txt", "svt train more")
    Path("exp/model").mkdir()
    Path("exp/model/model.yaml").write_text(yaml.safe_dump({"training": {"command": "svt average"}}))
    for name, cohort in (("cosine", None), ("as-norm", "e/train.v1.scp")):
        write_record(f"s/{name}.yaml", f"svt score {name}", {"embeddings": "e/eval.v1.scp", "cohort": cohort})
    return tmp_path


RESULTS = [
    {"scores_file": "s/cosine", "command": "svt evaluate cosine"},
    {"scores_file": "s/as-norm", "command": "svt evaluate as-norm"},
]


def test_all_commands_in_the_order_to_run_them(folder_of_runs, caplog):
    assert commands_behind(RESULTS, exp_dir="exp", model="exp/model") == [
        "svt validate raw0 --fix raw",
        "svt prepare train",
        "svt prepare eval",
        "svt train",
        "svt train more",
        "svt average",
        "svt embed eval",
        "svt embed train",
        "svt score cosine",
        "svt score as-norm",
        "svt evaluate cosine",
        "svt evaluate as-norm",
    ]
    assert not caplog.records


def test_the_model_is_found_through_the_embeddings(folder_of_runs):
    commands = commands_behind(RESULTS[:1])
    assert commands == [
        "svt validate raw0 --fix raw", "svt prepare eval", "svt average", "svt embed eval", "svt score cosine",
        "svt evaluate cosine",
    ]  # fmt: skip


def test_the_way_back_from_fused_scores_leads_through_their_parts(folder_of_runs):
    write_record("e/mfcc.yaml", "svt embed mfcc", {"model": "mfcc_statistics", "data": "data/eval"})
    write_record("s/mfcc.yaml", "svt score mfcc", {"embeddings": "e/mfcc.scp"})
    write_record("q.yaml", "svt quality", {"embeddings": "e/eval.v1.scp"})
    write_record("s/fused.yaml", "svt fuse", {"scores": ["s/cosine", "s/mfcc"], "quality": "q", "train_scores": []})
    commands = commands_behind([{"scores_file": "s/fused", "command": "svt evaluate fused"}])
    assert commands[:2] == ["svt validate raw0 --fix raw", "svt prepare eval"]
    assert commands[-6:] == [
        "svt embed mfcc", "svt score cosine", "svt score mfcc", "svt quality", "svt fuse", "svt evaluate fused"
    ]  # fmt: skip
    assert model_behind("s/mfcc") is None


def test_the_model_behind_scores(folder_of_runs):
    assert model_behind("s/cosine") == ("exp/model", None)
    write_record("s/elsewhere.yaml", "svt score", {"embeddings": "gone.scp"})
    assert [model_behind(scores) for scores in ("s/elsewhere", "s/nothing")] == [None, None]


def test_what_no_record_tells_about_is_named(folder_of_runs, caplog):
    Path("e/eval.v1.yaml").unlink()
    Path("exp/logs/commands.txt").unlink()
    Path("exp/model/model.yaml").write_text("training: {}\n")
    Path("data/train/made_by.yaml").unlink()
    with caplog.at_level(logging.WARNING):
        commands = commands_behind(RESULTS, exp_dir="exp", model="exp/model")
    assert "svt embed train" in commands
    assert "svt embed eval" not in commands
    assert [message.partition(":")[0] for message in caplog.messages] == [
        "exp/logs/commands.txt", "exp/model/model.yaml", "e/eval.v1.yaml",
    ]  # fmt: skip


def test_results_of_other_tools_have_no_commands(tmp_path, caplog):
    assert commands_behind([{"scores_file": str(tmp_path / "scores")}]) == []
    assert caplog.messages == [f"{tmp_path}/scores.yaml: tells no command, so that the report lacks how this was made"]


def test_data_made_of_each_other_ends(tmp_path):
    for name, other in (("a", "b"), ("b", "a")):
        write_record(tmp_path / name / "made_by.yaml", f"svt {name}", {"source": str(tmp_path / other)})
    write_record(tmp_path / "e.yaml", "svt embed", {"data": str(tmp_path / "a")})
    write_record(tmp_path / "s.yaml", "svt score", {"embeddings": str(tmp_path / "e.scp")})
    results = [{"scores_file": str(tmp_path / "s")}]
    assert commands_behind(results) == ["svt b", "svt a", "svt embed", "svt score"]


def git(folder: Path, *words: str) -> str:
    names = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    run = subprocess.run(["git", *names, *words], cwd=folder, capture_output=True, text=True, check=True)
    return run.stdout.strip()


@pytest.fixture
def repository(tmp_path) -> Path:
    """A repository with package/a.py in its one commit, which bears a tag."""
    folder = tmp_path / "repository"
    (folder / "package").mkdir(parents=True)
    (folder / "package" / "a.py").write_text("a = 1\n")
    try:
        git(folder, "init", "--quiet")
    except OSError:
        pytest.skip("git is not installed")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "one")
    git(folder, "tag", "-a", "v1", "-m", "one")
    return folder


def test_the_commit_of_the_source(repository):
    assert source_commit(repository / "package") == git(repository, "rev-parse", "HEAD")[:12]


def test_changed_files_are_marked(repository):
    (repository / "package" / "a.py").write_text("a = 2\n")
    assert source_commit(repository / "package") == git(repository, "rev-parse", "HEAD")[:12] + "+"


def test_an_installation_inside_another_repository_has_no_commit(repository):
    installed = repository / ".venv" / "svtoolkit"
    installed.mkdir(parents=True)
    (installed / "a.py").write_text("a = 1\n")
    assert source_commit(installed) is None


def test_outside_a_repository_there_is_no_commit(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert source_commit(tmp_path) is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert source_commit(Path(__file__).parent) is None  # nor without git
