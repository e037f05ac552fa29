"""Networks of both toolkits as they were published: their own code against what is loaded, from the waveform."""

from __future__ import annotations

import pytest
import torch
from released_families import WHOLE, assert_same, embeddings, features_of, theirs_of, waveforms_of, write_release

from svtoolkit import load_model

torch.set_num_threads(1)


@pytest.mark.parametrize("name", WHOLE)
def test_a_release_gives_the_embeddings_of_its_toolkit(name, wespeaker, tmp_path):
    family = WHOLE[name]
    theirs = theirs_of(family, wespeaker)
    model = load_model(write_release(tmp_path / "released", family, theirs), device="cpu")
    found = torch.from_numpy(model.embed(waveforms_of("0.6 s")[0]))
    assert_same(found[None], embeddings(theirs, features_of("0.6 s", family.toolkit, family.bins)[:1]))
