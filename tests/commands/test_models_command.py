"""svt models: rows as they come, or all as data."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from svtoolkit.cli import main
from svtoolkit.commands import models as command
from svtoolkit.planning.network_facts import NetworkFacts

QUICK = ["frames=40", "num_bins=24"]


def fake_survey(names, *, frames, num_bins):
    for number, name in enumerate(names):
        yield NetworkFacts(name, "ResNet", number, 6_630_000, 4_528_000_000, 5120, 256, "store", 0.0587 * 2**30)


@pytest.fixture
def survey(monkeypatch):
    monkeypatch.setattr(command, "find_facts", fake_survey)


def test_the_table(survey, capsys):
    assert main(["models", "resnet34", "revnet57"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "network   family     layers  params/M    GMAC  pooled  embedding  memory      GiB/utt",
        "resnet34  ResNet          0      6.63    4.53    5120        256  store        0.0587",
        "revnet57  ResNet          1      6.63    4.53    5120        256  store        0.0587",
        "GMAC and GiB of an utterance of 200 frames and 80 bins; GiB: one more in a large batch, float32 training step "
        "of the network alone, `svt train memory=auto`; `svt memory` has the rest",
    ]


def test_without_names_all_networks_and_with_patterns_those_that_match(survey, capsys):
    from svtoolkit.models import list_models

    def listed(*words: str) -> list[str]:
        assert main(["models", *words, "format=json"]) == 0
        return [network["name"] for network in json.loads(capsys.readouterr().out)["networks"]]

    assert listed() == list_models()
    assert listed("resnet1*", "resnet34") == ["resnet10", "resnet18", "resnet34", "resnet101", "resnet152"]
    assert listed("names=[resnet34]") == listed("--names", "resnet34") == ["resnet34"]


def test_a_row_is_printed_when_it_is_there(monkeypatch, capsys):
    def survey(names, *, frames, num_bins):
        for row in fake_survey(names, frames=frames, num_bins=num_bins):
            yield row
            assert row.name in capsys.readouterr().out

    monkeypatch.setattr(command, "find_facts", survey)
    assert main(["models", "resnet1?"]) == 0


def test_real_networks(capsys):
    assert main(["models", "resnet10", "format=json", *QUICK]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["frames"], data["num_bins"]) == (40, 24)
    [network] = data["networks"]
    assert (network["name"], network["layers"], network["family"]) == ("resnet10", 10, "ResNet")
    assert 0 < network["bytes_per_utterance"] < 2**20
    assert main(["models", "resnet10", *QUICK]) == 0
    assert f"{network['macs'] / 1e9:.2f}" in capsys.readouterr().out.splitlines()[1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["format=xml"], "format is 'xml', expected table or json"),
        (["resnet10", "frames=0"], "frames is 0, expected 1 or more"),
        (["resnet10", "num_bins=-2"], "num_bins is -2, expected 1 or more"),
    ],
)
def test_mistakes_are_one_sentence(words, message, capsys):
    assert main(["models", *words]) == 1
    out, err = capsys.readouterr()
    assert err.endswith(f"error: {message}\n")
    assert "resnet10" not in out


def test_a_name_that_is_none(capsys):
    assert main(["models", "resnet10", "revnett*"]) == 1
    assert capsys.readouterr().err.startswith("error: there is no network 'revnett*'; ")


def test_what_is_stored_needs_no_torch_and_what_is_not_is_surveyed_in_its_place(monkeypatch):
    surveyed: list[str] = []

    def survey(names, *, frames, num_bins):
        surveyed.extend(names)
        return fake_survey(names, frames=frames, num_bins=num_bins)

    monkeypatch.setattr("svtoolkit.planning.model_survey.survey_networks", survey)
    monkeypatch.setattr(
        command, "stored_facts", lambda frames, num_bins: {"resnet34": "of resnet34", "revnet57": "of revnet57"}
    )
    found = list(command.find_facts(["resnet34", "mine", "revnet57", "yours"], frames=200, num_bins=80))
    assert [found[0], found[1].name, found[2], found[3].name] == ["of resnet34", "mine", "of revnet57", "yours"]
    assert surveyed == ["mine", "yours"]
    code = "import sys; from svtoolkit.cli import main; main(['models']); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, capture_output=True).returncode == 0
