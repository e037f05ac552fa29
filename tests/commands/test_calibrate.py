"""svt calibrate: what it stores and says, and what it leaves out."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile
import yaml
from command_material import RATE, write_data

from svtoolkit import load_model
from svtoolkit.cli import main
from svtoolkit.data.kaldi_dir import KaldiDir


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six speakers of three recordings."""
    return write_data(tmp_path_factory.mktemp("people"), range(40, 46), utterances=3)


@pytest.fixture
def copy(tmp_path: Path, model: Path) -> Path:
    return Path(shutil.copytree(model, tmp_path / "model"))


def calibrate(model: Path, data: Path, *words: str) -> int:
    return main(["calibrate", str(model), str(data), "device=cpu", *words])


def stored(model: Path) -> dict:
    return yaml.safe_load((model / "model.yaml").read_text())["verification"]


def test_the_threshold_is_stored_with_what_it_rests_on_and_decides(copy, people, eval_dir, capsys):
    assert calibrate(copy, people, "fa_rate=0.05") == 0
    section = stored(copy)
    assert (section["operating_point"], section["p_fa"]) == ("fa_rate=0.05", 0.05)
    assert (section["speakers"], section["recordings"]) == (6, 18)
    assert (section["targets"], section["nontargets"]) == (6 * 3, 15 * 9)
    assert section["p_fa_interval"][0] <= section["p_fa_interval"][1]
    assert section["command"] == f"svt calibrate {copy} {people} device=cpu fa_rate=0.05"
    out = capsys.readouterr().out
    assert f"threshold {section['threshold']:.4f} for false alarms of 5 %" in out
    assert "rests on 6 speakers (15 pairs of them), 18 recordings and 135 trials of different speakers" in out
    assert "fewer than 20 speakers" in out
    assert out.endswith(f"stored in {copy}\n")
    loaded = load_model(copy)
    files = [eval_dir.wav_scp[name] for name in ("s20-0", "s20-1")]
    result = loaded.verify(*files)
    assert result.threshold == section["threshold"]
    assert result.llr == pytest.approx(
        section["calibration"]["scale"] * result.score + section["calibration"]["offset"]
    )
    assert main(["verify", str(copy), *files, "format=json"]) == (0 if result.same_speaker else 2)
    record = json.loads(capsys.readouterr().out)
    assert (record["operating_point"], record["p_fa"], record["p_miss"]) == ("fa_rate=0.05", 0.05, section["p_miss"])


def test_the_rates_seen_are_those_of_the_scores(copy, people):
    assert calibrate(copy, people, "fa_rate=0.1") == 0
    section, loaded = stored(copy), load_model(copy)
    kaldi_dir = KaldiDir.read(people)
    names = sorted(kaldi_dir.utt2spk)
    scores = {(a, b): loaded.similarity(kaldi_dir.wav_scp[a], kaldi_dir.wav_scp[b])
              for n, a in enumerate(names) for b in names[n + 1 :]}  # fmt: skip
    same = {pair: kaldi_dir.utt2spk[pair[0]] == kaldi_dir.utt2spk[pair[1]] for pair in scores}
    targets = [score for pair, score in scores.items() if same[pair]]
    others = [score for pair, score in scores.items() if not same[pair]]
    assert section["p_miss"] == pytest.approx(np.mean(np.array(targets) < section["threshold"]))
    assert section["p_fa_seen"] == pytest.approx(np.mean(np.array(others) >= section["threshold"]))


def test_nothing_is_stored_when_not_asked_for(copy, people, capsys):
    before = (copy / "model.yaml").read_bytes()
    assert calibrate(copy, people, "store=false") == 0
    assert (copy / "model.yaml").read_bytes() == before
    assert capsys.readouterr().out.endswith(f"not stored in {copy}: store=false\n")


def test_recordings_that_are_no_speech_are_named_and_left_out(tmp_path, copy, people, capsys):
    kaldi_dir = KaldiDir.read(people)
    soundfile.write(tmp_path / "silence.wav", np.zeros(RATE), RATE)
    kaldi_dir.wav_scp["s40-0"] = str(tmp_path / "silence.wav")
    kaldi_dir.utt2dur = {}
    kaldi_dir.write(tmp_path / "data")
    assert calibrate(copy, tmp_path / "data") == 0
    assert stored(copy)["recordings"] == 17
    assert f"left out: s40-0: {tmp_path}/silence.wav: 0.00 s of voice" in capsys.readouterr().err
    assert calibrate(copy, tmp_path / "data", "min_voice=0") == 0
    assert stored(copy)["recordings"] == 18


def test_a_recording_a_speaker_is_enough_for_a_threshold(tmp_path, copy, capsys):
    data = write_data(tmp_path / "single", range(50, 57), utterances=1)
    assert calibrate(copy, data) == 0
    section = stored(copy)
    assert (section["targets"], section["p_miss"], section["calibration"]) == (0, None, None)
    assert "misses: unknown: no speaker has two recordings" in capsys.readouterr().out


def test_of_many_recordings_some_of_each_speaker_are_taken(people):
    from svtoolkit.commands.calibrate import evenly

    kaldi_dir = KaldiDir.read(people)
    assert [each.utterance_id for each in evenly(kaldi_dir, 100)] == sorted(kaldi_dir.utt2spk)
    few = [each.utterance_id for each in evenly(kaldi_dir, 12)]
    assert few == [f"s{speaker}-{number}" for speaker in range(40, 46) for number in (0, 2)]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fa_rate=0"], "fa_rate is 0; expected a share between 0 and 0.5"),
        (["fa_rate=0.6"], "fa_rate is 0.6; expected a share between 0 and 0.5"),
        (["threads=0"], "threads is 0, expected 1 or more, or null"),
        (["min_voice=100"], "no recording can be used; the lines above say why"),
    ],
)
def test_what_is_refused(copy, people, capsys, words, message):
    before = (copy / "model.yaml").read_bytes()
    assert calibrate(copy, people, *words) == 1
    assert message in capsys.readouterr().err
    assert (copy / "model.yaml").read_bytes() == before


def test_too_few_speakers_are_refused(tmp_path, copy, capsys):
    data = write_data(tmp_path / "four", range(4), utterances=2)
    assert calibrate(copy, data) == 1
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"error: {data}: found recordings of 4 speakers, expected 5 or more; record others"
    )
