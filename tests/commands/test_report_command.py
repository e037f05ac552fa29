from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from svtoolkit import __version__
from svtoolkit.cli import main


@pytest.fixture(scope="session")
def chain(tmp_path_factory, exp_dir, train_data, eval_data) -> Path:
    """Average, embed, score and evaluate after the run, plain and normalised; nothing in it is written to again."""
    folder = tmp_path_factory.mktemp("chain")
    run = ["average", str(exp_dir), "num=2", f"out={folder}/model"]
    assert main(run) == 0
    for name, data in (("train", train_data), ("eval", eval_data)):
        words = ["--model", f"{folder}/model", "--data", str(data), "--out", f"{folder}/{name}", "threads=1"]
        assert main(["embed", *words]) == 0
    cohort = [f"cohort={folder}/train.scp", f"cohort_utt2spk={train_data}/utt2spk", f"utt2spk={eval_data}/utt2spk"]
    shutil.copy(eval_data / "trials", folder / "trials")
    for name, options in (("cosine", []), ("as-norm", [*cohort, "normalisation=as-norm", "top_n=4"])):
        words = [f"trials={folder}/trials", f"embeddings={folder}/eval.scp", f"out={folder}/{name}", *options]
        assert main(["score", *words]) == 0
        words = [f"scores={folder}/{name}", f"trials={folder}/trials", f"utt2spk={eval_data}/utt2spk", "resamples=20"]
        assert main(["evaluate", *words, "name=tiny"]) == 0
    return folder


@pytest.fixture(scope="session")
def reported(chain, exp_dir, tmp_path_factory) -> Path:
    """The report of both results; nothing in it is written to again."""
    folder = tmp_path_factory.mktemp("reported") / "report"
    words = ["--results", f"['{chain}/cosine.json','{chain}/as-norm.json']", "--out", str(folder)]
    assert main(["report", *words, "--exp-dir", str(exp_dir), "--model", f"{chain}/model"]) == 0
    return folder


@pytest.fixture
def copied(chain, tmp_path) -> SimpleNamespace:
    """A copy whose results point at its own scores and trials."""
    folder = Path(shutil.copytree(chain, tmp_path / "copy"))
    for file in folder.glob("*.json"):
        file.write_text(file.read_text().replace(str(chain), str(folder)))
    words = ["--results", f"{folder}/cosine.json", "--out", f"{tmp_path}/report"]
    return SimpleNamespace(folder=folder, words=words, result=folder / "cosine.json")


FACTS = (
    '{"eer": 0.1, "evaluation": "set", "scores": "cosine", "scores_file": "a", "scores_sha256": "b", '
    '"trials_file": "c", "trials_sha256": "d"}'
)


def read(folder: Path) -> tuple[dict, str]:
    return json.loads((folder / "result.json").read_text()), (folder / "index.html").read_text()


def test_page_figures_and_numbers(reported):
    assert {path.name for path in reported.iterdir()} == {
        "index.html", "result.json", "det.svg", "det.png", "scores-tiny-cosine.svg", "scores-tiny-as-norm.svg",
        "curve-loss.svg", "curve-accuracy.svg", "curve-learning-rate.svg", "curve-waiting-for-data.svg",
        "curve-validation.svg", "curve-peak-memory.svg",
    }  # fmt: skip
    content, page = read(reported)
    assert [(result["evaluation"], result["scores"]) for result in content["results"]] == [
        ("tiny", "cosine"),
        ("tiny", "as-norm"),
    ]
    (group,) = content["comparisons"]
    assert group["systems"] == ["tiny, cosine", "tiny, as-norm"]
    assert (group["trials"], group["speakers"], group["resamples"]) == (content["results"][0]["trials"], 4, 1000)
    assert "Systems in pairs" in page
    assert "no learning curves" not in page
    assert "crop_frames: 40" in page


