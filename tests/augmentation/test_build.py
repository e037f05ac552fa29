"""From the group ``augment`` to a list of changes: what is chosen, what is added, and what is refused."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata

import numpy as np
import pytest
import torch
from sounds import RATE, augmenter_of, hiss, noise_utterances, small_noises, small_rirs
from torch import Tensor

from svtoolkit.augmentation.augmenter import collate_changes
from svtoolkit.augmentation.build import build_augmenter
from svtoolkit.augmentation.change import Change, Parameters
from svtoolkit.augmentation.noise import NoiseLibrary
from svtoolkit.augmentation.registry import AUGMENTATIONS
from svtoolkit.config import AugmentConfig
from svtoolkit.errors import UserError
from svtoolkit.registry import Registry, Row


def test_the_ranges_are_those_of_the_field():
    keys = AugmentConfig()
    assert keys.probability == 0.6
    assert (keys.noise_snr, keys.music_snr, keys.babble_snr) == ([0, 15], [5, 15], [10, 30])
    assert keys.babble_talkers == [3, 7]


@pytest.mark.parametrize(
    ("keys", "names"),
    [
        ({}, []),
        ({"gain": [-6.0, 0.0]}, ["gain"]),
        ({"telephone_probability": 0.5}, ["gain", "telephone"]),
        ({"gain": [-6.0, 0.0], "telephone_probability": 0.5, "probability": 0.0}, []),
    ],
)
def test_what_is_not_asked_for_is_not_there(tmp_path, keys, names):
    assert list(augmenter_of(**keys).changes) == names
    with_libraries = augmenter_of(small_noises(tmp_path), small_rirs(tmp_path), **keys)
    assert list(with_libraries.changes) == (["reverberation", "noise", *names] if keys.get("probability") != 0 else [])


def test_changes_are_listed_without_torch():
    code = (
        "import sys; from svtoolkit.augmentation.registry import AUGMENTATIONS; "
        "print(*AUGMENTATIONS, 'torch' in sys.modules)"
    )
    listed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert listed == ["reverberation", "noise", "gain", "telephone", "False"]


@dataclass
class ClippingSettings:
    probability: float = 0.5
    lowest: float = 0.01


class Clipping(Change):
    """What another package may add."""

    def __init__(self, probability: float, lowest: float, sample_rate: int) -> None:
        self.probability, self.lowest = probability, lowest

    def draw(self, generator: np.random.Generator) -> Parameters | None:
        return {"limit": generator.uniform(self.lowest, 0.05)} if generator.random() < self.probability else None

    def apply(self, waveforms: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        limit = parameters["limit"].unsqueeze(1)
        return waveforms.clamp(-limit, limit)


CLIPPING = Row(f"{__name__}:Clipping", ClippingSettings)


@pytest.fixture
def clipping(monkeypatch) -> None:
    """A package that adds ``clipping`` through an entry point is installed."""
    point = metadata.EntryPoint("clipping", f"{__name__}:CLIPPING", AUGMENTATIONS.entry_points)
    monkeypatch.setattr(metadata, "entry_points", lambda group: [point] if group == point.group else [])
    registry = Registry(AUGMENTATIONS.kind, AUGMENTATIONS.entry_points, AUGMENTATIONS.rows)
    monkeypatch.setattr("svtoolkit.augmentation.build.AUGMENTATIONS", registry)


def added(**settings):
    return build_augmenter(AugmentConfig(telephone_probability=0.5), sample_rate=RATE, added={"clipping": settings})


def test_a_change_of_another_package_follows_ours(clipping):
    theirs, ours = added(lowest=0.02), augmenter_of(telephone_probability=0.5)
    assert list(theirs.changes) == ["gain", "telephone", "clipping"]
    assert theirs.description() == "60 % of crops get telephone, clipping"
    drawn = [theirs.draw(np.random.default_rng(seed)) for seed in range(300)]
    without = [{name: values for name, values in crop.items() if name != "clipping"} for crop in drawn]
    assert without == [ours.draw(np.random.default_rng(seed)) for seed in range(300)]
    limits = [crop["clipping"]["limit"] for crop in drawn if "clipping" in crop]
    assert len(limits) / len(drawn) == pytest.approx(0.3, abs=0.08)
    assert 0.02 <= min(limits) < 0.025
    speech = hiss(2000)
    batch = torch.from_numpy(np.stack([speech] * len(drawn)))
    changed = theirs.apply(batch, collate_changes([theirs.load(crop, 2000) for crop in drawn]))
    for row, crop in enumerate(drawn):
        if list(crop) == ["clipping"]:
            limit = np.float32(crop["clipping"]["limit"])
            np.testing.assert_array_equal(changed[row], speech.clip(-limit, limit))
            np.testing.assert_array_equal(changed[row], theirs.apply_to_crop(speech, crop))


def test_a_change_that_cannot_be_added_is_refused(clipping):
    with pytest.raises(
        UserError, match=r"no augmentation 'cliping'; did you mean 'clipping'.*svtoolkit\.augmentations"
    ):
        build_augmenter(AugmentConfig(), sample_rate=RATE, added={"cliping": {}})
    with pytest.raises(UserError, match=r"'gain' has keys of its own in the group augment"):
        build_augmenter(AugmentConfig(), sample_rate=RATE, added={"gain": {}})
    with pytest.raises(UserError, match=r"'clipping' has no key 'louder'; valid are probability, lowest"):
        added(louder=1.0)
    with pytest.raises(UserError, match=r"probability of clipping is 1\.5, expected a share from 0 to 1"):
        added(probability=1.5)
    with pytest.raises(UserError, match=r"augment\.probability is 0, and clipping would never happen"):
        build_augmenter(AugmentConfig(probability=0.0), sample_rate=RATE, added={"clipping": {}})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"probability": 1.2}, r"augment\.probability is 1\.2, expected a share from 0 to 1"),
        ({"probability": math.nan}, r"augment\.probability is nan"),
        ({"telephone_probability": -0.5}, r"augment\.telephone_probability is -0\.5"),
        ({"noise_snr": [15, 0]}, r"augment\.noise_snr is \[15, 0\], expected a lower and an upper limit in dB"),
        ({"music_snr": [5]}, r"augment\.music_snr is \[5\]"),
        ({"babble_snr": [0, math.inf]}, r"augment\.babble_snr is \[0, inf\], .*from -100 to 100"),
        ({"gain": [math.nan, 0]}, r"augment\.gain is \[nan, 0\]"),
        ({"babble_talkers": [7, 3]}, r"augment\.babble_talkers is \[7, 3\], expected fewest and most talkers"),
        ({"babble_talkers": [0, 3]}, r"augment\.babble_talkers is \[0, 3\]"),
        ({"babble_talkers": [1.5, 3]}, r"augment\.babble_talkers is \[1\.5, 3\]"),
        ({"both_weight": -1}, r"augment\.both_weight is -1, expected a weight of 0 or more"),
        ({"music_weight": math.inf}, r"augment\.music_weight is inf"),
        (
            {"only_noise_weight": 0, "only_reverberation_weight": 0, "both_weight": 0},
            r"augment\.only_noise_weight, augment\.only_reverberation_weight, augment\.both_weight are all 0",
        ),
        (
            {"noise_weight": 0, "music_weight": 0, "babble_weight": 0},
            r"are all 0, expected one above 0; augment\.probability=0 changes no crop",
        ),
    ],
)
def test_a_number_out_of_range_is_refused(change, message):
    with pytest.raises(UserError, match=message):
        augmenter_of(**change)


@pytest.mark.parametrize(
    ("weights", "held", "message"),
    [
        (
            {"only_noise_weight": 0, "both_weight": 0},
            ("noise", "rirs"),
            "augment.noise is given but would never be used: augment.only_noise_weight is 0, and "
            "augment.both_weight is 0 or augment.reverberation null; raise a weight or set augment.noise=null",
        ),
        ({"only_noise_weight": 0}, ("noise",), "augment.noise is given but would never be used"),
        ({"only_reverberation_weight": 0}, ("rirs",), "augment.reverberation is given but would never be used"),
    ],
)
def test_data_that_would_never_be_used_are_refused(tmp_path, weights, held, message):
    given = (small_noises(tmp_path) if "noise" in held else None, small_rirs(tmp_path) if "rirs" in held else None)
    with pytest.raises(UserError) as caught:
        augmenter_of(*given, **weights)
    assert str(caught.value).startswith(message)


def test_categories_that_the_library_lacks_are_refused(tmp_path):
    library = NoiseLibrary.build(noise_utterances(tmp_path, {"noise": [0.5], "speech": [0.5, 0.5]}))
    with pytest.raises(UserError) as caught:
        augmenter_of(library)
    assert str(caught.value) == (
        "augment.music_weight is 1, but augment.noise holds 0 utterances of the category 'music', expected 1 or more; "
        "add some or set augment.music_weight=0 augment.babble_weight=0"
    )
    with pytest.raises(UserError, match=r"augment\.babble_weight is 1, .* 2 utterances of the category 'speech'"):
        augmenter_of(library, music_weight=0)
    assert augmenter_of(library, music_weight=0, babble_talkers=[2, 5])


def test_a_telephone_at_a_rate_that_is_no_multiple_of_its_own_is_refused():
    with pytest.raises(UserError, match=r"features\.sample_rate is 22050 Hz, expected a multiple of 8000 Hz"):
        augmenter_of(telephone_probability=0.1, sample_rate=22_050)
    assert augmenter_of(sample_rate=22_050)
