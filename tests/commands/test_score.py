from __future__ import annotations

import shlex
from pathlib import Path

import kaldiio
import numpy as np
import pytest
import yaml

from svtoolkit.cli import main
from svtoolkit.data.trials import hash_trials, read_trials
from svtoolkit.scoring.score_file import read_scores
from svtoolkit.system import progress


@pytest.fixture
def words(tmp_path, embeddings, eval_data) -> list[str]:
    return [
        "--trials", str(eval_data / "trials"), "--embeddings", str(embeddings / "eval.scp"),
        "--out", str(tmp_path / "scores"),
    ]  # fmt: skip


@pytest.fixture
def cohort(embeddings, train_data, eval_data) -> list[str]:
    return [
        "--cohort", str(embeddings / "train.scp"), "--cohort-utt2spk", str(train_data / "utt2spk"),
        "--utt2spk", str(eval_data / "utt2spk"),
    ]  # fmt: skip


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    a, b = a.astype(np.float64), b.astype(np.float64)
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


def vectors(scp: Path) -> dict[str, np.ndarray]:
    return dict(kaldiio.load_scp(str(scp)))


def scores_of(path: Path) -> dict[tuple[str, str], float]:
    enrol, test, scores = read_scores(path)
    return dict(zip(zip(enrol, test, strict=True), scores.tolist(), strict=True))


def test_cosines_of_all_trials_in_their_order(tmp_path, words, embeddings, eval_data, capsys):
    assert main(["score", *words]) == 0
    trials, table = read_trials(eval_data / "trials"), vectors(embeddings / "eval.scp")
    found = scores_of(tmp_path / "scores")
    assert list(found) == list(zip(trials.enrol, trials.test, strict=True))
    for (enrol, test), score in found.items():
        assert score == pytest.approx(cosine(table[enrol], table[test]), abs=1e-6)
    assert capsys.readouterr().out.startswith(f"48 trials scored (none), 0 left out -> {tmp_path / 'scores'}\n")


def test_the_settings_stand_beside_the_scores(tmp_path, words, cohort, eval_data, embeddings):
    assert main(["score", *words, *cohort, "normalisation=as-norm", "top_n=4", "subtract_mean=true"]) == 0
    record = yaml.safe_load((tmp_path / "scores.yaml").read_text())
    assert record.pop("command").startswith("svt score --trials ")
    assert record == {
        "trials": str(eval_data / "trials"),
        "embeddings": str(embeddings / "eval.scp"),
        "out": str(tmp_path / "scores"),
        "format": "kaldi",
        "cosine_out": None,
        "backend": None,
        "enrolments": None,
        "enrolment_mean": "embeddings",
        "normalisation": "as-norm",
        "cohort": cohort[1],
        "cohort_utt2spk": cohort[3],
        "utt2spk": cohort[5],
        "top_n": 4,
        "subtract_mean": True,
        "allow_missing": False,
        "trials_sha256": hash_trials(eval_data / "trials"),
        "scored": 48,
        "missing": 0,
        "cohort_speakers": 6,
        "backend_kind": None,
    }


def normalised(pair, table, cohort_table, utt2spk, *, top_n: int | None, mean: np.ndarray | None) -> float:
    """(S-Norm of enrolment + S-Norm of test) / 2, by the formula."""
    shift = np.zeros_like(table[pair[0]], dtype=np.float64) if mean is None else mean
    speakers = sorted(set(utt2spk.values()))
    members = [
        np.mean([cohort_table[u].astype(np.float64) for u in utt2spk if utt2spk[u] == s], axis=0) - shift
        for s in speakers
    ]
    raw, parts = cosine(table[pair[0]] - shift, table[pair[1]] - shift), []
    for utterance in pair:
        close = sorted((cosine(table[utterance] - shift, member) for member in members), reverse=True)[:top_n]
        parts.append((raw - np.mean(close)) / np.std(close))
    return float(np.mean(parts))


@pytest.mark.parametrize(
    ("options", "top_n", "subtract"),
    [
        (["normalisation=as-norm", "top_n=3"], 3, False),
        (["normalisation=as-norm", "top_n=4", "subtract_mean=true"], 4, True),
        (["normalisation=s-norm"], None, False),
        (["normalisation=s-norm", "subtract_mean=true"], None, True),
    ],
)
def test_normalised_scores(
    tmp_path, words, cohort, embeddings, eval_data, options, top_n, subtract, monkeypatch, capsys
):
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    assert main(["score", *words, *cohort, *options]) == 0
    utterances = len(read_trials(eval_data / "trials").utterances)
    assert f"norm: {utterances}/{utterances} utt (100 %)" in capsys.readouterr().err
    table, cohort_table = vectors(embeddings / "eval.scp"), vectors(embeddings / "train.scp")
    utt2spk = dict(line.split() for line in Path(cohort[3]).read_text().splitlines())
    mean = np.mean([vector.astype(np.float64) for vector in cohort_table.values()], axis=0) if subtract else None
    found = scores_of(tmp_path / "scores")
    for pair in list(found)[::7]:
        expected = normalised(pair, table, cohort_table, utt2spk, top_n=top_n, mean=mean)
        assert found[pair] == pytest.approx(expected, rel=1e-3)


