"""svt publish, against a stand-in of the hub: what is uploaded, once, and what is said where it is not."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
import yaml
from command_material import said, voice, write_model
from hub_material import TOKEN

import svtoolkit
from svtoolkit.checkpoints.released import read_description, write_description
from svtoolkit.cli import main

REPO = "me/resnet10-tiny"


@pytest.fixture
def logged_in(hub, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    return hub


@pytest.fixture(scope="module")
def result(tmp_path_factory, embeddings, eval_data) -> Path:
    """An evaluation of the model."""
    scores = tmp_path_factory.mktemp("scores") / "vox" / "cosine"
    trials = eval_data / "trials"
    assert main(["score", f"trials={trials}", f"embeddings={embeddings / 'eval.scp'}", f"out={scores}"]) == 0
    words = [f"scores={scores}", f"trials={trials}", f"utt2spk={eval_data / 'utt2spk'}", "resamples=20"]
    assert main(["evaluate", *words]) == 0
    return scores.with_name("cosine.json")


def publish(model: Path, *words: str) -> int:
    return main(["publish", f"model={model}", f"repo={REPO}", *words])


def test_a_model_and_its_card_are_one_commit_and_load_again(logged_in, model, result, capsys):
    assert publish(model, f"results=[{result}]", "license=cc-by-4.0", "message=First of all") == 0
    repository = logged_in.repositories[REPO]
    assert repository.messages == ["First of all"]
    commit = repository.refs["main"]
    assert sorted(repository.commits[commit]) == [".gitattributes", "README.md", "model.safetensors", "model.yaml"]
    assert f"/{REPO}/tree/{commit}: published" in capsys.readouterr().out
    again = svtoolkit.load_model(f"hf://{REPO}")
    wave = voice(1, 1, 1.0)
    assert again.embed(wave).tolist() == svtoolkit.load_model(model).embed(wave).tolist()
    assert again.description.training["source"] == f"hf://{REPO}@{commit}"


def test_twice_is_once(logged_in, model, capsys):
    assert publish(model) == 0
    commit = logged_in.repositories[REPO].refs["main"]
    assert publish(model) == 0
    assert logged_in.repositories[REPO].refs["main"] == commit
    assert len(logged_in.repositories[REPO].messages) == 1
    captured = capsys.readouterr()
    assert "holds the same already, so that there is no new commit" in captured.out
    assert "No files have been modified" not in captured.out + captured.err


def test_a_branch_and_a_private_repository(logged_in, model, capsys):
    assert publish(model, "private=true", "revision=v2") == 0
    repository = logged_in.repositories[REPO]
    assert repository.private
    assert "model.yaml" in repository.commits[repository.refs["v2"]]
    assert "model.yaml" not in repository.commits[repository.refs["main"]]
    assert "is private already, and private is false" in said(
        capsys, "publish", f"model={model}", f"repo={REPO}", "private=false"
    )


def test_the_card_says_what_is_known_and_nothing_else(model, result, tmp_path, capsys, monkeypatch):
    """In a folder that is a release itself, and without huggingface_hub."""
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert publish(model, f"results=[{result}]", "license=apache-2.0", f"out={tmp_path / 'look'}") == 0
    assert "nothing was uploaded" in capsys.readouterr().out
    words = [f"model={model}", f"repo={REPO}"]
    _, head, body = (tmp_path / "look" / "README.md").read_text().split("---\n", 2)
    found = json.loads(result.read_text())
    metadata = yaml.safe_load(head)
    assert metadata["library_name"] == "svtoolkit"
    assert metadata["license"] == "apache-2.0"
    assert {"speaker-verification", "resnet10"} <= set(metadata["tags"])
    rate, *costs = metadata["model-index"][0]["results"][0]["metrics"]
    assert rate == {"type": "eer", "name": "EER (%), cosine", "value": 100 * found["eer"]}
    assert [cost["value"] for cost in costs] == list(found["min_dcf"].values())
    parameters = sum(parameter.numel() for parameter in svtoolkit.load_model(model).extractor.network.parameters())
    low, high = (100 * bound for bound in found["eer_interval"])
    for line in (
        f"| parameters | {parameters:,} |",
        "| sampling rate | 8000 Hz |",
        f"| vox | cosine | {found['trials']} | 0 | {100 * found['eer']:.2f} % | {low:.2f} % to {high:.2f} % (95 %) |",
        "This model has none.",
        f"svt verify hf://{REPO} a.wav b.wav",
        f'model = svtoolkit.load_model("hf://{REPO}")',
        f"svt embed --model hf://{REPO} --data data/eval --out emb/eval",
    ):
        assert line in body, line
    assert svtoolkit.load_model(tmp_path / "look").description.model == read_description(model).model
    assert "`pip install huggingface_hub`, or write the files with out=DIR" in said(capsys, "publish", *words)
    assert publish(model, f"card={tmp_path / 'look' / 'README.md'}", f"out={tmp_path / 'again'}") == 0
    assert (tmp_path / "again" / "README.md").read_bytes() == (tmp_path / "look" / "README.md").read_bytes()


def test_without_results_there_are_no_numbers_and_with_a_threshold_it_is_said(tmp_path):
    folder = write_model(tmp_path / "model")
    description = read_description(folder)
    description.training = {"command": "svt average https://anna:secret@host/exp", "data": f"{Path.home()}/vox"}
    description.verification = {"threshold": 0.3125, "operating_point": "fa_rate=0.01", "p_fa": 0.01, "p_miss": None}
    write_description(folder, description)
    assert publish(folder, f"out={tmp_path / 'look'}") == 0
    text = (tmp_path / "look" / "README.md").read_text()
    assert "None were published with this model." in text
    assert not any(word in text for word in ("model-index", "license", "EER"))
    assert "0.3125 on the cosine (fa_rate=0.01). Expected at it: false alarms 1.00 %, for" in text
    for file in ("README.md", "model.yaml"):
        published = (tmp_path / "look" / file).read_text()
        assert not any(word in published for word in ("secret", str(Path.home())))
        assert "~/vox" in published


def test_a_result_of_another_model_is_refused(tmp_path, model, result, capsys):
    other = write_model(tmp_path / "other", seed=1)
    words = ["publish", f"model={other}", f"repo={REPO}", f"out={tmp_path / 'look'}"]
    assert f"{result}: is of the model {model}, whose weights are not those" in said(
        capsys, *words, f"results=[{result}]"
    )
    moved = shutil.copy(result, tmp_path / "moved.json")
    content = json.loads(result.read_text())
    Path(moved).write_text(json.dumps(content | {"scores_file": str(tmp_path / "gone")}))
    assert main([*words, f"results=[{moved}]"]) == 0
    assert "no record says which model its embeddings are of" in capsys.readouterr().out
    Path(moved).write_text(json.dumps(content | {"eer": "low"}))
    assert "eer is 'low', expected a share from 0 to 1" in said(capsys, *words[:-1], f"results=[{moved}]")


def test_what_cannot_be_published_is_one_sentence(tmp_path, hub, model, capsys, monkeypatch):
    words = ["publish", f"model={model}"]
    for repo in ("repo=tiny", "repo=me/a/b"):
        assert "expected hf://org/name" in said(capsys, *words, repo)
    assert "say the branch with revision=v2" in said(capsys, *words, "repo=me/tiny@v2")
    assert "license is 'CC BY', expected a name of the hub's list" in said(
        capsys, *words, "repo=me/tiny", "license='CC BY'"
    )
    assert "expected a branch" in said(capsys, *words, "repo=me/tiny", f"revision={'0' * 40}")
    assert "is on the hub already" in said(capsys, "publish", "model=hf://me/tiny", "repo=me/tiny")
    assert f"{tmp_path}: is there already" in said(capsys, *words, "repo=me/tiny", f"out={tmp_path}")
    card = ["repo=me/tiny", f"card={tmp_path / 'none.md'}"]
    assert "so that license say nothing" in said(capsys, *words, *card, "license=mit")
    assert "there is no such file; expected a README.md" in said(capsys, *words, *card)
    assert hub.asked == []
    assert "refuses the token (status 401)" in said(capsys, *words, "repo=me/tiny")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    for step in ("create", "preupload", "large", "commit"):
        hub.failing = {step: 403}
        message = said(capsys, *words, "repo=me/tiny")
        assert "hf://me/tiny: " in message
        assert not any(word in message for word in ("Traceback", TOKEN))
        files = [files for repository in hub.repositories.values() for files in repository.commits.values()]
        assert all("model.yaml" not in names for names in files), "nothing is half uploaded"
    hub.failing = {"models": 503}
    assert "answers with status 503: nothing was published; try again" in said(capsys, *words, "repo=me/tiny")


def test_a_release_of_another_toolkit_is_converted_first(tmp_path, capsys):
    (tmp_path / "avg_model.pt").write_bytes(b"")
    (tmp_path / "config.yaml").write_text("model: XVEC\n")
    message = said(capsys, "publish", f"model={tmp_path}", "repo=me/tiny")
    assert "is a release of WeSpeaker; make it ours with `svt convert-model model=" in message
