"""svt quality: each measure against what it is said to be, and every mistake as a sentence."""

from __future__ import annotations

import numpy as np
import pytest
import yaml
from command_material import said

from svtoolkit.cli import main
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.scoring.cosine import speaker_means
from svtoolkit.scoring.embedding_file import read_embeddings
from svtoolkit.scoring.pair import cosine
from svtoolkit.scoring.quality.registry import MEASURES
from svtoolkit.scoring.quality.table import read_quality


@pytest.fixture
def words(embeddings, eval_data, train_data, tmp_path) -> list[str]:
    return [
        "quality", f"data={eval_data}", f"embeddings={embeddings / 'eval.scp'}", f"cohort={embeddings / 'train.scp'}",
        f"cohort_utt2spk={train_data / 'utt2spk'}", "top_n=3", f"out={tmp_path / 'quality'}",
    ]  # fmt: skip


def test_each_measure_is_what_it_is_said_to_be(words, embeddings, eval_dir, train_data, tmp_path, capsys):
    assert main(words) == 0
    assert "log_duration, magnitude, cohort_mean of 16 utterances" in capsys.readouterr().out
    table = read_quality(tmp_path / "quality")
    assert table.utterances == sorted(eval_dir.utt2spk)
    embedded = read_embeddings(embeddings / "eval.scp")
    cohort = speaker_means(read_embeddings(embeddings / "train.scp"), KaldiDir.read(train_data).utt2spk)
    for name, values in zip(table.utterances, table.values, strict=True):
        vector = embedded.matrix[embedded.index[name]]
        closest = sorted(cosine(vector, member) for member in cohort.matrix)[-3:]
        wanted = [np.log(eval_dir.utt2dur[name]), np.linalg.norm(vector), np.mean(closest)]
        np.testing.assert_allclose(values, wanted, atol=2e-6)
    record = yaml.safe_load((tmp_path / "quality.yaml").read_text())
    assert (record["utterances"], record["top_n"]) == (16, 3)


def test_durations_are_those_of_the_files_where_no_table_says_them(eval_dir, tmp_path):
    lengths = dict(eval_dir.utt2dur)
    eval_dir.utt2dur = {}
    eval_dir.write(tmp_path / "data")
    words = ["quality", f"data={tmp_path / 'data'}", f"out={tmp_path / 'q'}", "measures=[log_voice,log_duration]"]
    assert main(words) == 0
    table = read_quality(tmp_path / "q")
    assert table.measures == ["log_voice", "log_duration"]
    np.testing.assert_allclose(table.values[:, 1], np.log([lengths[name] for name in table.utterances]), atol=1e-6)
    assert (table.values[:, 0] <= table.values[:, 1] + 1e-6).all()
    assert (table.values[:, 0] >= np.log(0.1) - 1e-6).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("measures=[]", "measures is []; expected one or more of log_duration, log_voice, magnitude, cohort_mean"),
        ("measures=[magnitude,magnitude]", "measures is [magnitude, magnitude]; expected"),
        ("measures=[magnitud]", "there is no quality measure 'magnitud'; did you mean 'magnitude'?"),
        ("embeddings=null", "magnitude is measured of embeddings; give embeddings=FILE.scp, or other measures"),
        ("top_n=9", "top_n is 9, but the cohort has 6 members"),
        ("jobs=0", "jobs is 0, expected 1 or more"),
    ],
)
def test_mistakes_are_sentences(words, change, message, tmp_path, capsys):
    assert message in said(capsys, *words, change)
    assert not (tmp_path / "quality").exists()


def test_a_cohort_is_asked_for(words, capsys):
    without = [word for word in words if not word.startswith(("cohort", "top_n"))]
    assert "cohort_mean is measured against a cohort; give cohort=FILE.scp" in said(capsys, *without)
    assert "top_n is of a cohort, and cohort is null" in said(capsys, *without, "top_n=3")


def test_an_utterance_without_an_embedding_is_named(words, train_data, capsys):
    assert "24 of 24 utterances have no embedding: s00-0, s00-1, s00-2" in said(capsys, *words, f"data={train_data}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "q:1: found '', expected a header `utterance MEASURE ...`"),
        ("a 1.0\n", "q:1: found 'a 1.0', expected a header"),
        ("utterance\n", "q:1: found 'utterance', expected a header"),
        ("utterance m m\na 1 2\n", "no measure may stand there twice"),
        ("utterance m\n", "q: lists no utterance; expected a header"),
        ("utterance m\na 1\nb 2 3\n", "q:3: found 'b 2 3', expected 2 columns: utterance m"),
        ("utterance m\na nan\n", "q:2: m is 'nan', expected a finite number"),
        ("utterance m\na long\n", "q:2: m is 'long', expected a finite number"),
        ("utterance m\na 1\n\na 1\n", "q:4: 'a' is listed twice (first on line 2); keep one"),
        ("utterance m\n\udcff 1\n", "q:2: is no UTF-8 text"),
        (None, "q: there is no such table"),
    ],
)
def test_a_table_that_cannot_be_read(text, message, tmp_path):
    from svtoolkit.errors import UserError

    if text is not None:
        (tmp_path / "q").write_text(text, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(UserError) as error:
        read_quality(tmp_path / "q")
    assert message in str(error.value)


def test_every_measure_loads_and_is_in_the_help(capsys):
    assert main(["quality", "--help"]) == 0
    help_text = capsys.readouterr().out
    for name in MEASURES:
        assert callable(MEASURES.load(name))
        assert name in help_text
