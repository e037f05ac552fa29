from __future__ import annotations

import errno
import gzip
import hashlib
import shutil
from pathlib import Path

import pytest
import soundfile
import yaml
from command_material import RATE, voice, write_audio, write_data

from svtoolkit.cli import main
from svtoolkit.corpora import voxceleb_trials
from svtoolkit.corpora.voxceleb_trials import OfficialList
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
    assert record["command"] == f"svt prepare corpus=folders source='[{folders}]' out={tmp_path}/data"
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
@pytest.mark.usefixtures("told_at_once")
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
    assert "synthesise: 8/8 utt (100 %)" in captured.err
    assert main(["validate", f"{tmp_path}/syn/train", "--against", f"{tmp_path}/syn/eval"]) == 0


def write_wavs(folder: Path, files: list[str]) -> Path:
    for number, file in enumerate(files):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(folder / file, voice(1, number, 0.9), RATE)
    return folder


@pytest.fixture
def vox1(tmp_path) -> Path:
    """2 speakers of the development part, 2 of the test part."""
    files = [f"id{speaker}/1zcIwhmdeo{number}/00001.wav" for speaker in (10001, 11251) for number in range(2)]
    write_wavs(tmp_path / "vox1" / "dev" / "wav", files)
    files = [f"id{speaker}/1zcIwhmdeo{number}/00001.wav" for speaker in (10270, 10309) for number in range(2)]
    return write_wavs(tmp_path / "vox1" / "test" / "wav", files).parents[1]


def write_list(path: Path, *pairs: str) -> Path:
    path.write_text("".join(f"{pair}\n" for pair in pairs))
    return path


PAIRS = (
    "1 id10270/1zcIwhmdeo0/00001.wav id10270/1zcIwhmdeo1/00001.wav",
    "0 id10270/1zcIwhmdeo0/00001.wav id10309/1zcIwhmdeo1/00001.wav",
)


def test_voxceleb1_with_its_trials(tmp_path, vox1, capsys, monkeypatch):
    clean = write_list(tmp_path / "veri_test2.txt", *PAIRS)
    hard = tmp_path / "list_test_hard2.txt.gz"
    hard.write_bytes(gzip.compress("\n".join(reversed(PAIRS)).encode()))
    md5 = [hashlib.md5(content).hexdigest() for content in (clean.read_bytes(), gzip.decompress(hard.read_bytes()))]
    lists = (OfficialList(clean.name, "O", 2, md5[0], None), OfficialList(hard.stem, "H", 2, md5[1], None))
    monkeypatch.setattr(voxceleb_trials, "OFFICIAL_LISTS", lists)
    words = ["corpus=voxceleb1", "--source", str(vox1), f"out={tmp_path}/data", "part=test", "jobs=2"]
    assert main(["prepare", *words, "--trials", f"['{clean}','{hard}']"]) == 0
    assert speakers(tmp_path / "data") == {"id10270", "id10309"}
    trials = read_trials(tmp_path / "data" / "trials_O")
    assert (trials.enrol[1], trials.test[1]) == ("id10270-1zcIwhmdeo0-00001", "id10309-1zcIwhmdeo1-00001")
    assert read_trials(tmp_path / "data" / "trials_H").target.tolist() == [False, True]
    assert not (tmp_path / "data" / "trials").exists()
    assert capsys.readouterr().out.splitlines() == [
        "voxceleb1 test: 2 speakers, 4 utterances: 38 of 40 speakers and 4870 of 4874 utterances are missing",
        f"{tmp_path}/data: 2 speakers, 4 utterances, 0.00 h",
        f"{tmp_path}/data/trials_O: 2 trials, 1 of them target",
        f"{tmp_path}/data/trials_H: 2 trials, 1 of them target",
    ]
    assert main(["validate", f"{tmp_path}/data"]) == 0


def test_trials_that_are_not_official(tmp_path, vox1, capsys):
    mine = write_list(tmp_path / "mine.txt", *PAIRS)
    words = ["prepare", "corpus=voxceleb1", "--source", str(vox1), f"out={tmp_path}/data", "--trials", str(mine)]
    assert main(words) == 1
    assert "mine.txt: is none of the lists of VoxCeleb1 (veri_test2.txt, " in capsys.readouterr().err
    assert main([*words, "other_trials=true", "part=dev"]) == 1
    assert "mine.txt:1: names 'id10270-1zcIwhmdeo0-00001', which is not in the data dir" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()
    assert main([*words, "other_trials=true"]) == 0
    assert len(read_trials(tmp_path / "data" / "trials_mine")) == 2
    (tmp_path / "again").mkdir()
    twice = f"['{mine}','{shutil.copy(mine, tmp_path / 'again')}']"
    assert main([*words[:-1], twice, "other_trials=true"]) == 1
    assert "again/mine.txt: would be trials_mine, which another list is already" in capsys.readouterr().err


