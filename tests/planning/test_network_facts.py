"""The stored facts of the networks, against the networks."""

from __future__ import annotations

from dataclasses import asdict

import pytest
from network_material import on_meta

from svtoolkit.config import ModelsConfig
from svtoolkit.models.registry import NETWORKS
from svtoolkit.planning.model_survey import survey_network
from svtoolkit.planning.network_facts import family_of, stored_facts

SIZE = {"frames": ModelsConfig().frames, "num_bins": ModelsConfig().num_bins}
AGAIN = "run scripts/network_facts_table.py"


def test_every_network_of_ours_has_its_facts_in_the_order_of_the_registry():
    assert list(stored_facts(**SIZE)) == list(NETWORKS.rows), AGAIN
    assert stored_facts(SIZE["frames"] + 1, SIZE["num_bins"]) == {}


@pytest.mark.parametrize("name", NETWORKS.rows)
def test_sizes_are_those_of_the_network(name):
    facts = stored_facts(**SIZE)[name]
    network = on_meta(name)  # the number of bins is that of the facts
    assert facts.parameters == sum(weights.numel() for weights in network.parameters()), AGAIN
    assert (facts.layers, facts.embedding_dim, facts.family) == (network.layers, network.embedding_dim, family_of(name))


@pytest.mark.parametrize("name", ["resnet10", "revnet_tiny", "ecapa_tdnn_glob_c512", "xvector"])
def test_work_and_memory_are_what_a_survey_finds(name):
    assert asdict(stored_facts(**SIZE)[name]) == asdict(survey_network(name, **SIZE)), AGAIN