def test_the_facts_of_the_result(reported, chain, exp_dir, train_data):
    content, page = read(reported)
    facts = content["facts"]
    assert facts["svtoolkit"] == __version__
    assert facts["torch"] == torch.__version__
    assert facts["seed"] == 3
    assert facts["config sha256"] == hashlib.sha256((exp_dir / "config.yaml").read_bytes()).hexdigest()
    assert facts["model"] == "resnet10"
    weights = sum(value.numel() for name, value in load(chain / "model").items() if "running" not in name)
    assert facts["parameters"] == weights - sum("num_batches" in name for name in load(chain / "model"))
    assert (facts["embedding size"], facts["epochs averaged"]) == (16, [1, 2])
    assert "git commit" in facts
    assert facts["model folder"] == f"{chain}/model"
    assert (facts["training data"], facts["training speakers"]) == (str(train_data), 6)
    assert content["results"][0]["network"]["model"] == "resnet10"
    top = page[: page.index("Results")]
    assert f"{train_data}, 6 speakers, 24 utterances" in top
    assert f"resnet10, {facts['parameters']:,} parameters, embeddings of 16" in top
    trials = hashlib.sha256((chain / "trials").read_bytes()).hexdigest()
    assert {result["trials_sha256"] for result in content["results"]} == {trials}
    assert trials in page
    assert facts["config sha256"] in page


