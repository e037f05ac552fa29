from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import soundfile
import yaml
from command_material import RATE, voice, write_audio, write_data

from svtoolkit.cli import main
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.data.trials import read_trials

try:
    import espeakng_loader
except ImportError:
    espeakng_loader = None


def speakers(folder: Path) -> set[str]:
    return set(KaldiDir.read(folder).utt2spk.values())


@pytest.fixture
def folders(tmp_path) -> Path:
    """5 folders of 3 files."""
    write_audio(tmp_path / "speech", range(5), 3)
    return tmp_path / "speech"


def test_a_folder_a_speaker(tmp_path, folders, capsys):
    assert main(["prepare", "corpus=folders", "--source", str(folders), f"out={tmp_path}/data", "jobs=2"]) == 0
    data = KaldiDir.read(tmp_path / "data")
    assert set(data.utt2spk.values()) == {"s00", "s01", "s02", "s03", "s04"}
    assert len(data.utt2spk) == len(data.utt2dur) == 15
    assert min(data.utt2dur.values()) == pytest.approx(0.9)
    assert capsys.readouterr().out == f"{tmp_path}/data: 5 speakers, 15 utterances, 0.00 h\n"
    assert not (tmp_path / "data" / "trials").exists()
    assert main(["validate", str(tmp_path / "data")]) == 0


def test_the_command_is_kept_with_the_data(tmp_path, folders):
    words = ["corpus=folders", f"source=[{folders}]", f"out={tmp_path}/data"]
    assert main(["prepare", *words]) == 0
    record = yaml.safe_load((tmp_path / "data" / "made_by.yaml").read_text())
    assert record["command"] == f"svt prepare corpus=folders 'source=[{folders}]' out={tmp_path}/data"
    assert (record["corpus"], record["source"]) == ("folders", [str(folders)])


def test_trials_of_all_are_drawn_where_they_are_asked_for(tmp_path, folders, capsys):
    words = ["prepare", "corpus=folders", "--source", str(folders), f"out={tmp_path}/data", "targets_per_speaker=2"]
    assert main([*words, "draw_trials=true"]) == 0
    trials = read_trials(tmp_path / "data" / "trials")
    assert (len(trials), trials.target.sum()) == (20, 10)
    assert capsys.readouterr().out.endswith(f"{tmp_path}/data/trials: 20 trials, 10 of them target\n")


def test_a_split_by_speaker(tmp_path, folders):
    words = ["corpus=folders", "--source", str(folders), f"out={tmp_path}/data", "eval_speakers=2"]
    assert main(["prepare", *words, "seed=1"]) == 0
    train, evaluation = speakers(tmp_path / "data" / "train"), speakers(tmp_path / "data" / "eval")
    assert (len(train), len(evaluation)) == (3, 2)
    assert not train & evaluation
    assert read_trials(tmp_path / "data" / "eval" / "trials").utterances <= set(
        KaldiDir.read(tmp_path / "data" / "eval").utt2spk
    )
    assert not (tmp_path / "data" / "wav.scp").exists()
    for part in ("train", "eval"):
        record = yaml.safe_load((tmp_path / "data" / part / "made_by.yaml").read_text())
        assert record["command"].endswith("seed=1")
    drawn = {
        frozenset(speakers(tmp_path / f"seed{seed}" / "eval"))
        for seed in range(4)
        if main(["prepare", *words, f"seed={seed}", f"out={tmp_path}/seed{seed}"]) == 0
    }
    assert len(drawn) > 1


def test_librispeech(tmp_path, capsys):
    for speaker in ("84", "174"):
        folder = tmp_path / "LibriSpeech" / "dev-clean" / speaker / "1"
        folder.mkdir(parents=True)
        for number in range(2):
            soundfile.write(folder / f"{speaker}-1-{number:04d}.flac", voice(int(speaker), number, 1.0), RATE)
    words = ["corpus=librispeech", "--source", str(tmp_path / "LibriSpeech"), f"out={tmp_path}/data"]
    assert main(["prepare", *words]) == 0
    assert len(speakers(tmp_path / "data")) == 2
    assert "2 speakers, 4 utterances" in capsys.readouterr().out


@pytest.fixture
def two_sources(tmp_path) -> list[str]:
    """Two data directories whose paths are relative to tmp_path."""
    sources = []
    for name, numbers in (("one", range(2)), ("two", range(2, 4))):
        data = write_data(tmp_path / name, numbers, 2, trials=True)
        table = (data / "wav.scp").read_text().replace(f"{tmp_path}/", "")
        (data / "wav.scp").write_text(table)
        sources.append(str(data))
    return sources


def test_kaldi_directories_are_joined_from_their_root(tmp_path, two_sources, capsys):
    source = f"['{two_sources[0]}','{two_sources[1]}']"
    words = ["prepare", "--corpus", "kaldi", "--source", source, "--out", str(tmp_path / "joined")]
    assert main(words) == 1
    assert "give the folder they start from as root=..." in capsys.readouterr().err
    assert not (tmp_path / "joined").exists()
    assert main([*words, "--root", str(tmp_path)]) == 0
    assert speakers(tmp_path / "joined") == {"s00", "s01", "s02", "s03"}
    assert all(Path(path).is_absolute() for path in KaldiDir.read(tmp_path / "joined").wav_scp.values())
    assert not (tmp_path / "joined" / "trials").exists()  # the lists of two sources are not one list


