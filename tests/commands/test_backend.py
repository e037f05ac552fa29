"""svt backend and svt score backend=: from embeddings to scores."""

from __future__ import annotations

import json
from pathlib import Path

import kaldiio
import numpy as np
import pytest
import yaml
from command_material import said, write_model

from svtoolkit.cli import main
from svtoolkit.data.trials import read_trials
from svtoolkit.data.utt2spk import read_utt2spk
from svtoolkit.runs.provenance import commands_behind
from svtoolkit.scoring.backends.backend_file import read_backend
from svtoolkit.scoring.backends.embedding_model import model_of
from svtoolkit.scoring.embedding_file import read_embeddings, write_embeddings
from svtoolkit.scoring.score_file import align_scores


@pytest.fixture(scope="module")
def trained(tmp_path_factory, embeddings, train_data) -> Path:
    """Folder with a back end of each kind."""
    folder = tmp_path_factory.mktemp("backends")
    for kind in ("lda", "wccn", "plda"):
        words = [f"kind={kind}", f"embeddings={embeddings}/train.scp", f"utt2spk={train_data}/utt2spk"]
        assert main(["backend", *words, f"out={folder}/{kind}"]) == 0
    return folder


@pytest.fixture
def words(tmp_path, embeddings, eval_data) -> list[str]:
    return ["score", f"trials={eval_data}/trials", f"embeddings={embeddings}/eval.scp", f"out={tmp_path}/scores"]


@pytest.fixture
def cohort(embeddings, train_data, eval_data) -> list[str]:
    return [
        f"cohort={embeddings}/train.scp", f"cohort_utt2spk={train_data}/utt2spk", f"utt2spk={eval_data}/utt2spk",
        "normalisation=as-norm", "top_n=4",
    ]  # fmt: skip


def through(backend: Path, scp: Path) -> dict[str, np.ndarray]:
    """Embeddings by utterance, in float64, by the stages as they stand in the file."""
    stages = read_backend(backend).stages
    found = {}
    for name, vector in kaldiio.load_scp(str(scp)).items():
        rows = vector.astype(np.float64)[None]
        for stage in stages:
            rows = stage.apply(rows, [name])
        found[name] = rows[0]
    return found


@pytest.mark.parametrize("kind", ["lda", "wccn"])
def test_cosines_and_as_norm_of_what_the_back_end_makes(tmp_path, trained, words, cohort, embeddings, eval_data, kind):
    both = [*cohort, f"cosine_out={tmp_path}/plain"]
    assert main([*words, *both, f"backend={trained}/{kind}"]) == 0
    utt2spk = read_utt2spk(Path(cohort[1].partition("=")[2]))
    table, others = (through(trained / kind, embeddings / f"{part}.scp") for part in ("eval", "train"))
    members = np.array(
        [np.mean([others[u] for u in utt2spk if utt2spk[u] == each], axis=0) for each in sorted(set(utt2spk.values()))]
    )
    members /= np.linalg.norm(members, axis=1, keepdims=True)
    trials = read_trials(eval_data / "trials")
    plain, normalised = (align_scores(trials, tmp_path / name) for name in ("plain", "scores"))
    for row in range(0, len(trials), 5):
        one, other = table[trials.enrol[row]], table[trials.test[row]]
        assert plain[row] == pytest.approx(one @ other, abs=1e-5)
        tops = [np.sort(members @ each)[-4:] for each in (one, other)]
        expected = np.mean([(one @ other - top.mean()) / top.std() for top in tops])
        assert normalised[row] == pytest.approx(expected, rel=1e-3)
    record = yaml.safe_load((tmp_path / "scores.yaml").read_text())
    assert (record["backend"], record["backend_kind"]) == (f"{trained}/{kind}", kind)


def test_ratios_of_plda_and_of_models(tmp_path, trained, words, embeddings, eval_data, capsys):
    backend = read_backend(trained / "plda")
    table, v = through(trained / "plda", embeddings / "eval.scp"), backend.between

    def ratio(enrolled: list[str], test: str) -> float:
        """By the definition: variances of sums of recordings of one speaker, and of two."""
        n, e, t = len(enrolled), np.mean([table[name] for name in enrolled], axis=0), table[test]

        def log_density(count: int, total: np.ndarray) -> float:
            return float((v * total**2 / (1 + count * v) - np.log(1 + count * v)).sum() / 2)

        return log_density(n + 1, n * e + t) - log_density(n, n * e) - log_density(1, t)

    assert main([*words, f"backend={trained}/plda"]) == 0
    assert "48 trials scored (plda, none)" in capsys.readouterr().out
    trials = read_trials(eval_data / "trials")
    found = align_scores(trials, tmp_path / "scores")
    expected = [ratio([one], other) for one, other in zip(trials.enrol, trials.test, strict=True)]
    np.testing.assert_allclose(found, expected, atol=2e-4)
    one, two, three, test = sorted(trials.utterances)[:4]
    (tmp_path / "models").write_text(f"anna {one} {two} {three}\n")
    (tmp_path / "list").write_text(f"anna {test} target\n")
    for mean, expected in (
        ("embeddings", ratio([one, two, three], test)),
        ("scores", np.mean([ratio([each], test) for each in (one, two, three)])),
    ):
        changes = [f"trials={tmp_path}/list", f"enrolments={tmp_path}/models", f"enrolment_mean={mean}"]
        assert main([*words, f"backend={trained}/plda", *changes]) == 0
        assert align_scores(read_trials(tmp_path / "list"), tmp_path / "scores")[0] == pytest.approx(expected, abs=2e-4)


