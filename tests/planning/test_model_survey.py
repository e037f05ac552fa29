"""Facts of networks: against published tables, a count of one's own, and two batches."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from svtoolkit.errors import UserError
from svtoolkit.memory import apply_strategy
from svtoolkit.memory.measurement import measure_step
from svtoolkit.models import build_model, list_models
from svtoolkit.planning import model_survey
from svtoolkit.planning.model_survey import survey_network, survey_networks
from svtoolkit.planning.network_facts import NetworkFacts, family_of, match_names, stored_facts
from svtoolkit.system.processes import worker_processes

torch.set_num_threads(1)

WESPEAKER = {
    "resnet18": (4.11, 2.22),
    "resnet34": (6.63, 4.55),
    "resnet101": (15.89, 9.96),
    "resnet152": (19.81, 14.76),
}
"""Name -> millions of parameters, GMAC at 200 frames: examples/voxceleb/v2/README.md; it counts BatchNorm, too."""


def test_the_stored_facts_of_a_resnet_are_what_a_survey_finds():
    assert stored_facts(200, 80)["resnet34"] == survey_network("resnet34", frames=200, num_bins=80)


@pytest.mark.parametrize("name", WESPEAKER)
def test_published_sizes(name):
    facts = stored_facts(200, 80)[name]
    parameters, gmac = WESPEAKER[name]
    assert facts.parameters / 1e6 == pytest.approx(parameters, abs=0.005)
    assert 0.975 * gmac < facts.macs / 1e9 < gmac
    assert (facts.family, facts.layers, facts.strategy) == ("ResNet", int(name.removeprefix("resnet")), "store")
    assert (facts.pooled_dim, facts.embedding_dim) == (20480 if facts.layers > 34 else 5120, 256)


def counted_macs(name: str, frames: int, num_bins: int) -> int:
    """Sum over convolutions and Linear layers of output values x inputs of one."""
    total = 0

    def count(layer, inputs, output):
        nonlocal total
        inputs_of_one = layer.weight[0].numel()
        total += output[0].numel() * inputs_of_one

    with torch.device("meta"):
        network = build_model(name, num_bins=num_bins).eval()
        for layer in network.modules():
            if isinstance(layer, (nn.Conv2d, nn.Linear)):
                layer.register_forward_hook(count)
        with torch.no_grad():
            network(torch.zeros(1, frames, num_bins))
    return total


@cache
def surveyed(name: str) -> NetworkFacts:
    return survey_network(name, frames=60, num_bins=40)


@pytest.mark.parametrize("name", ["resnet10", "revnet_tiny", "df_resnet56"])
def test_work_is_that_of_a_count(name):
    assert surveyed(name).macs == counted_macs(name, 60, 40)


@pytest.mark.parametrize("name", ["resnet10", "revnet_tiny"])
def test_memory_is_that_of_two_batches(name):
    facts = surveyed(name)
    with FakeTensorMode():
        network = build_model(name, num_bins=40).train()
        assert apply_strategy(network) == facts.strategy

        def peak(batch):
            x = torch.zeros(batch, 60, 40)
            return measure_step([network], lambda: network(x).sum(), inputs=[x], warm_up=0).peak_bytes

        # beside some thousands of utterances the weights still show, but not in the difference
        assert facts.bytes_per_utterance == pytest.approx((peak(8192) - peak(4096)) / 4096, rel=0.005)


def test_families():
    assert [family_of(name) for name in ("resnet10", "revnet_tiny", "gemini_df_resnet60", "df_revnet66")] == [
        "ResNet", "RevNet", "DF-ResNet", "DF-RevNet"
    ]  # fmt: skip
    assert "-" not in map(family_of, list_models())


def test_names_and_patterns():
    everything = list_models()
    assert match_names([]) == everything
    assert match_names(["resnet34", "resnet10"]) == ["resnet10", "resnet34"]
    assert match_names(["revnet*", "revnet57"]) == [name for name in everything if name.startswith("revnet")]
    assert match_names(["resnet1?"]) == ["resnet10", "resnet18"]


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("resnet35", "there is no network 'resnet35'; did you mean 'resnet"),
        ("zzz*", "there is no network 'zzz*'; (all: resnet10, "),
        ("ResNet34", "there is no network 'ResNet34'; did you mean 'resnet34'? (all: "),
    ],
)
def test_a_pattern_that_matches_nothing(pattern, message):
    with pytest.raises(UserError) as caught:
        match_names(["resnet34", pattern])
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("key", ["frames", "num_bins"])
def test_sizes_below_one(key):
    sizes = {"frames": 20, "num_bins": 16} | {key: 0}
    with pytest.raises(UserError, match=f"{key} is 0, expected 1 or more"):
        list(survey_networks(["resnet10"], **sizes))


@pytest.mark.usefixtures("forked_workers")
def test_processes_bring_the_same_in_the_same_order(monkeypatch):
    """In one process that was not there before; how many are asked for is looked at."""
    sizes = {"frames": 60, "num_bins": 40}
    alone = [survey_network("resnet18", **sizes), surveyed("resnet10")]
    asked = []

    def one_process(processes, **options):
        asked.append(processes)
        return worker_processes(1, **options)

    monkeypatch.setattr(model_survey, "worker_processes", one_process)
    monkeypatch.setattr(model_survey, "count_cores", lambda: 2)
    monkeypatch.setattr(model_survey, "NETWORKS_A_PROCESS", 1)
    assert list(survey_networks(["resnet18", "resnet10"], **sizes)) == alone
    assert [facts.name for facts in alone] == ["resnet18", "resnet10"]
    assert asked == [2]
