"""The folder of a run: what it holds, and when a run that is there may be gone on with."""

from __future__ import annotations

import shutil
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
import yaml
from tiny_runs import assert_same_run, command_words, fail_after, files_of, tiny_config

from svtoolkit import composition
from svtoolkit.cli import main
from svtoolkit.config import DistillationConfig
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.errors import UserError
from svtoolkit.runs.exp_dir import FREE_KEYS, alone_in, check_run, write_config
from svtoolkit.runs.full_state import list_states
from svtoolkit.system import file_lock
from svtoolkit.training.experiment import train

SHORT = {"trainer__epochs": 1, "data__speeds": [1.0], "validation__speakers": 0}
"""Changes of the tiny run: six steps."""


def test_exp_dir_holds_what_is_documented(finished):
    names = set(files_of(finished))
    assert {"config.yaml", "logs/history.jsonl", "logs/train.log", "validation/trials", "validation/wav.scp"} <= names
    checkpoints = {name for name in names if name.startswith("checkpoints/")}
    assert checkpoints == {
        "checkpoints/epoch-0001.safetensors",
        "checkpoints/epoch-0002.safetensors",
        "checkpoints/state-0000000024.pt",
        "checkpoints/state-0000000026.pt",
    }
    assert not [name for name in names if name.endswith(".tmp")]


def test_config_yaml_is_the_composed_configuration(finished, speech):
    config = tiny_config(speech, finished)
    composed = composition.load("train", command_words(config))
    assert yaml.safe_load((finished / "config.yaml").read_text()) == asdict(composed) == asdict(config)


def test_resume_never_refuses_a_run_and_takes_an_empty_folder(speech, finished, tmp_path):
    before = files_of(finished)
    with pytest.raises(UserError, match="exp: holds a run already and resume=never; choose another exp_dir"):
        train(tiny_config(speech, finished, resume="never"))
    assert files_of(finished) == before
    tmp_path.joinpath("config.yaml").write_text("seed: 1\n")  # a run that ended before its first state
    config = tiny_config(speech, tmp_path, resume="never", **SHORT)
    assert train(config) is None


def test_resume_is_auto_or_never(speech, tmp_path):
    with pytest.raises(UserError, match="resume is 'sometimes', expected auto or never"):
        train(tiny_config(speech, tmp_path, resume="sometimes"))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"optim__lr": 0.06}, "optim.lr was 0.05 and is 0.06"),
        ({"seed": 8}, "seed was 7 and is 8"),
        ({"trainer__micro_batch": 4}, "trainer.micro_batch was None and is 4"),
        ({"data__speeds": [1.0, 0.9]}, r"data.speeds was \[1.0, 0.9, 1.1\] and is \[1.0, 0.9\]"),
        (
            {"model__base_width": 8, "loss__margin": 0.3},
            r"loss.margin was 0.2 and is 0.3, model.base_width was 4 and is 8",
        ),
        ({"optim": "adamw"}, r"optim.beta1 was None and is 0.9, .*optim.name was 'sgd' and is 'adamw'"),
    ],
)
def test_another_configuration_is_refused_by_its_keys(changes, named, speech, finished):
    before = files_of(finished)
    message = rf"config\.yaml: the run there has another configuration: {named}.*; put it back or use another exp_dir"
    with pytest.raises(UserError, match=message):
        train(tiny_config(speech, finished, **changes))
    assert files_of(finished) == before


def test_keys_that_change_nothing_that_is_learnt_may_change(speech, tmp_path, finished):
    shutil.copytree(finished, tmp_path / "moved")
    list_states(tmp_path / "moved" / "checkpoints")[-1].unlink()
    saved = tmp_path / "moved" / "config.yaml"
    content = yaml.safe_load(saved.read_text())
    del content["trainer"]["loggers"]  # as in a folder of a version that had no such key
    content["trainer"]["logger_settings"] = {"wandb": {"project": "voices"}}
    saved.write_text(yaml.safe_dump(content))
    changes = {
        "data__num_workers": 1,
        "data__root": str(tmp_path),
        "data__source": "files",
        "data__cache_gib": 1.0,
        "data__max_bad": 0.5,
        "trainer__device": "auto",
        "trainer__checkpoint_minutes": 3.0,
        "trainer__checkpoint_steps": 1,
        "trainer__keep_states": 3,
        "trainer__keep_last": 5,
        "trainer__keep_best": 2,
        "trainer__nonfinite_patience": 2,
        "trainer__loggers": ["csv"],
    }
    # Another number of threads adds in another order, another window is another history, and a cache is for a URL.
    untried = {"exp_dir", "resume", "loss.shard", "trainer.threads", "trainer.log_steps", "data.cache_dir"}
    assert {name.replace("__", ".") for name in changes} == FREE_KEYS - untried
    changed = tiny_config(speech, tmp_path / "moved", **changes)
    if torch.cuda.is_available():
        changed.trainer.device = "cpu"
    assert train(changed) is None
    assert_same_run(tmp_path / "moved", finished)
    assert yaml.safe_load((tmp_path / "moved" / "config.yaml").read_text()) == asdict(changed)
    assert len(list_states(tmp_path / "moved" / "checkpoints")) == 3


