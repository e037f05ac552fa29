"""recipes/voxceleb/run.sh from end to end on corpora in miniature: files, shards, stops, mistakes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import filelock
import pytest
import soundfile
from made_once import made_once
from voxceleb_material import ROOT, VOX2_DEV, command, environment, one_list, recipe

pytest.importorskip("av", reason="PyAV (extra voxceleb) is not installed")

TINY = [
    "model=resnet10", "model.base_width=4", "model.embedding_dim=16", "features.num_bins=24", "data.crop_frames=40",
    "data.num_workers=0", "data.speeds=[1.0,1.1]", "optim.lr=0.05", "trainer.epochs=2", "trainer.batch_size=8",
    "trainer.micro_batch=4", "trainer.threads=1", "trainer.device=cpu",
    "validation.speakers=2", "average.num=2", "embed.threads=1", "score.top_n=3", "evaluate.resamples=20",
    "report.resamples=20",
]  # fmt: skip
TINY_LM = [
    "lm.data.crop_frames=60", "lm.trainer.epochs=2", "lm.trainer.batch_size=8", "lm.trainer.micro_batch=4",
    "lm.average.num=2",
]  # fmt: skip
ONE_EPOCH = ["trainer.epochs=1", "average.num=1", "lm.trainer.epochs=1", "lm.average.num=1"]
MODELS = ("model/model.safetensors", "lm/model/model.safetensors")


@pytest.fixture(scope="module")
def finished(corpora: Path, shared_folder: Path) -> Path:
    """The folder of data/ and of the finished experiment exp/, made from files by one process."""

    def make(folder: Path) -> None:
        options = ["--data-dir", folder / "data", "--exp-dir", folder / "exp", *one_list(corpora)]
        recipe(corpora, *options, *TINY, *TINY_LM)

    return made_once(shared_folder, "finished vox celeb", make)


@pytest.fixture
def untouched(finished: Path) -> Iterator[Path]:
    """The same folder, whose experiment no other test changes meanwhile."""
    with filelock.FileLock(finished.with_suffix(".in_use")):
        yield finished


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def test_every_stage_leaves_what_it_promises(untouched: Path) -> None:
    data, exp_dir = untouched / "data", untouched / "exp"
    assert len(lines(data / "files" / "vox2" / "utt2dur")) == len(VOX2_DEV) * 4  # the test part is left out
    audio = [Path(line.partition(" ")[2]) for line in lines(data / "files" / "vox2" / "wav.scp")]
    assert {soundfile.info(path).format for path in audio} == {"FLAC"}
    assert len(lines(data / "vox1" / "trials_veri_mini")) == 66
    config = (exp_dir / "config.yaml").read_text()
    assert f"noise: {data}/musan" in config
    assert f"reverberation: {data}/rirs" in config
    assert "source: files" in config
    for folder in (exp_dir, exp_dir / "lm"):
        assert "threshold" in (folder / "model" / "model.yaml").read_text()
        assert len(lines(folder / "embeddings" / "vox1.scp")) == 20
        assert len(lines(folder / "embeddings" / "vox2.scp")) == len(VOX2_DEV) * 4
        assert "<svg" in (folder / "report" / "index.html").read_text()
    report = json.loads((exp_dir / "report" / "result.json").read_text())
    named = [(row["evaluation"], row["scores"]) for row in report["results"]]
    systems = ("Vox1-veri_mini", "Vox1-veri_mini, fine-tuned")
    assert named == [(system, scores) for system in systems for scores in ("cosine", "as-norm")]
    assert all(0 <= row["eer_interval"][0] <= row["eer_interval"][1] <= 1 for row in report["results"])


def test_the_fine_tuning_goes_on_with_network_and_head(finished: Path) -> None:
    config = (finished / "exp" / "lm" / "config.yaml").read_text()
    assert f"init_from: {finished}/exp\n" in config
    for line in (
        "base_width: 4",
        "crop_frames: 60",
        "speeds:\n  - 1.0\n  warps",
        "margin: 0.5",
        f"noise: {finished}/data",
    ):
        assert line in config
    assert "head: its own, the classes of speed 1" in (finished / "exp" / "lm" / "logs" / "train.log").read_text()


def test_a_second_run_skips_everything_and_another_experiment_the_data(untouched: Path, corpora: Path) -> None:
    options = ["--data-dir", untouched / "data", *one_list(corpora), *TINY, *TINY_LM]
    again = recipe(corpora, "--exp-dir", untouched / "exp", *options).stdout
    assert [f"stage {number}: nothing has changed" in again for number in range(1, 9)] == [True] * 8
    other = recipe(corpora, "--exp-dir", untouched / "other", "--stop-stage", 2, *options).stdout
    assert [f"stage {number}: nothing has changed" in other for number in (1, 2)] == [True] * 2


def test_with_features_both_networks_train_and_embed_from_them(finished: Path, corpora: Path) -> None:
    data, exp_dir = finished / "data", finished / "on features"
    longer = {word.partition("=")[0] for word in ONE_EPOCH}
    training = [word for word in [*TINY, *TINY_LM] if word.partition("=")[0] not in {"data.speeds", *longer}]
    options = ["--features", "--data-dir", data, "--exp-dir", exp_dir, *one_list(corpora), *training, *ONE_EPOCH]
    made = recipe(corpora, *options, "--stop-stage", 6).stdout
    assert [f"stage {number}: nothing has changed" in made for number in (1, 2)] == [True] * 2
    assert made.count("crops are stretches of stored features (float32): no audio is read") == 2
    for corpus, utterances in (("vox1", 20), ("vox2", len(VOX2_DEV) * 4)):
        assert len(lines(data / "features" / corpus / "feats.scp")) == utterances
        for folder in (exp_dir, exp_dir / "lm"):
            assert len(lines(folder / "embeddings" / f"{corpus}.scp")) == utterances
            record = (folder / "embeddings" / f"{corpus}.yaml").read_text()
            assert f"data: {data}/features/{corpus}\n" in record
    config = (exp_dir / "lm" / "config.yaml").read_text()
    assert "noise: null" in config
    assert "source: features" in config
    again = recipe(corpora, *options, "--stop-stage", 6).stdout
    assert "=== stage 2: features" not in again
    assert "stage 6: nothing has changed" in again


def test_a_lost_embedding_is_made_again_alone(untouched: Path, corpora: Path) -> None:
    exp_dir = untouched / "exp"
    (exp_dir / ".stages" / "6").unlink()
    (exp_dir / "lm" / "embeddings" / "vox1.scp").unlink()
    before = (exp_dir / "embeddings" / "vox2.ark").stat().st_mtime_ns
    options = ["--data-dir", untouched / "data", "--exp-dir", exp_dir, *one_list(corpora), *TINY, *TINY_LM]
    made = recipe(corpora, *options, "--stop-stage", 6).stdout
    assert made.count("embeddings -> ") == 1
    assert "lm/embeddings/vox1.scp" in made
    assert (exp_dir / "embeddings" / "vox2.ark").stat().st_mtime_ns == before


def test_killed_in_training_and_in_fine_tuning_it_ends_with_the_same_bits(finished: Path, corpora: Path) -> None:
    exp_dir = finished / "killed"
    options = ["--data-dir", finished / "data", "--exp-dir", exp_dir, "--stop-stage", 5, *one_list(corpora)]
    options += [*TINY, *TINY_LM, "trainer.checkpoint_steps=1", "lm.trainer.checkpoint_steps=1"]
    for run, stage in ((exp_dir, 3), (exp_dir / "lm", 5)):
        kill_once_there(corpora, options, lambda run=run: any((run / "checkpoints").glob("state-*.pt")))
        assert not (exp_dir / ".stages" / str(stage)).exists(), "the run was over before it could be killed"
    resumed = recipe(corpora, *options).stdout
    assert "stage 4: nothing has changed" in resumed
    for run in (exp_dir, exp_dir / "lm"):
        assert "resuming after step" in (run / "logs" / "train.log").read_text()
    for model in MODELS:
        assert (exp_dir / model).read_bytes() == (finished / "exp" / model).read_bytes()


def kill_once_there(corpora: Path, options: list[object], there: Callable[[], bool]) -> None:
    """SIGKILL to the recipe and all that it started, as soon as a condition holds."""
    running = subprocess.Popen(
        command(corpora, *options),
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    end = time.monotonic() + 120
    while not there():
        assert running.poll() is None, running.communicate()[1][-3000:]
        assert time.monotonic() < end, "nothing was trained"
        time.sleep(0.005)
    os.killpg(running.pid, signal.SIGKILL)
    running.communicate()


def test_a_fine_tuning_of_other_weights_is_refused(untouched: Path, corpora: Path) -> None:
    exp_dir = untouched / "exp"
    begun = exp_dir / "lm" / "begun_with"
    content = begun.read_text()
    begun.write_text("0123\n")
    mark = exp_dir / ".stages" / "5"
    kept = mark.read_text()
    mark.unlink()
    options = ["--data-dir", untouched / "data", "--exp-dir", exp_dir, "--stage", 5, "--stop-stage", 5, *TINY, *TINY_LM]
    failed = recipe(corpora, *options, check=False)
    begun.write_text(content)
    mark.write_text(kept)
    assert failed.returncode == 1
    assert f"{exp_dir}/lm was fine-tuned from other weights than {exp_dir}/model has now" in failed.stderr


def test_shards_read_by_two_processes_give_the_same_training(finished: Path, corpora: Path) -> None:
    folder = finished / "shards"
    options = ["--source", "shards", "--devices", 2, "--no-lm", "shard.per_shard=7", "--data-dir", folder / "data"]
    options += ["--exp-dir", folder / "exp", "--trials", corpora / "trials", "--other-trials", "--stop-stage", 6]
    recipe(corpora, *options, *TINY, *TINY_LM)
    for corpus, count in (("vox1", 20), ("vox2", len(VOX2_DEV) * 4)):
        assert len(lines(folder / "data" / "shards" / corpus / "shards.scp")) == count
        assert len(list((folder / "data" / "shards" / corpus).glob("*.tar"))) == -(-count // 7)
        assert len(lines(folder / "exp" / "embeddings" / f"{corpus}.scp")) == count
    assert len(lines(folder / "data" / "vox1" / "trials_all_mini")) == 190
    config = (folder / "exp" / "config.yaml").read_text()
    assert "source: shards" in config
    assert "devices: 2" in config
    assert not (folder / "exp" / "lm").exists()
    # The same utterances, crops and micro-batches, whoever reads and computes them.
    one, two = (
        [record["loss"] for record in map(json.loads, lines(exp_dir / "logs" / "history.jsonl")) if "loss" in record]
        for exp_dir in (finished / "exp", folder / "exp")
    )
    assert len(one) == len(two) > 0
    assert two == pytest.approx(one, rel=1e-3)


SCORING = r"""
. "$1/scripts/stages.sh"
. "$1/recipes/voxceleb/inputs.sh"
svt() { # stands in: tells what it was asked for, and scores as many trials as there are
    printf '%s ' "$@"; echo
    [[ "$1" != score ]] || { mkdir -p "${7%/*}"; cp "$3" "$7"; }
}
data=data exp_dir=exp train_set=train limit="" top_n=600 score=(top_n=7) evaluate=(resamples=9)
find_evaluations
echo "${evaluations[@]}"
for evaluation in "${evaluations[@]}"; do
    for system in exp exp/lm; do
        for kind in cosine as-norm; do score_and_evaluate "$system/scores/$evaluation/$kind"; done
    done
