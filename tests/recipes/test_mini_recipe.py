"""recipes/mini/run.sh from end to end on tiny data: every stage, skipping, stopping, joining, failing."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import filelock
import pytest
from made_once import made_once
from paths import ROOT

pytest.importorskip("espeakng_loader", reason="the extra `demo` is not installed: pip install espeakng-loader")

RUN = ROOT / "recipes" / "mini" / "run.sh"
TINY_CORPUS = ["prepare.speakers=9", "prepare.utterances_per_speaker=4", "prepare.eval_speakers=4"]
TINY_TRAINING = [
    "model.base_width=4", "features.num_bins=24", "data.crop_frames=50", "data.speeds=[1.0,1.1]", "data.num_workers=0",
    "trainer.epochs=2", "trainer.batch_size=8", "trainer.threads=1", "validation.speakers=2",
    "score.top_n=3", "evaluate.resamples=20", "report.resamples=20",
]  # fmt: skip


def one_epoch(*without: str) -> list[str]:
    """TINY_TRAINING for an epoch, and without some keys."""
    words = [word for word in TINY_TRAINING if word.partition("=")[0] not in {"trainer.epochs", *without}]
    return [*words, "trainer.epochs=1"]


def environment() -> dict[str, str]:
    """The recipe in the environment that runs the tests."""
    return {**os.environ, "SVT_VENV": sys.prefix, "OMP_NUM_THREADS": "1"}


def recipe(*arguments: object, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        ["bash", str(RUN), "--nj", "1", *map(str, arguments)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=280,
    )
    if check:
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done


@pytest.fixture(scope="module")
def made(shared_folder: Path) -> Path:
    """The experiment's folder after all six stages, in a path with a space; not to be changed."""

    def make(folder: Path) -> None:
        recipe("--exp-dir", folder, *TINY_CORPUS, *TINY_TRAINING)

    return made_once(shared_folder, "mini recipe", make)


@pytest.fixture
def finished(made: Path) -> Iterator[Path]:
    """The same folder, of which scores and report may be made again: no other test looks at it meanwhile."""
    with filelock.FileLock(made.with_suffix(".in_use")):
        yield made


def test_every_stage_leaves_what_it_promises(finished: Path) -> None:
    data = finished / "data"
    assert len((data / "train" / "utt2spk").read_text().splitlines()) == 5 * 4
    assert (finished / "logs" / "history.jsonl").is_file()
    assert (finished / "model" / "model.safetensors").is_file()
    assert "threshold" in (finished / "model" / "model.yaml").read_text()
    trials = len((data / "eval" / "trials").read_text().splitlines())
    for name in ("cosine", "as-norm"):
        assert len((finished / "scores" / "eval" / name).read_text().splitlines()) == trials
    report = json.loads((finished / "report" / "result.json").read_text())
    assert [row["scores"] for row in report["results"]] == ["cosine", "as-norm"]
    assert all(0 <= row["eer"] <= 1 and row["trials"] == trials for row in report["results"])
    assert "<svg" in (finished / "report" / "index.html").read_text()


def test_a_second_run_skips_everything_and_a_changed_option_runs_what_depends_on_it(finished: Path) -> None:
    again = recipe("--exp-dir", finished, *TINY_CORPUS, *TINY_TRAINING).stdout
    assert [f"stage {number}: nothing has changed" in again for number in range(1, 7)] == [True] * 6
    changed = recipe("--exp-dir", finished, *TINY_CORPUS, *TINY_TRAINING, "score.top_n=4").stdout
    assert "stage 4: nothing has changed" in changed
    assert "=== stage 5: score and evaluate" in changed
    assert "=== stage 6: report" in changed


def test_with_features_no_audio_is_read_after_the_first_stage(made: Path, tmp_path: Path) -> None:
    exp_dir = tmp_path / "exp"
    shutil.copytree(made / "data", exp_dir / "data")  # what is synthesised already is kept
    options = ["--features", "--exp-dir", exp_dir, *TINY_CORPUS, *one_epoch("data.speeds"), "features.format=float16"]
    recipe(*options, "--stop-stage", 1)
    for part, speakers in (("train", 5), ("eval", 4)):
        assert "format: float16" in (exp_dir / "features" / part / "features.yaml").read_text()
        assert len((exp_dir / "features" / part / "feats.scp").read_text().splitlines()) == speakers * 4
    audio = [Path(line.partition(" ")[2]) for line in (exp_dir / "data" / "train" / "wav.scp").read_text().splitlines()]
    assert all(path.is_relative_to(exp_dir) for path in audio)
    for path in audio:
        path.unlink()
    done = recipe(*options)
    assert "stage 1: nothing has changed" in done.stdout
    assert "=== stage 1: features" not in done.stdout
    assert "crops are stretches of stored features (float16): no audio is read" in done.stdout
    results = json.loads((exp_dir / "report" / "result.json").read_text())
    assert [row["scores"] for row in results["results"]] == ["cosine", "as-norm"]
    assert "svt features --data " in (exp_dir / "report" / "index.html").read_text()


def test_a_lost_output_is_noticed_by_the_stage_that_needs_it(finished: Path, tmp_path: Path) -> None:
    exp_dir = tmp_path / "exp"
    shutil.copytree(finished, exp_dir)
    (exp_dir / "embeddings" / "eval.scp").unlink()
    options = [*TINY_CORPUS, *TINY_TRAINING]
    failed = recipe("--exp-dir", exp_dir, "--stage", 5, *options, check=False)
    assert failed.returncode != 0
    assert "embeddings/eval.scp: there is no such file" in failed.stderr
    assert not (exp_dir / ".stages" / "5").exists()