def test_musan_and_impulse_responses(tmp_path, capsys):
    write_wavs(tmp_path / "musan", ["noise/free-sound/noise-free-sound-0000.wav", "music/fma/music-fma-0000.wav"])
    write_wavs(tmp_path / "RIRS_NOISES", ["simulated_rirs/smallroom/Room001/Room001-00001.wav"])
    for corpus, found in (("musan", {"noise", "music"}), ("rirs_noises", {"smallroom"})):
        assert main(["prepare", f"corpus={corpus}", "--source", str(tmp_path), f"out={tmp_path}/{corpus}_data"]) == 0
        assert speakers(tmp_path / f"{corpus}_data") == found
    assert (
        "rirs_noises: 1 simulated and 0 real impulse responses: the whole corpus has 60000" in capsys.readouterr().out
    )


def test_cnceleb_brings_its_trials(tmp_path):
    folder = tmp_path / "CN-Celeb_flac"
    write_wavs(folder, ["data/id00000/singing-01-001.wav", "eval/enroll/id00800-enroll.wav"])
    write_wavs(folder, ["eval/test/id00800-singing-01-001.wav", "eval/test/id00999-singing-01-001.wav"])
    (folder / "eval" / "lists").mkdir()
    tests = [
        f"id00800-enroll test/{name}-singing-01-001.wav {label}" for name, label in (("id00800", 1), ("id00999", 0))
    ]
    write_list(folder / "eval" / "lists" / "trials.lst", *tests)
    words = ["corpus=cnceleb", "--source", str(folder)]
    assert main(["prepare", *words, f"out={tmp_path}/test", "part=test"]) == 0
    assert read_trials(tmp_path / "test" / "trials").target.tolist() == [True, False]
    assert main(["validate", f"{tmp_path}/test"]) == 0
    assert main(["prepare", *words, f"out={tmp_path}/all"]) == 0
    assert not (tmp_path / "all" / "trials").exists()


def test_bad_files_are_listed_and_so_many_may_be(tmp_path, folders, capsys):
    """15 files, two of them bad: a cut off one and an empty one."""
    cut, empty = folders / "s00" / "s00-1.wav", folders / "s03" / "s03-0.wav"
    cut.write_bytes(cut.read_bytes()[:5000])
    empty.write_bytes(b"")
    words = ["prepare", "corpus=folders", "--source", str(folders), f"out={tmp_path}/data", "jobs=2"]
    listing = tmp_path / "data" / "bad_files.tsv"
    for max_bad, allowed in (("0", 0), ("0.1", 1)):
        assert main([*words, f"max_bad={max_bad}"]) == 1
        message = f"error: 2 of 15 files cannot be used, with max_bad={max_bad} {allowed} may be: {cut}: holds "
        assert message in capsys.readouterr().err
        assert not (tmp_path / "data" / "wav.scp").exists()
        lines = [line.split("\t") for line in listing.read_text().splitlines()]
        assert [line[:2] for line in lines[1:]] == [["s00-s00-1", str(cut)], ["s03-s03-0", str(empty)]]
        assert "the file is cut off; copy or unpack it again" in lines[1][2]
        assert "cannot be read as audio" in lines[2][2]
    assert main([*words, "max_bad=0.2"]) == 0
    assert f"{listing}: 2 of 15 files cannot be used and are left out\n" in capsys.readouterr().out
    data = KaldiDir.read(tmp_path / "data")
    assert len(data.utt2spk) == len(data.utt2dur) == 13
    assert not {"s00-s00-1", "s03-s03-0"} & data.utt2spk.keys()
    for path in (cut, empty):
        path.unlink()
    assert main(words) == 0
    assert not listing.exists()


def test_nothing_but_bad_files(tmp_path, capsys):
    (tmp_path / "speech" / "ann").mkdir(parents=True)
    (tmp_path / "speech" / "ann" / "one.wav").write_bytes(b"")
    words = ["corpus=folders", "--source", f"{tmp_path}/speech", f"out={tmp_path}/data", "max_bad=1"]
    assert main(["prepare", *words]) == 1
    assert "1 of 1 files cannot be used" in capsys.readouterr().err


@pytest.mark.usefixtures("told_at_once")
def test_progress_of_the_headers_is_shown(tmp_path, folders, capsys):
    assert main(["prepare", "corpus=folders", "--source", str(folders), f"out={tmp_path}/data"]) == 0
    assert "headers: 15/15 file (100 %)" in capsys.readouterr().err


def test_too_few_utterances_for_trials_leave_nothing_behind(tmp_path, capsys):
    write_audio(tmp_path / "speech", range(3), 1)
    words = ["corpus=folders", "--source", f"{tmp_path}/speech", f"out={tmp_path}/data"]
    assert main(["prepare", *words, "draw_trials=true"]) == 1
    assert "3 speakers with 0 within-speaker pairs cannot make trials" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


