"""Every family of WeSpeaker's and 3D-Speaker's by one word: their network and features against what is loaded."""

from __future__ import annotations

import copy
from inspect import signature

import pytest
import torch
import yaml
from foreign_networks import randomise
from released_families import (
    FAMILIES,
    LENGTHS,
    Family,
    assert_same,
    embeddings,
    features_of,
    narrowed,
    theirs_of,
    waveforms_of,
    write_release,
)
from torch import nn

from svtoolkit import load_model
from svtoolkit.checkpoints.wespeaker import release as release_of_wespeaker
from svtoolkit.cli import main
from svtoolkit.config import FeaturesConfig
from svtoolkit.config.front_ends import Kaldi3DConfig
from svtoolkit.errors import UserError
from svtoolkit.models.front_ends import front_end_of

torch.set_num_threads(1)


@pytest.mark.parametrize(("toolkit", "config"), [("wespeaker", FeaturesConfig()), ("speakerlab", Kaldi3DConfig())])
def test_features_are_those_of_the_toolkit(toolkit, config):
    """To 1e-4, but where next to no energy is left of a frame in a bin: there float32 is no nearer to float64."""
    front_end = front_end_of(config)
    for length in LENGTHS:
        found = front_end(torch.from_numpy(waveforms_of(length)))
        expected = features_of(length, toolkit, 80)
        assert found.shape == expected.shape
        difference = (found - expected).abs()
        assert float((difference > 1e-4).float().mean()) < 1e-3
        assert float(difference.max()) < 0.01


def assert_same_from_the_waveform(model, theirs: nn.Module, family: Family) -> None:
    for length, batches in family.batches.items():
        frames, waveforms = features_of(length, family.toolkit, family.bins), torch.from_numpy(waveforms_of(length))
        for batch in batches:
            with torch.no_grad():
                found = model.extractor.network(model.extractor.front_end(waveforms[:batch]))
            assert_same(found, embeddings(theirs, frames[:batch]))
    found = torch.from_numpy(model.embed(waveforms_of("0.6 s")[0]))
    assert_same(found[None], embeddings(theirs, features_of("0.6 s", family.toolkit, family.bins)[:1]))


@pytest.mark.parametrize("name", FAMILIES)
def test_a_release_gives_the_embeddings_of_its_toolkit_and_goes_back_to_it(name, wespeaker, tmp_path):
    family = FAMILIES[name]
    theirs = theirs_of(family, wespeaker)
    release, written = write_release(tmp_path / "released", family, theirs), tmp_path / "written"
    with narrowed(family):
        model = load_model(release, device="cpu")
        if family.toolkit == "wespeaker":
            assert main(["convert-model", f"model={release}", f"out={written}", "format=wespeaker"]) == 0
    assert model.description.model["name"] == family.name
    two = {**family.arguments, **family.said}.get("two_emb_layer", False)
    assert model.description.model.get("embedding_layers", 1) == (2 if two else 1)
    assert_same_from_the_waveform(model, theirs, family)
    if family.toolkit == "speakerlab":
        assert model.threshold == 0.36
        with pytest.raises(UserError, match=r"backend is 'kaldi_3d', .* which WeSpeaker's config\.yaml cannot"):
            release_of_wespeaker.write(tmp_path, theirs.state_dict(), model.description)
        return
    assert model.threshold is None
    config = yaml.safe_load((written / "config.yaml").read_text())
    sizes = {"pooling_func": "TSTP", **family.sizes, **family.said}
    signature(getattr(wespeaker(f"models.{family.module}"), config["model"])).bind(**config["model_args"])
    assert config["model"] == family.model
    assert config["model_args"].items() <= sizes.items()
    assert config["dataset_args"]["fbank_args"]["num_mel_bins"] == family.bins
    again = randomise(copy.deepcopy(theirs), seed=1)
    again.load_state_dict(torch.load(written / "avg_model.pt", weights_only=True), strict=True)
    frames = features_of("0.6 s", "wespeaker", family.bins)
    assert torch.equal(embeddings(again, frames), embeddings(theirs, frames))
