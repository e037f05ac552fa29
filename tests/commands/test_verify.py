from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile
import yaml
from command_material import RATE, voice

from svtoolkit import load_model
from svtoolkit.cli import main


@pytest.fixture
def audio(eval_dir) -> tuple[str, str]:
    return eval_dir.wav_scp["s20-0"], eval_dir.wav_scp["s21-0"]


def verify(model: Path, *words: str) -> int:
    return main(["verify", str(model), *words])


def stored(model: Path, folder: Path, **verification: object) -> Path:
    """A copy of a model with this section of model.yaml."""
    copy = Path(shutil.copytree(model, folder / "model"))
    description = yaml.safe_load((copy / "model.yaml").read_text())
    description["verification"] = verification
    (copy / "model.yaml").write_text(yaml.safe_dump(description))
    return copy


POINT = {
    "threshold": -1.0,
    "operating_point": "fa_rate=0.001",
    "p_miss": 0.0625,
    "p_fa": 0.001,
    "calibration": {"scale": 20.0, "offset": -8.0},
}


# ---- the decision and its exit status ----


def test_without_a_threshold_there_is_a_score_and_no_decision(model, audio, capsys):
    assert verify(model, *audio) == 3
    score = load_model(model).similarity(*audio)
    assert capsys.readouterr().out == (
        f"score {score:.4f}\n"
        "no decision: the model has no threshold; give threshold=... or store one with `svt calibrate` or "
        "`svt evaluate`\n"
    )


def test_a_score_exactly_at_the_threshold_accepts(model, audio, capsys):
    score = load_model(model).similarity(*audio)
    assert verify(model, *audio, f"threshold={score!r}") == 0
    assert capsys.readouterr().out == f"score {score:.4f}\nsame speaker (threshold {score:.4f})\n"


def test_a_score_just_below_the_threshold_rejects_with_a_status_of_its_own(model, audio, capsys):
    threshold = load_model(model).similarity(*audio) + 1e-9
    assert verify(model, *audio, f"threshold={threshold!r}") == 2
    assert "different speakers (threshold " in capsys.readouterr().out


def test_a_negative_threshold(model, audio, capsys):
    assert verify(model, *audio, "threshold=-0.5") == 0
    assert capsys.readouterr().out.endswith("(threshold -0.5000)\n")


def test_a_recording_is_its_own_speaker(model, audio, capsys):
    assert verify(model, audio[0], audio[0], "threshold=0.999") == 0
    assert capsys.readouterr().out == "score 1.0000\nsame speaker (threshold 0.9990)\n"


# ---- what the model knows of its threshold ----


def test_ratio_and_error_rates_are_said_where_the_model_has_them(tmp_path, model, audio, capsys):
    copy = stored(model, tmp_path, **POINT)
    assert verify(copy, *audio) == 0
    score = load_model(model).similarity(*audio)
    assert capsys.readouterr().out == (
        f"score {score:.4f}\n"
        f"log-likelihood ratio {20 * score - 8:.2f} (natural logarithm; above 0: rather the same speaker)\n"
        "same speaker (threshold -1.0000, fa_rate=0.001)\n"
        "expected at this threshold: 0.1 % false alarms, 6.25 % misses\n"
    )
    assert verify(copy, *audio, "threshold=-0.9") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "same speaker (threshold -0.9000)"  # the error rates are those of another threshold
    assert len(lines) == 3


def test_json_says_the_same(tmp_path, model, audio, capsys):
    copy = stored(model, tmp_path, **POINT)
    assert verify(copy, *audio, "format=json") == 0
    record = json.loads(capsys.readouterr().out)
    score = load_model(model).similarity(*audio)
    assert record == {
        "enrol": [audio[0]], "test": audio[1], "score": score, "decision": "same speaker", "same_speaker": True,
        "threshold": -1.0, "llr": pytest.approx(20 * score - 8), "operating_point": "fa_rate=0.001", "p_miss": 0.0625,
        "p_fa": 0.001,
    }  # fmt: skip
    assert verify(model, *audio, "format=json") == 3
    record = json.loads(capsys.readouterr().out)
    assert (record["decision"], record["same_speaker"], record["threshold"], record["llr"]) == (None,) * 4


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"threshold": "high"}, "verification.threshold is 'high', expected a finite number"),
        ({"threshold": 0.3, "p_fa": True}, "verification.p_fa is True, expected a finite number"),
        ({"calibration": 3}, "verification.calibration is 3, expected scale and offset"),
        ({"calibration": {"scale": 3}}, "verification.calibration is {'scale': 3}, expected scale and offset"),
    ],
)
def test_a_damaged_section_of_the_model_is_named(tmp_path, model, audio, capsys, section, message):
    copy = stored(model, tmp_path, **section)
    assert verify(copy, *audio) == 1
    assert capsys.readouterr().err == (
        f"error: {copy}: {message}; store it again with `svt evaluate` or `svt calibrate`\n"
    )


