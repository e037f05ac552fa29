"""Recordings that 8 bits are calibrated on."""

from __future__ import annotations

import numpy as np
import torch
from exported_material import cosine_of

from svtoolkit.deploy.graph import export_graph
from svtoolkit.deploy.precision import quantise
from svtoolkit.deploy.recordings import Recording, made_recordings, with_digital_silence
from svtoolkit.models import build_model
from svtoolkit.models.front_ends import features_config, front_end_of
from svtoolkit.runtime.engines import OnnxRuntime
from svtoolkit.runtime.filter_bank import NumpyFilterBank

torch.set_num_threads(1)
FEATURES = features_config({"num_bins": 24})


def test_every_fourth_comes_once_more_with_zeros_in_its_middle():
    given = [Recording(str(number), np.full(number + 1, 0.5, np.float32)) for number in range(6)]
    found = with_digital_silence(given)
    assert found[:6] == given
    assert [each.name for each in found[6:]] == ["0, with digital silence", "4, with digital silence"]
    assert found[7].samples.tolist() == [0.5, 0.5, 0, 0.5, 0.5]
    assert given[4].samples.tolist() == [0.5] * 5
    assert with_digital_silence([]) == []


def test_8_bits_do_not_saturate_on_digital_silence():
    torch.manual_seed(0)
    network = build_model("resnet10", num_bins=24, embedding_dim=16, base_width=8)
    bank = NumpyFilterBank(FEATURES)
    made = made_recordings(16000)
    inputs = {
        name: [bank(each.samples)[np.newaxis] for each in recordings]
        for name, recordings in (("plain", made), ("silenced", with_digital_silence(made)))
    }
    network.train()
    with torch.no_grad():
        network(torch.from_numpy(np.concatenate([each[:, :80] for each in inputs["plain"]])))
    whole = export_graph(network.eval(), front_end_of(FEATURES), waveform=False)

    samples = made[3].samples.copy()  # of none of those that came once more
    samples[len(samples) // 3 : len(samples) // 2] = 0
    heard = bank(samples)[np.newaxis]

    def cosine(seen: list[np.ndarray]) -> float:
        expected, found = (
            OnnxRuntime(each, 1).run("feats", heard)[0] for each in (whole, quantise(whole, "feats", seen))
        )
        return cosine_of(found, expected)

    assert cosine(inputs["silenced"]) > 0.99
    assert cosine(inputs["plain"]) < cosine(inputs["silenced"]) - 0.005