def load(model: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(model / "model.safetensors")


def test_the_commands_that_repeat_it_in_the_order_to_run_them(reported, chain, exp_dir):
    content, page = read(reported)
    commands = content["facts"]["commands"]
    assert [command.split()[1] for command in commands] == [
        "train", "average", "embed", "embed", "score", "score", "evaluate", "evaluate", "report",
    ]  # fmt: skip
    assert commands[0].startswith("svt train model=resnet10 model.base_width=4")
    assert commands[0].endswith(f"--exp-dir {exp_dir} --data.train " + commands[0].split()[-1])
    assert commands[1] == f"svt average {exp_dir} num=2 out={chain}/model"
    assert {command.split()[6] for command in commands[2:4]} == {"--out"}
    assert "normalisation=as-norm" in commands[5]
    assert commands[-1].startswith('svt report --results "[')
    assert commands[1] in page


@pytest.mark.usefixtures("undrawn")
def test_a_report_without_a_run_and_a_model(tmp_path, chain, capsys):
    assert main(["report", "--results", f"{chain}/cosine.json", f"out={tmp_path}/report"]) == 0
    assert capsys.readouterr().out == f"report: {tmp_path}/report/index.html\n"
    content, page = read(tmp_path / "report")
    assert not {"seed", "config sha256"} & content["facts"].keys()
    assert content["facts"]["model"] == "resnet10"  # that of the embeddings
    assert "no learning curves" in page
    assert not list((tmp_path / "report").glob("curve-*"))


def test_results_are_needed(tmp_path, capsys):
    assert main(["report", f"out={tmp_path}/report"]) == 1
    assert capsys.readouterr().err == (
        "error: results lists no file; give results=[a.json,b.json], as written by `svt evaluate`, or scores=[a,b] and "
        "trials=FILE\n"
    )


@pytest.mark.usefixtures("undrawn")
def test_score_files_of_any_toolkit_are_compared(tmp_path, chain, eval_data):
    """A score file without a record beside it, under names of the user's."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    shutil.copy(chain / "as-norm", folder / "scores.txt")
    words = [f"results=[{chain}/cosine.json]", "--scores", f"{folder}/scores.txt", f"trials={chain}/trials"]
    words += [f"utt2spk={eval_data}/utt2spk", "names=[ours,theirs]", "resamples=100", "compare=all"]
    assert main(["report", *words, f"out={tmp_path}/report"]) == 0
    content, page = read(tmp_path / "report")
    ours, theirs = content["results"]
    assert (ours["label"], theirs["label"]) == ("ours", "theirs")
    assert (theirs["evaluation"], theirs["scores"]) == ("theirs", "scores.txt")
    expected = json.loads((chain / "as-norm.json").read_text())
    assert {key: theirs[key] for key in ("eer", "cllr", "trials")} == {
        key: expected[key] for key in ("eer", "cllr", "trials")
    }
    assert theirs["eer_interval"] is not None
    pair = content["comparisons"][0]["metrics"]["eer"][0]
    assert (pair["first"], pair["second"]) == ("ours", "theirs")
    assert pair["difference"] == pytest.approx(ours["eer"] - theirs["eer"])
    assert "4 speakers are few" in page


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["scores=[a]"], "scores needs the trial list that was scored; give trials=FILE"),
        (["results=[{chain}/cosine.json]", "trials=t"], "trials is the list of scores=[...], which lists no file"),
        (["results=[{chain}/cosine.json]", "names=[a,b]"], "names lists 2 for 1 systems; give one for each"),
    ],
)
def test_keys_that_do_not_go_together(tmp_path, chain, capsys, words, message):
    assert main(["report", *(word.format(chain=chain) for word in words), f"out={tmp_path}/report"]) == 1
    assert capsys.readouterr().err.startswith(f"error: {message}")
    assert not (tmp_path / "report").exists()


def test_systems_of_different_lists_are_refused(copied, capsys, tmp_path):
    """An evaluation of one name; the first line that differs is named."""
    trials = copied.folder / "trials"
    lines = trials.read_text().splitlines(keepends=True)
    shorter = copied.folder / "shorter"
    shorter.write_text("".join(lines[:2] + lines[3:]))
    scores = (copied.folder / "as-norm").read_text().splitlines(keepends=True)
    (copied.folder / "fewer").write_text("".join(scores[:2] + scores[3:]))
    assert main(["evaluate", f"scores={copied.folder}/fewer", f"trials={shorter}", "name=tiny"]) == 0
    words = [f"results=[{copied.folder}/cosine.json,{copied.folder}/fewer.json]", f"out={tmp_path}/report"]
    assert main(["report", *words]) == 1
    assert capsys.readouterr().err == (
        f"error: {shorter}:3: found `{lines[3].strip()}`, but {trials}:3 has `{lines[2].strip()}`; tiny, fewer and "
        "tiny, cosine can be compared on the same trials alone: score both on one list, give evaluations of different "
        "lists different names (`svt evaluate name=...`), or compare=none\n"
    )
    assert not (tmp_path / "report").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, ": there is no such file; expected a result that `svt evaluate` wrote"),
        ("{", ":1: is not JSON ("),
        (
            "[]",
            ": lacks eer, evaluation, missing, scores, scores_file, scores_sha256, trials_file, trials_sha256; run",
        ),
        (FACTS[:-1] + ', "missing": 0, "utt2spk_file": 3}', ": utt2spk_file is 3, expected text; run `svt evaluate`"),
        (FACTS.replace('"set"', "3")[:-1] + ', "missing": 0}', ": evaluation is 3, expected text; run `svt evaluate`"),
        (FACTS[:-1] + ', "missing": -1}', ": missing is -1, expected a number of trials; run `svt evaluate` again"),
    ],
)
def test_files_that_are_no_results(tmp_path, capsys, content, message):
    file = tmp_path / "a.json"
    if content is not None:
        file.write_text(content)
    assert main(["report", "--results", str(file), f"out={tmp_path}/report"]) == 1
    assert capsys.readouterr().err.startswith(f"error: {file}{message}")
    assert not (tmp_path / "report").exists()


@pytest.mark.usefixtures("undrawn")
def test_a_trial_list_that_has_changed_is_refused(copied, capsys, tmp_path):
    assert main(["report", *copied.words]) == 0
    shutil.rmtree(tmp_path / "report")
    trials = copied.folder / "trials"
    trials.write_text("".join(trials.read_text().splitlines(keepends=True)[:-1]))
    assert main(["report", *copied.words]) == 1
    assert capsys.readouterr().err == (
        f"error: {trials}: has changed since {copied.folder}/cosine was evaluated; run `svt evaluate` again\n"
    )
    assert not (tmp_path / "report").exists()


def test_scores_that_have_changed_are_refused(copied, capsys):
    scores = copied.folder / "cosine"
    scores.write_text(scores.read_text().replace(" 0.", " 0.1"))
    assert main(["report", *copied.words]) == 1
    assert capsys.readouterr().err == f"error: {scores}: has changed since it was evaluated; run `svt evaluate` again\n"
    scores.unlink()
    assert main(["report", *copied.words]) == 1
    assert capsys.readouterr().err.startswith(f"error: {scores}: there is no such score file")


@pytest.mark.usefixtures("undrawn")
def test_results_with_missing_scores_can_be_reported(copied, tmp_path):
    scores = copied.folder / "cosine"
    scores.write_text("".join(scores.read_text().splitlines(keepends=True)[1:]))
    words = [f"scores={scores}", f"trials={copied.folder}/trials", "allow_missing=true"]
    assert main(["evaluate", *words]) == 0
    assert main(["report", *copied.words]) == 0
    content, _ = read(tmp_path / "report")
    assert content["results"][0]["missing"] == 1


def test_a_folder_without_a_run(tmp_path, chain, capsys):
    words = ["--results", f"{chain}/cosine.json", f"out={tmp_path}/report", f"exp_dir={tmp_path}"]
    assert main(["report", *words]) == 1
    assert capsys.readouterr().err == (
        f"error: {tmp_path}/config.yaml: there is no such file; "
        "expected exp_dir to be a folder that `svt train` wrote\n"
    )