def test_the_mean_of_the_cohort_may_be_subtracted_without_normalisation(tmp_path, words, cohort, embeddings):
    assert main(["score", *words, *cohort, "subtract_mean=true"]) == 0
    table = vectors(embeddings / "eval.scp")
    mean = np.mean([vector.astype(np.float64) for vector in vectors(embeddings / "train.scp").values()], axis=0)
    for (enrol, test), score in scores_of(tmp_path / "scores").items():
        assert score == pytest.approx(cosine(table[enrol] - mean, table[test] - mean), abs=1e-5)


def test_a_cohort_changes_nothing_in_plain_cosines(tmp_path, words, cohort):
    assert main(["score", *words]) == 0
    alone = (tmp_path / "scores").read_bytes()
    assert main(["score", *words, *cohort]) == 0
    assert (tmp_path / "scores").read_bytes() == alone


@pytest.fixture
def holed(tmp_path, words, embeddings) -> list[str]:
    """The same, where the embedding of s21-0 is missing."""
    scp = tmp_path / "holed.scp"
    lines = (embeddings / "eval.scp").read_text().splitlines(keepends=True)
    scp.write_text("".join(line for line in lines if not line.startswith("s21-0 ")))
    return [*words, "--embeddings", str(scp)]


def test_embeddings_that_are_not_finite_are_refused(tmp_path, words, embeddings, capsys):
    table = vectors(embeddings / "eval.scp")
    table["s21-0"] = np.where(np.arange(len(table["s21-0"])) == 3, np.nan, table["s21-0"])
    with kaldiio.WriteHelper(f"ark,scp:{tmp_path}/nan.ark,{tmp_path}/nan.scp") as writer:
        for name, vector in table.items():
            writer(name, vector)
    assert main(["score", *words, "--embeddings", str(tmp_path / "nan.scp")]) == 1
    assert capsys.readouterr().err == (
        f"error: {tmp_path}/nan.scp: the embedding of 's21-0' holds NaN or infinity; extract it again, or look at its "
        "audio\n"
    )
    assert not (tmp_path / "scores").exists()


def test_a_missing_embedding_is_an_error(tmp_path, holed, capsys):
    assert main(["score", *holed]) == 1
    assert capsys.readouterr().err.startswith("error: 1 of 16 utterances have no embedding: s21-0; the table holds 15")
    assert not (tmp_path / "scores").exists()
    assert not (tmp_path / "scores.yaml").exists()


@pytest.mark.parametrize("options", [[], ["normalisation=as-norm", "top_n=3"]])
def test_trials_without_embedding_may_be_left_out(tmp_path, holed, cohort, eval_data, capsys, options):
    assert main(["score", *holed, *cohort, "allow_missing=true", *options]) == 0
    trials = read_trials(eval_data / "trials")
    kept = [pair for pair in zip(trials.enrol, trials.test, strict=True) if "s21-0" not in pair]
    assert list(scores_of(tmp_path / "scores")) == kept
    record = yaml.safe_load((tmp_path / "scores.yaml").read_text())
    assert (record["scored"], record["missing"]) == (len(kept), len(trials) - len(kept))
    assert f"{len(kept)} trials scored" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["normalisation=q-norm"], "normalisation is 'q-norm', expected none, as-norm, s-norm, z-norm, t-norm"),
        (["format=json"], "format is 'json', expected kaldi or wespeaker"),
        (["enrolment_mean=median"], "enrolment_mean is 'median', expected embeddings or scores"),
        (["cosine_out=plain"], "cosine_out=plain is for the cosines beside normalised scores, found normalisation=no"),
        (["enrolments=/nowhere"], "/nowhere: there is no such file; expected an enrolment map"),
        (
            ["normalisation=as-norm"],
            "normalisation=as-norm subtract_mean=False need a cohort; give cohort=embeddings.scp",
        ),
        (["subtract_mean=true"], "normalisation=none subtract_mean=True need a cohort; give cohort=embeddings.scp"),
        (["trials=/nowhere"], "/nowhere: there is no such trial list"),
        (["embeddings=/nowhere"], "/nowhere: there is no such file; expected the scp that `svt embed` wrote"),
    ],
)
def test_what_cannot_be_scored(words, capsys, options, message):
    assert main(["score", *words, *options]) == 1
    assert capsys.readouterr().err.startswith(f"error: {message}")


def test_a_cohort_as_it_comes_has_a_member_a_row(tmp_path, words, cohort, embeddings, eval_data):
    assert main(["score", *words, *cohort[:2], "normalisation=s-norm"]) == 0
    table, cohort_table = vectors(embeddings / "eval.scp"), vectors(embeddings / "train.scp")
    themselves = {utterance: utterance for utterance in cohort_table}
    found = scores_of(tmp_path / "scores")
    for pair in list(found)[::9]:
        expected = normalised(pair, table, cohort_table, themselves, top_n=None, mean=None)
        assert found[pair] == pytest.approx(expected, rel=1e-3)
    assert yaml.safe_load((tmp_path / "scores.yaml").read_text())["cohort_speakers"] == len(cohort_table)