# ---- several enrolment files ----


def test_several_enrolment_files_are_averaged_with_length_one_each(model, eval_dir, capsys):
    files = [eval_dir.wav_scp[f"s20-{number}"] for number in range(3)]
    test = eval_dir.wav_scp["s21-0"]
    loaded = load_model(model)
    units = [embedding / np.linalg.norm(embedding) for embedding in map(loaded.embed, map(str, files))]
    centre, other = np.mean(units, axis=0), loaded.embed(test)
    score = centre @ other / np.linalg.norm(centre) / np.linalg.norm(other)
    assert verify(model, *files, test) == 3
    assert capsys.readouterr().out.startswith(f"score {score:.4f}\n")
    assert verify(model, f"enrol=[{','.join(files)}]", f"test={test}", "format=json") == 3
    record = json.loads(capsys.readouterr().out)
    assert record["enrol"] == files
    assert record["score"] == pytest.approx(score, abs=1e-6)
    assert verify(model, f"enrol={files[0]}", "--test", test, "format=json") == 3
    assert json.loads(capsys.readouterr().out)["score"] == loaded.similarity(files[0], test)


# ---- pairs of a file ----


def test_pairs_of_a_file_are_compared_one_a_line(tmp_path, model, eval_dir, capsys):
    files = [eval_dir.wav_scp[name] for name in ("s20-0", "s20-1", "s21-0")]
    pairs = tmp_path / "pairs"
    pairs.write_text(f"{files[0]} {files[1]}\n\n{files[0]}\t{files[2]}\n{files[2]} {files[2]}\n")
    loaded = load_model(model)
    scores = [loaded.similarity(*pair) for pair in ((files[0], files[1]), (files[0], files[2]), (files[2], files[2]))]
    threshold = sorted(scores)[1]
    assert verify(model, f"pairs={pairs}", f"threshold={threshold!r}") == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{first} {second} {score:.4f} {'same speaker' if score >= threshold else 'different speakers'}"
        for (first, second), score in zip(
            ((files[0], files[1]), (files[0], files[2]), (files[2], files[2])), scores, strict=True
        )
    ]
    assert verify(model, f"pairs={pairs}", "format=json") == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [record["score"] for record in records] == scores
    assert {record["decision"] for record in records} == {None}


def test_each_file_of_the_pairs_is_read_once(tmp_path, model, eval_dir, decoded):
    files = [eval_dir.wav_scp[name] for name in ("s20-0", "s20-1", "s21-0")]
    pairs = tmp_path / "pairs"
    pairs.write_text("".join(f"{first} {second}\n" for first in files for second in files))
    assert verify(model, f"pairs={pairs}") == 0
    assert len(decoded) == len(files)


def test_a_pair_that_cannot_be_compared_leaves_the_others(tmp_path, model, audio, capsys):
    silence = write_silence(tmp_path)
    pairs = tmp_path / "pairs"
    pairs.write_text(f"{audio[0]} {silence}\n{tmp_path}/none.wav {audio[1]}\n{audio[0]} {audio[1]}\n")
    assert verify(model, f"pairs={pairs}", "threshold=-1") == 1
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0].startswith(f"{audio[0]} {silence} error: {silence}: 0.00 s of voice in 1.00 s")
    assert lines[1].startswith(f"{tmp_path}/none.wav {audio[1]} error: {tmp_path}/none.wav: there is no such file")
    assert lines[2].endswith(" same speaker")
    assert err == "error: 2 of 3 pairs could not be compared; their lines say why\n"
    assert verify(model, f"pairs={pairs}", "format=json") == 1
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert ["error" in record for record in records] == [True, True, False]
    assert records[0].keys() == {"enrol", "test", "error"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a.wav b.wav\na.wav\n", "{}:2: found 'a.wav', expected two files without spaces: `enrol test`"),
        ("a.wav b.wav target\n", "{}:1: found 'a.wav b.wav target', expected two files"),
        ("\n", "{}: is empty; expected lines `enrol test`"),
        (None, "{}: there is no such file; expected lines `enrol test`"),
    ],
)
def test_faults_of_a_file_of_pairs(tmp_path, model, capsys, content, message):
    pairs = tmp_path / "pairs"
    if content is not None:
        pairs.write_text(content)
    assert verify(model, f"pairs={pairs}") == 1
    assert capsys.readouterr().err.startswith(f"error: {message.format(pairs)}")


# ---- what is no speech ----


def write_silence(folder: Path) -> Path:
    soundfile.write(folder / "silence.wav", np.zeros(RATE), RATE)
    return folder / "silence.wav"