done
"""


def test_every_list_is_scored_by_every_system_in_both_ways(tmp_path: Path) -> None:
    (tmp_path / "data" / "vox1").mkdir(parents=True)
    for name in ("E", "A_own", "O", "H"):
        (tmp_path / "data" / "vox1" / f"trials_{name}").write_text("a b target\n")
    done = subprocess.run(
        ["bash", "-c", SCORING, "recipe", str(ROOT)], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    first, *asked = done.stdout.splitlines()
    assert first == "O E H A_own"
    assert len(asked) == 2 * 4 * 2 * 2
    thresholds = [line.split("--store-threshold ")[1].split()[0] for line in asked if "--store-threshold" in line]
    assert thresholds == ["exp/model", "exp/lm/model"]
    named = [line.split("--name ")[1].split(" --")[0].split(" resamples")[0] for line in asked if "--name" in line]
    assert named[:6] == ["Vox1-O"] * 2 + ["Vox1-O, fine-tuned"] * 2 + ["Vox1-E"] * 2
    scored = [line for line in asked if line.startswith("score ")]
    assert scored[3] == (
        "score --trials data/vox1/trials_O --embeddings exp/lm/embeddings/vox1.scp --out exp/lm/scores/O/as-norm "
        "--utt2spk data/vox1/utt2spk --normalisation as-norm --cohort exp/lm/embeddings/vox2.scp "
        "--cohort-utt2spk train/utt2spk --subtract-mean true top_n=600 top_n=7 "
    )
    assert scored[4].endswith("--out exp/scores/E/cosine --utt2spk data/vox1/utt2spk --normalisation none ")


def test_embeddings_are_counted_without_those_that_failed(tmp_path: Path) -> None:
    (tmp_path / "e.scp").write_text("a e.ark:2\n")
    (tmp_path / "utt2spk").write_text("a x\nb x\nc x\n")
    script = '. "$1/scripts/stages.sh"; . "$1/recipes/voxceleb/inputs.sh"; exp_dir=exp; require_embeddings e utt2spk'
    for failures, status in (("failures:\n  b: 'b.wav: gone'\n  c: is cut off\n", 0), ("failures: {}\n", 1)):
        (tmp_path / "e.yaml").write_text(f"command: svt embed\n{failures}audio_seconds: 1.0\n")
        done = subprocess.run(["bash", "-c", script, "x", str(ROOT)], cwd=tmp_path, capture_output=True, check=False)
        assert done.returncode == status, done.stderr


def test_what_is_no_m4a_is_not_converted(corpora: Path, tmp_path: Path) -> None:
    for number, speaker in enumerate(VOX2_DEV[:2]):
        path = tmp_path / "vox2" / speaker / "video" / f"{number:05d}.flac"
        path.parent.mkdir(parents=True)
        shutil.copyfile(next((corpora / "vox1").rglob("*.wav")), path)
    options = ["--vox2", tmp_path / "vox2", "--data-dir", tmp_path / "data", "--exp-dir", tmp_path / "exp"]
    recipe(corpora, *options, *one_list(corpora), "--stop-stage", 2)
    assert len(lines(tmp_path / "data" / "vox2" / "utt2dur")) == 2
    assert not (tmp_path / "data" / "files" / "vox2").exists()
