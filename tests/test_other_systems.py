"""Commands on systems without what Unix has: in a process from which it was taken away."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from command_material import TRAIN_WORDS, write_audio
from forked import run_group
from other_systems import behave_like_windows, import_all_commands

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="asks /proc which files are open")


def run_like_windows(rank: int, folder: Path) -> None:
    import_all_commands()  # and with them the packages of others, which see the system as it is
    behave_like_windows()
    import_all_commands()
    from svtoolkit.cli import main

    def run(*words: object) -> None:
        assert main([str(word) for word in words]) in (0, 2), words

    data, exp_dir = folder / "data", folder / "exp"
    run("prepare", "corpus=folders", f"source=[{folder / 'speech'}]", f"out={data}", "eval_speakers=2", "jobs=1")
    words = [word for word in TRAIN_WORDS if not word.startswith("trainer.epochs")]
    run("train", *words, "trainer.epochs=1", "validation.speakers=0", f"data.train={data / 'train'}",
        f"exp_dir={exp_dir}", "trainer.device=cpu")  # fmt: skip
    stop_at_the_start(folder / "stopped")
    run("average", exp_dir, "num=1")
    model = exp_dir / "model"
    wav = sorted((folder / "speech").rglob("*.wav"))
    run("verify", model, wav[0], wav[-1], "threshold=0.5", "device=cpu")
    embeddings = exp_dir / "embeddings" / "eval"
    run("embed", f"model={model}", f"data={data / 'eval'}", f"out={embeddings}", "device=cpu", "num_workers=1")
    trials = data / "eval" / "trials"
    scores = exp_dir / "scores"
    run("score", f"trials={trials}", f"embeddings={embeddings}.scp", f"out={scores}")
    run("evaluate", f"scores={scores}", f"trials={trials}", "resamples=10")


def stop_at_the_start(exp_dir: Path) -> None:
    from svtoolkit.runs.exp_dir import LOGS, alone_in, nothing_left_of_a_failed_start

    with pytest.raises(ZeroDivisionError), nothing_left_of_a_failed_start(exp_dir), alone_in(exp_dir / LOGS):
        raise ZeroDivisionError
    assert not exp_dir.exists()


def test_a_run_from_the_speech_to_the_result(tmp_path: Path) -> None:
    write_audio(tmp_path / "speech", range(6), 4)
    run_group(run_like_windows, 1, tmp_path)
    assert (tmp_path / "exp" / "scores.json").is_file()
    assert not list(tmp_path.rglob("*.tmp"))
    assert not list((tmp_path / "exp").rglob("*.parts"))
