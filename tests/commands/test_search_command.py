from __future__ import annotations

import sys

import numpy as np
import pytest
import yaml

from svtoolkit.cli import main
from svtoolkit.commands import search
from svtoolkit.scoring.embedding_file import write_embeddings

RNG = np.random.default_rng(0)
AMONG = RNG.normal(size=(300, 6))
QUERIES = AMONG[:5] + 1e-3 * RNG.normal(size=(5, 6))


@pytest.fixture
def words(tmp_path) -> list[str]:
    write_embeddings(tmp_path / "among", [f"x{row}" for row in range(300)], AMONG)
    write_embeddings(tmp_path / "queries", [f"q{row}" for row in range(5)], QUERIES)
    return [f"embeddings={tmp_path / 'queries.scp'}", f"among={tmp_path / 'among.scp'}", f"out={tmp_path / 'nearest'}"]


def lines_of(path):
    return [line.split() for line in path.read_text().splitlines()]


def test_the_nearest_are_written_nearest_first(tmp_path, words, monkeypatch, capsys):
    monkeypatch.setattr(search, "PART", 64)
    assert main(["search", *words, "n=3"]) == 0
    lines = lines_of(tmp_path / "nearest")
    assert [query for query, _, _ in lines] == [f"q{row}" for row in range(5) for _ in range(3)]
    assert [(query, name) for query, name, _ in lines[::3]] == [(f"q{row}", f"x{row}") for row in range(5)]
    assert all(float(first[2]) >= float(second[2]) for first, second in zip(lines[::3], lines[1::3], strict=True))
    assert "the 3 nearest of 5 among 300 (exact)" in capsys.readouterr().out
    record = yaml.safe_load((tmp_path / "nearest.yaml").read_text())
    assert (record["queries"], record["looked_through"], record["n"]) == (5, 300, 3)


def test_an_index_states_its_recall(tmp_path, words, capsys):
    pytest.importorskip("faiss")
    assert main(["search", *words, "n=3"]) == 0
    exact = lines_of(tmp_path / "nearest")
    assert main(["search", *words, "n=3", "index=faiss", "probes=100"]) == 0
    assert lines_of(tmp_path / "nearest") == exact
    assert "recall 1.000: share of the true neighbours that was found, for 5 of" in capsys.readouterr().out
    assert yaml.safe_load((tmp_path / "nearest.yaml").read_text())["recall"] == 1


def test_without_faiss_the_message_says_how_to_install_it(words, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "faiss", None)
    assert main(["search", *words, "index=faiss"]) == 1
    assert "`pip install faiss-cpu`" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("n=0", "n is 0, expected 1 or more"),
        ("probes=0", "probes is 0, expected 1 or more"),
        ("index=hnsw", "index is 'hnsw', expected exact or faiss"),
        ("among=/nowhere", "/nowhere: there is no such file; expected the scp"),
        ("embeddings=/nowhere", "/nowhere: there is no such file; expected the scp"),
    ],
)
def test_what_cannot_be_searched(tmp_path, words, change, message, capsys):
    assert main(["search", *words, change]) == 1
    assert capsys.readouterr().err.startswith(f"error: {message}")
    assert not (tmp_path / "nearest").exists()
