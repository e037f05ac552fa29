from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import soundfile
from paths import SHARED

from svtoolkit.corpora import kaldi
from svtoolkit.data.kaldi_dir import KaldiDir, Segment
from svtoolkit.data.validation import validate
from svtoolkit.errors import UserError

RATE = 8000
DATA = SHARED / "data"


def prepare_kaldi(*arguments: Any, **options: Any) -> KaldiDir:
    return kaldi.prepare_kaldi(*arguments, **options).kaldi_dir


def write_wav(path: Path, seconds: float) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, [0.1, -0.1] * round(seconds * RATE / 2), RATE)
    return path


def make_source(folder: Path, utterances: dict[str, str], seconds: float = 0.5, **tables: str) -> Path:
    """utterances: id -> speaker; one file each in folder/wav."""
    for utterance in utterances:
        write_wav(folder / "wav" / f"{utterance}.wav", seconds)
    tables.setdefault("wav.scp", "".join(f"{utt} {folder}/wav/{utt}.wav\n" for utt in sorted(utterances)))
    tables["utt2spk"] = "".join(f"{utt} {spk}\n" for utt, spk in sorted(utterances.items()))
    for name, content in tables.items():
        (folder / name).write_text(content)
    return folder


def test_one_source_gets_durations_and_absolute_paths(tmp_path, monkeypatch):
    source = make_source(tmp_path / "a", {"x-1": "x", "y-1": "y"}, **{"wav.scp": "x-1 wav/x-1.wav\ny-1 wav/y-1.wav\n"})
    joined = prepare_kaldi([source], tmp_path / "a", jobs=2)
    assert joined.wav_scp == {utt: f"{source}/wav/{utt}.wav" for utt in ("x-1", "y-1")}
    assert joined.utt2spk == {"x-1": "x", "y-1": "y"}
    assert joined.utt2dur == {"x-1": 0.5, "y-1": 0.5}
    monkeypatch.chdir(source)
    assert prepare_kaldi(["."]) == joined
    joined.write(tmp_path / "out")
    assert validate(tmp_path / "out").ok


def test_listed_durations_are_kept(tmp_path):
    source = make_source(tmp_path / "a", {"x-1": "x", "x-2": "x"}, utt2dur="x-1 0.49\nx-2 0.51\n")
    assert prepare_kaldi([source]).utt2dur == {"x-1": 0.49, "x-2": 0.51}


def test_sources_are_joined(tmp_path):
    one = make_source(tmp_path / "a", {"x-1": "x", "x-2": "x"})
    two = make_source(tmp_path / "b", {"m-1": "m", "z-1": "z"}, 0.25, utt2dur="m-1 0.25\nz-1 0.25\n")
    joined = prepare_kaldi([str(one), two])
    assert joined.spk2utt == {"m": ["m-1"], "x": ["x-1", "x-2"], "z": ["z-1"]}
    assert joined.utt2dur == {"m-1": 0.25, "x-1": 0.5, "x-2": 0.5, "z-1": 0.25}
    assert joined.segments == {}


def test_segments_are_joined_with_whole_recordings(tmp_path):
    tape = write_wav(tmp_path / "tape.wav", 2.0)
    one = make_source(
        tmp_path / "a",
        {"x-1": "x", "x-2": "x"},
        **{"wav.scp": f"tape {tape}\n", "segments": "x-1 tape 0.25 0.75\nx-2 tape 1.5 -1\n"},
    )
    two = make_source(tmp_path / "b", {"y-1": "y"})
    joined = prepare_kaldi([one, two])
    assert joined.segments == {
        "x-1": Segment("tape", 0.25, 0.75),
        "x-2": Segment("tape", 1.5, None),
        "y-1": Segment("y-1", 0.0, None),
    }
    assert joined.utt2dur == {"x-1": 0.5, "x-2": 0.5, "y-1": 0.5}
    joined.write(tmp_path / "out")
    assert validate(tmp_path / "out").ok


def test_no_source():
    with pytest.raises(UserError, match="no source is given"):
        prepare_kaldi([])


def test_same_utterance_in_two_sources(tmp_path):
    one = make_source(tmp_path / "a", {"x-1": "x", "x-2": "x"})
    two = make_source(tmp_path / "b", {"x-2": "y", "y-1": "y"})
    message = re.escape(f"utterance 'x-2' is in both {one} and {two} (1 shared)")
    with pytest.raises(UserError, match=message):
        prepare_kaldi([one, two])
    with pytest.raises(UserError, match=re.escape(f"in both {one} and {one} (2 shared)")):
        prepare_kaldi([one, one])