def test_silence_and_noise_are_refused_and_so_is_too_little_voice(tmp_path, model, audio, capsys):
    silence, hiss, short = write_silence(tmp_path), tmp_path / "hiss.wav", tmp_path / "short.wav"
    noise = 0.05 * np.random.default_rng(0).standard_normal(2 * RATE)
    soundfile.write(hiss, noise, RATE)
    noise[:RATE] *= 0.01
    soundfile.write(short, np.concatenate([noise[:RATE], voice(1, 0, 0.2)]), RATE)
    for pair in ((silence, silence), (audio[0], hiss), (hiss, audio[0]), (audio[0], short)):
        assert verify(model, *map(str, pair), "threshold=-1") == 1
        out, err = capsys.readouterr()
        refused = next(file for file in pair if file != audio[0])
        assert out == ""
        assert err.startswith(f"error: {refused}: 0.")
        assert "s of voice in" in err
    assert verify(model, str(silence), str(silence), "format=json") == 1
    assert json.loads(capsys.readouterr().out)["error"].startswith(f"{silence}: 0.00 s of voice")


def test_how_much_voice_is_needed_can_be_said(tmp_path, model, audio, capsys):
    silence = str(write_silence(tmp_path))
    assert verify(model, silence, silence, "threshold=0.5", "min_voice=0") == 0
    assert verify(model, *audio, "threshold=-1", "min_voice=5") == 1
    assert "expected 5 s or more" in capsys.readouterr().err


# ---- with the other commands ----


def test_evaluate_stores_the_threshold_that_verify_decides_by(tmp_path, model, embeddings, eval_data, eval_dir, capsys):
    copy = Path(shutil.copytree(model, tmp_path / "model"))
    scores, trials = str(tmp_path / "scores"), str(eval_data / "trials")
    main(["score", "--trials", trials, "--embeddings", str(embeddings / "eval.scp"), "--out", scores])
    words = ["--scores", scores, "--trials", trials, "--store-threshold", str(copy), "--name", "tiny"]
    assert main(["evaluate", *words]) == 0
    result = json.loads(Path(f"{scores}.json").read_text())
    stored = yaml.safe_load((copy / "model.yaml").read_text())["verification"]
    counts = stored.pop("score_counts")
    assert [sum(counts[kind]) for kind in ("targets", "nontargets")] == [result["targets"], result["nontargets"]]
    assert stored == {
        "threshold": result["eer_threshold"],
        "operating_point": "eer",
        "p_miss": result["operating_point"]["p_miss"],
        "p_fa": result["operating_point"]["p_fa"],
        "eer": result["eer"],
        "calibration": result["calibration"],
        "targets": result["targets"],
        "nontargets": result["nontargets"],
        "evaluation": "tiny",
        "trials_sha256": result["trials_sha256"],
    }
    loaded = load_model(copy)
    assert loaded.threshold == result["eer_threshold"]
    p_fa, p_miss = (f"{100 * stored[rate]:.3g} %" for rate in ("p_fa", "p_miss"))
    capsys.readouterr()
    decisions = set()
    for line in Path(scores).read_text().splitlines()[::5]:
        enrol, test, score = line.split()
        said, status = ("same speaker", 0) if float(score) >= result["eer_threshold"] else ("different speakers", 2)
        assert verify(copy, eval_dir.wav_scp[enrol], eval_dir.wav_scp[test]) == status
        decisions.add(said)
        lines = capsys.readouterr().out.splitlines()
        assert lines[0] == f"score {float(score):.4f}"
        llr = stored["calibration"]["scale"] * float(score) + stored["calibration"]["offset"]
        assert float(lines[1].split()[2]) == pytest.approx(llr, abs=0.02)
        assert lines[2] == f"{said} (threshold {result['eer_threshold']:.4f}, eer)"
        assert lines[3] == f"expected at this threshold: {p_fa} false alarms, {p_miss} misses"
    assert decisions == {"same speaker", "different speakers"}


def test_a_given_threshold_comes_before_the_stored_one(tmp_path, model, audio, capsys):
    copy = stored(model, tmp_path, threshold=-0.25)
    assert verify(copy, *audio, "--threshold", "-0.75") == 0
    assert capsys.readouterr().out.endswith("(threshold -0.7500)\n")
    assert verify(copy, *audio) == 0
    assert capsys.readouterr().out.endswith("(threshold -0.2500)\n")


def test_what_cannot_be_compared(tmp_path, model, audio, capsys):
    assert verify(model, audio[0], str(tmp_path / "none.wav")) == 1
    assert capsys.readouterr().err.startswith(f"error: {tmp_path}/none.wav: ")
    assert verify(tmp_path, *audio) == 1
    assert capsys.readouterr().err.startswith(f"error: {tmp_path}/model.yaml: there is no such file")
    assert verify(model, audio[0]) == 1
    assert capsys.readouterr().err == (
        "error: svt verify: required and not given: test; add test=..., or pairs=FILE of many\n"
    )
    assert verify(model, *audio, f"pairs={tmp_path}/pairs") == 1
    assert "leave out one of the two ways" in capsys.readouterr().err
    assert verify(model, *audio, "format=xml") == 1
    assert capsys.readouterr().err == "error: format is 'xml', expected text or json\n"