def test_ratios_are_normalised_in_the_same_pass_and_their_result_tells_how(tmp_path, trained, words, cohort, capsys):
    assert main([*words, *cohort, f"backend={trained}/plda"]) == 0
    assert main(["evaluate", f"scores={tmp_path}/scores", f"trials={words[1].partition('=')[2]}"]) == 0
    assert "plda, as-norm: EER" in capsys.readouterr().out
    behind = commands_behind([json.loads((tmp_path / "scores.json").read_text())])
    assert [command.split()[1] for command in behind] == ["embed", "embed", "backend", "score", "evaluate"]


def test_what_was_done_stands_in_the_file_and_beside_it(trained, embeddings, train_data):
    facts = read_backend(trained / "plda").facts
    record = yaml.safe_load((trained / "plda.yaml").read_text())
    assert record["command"].startswith("svt backend kind=plda ")
    assert (record["dim"], record["speakers"], record["utterances"], record["iterations"]) == (2, 6, 24, 10)
    assert facts["model_sha256"] == model_of(embeddings / "train.scp")["model_sha256"] is not None
    assert record["model_sha256"] == facts["model_sha256"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["kind=ldaa"], "there is no back end 'ldaa'; did you mean 'lda'?"),
        (["kind=wccn", "dim=3"], "{scp}: back end wccn has no option 'dim'; "),
        (["kind=lda", "iterations=3"], "{scp}: back end lda has no option 'iterations'; "),
        (["dim=6"], "{scp}: dim is 6, expected 2 to 5: the embeddings have 16 dimensions, and 6 speakers differ in 5"),
        (["utt2spk=/nowhere"], "/nowhere: there is no such file"),
        (["embeddings=/nowhere"], "/nowhere: there is no such file; expected the scp that `svt embed` wrote"),
    ],
)
def test_what_cannot_be_trained(tmp_path, embeddings, train_data, capsys, changes, message):
    scp = f"{embeddings}/train.scp"
    given = ["backend", "kind=plda", f"embeddings={scp}", f"utt2spk={train_data}/utt2spk", f"out={tmp_path}/out"]
    assert said(capsys, *given, *changes).startswith("error: " + message.format(scp=scp))
    assert not list(tmp_path.iterdir())


def test_embeddings_that_are_not_finite_train_nothing(tmp_path, embeddings, train_data, capsys):
    table = read_embeddings(embeddings / "train.scp")
    table.matrix[3, 2] = np.nan
    scp = write_embeddings(tmp_path / "nan", table.utterances, table.matrix)
    given = ["backend", "kind=lda", f"embeddings={scp}", f"utt2spk={train_data}/utt2spk", f"out={tmp_path}/out"]
    assert f"nan.scp: the embedding of '{table.utterances[3]}' holds NaN" in said(capsys, *given)
    assert not (tmp_path / "out").exists()


def test_embeddings_of_another_network_are_refused(tmp_path, trained, words, eval_data, capsys):
    other = write_model(tmp_path / "other", seed=1)
    assert main(["embed", f"model={other}", f"data={eval_data}", f"out={tmp_path}/eval", "threads=1"]) == 0
    capsys.readouterr()
    found = said(capsys, *words, f"backend={trained}/lda", f"embeddings={tmp_path}/eval.scp")
    assert found.startswith(f"error: {tmp_path}/eval.scp: embeddings of {other}, but the back end {trained}/lda was ")
    (tmp_path / "eval.yaml").unlink()  # of whom nobody knows
    assert main([*words, f"backend={trained}/lda", f"embeddings={tmp_path}/eval.scp"]) == 0
    table = read_embeddings(tmp_path / "eval.scp")
    short = write_embeddings(tmp_path / "short", table.utterances, table.matrix[:, :7])
    found = said(capsys, *words, f"backend={trained}/lda", f"embeddings={short}")
    assert "the embeddings have 7 dimensions, those that the back end was trained on 16" in found


def test_what_does_not_go_together(tmp_path, trained, words, cohort, model, eval_data, capsys):
    found = said(capsys, *words, *cohort, f"backend={trained}/lda", "subtract_mean=true")
    assert found.startswith(f"error: subtract_mean=true does not go with backend={trained}/lda, which subtracts")
    weights = f"{model}/model.safetensors"
    assert f"{weights}: is no back end (its header does not say" in said(capsys, *words, f"backend={weights}")
    assert main([*words, f"backend={trained}/lda"]) == 0
    evaluated = [f"scores={tmp_path}/scores", f"trials={eval_data}/trials", f"store_threshold={model}"]
    assert "(no mean subtracted, no back end)" in said(capsys, "evaluate", *evaluated)
