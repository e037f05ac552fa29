"""recipes/voxceleb/run.sh from the archives on, with a few speakers: all stages in miniature."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from archive_material import tree, write_archives
from voxceleb_material import VOX1_DEV, VOX1_TEST, VOX2_DEV, recipe

from svtoolkit.corpora.rehearsal import choose_speakers

pytest.importorskip("av", reason="PyAV (extra voxceleb) is not installed")

# No number of speakers, epochs or closest speakers: the rehearsal has its own.
TINY = [
    "archives.check=false", "model=resnet10", "model.base_width=4", "model.embedding_dim=16", "features.num_bins=24",
    "data.crop_frames=40", "data.num_workers=0", "trainer.batch_size=8", "trainer.threads=1", "trainer.device=cpu",
    "embed.threads=1", "evaluate.resamples=20", "report.resamples=20", "lm.data.crop_frames=60",
    "lm.trainer.batch_size=4",
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(corpora: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In a path with a space: archives/ of the corpora with their lists."""
    folder = tmp_path_factory.mktemp("vox celeb")
    write_archives(corpora, folder / "archives")
    for path in (corpora / "trials").iterdir():
        (folder / "archives" / path.name).write_bytes(path.read_bytes())
    return folder


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def test_all_stages_from_the_archives_on_four_speakers(folder: Path, corpora: Path) -> None:
    archives, exp_dir = folder / "archives", folder / "exp"
    words = ["--archives", archives, "--data-dir", folder / "data", "--exp-dir", exp_dir, "--limit-speakers", 4]
    first = recipe(None, *words, "--other-trials", *TINY)
    data = folder / "data" / "of-4-speakers"
    assert "=== stage 0: check and unpack the archives" in first.stdout
    assert tree(folder / "data" / "corpora" / "musan" / "musan") == tree(corpora / "musan")
    chosen = choose_speakers(VOX2_DEV, 4)
    assert sorted({line.split()[1] for line in lines(data / "files" / "vox2" / "utt2spk")}) == chosen
    unpacked = folder / "data" / "corpora" / "vox2" / "dev" / "aac"
    assert sorted(path.name for path in unpacked.iterdir()) == chosen
    speakers = {line.split()[1] for line in lines(data / "vox1" / "utt2spk")}
    assert len(speakers) == 4
    assert speakers < {*VOX1_DEV, *VOX1_TEST}
    for name in ("veri_mini", "all_mini"):
        labels = {line.split()[2] for line in lines(data / "vox1" / f"trials_{name}_of_4_speakers")}
        assert labels == {"target", "nontarget"}
    config = (exp_dir / "config.yaml").read_text()
    assert "epochs: 2\n" in config
    assert "speakers: 2\n" in config
    assert f"noise: {data}/musan" in config
    assert "epochs: 1\n" in (exp_dir / "lm" / "config.yaml").read_text()
    assert len(lines(exp_dir / "embeddings" / "vox2.scp")) == 16
    report = json.loads((exp_dir / "report" / "result.json").read_text())
    named = {(row["evaluation"], row["scores"]) for row in report["results"]}
    assert ("Vox1-veri_mini_of_4_speakers", "as-norm") in named
    assert len(report["results"]) == 2 * 2 * 2
    again = recipe(None, *words, "--other-trials", *TINY).stdout
    assert [f"stage {number}: nothing has changed" in again for number in range(9)] == [True] * 9
    words[words.index(exp_dir)] = folder / "on features"
    stored = recipe(None, *words, "--other-trials", "--features", "--no-lm", *TINY, "--stop-stage", 3).stdout
    assert [f"stage {number}: nothing has changed" in stored for number in range(3)] == [True] * 3
    assert len(lines(data / "features" / "vox1" / "feats.scp")) == len(lines(data / "vox1" / "utt2spk"))
    assert sorted({line.split()[1] for line in lines(data / "features" / "vox2" / "utt2spk")}) == chosen
    assert "crops are stretches of stored features (float32): no audio is read" in stored
    assert "8 utterances, 0.00 h; 2 speakers x 1 speeds = 2 classes, 2 more held out for validation" in stored


def test_the_whole_after_a_rehearsal_unpacks_what_is_missing(folder: Path, corpora: Path, tmp_path: Path) -> None:
    words = ["--archives", folder / "archives", "--data-dir", tmp_path / "data", "--exp-dir", tmp_path / "exp"]
    words += ["--other-trials", *TINY, "--musan", corpora / "musan"]
    words += ["--rirs", corpora / "RIRS_NOISES"]
    recipe(None, *words, "--limit-speakers", 5, "--stop-stage", 0)
    unpacked = tmp_path / "data" / "corpora"
    assert len(list((unpacked / "vox2" / "dev" / "aac").iterdir())) == 5
    before = {path: path.stat().st_mtime_ns for path in unpacked.rglob("*.m4a")}
    recipe(None, *words, "--stop-stage", 1)
    assert len(list((unpacked / "vox2" / "dev" / "aac").iterdir())) == len(VOX2_DEV)
    assert before.items() <= {path: path.stat().st_mtime_ns for path in before}.items()
    assert not (unpacked / "musan").exists(), "it was given"
    assert len(lines(tmp_path / "data" / "vox2" / "utt2spk")) == 4 * len(VOX2_DEV)
    assert len(lines(tmp_path / "data" / "vox1" / "trials_all_mini")) == 190


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--limit-speakers", "3"], "--limit-speakers takes a whole number of 4 or more, found '3'"),
        (["--limit-speakers", "few"], "--limit-speakers takes a whole number of 4 or more, found 'few'"),
        (["--archives", "nowhere"], "--archives nowhere: there is no such folder"),
        (["--archives", "{archives}"], "veri_test2.txt is missing: download the trial lists"),
    ],
)
def test_mistakes(words: list[str], message: str, folder: Path, tmp_path: Path) -> None:
    places = ["--data-dir", tmp_path / "data", "--exp-dir", tmp_path / "exp"]
    failed = recipe(None, *places, *(word.format(archives=folder / "archives") for word in words), check=False)
    assert failed.returncode == 1
    assert message in failed.stderr
    assert not list(tmp_path.iterdir())


def test_an_archive_that_is_not_there_is_named_before_anything_is_read(folder: Path, tmp_path: Path) -> None:
    archives = tmp_path / "archives"
    archives.mkdir()
    for path in (folder / "archives").iterdir():
        if path.name != "vox2_dev_aac_partad":
            (archives / path.name).symlink_to(path)
    places = ["--data-dir", tmp_path / "data", "--exp-dir", tmp_path / "exp", "--archives", archives]
    failed = recipe(None, *places, "--other-trials", *TINY, check=False)
    assert failed.returncode == 1
    assert f"{archives}: lacks vox2_dev_aac_partad of vox2 (or vox2_dev_aac.zip); download" in failed.stderr
    assert not (tmp_path / "data" / "corpora" / "vox1").exists()