def test_trial_lists_of_a_former_run_are_spoken_of(tmp_path, folders, capsys):
    words = ["prepare", "corpus=folders", "--source", str(folders), f"out={tmp_path}/data"]
    assert main([*words, "draw_trials=true"]) == 0
    assert "earlier run" not in capsys.readouterr().out
    assert main(words) == 0
    message = f"{tmp_path}/data/trials is left from an earlier run; delete it unless it belongs to these utterances\n"
    assert capsys.readouterr().out.endswith(message)


def test_a_folder_that_cannot_be_written_to(tmp_path, folders, capsys):
    words = ["prepare", "corpus=folders", "--source", str(folders)]
    (tmp_path / "file").touch()
    assert main([*words, f"out={tmp_path}/file"]) == 1
    assert f"error: out={tmp_path}/file is a file, expected the folder to write" in capsys.readouterr().err
    for inner in ("data", "s00/data"):
        assert main([*words, f"out={folders}/{inner}"]) == 1
        assert f"{inner} lies in the source {folders}, whose folders are taken for spe" in capsys.readouterr().err
        assert not (folders / inner).exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["corpus=folders", "limit_speakers=3"], "limit_speakers: for corpus=voxceleb1|voxceleb2 only; leave it out"),
        (["corpus=voxceleb2", "limit_speakers=1"], "limit_speakers is 1, expected 2 or more, or null for all"),
        (["corpus=voxceleb3"], "there is no corpus 'voxceleb3'; did you mean 'voxceleb2'? (all: synthetic, "
         "kaldi, folders, librispeech, musan, rirs_noises, noise, rirs, voxceleb1, voxceleb2, cnceleb)"),
        (["corpus=voxceleb1", "source=[a]", "part=train"], "part is 'train', expected one of all, dev, test"),
        (["corpus=musan", "source=[a]", "part=dev"],
         "part: for corpus=voxceleb1|voxceleb2|cnceleb only; leave it out"),
        (["corpus=voxceleb2", "source=[a]", "trials=[b]", "other_trials=true"],
         "trials, other_trials: for corpus=voxceleb1 only; leave it out"),
        (["corpus=voxceleb1", "source=[a]", "trials=[b]", "eval_speakers=2"],
         "trials are of the corpus as it is; leave out eval_speakers, which splits it"),
        (["corpus=voxceleb1", "source=[a]", "other_trials=true"],
         "other_trials says what trials may be; give them as trials=[...]"),
        (["corpus=voxceleb1", "source=[a,b]"], "corpus=voxceleb1: source lists 2 folders, expected one folder"),
        (["corpus=folders"], "corpus=folders: source lists 0 folders, expected one folder"),
        (["corpus=folders", "source=[a,b]"], "corpus=folders: source lists 2 folders, expected one folder"),
        (["corpus=kaldi"], "corpus=kaldi: source lists 0 folders, expected one data directory or more"),
        (["corpus=folders", "source=[a]", "root=r"], "corpus=folders finds files below its source; leave out root"),
        (["corpus=synthetic", "source=[a]"], "corpus=synthetic makes its own speech; leave out source and root"),
        (["corpus=synthetic", "root=r"], "corpus=synthetic makes its own speech; leave out source and root"),
        (["corpus=folders", "source=[a]", "speakers=5", "sample_rate=8000"],
         "speakers, sample_rate: for corpus=synthetic only; leave it out"),
        (["corpus=kaldi", "source=[nowhere]"], "nowhere"),
        (["corpus=folders", "source=[a]", "jobs=0"], "jobs is 0, expected 1 or more"),
        (["corpus=folders", "source=[a]", "targets_per_speaker=0"], "targets_per_speaker is 0, expected 1 or more"),
        (["corpus=folders", "source=[a]", "max_bad=1.5"], "max_bad is 1.5, expected a share of the files from 0 to 1"),
        (["corpus=kaldi", "source=[a]", "max_bad=0.5"], "max_bad: for corpus=folders|librispeech|musan|rirs_noises|"),
        (["corpus=folders", "source=[a]", "eval_speakers=1"], "eval_speakers is 1, expected 2 or more, whose trials"),
        (["corpus=folders", "source=[a]", "eval_speakers=-1"], "eval_speakers is -1, expected 2 or more, whose trials"),
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


def test_a_full_disk_leaves_no_half_of_a_table(tmp_path, folders, capsys, monkeypatch):
    words = ["prepare", "corpus=folders", "--source", str(folders), f"out={tmp_path}/data", "draw_trials=true"]
    written = []

    def fill_up(descriptor: int) -> None:
        written.append(descriptor)
        if len(written) > 4:  # of two tables: each flushes its file and its folder
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("svtoolkit.system.atomic.os.fsync", fill_up)
        assert main(words) == 1
    message = (
        f"error: {tmp_path}/data/spk2utt: No space left on device; check the path, its permissions and the free disk"
    )
    assert message in capsys.readouterr().err
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == ["utt2spk", "wav.scp"]
    assert main(words) == 0
    assert main(["validate", f"{tmp_path}/data"]) == 0