def test_one_pass_writes_cosines_and_normalised_scores(tmp_path, words, cohort):
    assert main(["score", *words, "out=" + str(tmp_path / "alone")]) == 0
    both = ["normalisation=as-norm", "top_n=4", f"cosine_out={tmp_path / 'cosines'}", "format=wespeaker"]
    assert main(["score", *words, *cohort, *both]) == 0
    assert scores_of(tmp_path / "cosines") == scores_of(tmp_path / "alone")
    lines = [line.split() for line in (tmp_path / "scores").read_text().splitlines()]
    assert {fields[3] for fields in lines} == {"target", "nontarget"}
    record = yaml.safe_load((tmp_path / "cosines.yaml").read_text())
    assert (record["normalisation"], record["out"]) == ("none", str(tmp_path / "cosines"))


@pytest.mark.parametrize("mean", ["embeddings", "scores"])
def test_models_of_several_utterances(tmp_path, words, embeddings, eval_data, mean):
    trials, table = read_trials(eval_data / "trials"), vectors(embeddings / "eval.scp")
    one, two, three, test = sorted(trials.utterances)[:4]
    (tmp_path / "models").write_text(f"anna {one} {two}\nben {three}\n")
    (tmp_path / "list").write_text(f"anna {test} target\nben {test} nontarget\nben {one} nontarget\n")
    changes = [f"trials={tmp_path / 'list'}", f"enrolments={tmp_path / 'models'}", f"enrolment_mean={mean}"]
    assert main(["score", *words, *changes]) == 0
    found = scores_of(tmp_path / "scores")
    if mean == "scores":
        of_anna = (cosine(table[one], table[test]) + cosine(table[two], table[test])) / 2
    else:
        of_anna = cosine(table[one].astype(np.float64) + table[two], table[test])
    expected = {
        ("anna", test): of_anna,
        ("ben", test): cosine(table[three], table[test]),
        ("ben", one): cosine(table[three], table[one]),
    }
    assert found == pytest.approx(expected, abs=2e-6)


def test_top_n_beyond_the_cohort_says_how_large_it_is(tmp_path, words, cohort, capsys):
    assert main(["score", *words, *cohort, "normalisation=as-norm", "top_n=300"]) == 1
    assert capsys.readouterr().err == (
        "error: top_n is 300, but the cohort has 6 members; expected 2 to 6: lower top_n or take a larger cohort\n"
    )
    assert not (tmp_path / "scores").exists()


def test_top_n_that_is_not_given_fits_the_cohort(tmp_path, words, cohort, capsys):
    assert main(["score", *words, *cohort, "normalisation=as-norm"]) == 0
    assert "the cohort has 6 speakers: all are taken, top_n is usually 300\n" in capsys.readouterr().out
    fitted = (tmp_path / "scores").read_bytes()
    assert yaml.safe_load((tmp_path / "scores.yaml").read_text())["top_n"] == 6
    assert main(["score", *words, *cohort, "normalisation=as-norm", "top_n=6"]) == 0
    assert "usually" not in capsys.readouterr().out
    assert (tmp_path / "scores").read_bytes() == fitted


@pytest.mark.parametrize("normalisation", ["none", "s-norm"])
def test_top_n_is_of_as_norm_alone(words, cohort, capsys, normalisation):
    assert main(["score", *words, *cohort, f"normalisation={normalisation}", "top_n=3"]) == 1
    assert capsys.readouterr().err == (
        f"error: top_n is for normalisation=as-norm, found normalisation={normalisation}; leave it out\n"
    )


def test_the_next_command_runs_as_it_is_said(tmp_path, words, cohort, capsys):
    """From the scores to the report."""
    assert main(["score", *words, *cohort]) == 0
    for command in ("evaluate", "report"):
        said = capsys.readouterr().out.splitlines()[-1]
        assert said.startswith(f"next: svt {command} "), said
        assert main(shlex.split(said.removeprefix("next: svt "))) == 0
    assert (tmp_path / "report" / "index.html").is_file()


def test_a_recipe_runs_the_next_command_by_itself(words, capsys, monkeypatch):
    monkeypatch.setenv("SVT_RECIPE", "yes")
    assert main(["score", *words]) == 0
    assert "next: " not in capsys.readouterr().out


def test_a_cohort_with_speakers_of_the_evaluation_is_refused(words, embeddings, eval_data, capsys):
    same = ["--cohort", str(embeddings / "eval.scp"), "--cohort-utt2spk", str(eval_data / "utt2spk")]
    options = ["normalisation=s-norm", "--utt2spk", str(eval_data / "utt2spk")]
    assert main(["score", *words, *same, *options]) == 1
    assert capsys.readouterr().err.startswith(
        "error: 4 speakers are in the cohort and in the evaluation: s20, s21, s22"
    )


def test_an_unchecked_cohort_is_spoken_of(words, cohort, capsys):
    assert main(["score", *words, *cohort[:4], "normalisation=s-norm"]) == 0
    assert (
        "utt2spk is not given: whether cohort and evaluation share speakers is not checked" in capsys.readouterr().out
    )