def test_same_speaker_id_with_other_audio(tmp_path):
    one = make_source(tmp_path / "a", {"x-1": "x", "w-1": "w"})
    two = make_source(tmp_path / "b", {"y-1": "y"})
    three = make_source(tmp_path / "c", {"x-9": "x"})
    message = re.escape(f"speaker 'x' is in both {one} and {three} with different audio (1 such)")
    with pytest.raises(UserError, match=message):
        prepare_kaldi([one, two, three])


def test_same_speaker_is_known_by_a_shared_file(tmp_path):
    tape = write_wav(tmp_path / "tape.wav", 2.0)
    tables = {"wav.scp": f"tape {tape}\n"}
    one = make_source(tmp_path / "a", {"x-1": "x"}, segments="x-1 tape 0 1\n", **tables)
    two = make_source(tmp_path / "b", {"x-2": "x"}, segments="x-2 tape 1 2\n", **tables)
    joined = prepare_kaldi([one, two])
    assert joined.spk2utt == {"x": ["x-1", "x-2"]}
    assert joined.wav_scp == {"tape": str(tape)}


def test_same_recording_id_for_two_files(tmp_path):
    sources = []
    for name in ("a", "b"):
        tape = write_wav(tmp_path / f"tape-{name}.wav", 1.0)
        tables = {"wav.scp": f"tape {tape}\n", "segments": f"{name}-1 tape 0 1\n"}
        sources.append(make_source(tmp_path / name, {f"{name}-1": name}, **tables))
    message = re.escape(f"recording 'tape' is another file in each of {sources[0]} and {sources[1]} (1 such)")
    with pytest.raises(UserError, match=message):
        prepare_kaldi(sources)


def test_missing_audio_asks_for_the_root(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = make_source(tmp_path / "a", {"x-1": "x", "x-2": "x"}, **{"wav.scp": "x-1 wav/x-1.wav\nx-2 wav/x-2.wav\n"})
    with pytest.raises(UserError) as error:
        prepare_kaldi([source])
    assert str(error.value) == (
        f"{source}/wav.scp: 'x-1' lists wav/x-1.wav, but there is no file {tmp_path}/wav/x-1.wav (2 of 2 are missing); "
        "relative paths were taken from the working directory: give the folder they start from as root=..."
    )
    with pytest.raises(UserError, match=r"taken from root=.*nowhere: check that it is the folder"):
        prepare_kaldi([source], tmp_path / "nowhere")
    (source / "wav.scp").write_text("x-1 /gone.wav\nx-2 /gone2.wav\n")
    with pytest.raises(UserError, match=r"no file /gone\.wav .*; check the paths, or run `svt validate --fix`"):
        prepare_kaldi([source])


def test_faulty_tables_and_audio_are_refused(tmp_path):
    source = make_source(tmp_path / "a", {"x-1": "x", "x-2": "x"})
    (source / "wav" / "x-2.wav").write_text("no audio")
    with pytest.raises(UserError, match=r"1 of 2 audio files cannot be used: .*x-2\.wav: cannot be read as audio"):
        prepare_kaldi([source])
    (source / "utt2spk").write_text("x-1 x x\nx-2 x\n")
    with pytest.raises(UserError, match=r"utt2spk:1: found 'x-1 x x', expected 2 columns"):
        prepare_kaldi([source])


def test_open_segment_behind_the_end(tmp_path):
    tape = write_wav(tmp_path / "tape.wav", 1.0)
    source = make_source(tmp_path / "a", {"x-1": "x"}, **{"wav.scp": f"t {tape}\n", "segments": "x-1 t 1.0 -1\n"})
    with pytest.raises(UserError, match=r"'x-1' begins at 1 s, but .*tape\.wav is 1\.00 s long"):
        prepare_kaldi([source])


def test_two_real_corpora_are_joined():
    if not DATA.is_dir():
        pytest.skip("the real recordings are not beside the repository")
    joined = prepare_kaldi([DATA / "speechocean762" / "eval", DATA / "librispeech_mini" / "eval"], DATA)
    assert (len(joined.speakers), len(joined.utt2spk), len(joined.utt2dur)) == (60, 600, 600)
    assert sum(joined.utt2dur.values()) / 3600 == pytest.approx(0.70, abs=0.01)
