"""Every strategy on every kind of network: it is put under it, or told what to choose, which is then possible."""

from __future__ import annotations

import re

import pytest
import torch
from reversible_material import tiny_network
from torch import nn

from svtoolkit.errors import UserError
from svtoolkit.memory import STRATEGIES, apply_strategy
from svtoolkit.models import build_model

NETWORKS = {
    "ordinary": lambda: build_model("resnet10", num_bins=16, embedding_dim=8, base_width=4),
    "reversible": tiny_network,
    "without blocks": lambda: nn.Linear(16, 4),
}
REFUSED = {
    ("reversible", "ordinary"), ("reversible", "without blocks"),
    ("checkpoint", "reversible"), ("checkpoint", "without blocks"),
    ("stash8", "reversible"), ("stash8", "without blocks"),
    ("offload", "without blocks"), ("planned", "without blocks"),
    ("hybrid", "ordinary"), ("hybrid", "without blocks"), ("hybrid", "reversible"),
}  # fmt: skip
SETTINGS = {"planned": {"frames": 24, "num_bins": 16}}


@pytest.mark.parametrize("kind", NETWORKS)
@pytest.mark.parametrize("strategy", STRATEGIES.rows)
def test_a_strategy_is_in_force_or_names_one_that_can_be(strategy, kind):
    torch.manual_seed(0)
    network = NETWORKS[kind]()
    if (strategy, kind) not in REFUSED:
        assert apply_strategy(network, strategy, **SETTINGS.get(strategy, {})) == strategy
        return
    with pytest.raises(UserError) as caught:
        apply_strategy(network, strategy, **SETTINGS.get(strategy, {}))
    assert f"memory={strategy} " in str(caught.value)
    chosen = re.search(r"choose memory=(\w+)", str(caught.value))
    assert chosen is not None
    assert apply_strategy(network, chosen[1]) == chosen[1]


@pytest.mark.parametrize(
    ("strategy", "settings"),
    [
        ("reversible", {"segments": "sqrt"}),
        ("store", {"expansions": True}),
        ("recompute_norm", {"times": 1.2}),
        ("planned", {"segments": "sqrt", "frames": 24, "num_bins": 16}),
        ("stash8", {"inexact": True}),
    ],
)
def test_a_setting_of_another_strategy_is_refused_by_its_name(strategy, settings):
    with pytest.raises(UserError) as caught:
        apply_strategy(NETWORKS["ordinary"](), strategy, **settings)
    assert next(iter(settings)) in str(caught.value)
    assert strategy in str(caught.value)
