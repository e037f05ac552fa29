"""svt compress: a model with layers of low rank, what each loses, and all that works with it afterwards."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
import torch
import yaml
from command_material import TRAIN_WORDS, said

from svtoolkit.checkpoints.released import read_released
from svtoolkit.cli import main
from svtoolkit.commands.compress import TABLE
from svtoolkit.compression.factors import ranks_of, weight_of
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.scoring.extraction import EmbeddingExtractor

LAYERS = "layers=[embedding,stages.3.0.conv1]"


@pytest.fixture(scope="module")
def small(model, eval_data, tmp_path_factory) -> Path:
    """Cut to half of the variance, with a table on the trials of eval_data."""
    out = tmp_path_factory.mktemp("compressed") / "small"
    words = [f"model={model}", f"out={out}", "variance=0.5", "min_values=1", LAYERS, f"data={eval_data}", "threads=1"]
    assert main(["compress", *words]) == 0
    return out


def test_the_table_says_what_each_layer_loses_and_the_model_is_cut(small, model):
    table = json.loads((small / TABLE).read_text())
    (network, before), (cut, after) = read_released(model), read_released(small)
    assert after.model == {**before.model, "ranks": after.model["ranks"]}
    assert after.verification == {}
    assert after.training["compressed_from"] == str(model)
    assert ranks_of(cut.state_dict()) == after.model["ranks"] == {row["layer"]: row["rank"] for row in table["layers"]}
    assert table["kept"] == sum(parameter.numel() for parameter in cut.parameters()) < table["parameters"]
    for row in table["layers"]:
        weight = weight_of(network.state_dict(), row["layer"]).flatten(1).double()
        values = torch.linalg.svdvals(weight)
        squares = values.square() / values.square().sum()
        assert squares[: row["rank"]].sum() >= 0.5 > squares[: row["rank"] - 1].sum()
        error = torch.linalg.norm(weight - weight_of(cut.state_dict(), row["layer"]).flatten(1)) / weight.norm()
        assert row["error"] == pytest.approx(float(error), rel=1e-4)
        assert 0 <= row["eer"] <= 1
        assert 0 < row["cosine"] < 1
    assert table["cosine"] < max(row["cosine"] for row in table["layers"])


def test_the_figures_of_a_layer_are_those_of_the_network_with_it_cut(small, model, eval_data, tmp_path):
    (row,) = (row for row in json.loads((small / TABLE).read_text())["layers"] if row["layer"] == "embedding")
    words = [f"model={model}", f"out={tmp_path / 'one'}", "layers=embedding", f"rank={row['rank']}", "min_values=1"]
    assert main(["compress", *words, f"data={eval_data}", "threads=1"]) == 0
    table = json.loads((tmp_path / "one" / TABLE).read_text())
    assert (table["eer_compressed"], table["cosine"]) == pytest.approx((row["eer"], row["cosine"]), abs=1e-5)


def test_it_is_verified_cut_further_published_and_fine_tuned(small, eval_data, train_data, tmp_path, capsys):
    wav = sorted((eval_data / "wav").rglob("*.wav"))
    assert main(["verify", str(small), str(wav[0]), str(wav[1]), "threshold=0.1", "min_voice=0"]) in (0, 1)
    words = [f"model={small}", f"out={tmp_path / 'less'}", "layers=embedding", "rank=1", "min_values=1"]
    assert main(["compress", *words]) == 0
    ranks = read_released(small)[1].model["ranks"]
    assert read_released(tmp_path / "less")[1].model["ranks"] == {"embedding": 1}
    assert main(["publish", f"model={small}", "repo=me/small", f"out={tmp_path / 'hub'}"]) == 0
    assert yaml.safe_load((tmp_path / "hub" / "model.yaml").read_text())["model"]["ranks"] == ranks
    exp_dir = tmp_path / "exp"
    tuned = [word for word in TRAIN_WORDS if not word.startswith(("model", "features"))]
    assert (
        main(
            [
                "train",
                f"init_from={small}",
                f"exp_dir={exp_dir}",
                f"data.train={train_data}",
                *tuned,
                "trainer.epochs=1",
            ]
        )
        == 0
    )
    assert main(["average", f"exp_dir={exp_dir}"]) == 0
    assert read_released(exp_dir / "model")[1].model["ranks"] == ranks
    capsys.readouterr()


def test_what_another_form_cannot_hold_is_refused(small, tmp_path, capsys):
    message = said(capsys, "convert-model", f"model={small}", f"out={tmp_path / 'w'}", "format=wespeaker")
    assert "are products of low rank, which WeSpeaker has no names for" in message
    assert not (tmp_path / "w").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["variance=0.5", "rank=3"], "variance and rank are given; expected one of variance, parameters and rank"),
        (["variance=1.5"], "variance is 1.5, expected a share above 0, at most 1"),
        (["rank=0"], "rank is 0, expected 1 or more"),
        (["parameters=-1"], "parameters is -1.0, expected a number above 0"),
        (["trials=t"], "trials is given, and data is null"),
        (["layers=embeding"], "layers names 'embeding', which no linear layer or convolution"),
        ([], "has no such layer with a matrix of min_values=65536 values or more"),
        (["min_values=1", "variance=1.0"], "no layer would become smaller; lower variance, parameters or rank"),
        (["min_values=1", "parameters=3"], "parameters leaves 0 for the layers that may become smaller"),
    ],
)
def test_refusals(words, message, model, tmp_path, capsys):
    assert message in said(capsys, "compress", f"model={model}", f"out={tmp_path / 'out'}", *words)
    assert not (tmp_path / "out").exists()


def test_cut_to_what_layers_make_loses_less(model, eval_data, tmp_path):
    words = [f"model={model}", "layers=embedding", "rank=3", "min_values=1", f"data={eval_data}", "threads=1"]
    tables = []
    for name, further in (("weights", []), ("outputs", [f"calibration={eval_data}", "calibration_utterances=4"])):
        assert main(["compress", *words, f"out={tmp_path / name}", *further]) == 0
        tables.append(json.loads((tmp_path / name / TABLE).read_text()))
    by_weights, by_outputs = tables
    assert by_outputs["cosine"] > by_weights["cosine"]
    assert by_outputs["layers"][0]["cosine"] == pytest.approx(by_outputs["cosine"], abs=1e-6)
    assert by_outputs["layers"][0]["error"] < 1
    assert by_outputs["kept"] == by_weights["kept"]
    assert read_released(tmp_path / "outputs")[1].model["ranks"] == {"embedding": 3}


def test_calibration_is_taken_evenly_over_the_list(model, eval_data, tmp_path, monkeypatch):
    names = sorted(KaldiDir.read(eval_data).utt2spk)
    most = len(names) * 2 // 3
    seen: list[str] = []
    extract = EmbeddingExtractor.extract

    def noted(self, utterances, *words, **settings):
        seen.extend(each.utterance_id for each in utterances)
        return extract(self, utterances, *words, **settings)

    monkeypatch.setattr(EmbeddingExtractor, "extract", noted)
    words = ["compress", f"model={model}", f"out={tmp_path / 'out'}", "layers=embedding", "rank=3", "min_values=1"]
    assert main([*words, f"calibration={eval_data}", f"calibration_utterances={most}", "threads=1"]) == 0
    assert len(seen) == most
    assert (seen[0], seen[-1]) == (names[0], names[-1])
    places = [names.index(name) for name in seen]
    assert {after - before for before, after in itertools.pairwise(places)} <= {1, 2}


def test_calibration_that_is_wrong_is_a_sentence(model, train_data, tmp_path, capsys):
    words = ["compress", f"model={model}", f"out={tmp_path / 'out'}", "layers=embedding", "rank=3", "min_values=1"]
    assert main([*words, f"calibration={train_data}", "calibration_utterances=0"]) == 1
    assert "calibration_utterances is 0, expected 1 or more" in capsys.readouterr().err
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "wav.scp").write_text(f"a {tmp_path / 'gone.wav'}\n")
    (broken / "utt2spk").write_text("a a\n")
    (broken / "utt2dur").write_text("a 1.0\n")
    assert main([*words, f"calibration={broken}"]) == 1
    said_there = capsys.readouterr().err
    assert f"{broken}: 1 of 1 recordings have no embedding, the first because: " in said_there
    assert not (tmp_path / "out").exists()