def test_trials_of_one_kaldi_directory_come_along(tmp_path, two_sources):
    shutil.copy(f"{two_sources[0]}/trials", f"{two_sources[0]}/trials_hard")
    words = ["corpus=kaldi", "--source", two_sources[0], f"out={tmp_path}/copy", f"root={tmp_path}"]
    assert main(["prepare", *words, "draw_trials=true", "targets_per_speaker=1"]) == 0
    for name in ("trials", "trials_hard"):
        assert (tmp_path / "copy" / name).read_bytes() == Path(two_sources[0], "trials").read_bytes()


def test_trials_are_drawn_where_the_source_brings_none(tmp_path, two_sources):
    Path(two_sources[0], "trials").unlink()
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "trials").write_text("left by another corpus\n")
    words = ["corpus=kaldi", "--source", two_sources[0], f"out={tmp_path}/copy", f"root={tmp_path}"]
    assert main(["prepare", *words, "draw_trials=true"]) == 0
    assert read_trials(tmp_path / "copy" / "trials").utterances <= set(KaldiDir.read(tmp_path / "copy").utt2spk)


@pytest.mark.skipif(espeakng_loader is None, reason="espeakng-loader (extra demo) is not installed")
def test_the_synthetic_corpus(tmp_path, capsys):
    words = ["corpus=synthetic", f"out={tmp_path}/syn", "speakers=4", "eval_speakers=2", "utterances_per_speaker=2"]
    assert main(["prepare", *words, "sample_rate=8000", "seed=5"]) == 0
    assert speakers(tmp_path / "syn" / "train") == {"syn001", "syn002"}
    assert speakers(tmp_path / "syn" / "eval") == {"syn003", "syn004"}
    trials = read_trials(tmp_path / "syn" / "eval" / "trials")
    assert (len(trials), trials.target.sum()) == (4, 2)
    path = next(iter(KaldiDir.read(tmp_path / "syn" / "eval").wav_scp.values()))
    assert soundfile.info(path).samplerate == 8000
    captured = capsys.readouterr()
    assert "2 speakers, 4 utterances" in captured.out
    assert "8/8" in captured.err
    assert main(["validate", f"{tmp_path}/syn/train", "--against", f"{tmp_path}/syn/eval"]) == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["corpus=voxceleb3"], "corpus is 'voxceleb3', expected one of synthetic, kaldi, folders, librispeech"),
        (["corpus=folders"], "corpus=folders: source lists 0 folders, expected one folder"),
        (["corpus=folders", "source=[a,b]"], "corpus=folders: source lists 2 folders, expected one folder"),
        (["corpus=kaldi"], "corpus=kaldi: source lists 0 folders, expected one data directory or more"),
        (["corpus=folders", "source=[a]", "root=r"], "corpus=folders finds files below its source; leave out root"),
        (["corpus=synthetic", "source=[a]"], "corpus=synthetic makes its own speech; leave out source and root"),
        (["corpus=synthetic", "root=r"], "corpus=synthetic makes its own speech; leave out source and root"),
        (["corpus=folders", "source=[a]", "speakers=5", "sample_rate=8000"],
         "speakers, sample_rate: for corpus=synthetic only, which makes its speech; leave it out"),
        (["corpus=kaldi", "source=[nowhere]"], "nowhere"),
    ],
)  # fmt: skip
def test_options_that_do_not_go_together(tmp_path, capsys, words, message):
    assert main(["prepare", *words, f"out={tmp_path}/out"]) == 1
    assert capsys.readouterr().err.startswith(f"error: {message}")
    assert not (tmp_path / "out").exists()


def test_a_source_is_not_overwritten(tmp_path, two_sources, capsys):
    words = ["corpus=kaldi", "--source", two_sources[0], f"root={tmp_path}"]
    assert main(["prepare", *words, f"out={tmp_path}/two/../one"]) == 1
    message = f"error: out={tmp_path}/two/../one would overwrite the source {two_sources[0]}; choose another folder\n"
    assert capsys.readouterr().err == message
    (tmp_path / "one").rename(tmp_path / "train")
    words = ["corpus=kaldi", "--source", f"{tmp_path}/train", f"root={tmp_path}", "eval_speakers=1"]
    assert main(["prepare", *words, f"out={tmp_path}"]) == 1
    assert "would overwrite the source" in capsys.readouterr().err


def test_more_evaluation_speakers_than_there_are(tmp_path, folders, capsys):
    words = ["corpus=folders", "--source", str(folders), f"out={tmp_path}/data", "eval_speakers=5"]
    assert main(["prepare", *words]) == 1
    assert "eval_speakers is 5, which leaves none of 5 to train on" in capsys.readouterr().err