def test_credentials_of_a_url_are_no_other_configuration(tmp_path):
    """config.yaml has none; one of an older version has."""
    config = tiny_config(Path("https://me:secret@host/data"), tmp_path)
    config.data.train = "https://me:secret@host/data"
    write_config(config)
    assert "https://***@host/data" in (tmp_path / "config.yaml").read_text()
    assert "secret" not in (tmp_path / "config.yaml").read_text()
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "state-0000000001.pt").touch()
    assert list_states(tmp_path / "checkpoints")
    check_run(config)
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(asdict(config)))
    check_run(config)
    config.data.train = "https://me:secret@other/data"
    with pytest.raises(
        UserError, match=r"data\.train was 'https://\*\*\*@host/data' and is 'https://\*\*\*@other/data'"
    ):
        check_run(config)


def test_the_most_of_a_batch_that_is_given_changes_nothing(tmp_path):
    """So that a run is resumed whose configuration is older than this key."""
    config = tiny_config(tmp_path, tmp_path)
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "state-0000000001.pt").touch()
    older = asdict(config)
    del older["trainer"]["max_batch_size"]
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(older))
    check_run(config)
    config.trainer.batch_size = None
    with pytest.raises(
        UserError, match=r"trainer\.batch_size was 8 and is None, trainer\.max_batch_size was None and is"
    ):
        check_run(config)


def test_a_run_of_before_there_was_compression_is_resumed(tmp_path):
    config = tiny_config(tmp_path / "data", tmp_path)
    write_config(config)
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "state-0000000001.pt").touch()
    saved = yaml.safe_load((tmp_path / "config.yaml").read_text())
    del saved["compress"], saved["distillation"], saved["pairwise"]
    del saved["model"]["ranks"], saved["loss"]["rank"], saved["data"]["warps"]
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(saved))
    check_run(config)
    with pytest.raises(UserError, match=r"distillation.weight was 1.0 and is 0.5"):
        check_run(replace(config, distillation=DistillationConfig(weight=0.5)))
    with pytest.raises(UserError, match=r"data.warps was \[1.0\] and is \[1.0, 0.9\]"):
        check_run(replace(config, data=replace(config.data, warps=[1.0, 0.9])))


def test_other_data_are_refused(speech, tmp_path, monkeypatch):
    kaldi_dir = KaldiDir.read(speech)
    kaldi_dir.write(tmp_path / "data")
    config = tiny_config(tmp_path / "data", tmp_path / "exp", **SHORT)
    fail_after(monkeypatch, 4)
    with pytest.raises(RuntimeError):
        train(config)
    monkeypatch.undo()
    kaldi_dir.subset(set(kaldi_dir.utt2spk) - {"spk4-utt1"}).write(tmp_path / "data")
    message = r"checkpoints: the saved run was trained on other data .*; restore the data directory, or start again"
    with pytest.raises(UserError, match=message):
        train(config)
    kaldi_dir.write(tmp_path / "data")
    assert train(config) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, r"config\.yaml: is missing, but there are states of a run; restore it or use another exp_dir"),
        ("- a list\n", r"config\.yaml: is not the configuration of a run; restore it or use another exp_dir"),
        ("a: {b\n", r"config\.yaml: is not the configuration of a run"),
    ],
)
def test_states_without_their_configuration_are_not_overwritten(text, message, speech, tmp_path):
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "state-0000000099.pt").write_bytes(b"a state")
    if text is not None:
        (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(UserError, match=message):
        train(tiny_config(speech, tmp_path))
    assert (tmp_path / "checkpoints" / "state-0000000099.pt").read_bytes() == b"a state"


def test_states_that_all_are_damaged_are_an_error(speech, tmp_path, finished):
    exp_dir = shutil.copytree(finished, tmp_path / "exp")
    for path in list_states(exp_dir / "checkpoints"):
        path.write_bytes(b"damaged")
    with pytest.raises(UserError, match="none of 2 full states can be read"):
        train(tiny_config(speech, exp_dir))


def test_an_exp_dir_that_cannot_be_written_is_named(speech, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(
        UserError, match=r"file/exp/logs: cannot be written .*; choose another exp_dir or free some disk"
    ):
        train(tiny_config(speech, tmp_path / "file" / "exp"))


def test_two_runs_do_not_train_into_one_exp_dir(speech, tmp_path, capsys):
    config = tiny_config(speech, tmp_path, **SHORT)
    with alone_in(tmp_path / "logs"):
        before = files_of(tmp_path)
        assert main(["train", *command_words(config)]) == 1
    assert f"{tmp_path}: another run is training there" in capsys.readouterr().err
    assert files_of(tmp_path) == before
    assert train(config) is None


def test_a_file_system_without_locks_is_warned_of(speech, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(file_lock, "fcntl", None)
    assert train(tiny_config(speech, tmp_path, **SHORT)) is None
    assert f"{tmp_path}/logs/.lock: the file system has no locks; see to it that no other process" in caplog.text


@pytest.mark.parametrize(("name", "named"), [("config.yaml", "config.yaml"), ("logs/history.jsonl", "logs")])
def test_a_file_of_the_run_that_cannot_be_written_is_named(name, named, speech, tmp_path):
    (tmp_path / name).mkdir(parents=True)
    with pytest.raises(UserError, match=rf"{named}: cannot be written .*; choose another exp_dir or free some disk"):
        train(tiny_config(speech, tmp_path))
