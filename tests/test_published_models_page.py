"""docs/published_models.md: every row names a kind, a network and a front end that there are."""

from __future__ import annotations

import re

from paths import ROOT

from svtoolkit.checkpoints.hub import is_address, parse_address
from svtoolkit.checkpoints.kinds import KINDS
from svtoolkit.models.front_ends import FRONT_ENDS
from svtoolkit.models.registry import NETWORKS, RELEASED_NETWORKS

PAGE = (ROOT / "docs" / "published_models.md").read_text(encoding="utf-8")

ONE_RATE = r"\d\.\d{2,3}"
RATES = re.compile(rf"|{ONE_RATE}|{ONE_RATE} / {ONE_RATE} / {ONE_RATE}")


def rows() -> list[tuple[str, str, str, str, str]]:
    """MODEL, kind, network, front ends and error rates."""
    lines = [line for line in PAGE.splitlines() if line.startswith("| `")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert all(len(found) in (5, 6) for found in cells)
    return [(model, kind, network, features, others[-1]) for model, kind, network, features, *others in cells]


def test_every_row_is_of_a_kind_a_network_and_a_front_end():
    kinds = {kind.name for kind in KINDS}
    networks = {*NETWORKS.rows, *RELEASED_NETWORKS}
    front_ends = {"fbank80", *FRONT_ENDS}
    for model, kind, network, features, rates in rows():
        assert kind in kinds, model
        assert network.strip("`") in networks, model
        assert {name.strip("`") for name in features.split(", ")} <= front_ends, model
        assert RATES.fullmatch(rates), model


def test_addresses_are_addresses_and_no_row_is_there_twice():
    for model in (model.strip("`") for model, *_ in rows()):
        assert not is_address(model) or str(parse_address(model)) == model
    assert len(rows()) >= 40
    assert f"\n{len(rows())} models that others have published" in PAGE
    names = [(model, network) for model, _, network, _, _ in rows()]
    assert len(names) == len(set(names))


def test_every_kind_of_another_toolkit_has_a_table():
    sections = set(re.findall(r"^## (.+)$", PAGE, re.MULTILINE))
    assert {kind.name for kind in KINDS} - {"svtoolkit", "run"} <= sections
    assert {kind for _, kind, *_ in rows()} == sections