def test_training_stopped_by_ctrl_c_goes_on(made: Path, tmp_path: Path) -> None:
    exp_dir = tmp_path / "exp"
    shutil.copytree(made / "data", exp_dir / "data")
    options = ["--exp-dir", str(exp_dir), "--stage", "2", "--stop-stage", "3", *TINY_TRAINING, "trainer.epochs=10"]
    options += ["trainer.log_steps=1"]
    running = subprocess.Popen(
        ["bash", str(RUN), *options],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        preexec_fn=heed_ctrl_c,
    )
    history = exp_dir / "logs" / "history.jsonl"
    wait_until(lambda: history.is_file() and len(history.read_text().splitlines()) > 3, running)
    os.killpg(running.pid, signal.SIGINT)
    output, _ = running.communicate(timeout=60)
    assert running.returncode != 0, output
    assert list((exp_dir / "checkpoints").glob("state-*.pt")), output
    resumed = recipe(*options)
    assert "resuming after step" in resumed.stdout
    steps = [record["step"] for record in map(json.loads, history.read_text().splitlines()) if record["kind"] == "step"]
    assert steps == list(range(1, len(steps) + 1))
    assert (exp_dir / "model" / "model.safetensors").is_file()


def heed_ctrl_c() -> None:
    """As in a terminal, also where the tests run in the background."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def wait_until(condition, process: subprocess.Popen[str], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()[0][-3000:]
        assert time.monotonic() < end, "nothing was trained"
        time.sleep(0.01)


def test_two_corpora_are_joined_for_training_and_evaluated_one_by_one(made: Path, tmp_path: Path) -> None:
    for name, prefix in (("first", "syn00[12367]"), ("second", "syn00[4589]")):
        copy_speakers(made / "data", tmp_path / name, prefix, tmp_path)
    exp_dir = tmp_path / "exp"
    options = ["--data", tmp_path / "first", "--data", tmp_path / "second", f"data.root={tmp_path}"]
    training = [
        *one_epoch("trainer.batch_size", "validation.speakers"),
        "trainer.batch_size=4",
        "validation.speakers=0",
    ]
    recipe("--exp-dir", exp_dir, *options, *training)
    assert len((exp_dir / "data" / "train" / "spk2utt").read_text().splitlines()) == 5
    results = json.loads((exp_dir / "report" / "result.json").read_text())["results"]
    assert [row["evaluation"] for row in results] == ["eval_first"] * 2 + ["eval_second"] * 2


def copy_speakers(data: Path, target: Path, pattern: str, root: Path) -> None:
    """The utterances of some speakers as a data directory with paths relative to ``root``."""
    for part in ("train", "eval"):
        (target / part).mkdir(parents=True)
        for table in ("wav.scp", "utt2spk"):
            lines = [line for line in (data / part / table).read_text().splitlines() if Path(line[:6]).match(pattern)]
            assert lines
            if table == "wav.scp":
                lines = [relative_copy(line, target, root) for line in lines]
            (target / part / table).write_text("".join(f"{line}\n" for line in lines))
        speakers = sorted({line.split()[1] for line in (target / part / "utt2spk").read_text().splitlines()})
        utterances = [line.split()[0] for line in (target / part / "utt2spk").read_text().splitlines()]
        listed = {speaker: " ".join(u for u in utterances if u.startswith(speaker)) for speaker in speakers}
        (target / part / "spk2utt").write_text("".join(f"{speaker} {listed[speaker]}\n" for speaker in speakers))


def relative_copy(line: str, target: Path, root: Path) -> str:
    utterance, _, path = line.partition(" ")
    copied = target / "wav" / Path(path).name
    copied.parent.mkdir(exist_ok=True)
    shutil.copyfile(path, copied)
    return f"{utterance} {copied.relative_to(root)}"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "nowhere"], "--data nowhere: there is no such folder; expected a folder with the data directories"),
        (["--colour", "red"], "unknown option '--colour'"),
        (["--stage", "two"], "--stage takes a whole number"),
        (["--stage", "5", "--stop-stage", "2"], "nothing would run"),
        (["features.format=float16"], "features.format=float16 is of 'svt features': give --features, too"),
    ],
)
def test_bad_options_are_refused_in_a_sentence(arguments: list[str], message: str, tmp_path: Path) -> None:
    failed = recipe("--exp-dir", tmp_path / "exp", *arguments, check=False)
    assert failed.returncode != 0
    assert message in failed.stderr
    assert not (tmp_path / "exp").exists()


@pytest.mark.parametrize(
    ("override", "hint"),
    [("optim.lrr=0.1", "did you mean 'optim.lr'?"), ("experiment=mimi", "did you mean 'mini'?")],
)
def test_an_unknown_word_ends_the_recipe_at_the_stage_that_got_it(
    override: str, hint: str, made: Path, tmp_path: Path
) -> None:
    exp_dir = tmp_path / "exp"
    shutil.copytree(made / "data", exp_dir / "data")
    failed = recipe("--exp-dir", exp_dir, "--stage", 2, override, check=False)
    assert failed.returncode != 0
    assert hint in failed.stderr
    assert not (exp_dir / ".stages" / "2").exists()
