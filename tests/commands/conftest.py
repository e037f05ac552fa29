"""What the tests of the commands share: made once a session, never written to afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from command_material import TRAIN_WORDS, write_data, write_model

from svtoolkit.cli import main
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.system import progress


@pytest.fixture
def told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step of the progress is a line."""
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def train_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """6 speakers of 4 utterances."""
    return write_data(tmp_path_factory.mktemp("train"), range(6))


@pytest.fixture(scope="session")
def eval_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """4 other speakers of 4 utterances, with trials."""
    return write_data(tmp_path_factory.mktemp("eval"), range(20, 24), trials=True)


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A released model of random weights."""
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def exp_dir(tmp_path_factory: pytest.TempPathFactory, train_data: Path) -> Path:
    """A finished run of two epochs."""
    folder = tmp_path_factory.mktemp("run") / "exp"
    assert main(["train", *TRAIN_WORDS, "--exp-dir", str(folder), "--data.train", str(train_data)]) == 0
    return folder


@pytest.fixture(scope="session")
def embeddings(tmp_path_factory: pytest.TempPathFactory, model: Path, train_data: Path, eval_data: Path) -> Path:
    """Folder with train.scp and eval.scp."""
    folder = tmp_path_factory.mktemp("embeddings")
    for name, data in (("train", train_data), ("eval", eval_data)):
        words = ["--model", str(model), "--data", str(data), "--out", str(folder / name), "threads=1"]
        assert main(["embed", *words]) == 0
    return folder


@pytest.fixture
def eval_dir(eval_data: Path) -> KaldiDir:
    return KaldiDir.read(eval_data)
