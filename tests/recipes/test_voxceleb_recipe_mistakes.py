"""What recipes/voxceleb/run.sh says to options, overrides and corpora that cannot be."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from m4a_material import write_m4a
from voxceleb_material import RUN, VIDEOS, VOX1_TEST, VOX2_DEV, one_list, recipe

pytest.importorskip("av", reason="PyAV (extra voxceleb) is not installed")


@pytest.mark.parametrize(
    ("arguments", "messages"),
    [
        (["--vox2="], ["--vox2 needs a value"]),
        (["--vox2", "nowhere"], ["--vox2 nowhere: there is no such folder: download VoxCeleb2", "vox2_dev_aac_partaa"]),
        (["--musan", "nowhere"], ["download MUSAN: musan.tar.gz from https://www.openslr.org/17/"]),
        ([], ["/vox1/veri_test2.txt is missing: download the trial lists", "list_test_hard2.txt", "--trials DIR"]),
        (["--trials", "nowhere"], ["--trials nowhere: there is no such folder"]),
        (["--other-trials"], ["--other-trials needs --trials DIR"]),
        (["--source", "tar"], ["--source takes files or shards, found 'tar'"]),
        (["--devices", "0"], ["--devices takes a whole number of 1 or more, found '0'"]),
        (["--data", "x"], ["unknown option '--data': known are --vox1 --vox2 --musan --rirs --trials"]),
        (["--no-lm=yes"], ["--no-lm takes no value"]),
    ],
)
def test_bad_options_are_refused_in_a_sentence(
    arguments: list[str], messages: list[str], corpora: Path, tmp_path: Path
) -> None:
    failed = recipe(corpora, "--data-dir", tmp_path / "data", "--exp-dir", tmp_path / "exp", *arguments, check=False)
    assert failed.returncode == 1
    assert [message for message in messages if message not in failed.stderr] == []
    assert list(tmp_path.iterdir()) == []


def test_a_corpus_that_is_not_given(tmp_path: Path) -> None:
    done = subprocess.run(["bash", str(RUN), "--vox1", str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "--vox2 is missing: download VoxCeleb2: vox2_dev_aac_partaa to _partah, joined from https://" in done.stderr
    assert "unpack it and name the folder: --vox2 DIR" in done.stderr


@pytest.mark.parametrize(
    ("overrides", "messages"),
    [
        (["optim.lrr=1"], ["did you mean 'optim.lr'?"]),
        (["--model", "resnet43"], ["did you mean 'resnet34'?"]),
        (["lm.experiment=voxceleb_ml"], ["did you mean 'voxceleb_lm'?", "--no-lm leaves it out"]),
        (["lm.trainer.epoch=1"], ["did you mean 'trainer.epochs'?"]),
    ],
)
def test_a_wrong_override_shows_before_anything_is_prepared(
    overrides: list[str], messages: list[str], corpora: Path, tmp_path: Path
) -> None:
    places = ["--data-dir", tmp_path / "data", "--exp-dir", tmp_path / "exp", *one_list(corpora)]
    failed = recipe(corpora, *places, *overrides, check=False)
    assert failed.returncode == 1
    assert [message for message in messages if message not in failed.stderr] == []
    assert list(tmp_path.iterdir()) == []


def test_a_bad_wav_is_named_and_may_be_left_out(corpora: Path, tmp_path: Path) -> None:
    """Cut off, and of a speaker who is in no trial of the list."""
    shutil.copytree(corpora / "vox1", tmp_path / "vox1")
    cut = tmp_path / "vox1" / "dev" / "wav" / "id10001" / "-21Uxsk56VD" / "00000.wav"
    cut.write_bytes(cut.read_bytes()[:5000])
    places = ["--data-dir", tmp_path / "data", "--exp-dir", tmp_path / "exp", "--stop-stage", 1]
    options = [*places, "--vox1", tmp_path / "vox1", *one_list(corpora)]
    failed = recipe(corpora, *options, check=False)
    assert failed.returncode == 1
    assert f"1 of 20 files cannot be used, with max_bad=0 0 may be: {cut}: holds" in failed.stderr
    listing = tmp_path / "data" / "vox1" / "bad_files.tsv"
    assert f"id10001--21Uxsk56VD-00000\t{cut}\t" in listing.read_text()
    recipe(corpora, *options, "prepare.max_bad=0.05")
    assert len((tmp_path / "data" / "vox1" / "utt2spk").read_text().splitlines()) == 19


def test_what_was_unpacked_later_is_listed(corpora: Path, tmp_path: Path) -> None:
    places = ["--data-dir", tmp_path / "data", "--exp-dir", tmp_path / "exp", "--stop-stage", 1]
    shutil.copytree(corpora / "vox2", tmp_path / "vox2")
    late = tmp_path / "vox2" / "dev" / "aac" / "id00053"
    video = next(folder for folder in sorted(late.iterdir()))
    video.rename(tmp_path / "later")
    options = [*places, "--vox2", tmp_path / "vox2", *one_list(corpora)]
    recipe(corpora, *options)
    listed = tmp_path / "data" / "vox2" / "utt2spk"
    assert len(listed.read_text().splitlines()) == 22
    (tmp_path / "later").rename(video)
    recipe(corpora, *options)
    assert len(listed.read_text().splitlines()) == 24
    before = listed.stat().st_mtime_ns
    recipe(corpora, *options)
    assert listed.stat().st_mtime_ns == before


def test_bad_corpora_end_the_first_stage(corpora: Path, tmp_path: Path) -> None:
    places = ["--data-dir", tmp_path / "data", "--exp-dir", tmp_path / "exp", "--stop-stage", 1]
    lists, empty, archives = tmp_path / "lists", tmp_path / "empty", tmp_path / "archives"
    for folder in (lists, empty, archives):
        folder.mkdir()
    absent = f"1 {VOX1_TEST[0]}/2DLq_Kkc1r8/00001.wav {VOX1_TEST[0]}/2DLq_Kkc1r8/00099.wav\n"
    (lists / "mine.txt").write_text((corpora / "trials" / "veri_mini.txt").read_text() + absent)
    (archives / "musan.tar.gz").write_bytes(b"half of it")
    for options, message in (
        (["--trials", lists, "--other-trials"], f"mine.txt:67: names '{VOX1_TEST[0]}-2DLq_Kkc1r8-00099', which is not"),
        (["--musan", empty, *one_list(corpora)], f"{empty}: none of noise, music, speech is in it"),
        (["--archives", archives, *one_list(corpora)], "musan.tar.gz: has md5"),
    ):
        failed = recipe(corpora, *places, *options, check=False)
        assert failed.returncode == 1
        assert message in failed.stderr
        assert not (tmp_path / "data" / ".stages" / "1").exists()


def test_a_silent_file_to_train_on_is_left_out_and_listed(corpora: Path, tmp_path: Path) -> None:
    shutil.copytree(corpora / "vox2", tmp_path / "vox2")
    silent = tmp_path / "vox2" / "dev" / "aac" / VOX2_DEV[2] / VIDEOS[0] / "00002.m4a"
    assert silent.is_file()
    write_m4a(silent, np.zeros(16000))
    places = ["--data-dir", tmp_path / "data", "--exp-dir", tmp_path / "exp", "--stop-stage", 2]
    options = [*places, "--vox2", tmp_path / "vox2", *one_list(corpora)]
    recipe(corpora, *options)
    converted = tmp_path / "data" / "files" / "vox2"
    name = f"{VOX2_DEV[2]}-{VIDEOS[0]}-00002"
    assert len((converted / "utt2spk").read_text().splitlines()) == 23
    assert name not in (converted / "wav.scp").read_text()
    _, line = (converted / "bad_files.tsv").read_text().splitlines()
    assert line.startswith(f"{name}\t{converted}/audio/{VOX2_DEV[2]}/{name}.flac\t")
    assert "is silent" in line
    again = recipe(corpora, *options).stdout
    assert [f"stage {number}: nothing has changed" in again for number in (1, 2)] == [True] * 2
    failed = recipe(corpora, *options, "validate.max_bad=0", check=False)
    assert failed.returncode == 1
    assert f"'{name}' is silent" in failed.stderr
