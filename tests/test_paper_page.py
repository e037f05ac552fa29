"""docs/paper.md: sizes and times, against the networks, the published table and one another."""

from __future__ import annotations

import csv
import re

import pytest
import torch
from paths import ROOT, SHARED

from svtoolkit.models.revnet import build_df_revnet
from svtoolkit.planning.network_facts import stored_facts

PAGE = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")


def table(heading: str) -> list[list[str]]:
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def millions(network: str) -> float:
    """By the stored facts, which are compared with the networks in planning/test_network_facts.py."""
    return stored_facts(200, 80)[network.lower().replace("-", "_")].parameters / 1e6


def test_sizes_are_those_of_the_networks_and_differences_are_said():
    rows = table("Parameters")
    assert len(rows) == 25
    for network, published, here, difference in rows:
        assert f"{millions(network):.2f}" == here, network
        percent = 100 * (millions(network) / float(published) - 1)
        assert difference == (f"{percent:+.0f} %" if abs(percent) > 1.5 else ""), network


@pytest.mark.skipif(not (SHARED / "spec" / "paper_results.csv").is_file(), reason="the published table is not at hand")
def test_published_sizes_are_the_papers():
    with (SHARED / "spec" / "paper_results.csv").open(encoding="utf-8") as stream:
        published = {row["system"]: float(row["params_m"]) for row in csv.DictReader(stream)}
    assert {network: float(size) for network, size, *_ in table("Parameters")} == published


def test_no_width_of_stage_three_gives_both_prices_of_a_block():
    def size(blocks: int, width: int) -> float:
        with torch.device("meta"):
            network = build_df_revnet(
                kind="II", blocks=(3, 3, blocks, 3), channels=(48, 96, width, 384), num_bins=80, embedding_dim=256
            )
        return sum(weight.numel() for weight in network.parameters()) / 1e6

    said = dict(re.findall(r"(\d\.\d{3}) M with (\d+)", PAGE))
    assert len(said) == 3
    for price, width in said.items():
        assert (size(15, int(width)) - size(5, int(width))) / 10 == pytest.approx(float(price), abs=5e-4)
    assert size(5, 240) == pytest.approx(float(re.findall(r"DF-RevNet89 would have (\S+) M", PAGE)[0]), abs=5e-3)


def test_predicted_days_are_those_of_the_experiments():
    lines = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8").splitlines()
    days = {line.split("|")[1].strip(" `"): line.split("|")[8].strip() for line in lines if line.startswith("| `")}
    for network, cards, card_days, predicted in table("Time"):
        assert predicted == f"{days[network.lower().replace('-', '_')]} days", network
        number, times = map(int, cards.split(" x "))
        assert int(card_days) == number * times
