"""From a generator to the changes of a crop: how often, which and how much; and to the samples that they need."""

from __future__ import annotations

import json
import pickle
from collections import Counter

import numpy as np
import pytest
import soundfile
from sounds import (
    RATE,
    augmenter_of,
    hiss,
    noise_utterances,
    power_db,
    shared_utterances,
    small_noises,
    small_rirs,
    utterance,
)

from svtoolkit.augmentation.augmenter import UNCHANGED, Augmenter
from svtoolkit.augmentation.impulse_responses import ImpulseLibrary
from svtoolkit.augmentation.noise import LIBRARY_CATEGORY, NoiseLibrary

SAMPLES = 16_000
DRAWS = 20_000
BABBLE = {
    "kind": "babble",
    "snr_db": 11.733322026295642,
    "clips": ((7, 0.7449189166332431), (0, 0.857564292449959), (2, 0.5189556197623758)),
}
RECORDED = [
    {"reverberation": {"response": 0}, "gain": {"gain_db": 1.208746354386526}, "telephone": {"law": 1}},
    {},
    {},
    {},
    {"reverberation": {"response": 1}, "noise": BABBLE, "gain": {"gain_db": 1.5795610531415107}},
    {"reverberation": {"response": 0}, "gain": {"gain_db": -0.3688426986986202}, "telephone": {"law": 1}},
]


@pytest.fixture(scope="module")
def noises(tmp_path_factory) -> NoiseLibrary:
    return small_noises(tmp_path_factory.mktemp("noises"))


@pytest.fixture(scope="module")
def rirs(tmp_path_factory) -> ImpulseLibrary:
    return small_rirs(tmp_path_factory.mktemp("rirs"))


def draws(augmenter: Augmenter, count: int = DRAWS, seed: int = 0) -> list[dict]:
    rng = np.random.default_rng(seed)
    return [augmenter.draw(rng) for _ in range(count)]


def shares(values) -> dict:
    counts = Counter(values)
    return {value: count / counts.total() for value, count in counts.items()}


def is_close(found: dict, expected: dict) -> bool:
    """Within 4.5 standard errors of a share of 2,000 or more draws."""
    return found.keys() == expected.keys() and all(abs(found[key] - expected[key]) < 0.05 for key in expected)


def test_draws_keep_to_probabilities_and_ranges(noises, rirs):
    augmenter = augmenter_of(
        noises,
        rirs,
        only_reverberation_weight=2.0,
        both_weight=1.0,
        music_weight=3.0,
        gain=[-6, 3],
        telephone_probability=0.25,
    )
    drawn = draws(augmenter)
    assert np.mean([not crop for crop in drawn]) == pytest.approx(0.4, abs=0.015)
    changed = [crop for crop in drawn if crop]
    assert all(list(crop) == [name for name in augmenter.changes if name in crop] for crop in changed)
    ways = shares(("noise" in crop, "reverberation" in crop) for crop in changed)
    assert is_close(ways, {(True, False): 0.25, (False, True): 0.5, (True, True): 0.25})
    noisy = [crop["noise"] for crop in changed if "noise" in crop]
    assert is_close(shares(noise["kind"] for noise in noisy), {"noise": 0.2, "music": 0.6, "babble": 0.2})
    laws = shares(crop["telephone"]["law"] if "telephone" in crop else None for crop in changed)
    assert is_close(laws, {None: 0.75, 0: 0.125, 1: 0.125})
    responses = shares(crop["reverberation"]["response"] for crop in changed if "reverberation" in crop)
    assert is_close(responses, dict.fromkeys(range(3), 1 / 3))
    for values, (low, high) in [
        ([crop["gain"]["gain_db"] for crop in changed], (-6, 3)),
        ([noise["snr_db"] for noise in noisy if noise["kind"] == "noise"], (0, 15)),
        ([noise["snr_db"] for noise in noisy if noise["kind"] == "music"], (5, 15)),
        ([noise["snr_db"] for noise in noisy if noise["kind"] == "babble"], (10, 30)),
    ]:
        assert low <= min(values) < low + 0.02 * (high - low)
        assert high - 0.02 * (high - low) < max(values) <= high
        quarters = np.histogram(values, 4, (low, high))[0] / len(values)
        np.testing.assert_allclose(quarters, 0.25, atol=0.05)


def test_clips_lie_within_their_files_and_talkers_differ(noises, monkeypatch):
    augmenter = augmenter_of(noises, probability=1.0)
    by_kind: dict[str, list[tuple]] = {"noise": [], "music": [], "babble": []}
    for crop in draws(augmenter):
        assert list(crop) == ["noise"]
        by_kind[crop["noise"]["kind"]].append(crop["noise"]["clips"])
    for kind, files in (("noise", noises.categories["noise"]), ("music", noises.categories["music"])):
        assert {len(clips) for clips in by_kind[kind]} == {1}
        chosen = [clips[0] for clips in by_kind[kind]]
        assert is_close(shares(file for file, _ in chosen), dict.fromkeys(range(len(files)), 1 / len(files)))
        for index in range(len(files)):
            places = [share for file, share in chosen if file == index]
            assert 0 <= min(places) <= max(places) < 1
            np.testing.assert_allclose(np.histogram(places, 4, (0, 1))[0] / len(places), 0.25, atol=0.06)
    talkers = shares(len(clips) for clips in by_kind["babble"])
    assert is_close(talkers, dict.fromkeys(range(3, 8), 0.2))
    assert all(len({file for file, _ in clips}) == len(clips) for clips in by_kind["babble"])
    everyone = Counter(file for clips in by_kind["babble"] for file, _ in clips)
    assert max(everyone.values()) < 1.1 * min(everyone.values())


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_a_share_is_of_what_a_file_is_longer_than_the_crop(noises, share):
    for kind, category in LIBRARY_CATEGORY.items():
        files = noises.categories[category]
        for index, seconds in enumerate(files.seconds):
            drawn = {"noise": {"kind": kind, "snr_db": 3.0, "clips": ((index, share),)}}
            start = share * max(seconds - SAMPLES / RATE, 0.0)
            loaded = augmenter_of(noises).load(drawn, SAMPLES)["noise"]
            np.testing.assert_array_equal(loaded["noise"], files.read(index, start, SAMPLES, RATE))
            assert loaded["snr_db"] == 3.0


def test_a_babble_has_no_more_talkers_than_there_are_files(tmp_path):
    library = NoiseLibrary.build(noise_utterances(tmp_path, {"speech": [0.5, 0.5, 0.5, 0.5]}))
    drawn = draws(augmenter_of(library, probability=1.0, noise_weight=0, music_weight=0), 300)
    assert {len(crop["noise"]["clips"]) for crop in drawn} == {3, 4}


def test_a_draw_depends_on_the_generator_alone(noises, rirs):
    augmenter = augmenter_of(noises, rirs, gain=[-3, 3], telephone_probability=0.5)
    copy = pickle.loads(pickle.dumps(augmenter))

    def drawn(source: Augmenter, epoch: int) -> list[dict]:
        return [source.draw(np.random.default_rng([5, epoch, entry])) for entry in range(40)]

    first = drawn(augmenter, 2)
    draws(augmenter, 10)
    assert drawn(augmenter, 2) == drawn(copy, 2) == first
    assert drawn(augmenter, 3) != first


def test_draws_are_those_of_runs_begun_earlier(noises, rirs):
    """Recorded once: a run that is resumed after an upgrade sees the same crops."""
    augmenter = augmenter_of(noises, rirs, gain=[-3, 3], telephone_probability=0.5)
    drawn = [augmenter.draw(np.random.default_rng([5, 2, entry])) for entry in range(200)]
    assert drawn[:6] == RECORDED
    fresh = augmenter_of(noises, rirs, telephone_probability=0.5)
    without_gain = [fresh.draw(np.random.default_rng([5, 2, entry])) for entry in range(200)]
    assert without_gain == [{name: crop[name] for name in crop if name != "gain"} for crop in drawn]


def test_draws_are_plain_numbers(noises, rirs):
    for crop in draws(augmenter_of(noises, rirs, gain=[-3, 3], telephone_probability=0.5), 300):
        assert json.loads(json.dumps(crop)) == json.loads(json.dumps(pickle.loads(pickle.dumps(crop))))


@pytest.mark.parametrize("probability", [0.0, 1.0])
def test_never_and_always(noises, rirs, probability):
    drawn = draws(augmenter_of(noises, rirs, probability=probability), 300)
    assert {not crop for crop in drawn} == {probability == 0.0}


def test_without_data_a_crop_is_left_alone_but_for_gain_and_telephone():
    assert not any(draws(augmenter_of(probability=1.0), 50))
    drawn = draws(augmenter_of(probability=1.0, gain=[6, 6], telephone_probability=1.0), 50)
    gain = {"gain": {"gain_db": 6.0}}
    assert all(crop in (gain | {"telephone": {"law": 0}}, gain | {"telephone": {"law": 1}}) for crop in drawn)
    assert drawn[0] in drawn[1:]
    assert any(crop != drawn[0] for crop in drawn)


def test_what_is_loaded_is_what_was_drawn(noises, rirs):
    augmenter = augmenter_of(noises, rirs)
    clip = (1, 0.75 / (3.0 - SAMPLES / RATE))
    drawn = {"reverberation": {"response": 2}, "noise": {"kind": "music", "clips": (clip,), "snr_db": 3.0}}
    loaded = augmenter.load(drawn, SAMPLES)
    np.testing.assert_array_equal(loaded["noise"]["noise"], hiss(3 * RATE, 1)[12_000 : 12_000 + SAMPLES])
    np.testing.assert_array_equal(loaded["reverberation"]["response"], rirs.response(2, RATE))
    assert augmenter.load({}, SAMPLES) == UNCHANGED.load(UNCHANGED.draw(np.random.default_rng(0)), SAMPLES) == {}


def test_a_noise_shorter_than_the_crop_is_repeated_from_its_beginning(noises):
    drawn = {"noise": {"kind": "noise", "clips": ((0, 0.6),), "snr_db": 0.0}}
    loaded = augmenter_of(noises).load(drawn, SAMPLES)
    np.testing.assert_array_equal(loaded["noise"]["noise"], np.tile(hiss(RATE // 2, 0), 2))


def test_talkers_of_a_babble_are_equally_loud(tmp_path):
    """Tones of very different levels, told apart by their frequency; a silent talker says nothing."""
    time = np.arange(SAMPLES) / RATE
    levels = [0.001, 0.03, 0.9, 0.0]
    sounds = [level * np.sin(2 * np.pi * 1000 * (number + 1) * time) for number, level in enumerate(levels)]
    paths = noise_utterances(tmp_path, {"speech": [1.0] * len(levels)})
    for part, sound in zip(paths, sounds, strict=True):
        soundfile.write(part.path, sound, RATE, subtype="FLOAT")
    library = NoiseLibrary.build([utterance(part.path, "speech") for part in paths])
    clips = tuple((number, 0.0) for number in range(len(levels)))
    augmenter = augmenter_of(library, noise_weight=0, music_weight=0)
    babble = augmenter.load({"noise": {"kind": "babble", "clips": clips, "snr_db": 0.0}}, SAMPLES)["noise"]["noise"]
    assert babble.dtype == np.float32
    amplitudes = np.abs(np.fft.rfft(babble))[[1000, 2000, 3000, 4000]] / (SAMPLES / 2)
    np.testing.assert_allclose(amplitudes, [2**0.5, 2**0.5, 2**0.5, 0], atol=1e-3)


def test_the_fingerprint_is_of_the_libraries(noises, rirs):
    def fingerprint(*libraries, **keys) -> str:
        return augmenter_of(*libraries, **keys).fingerprint()

    assert fingerprint() == ""
    assert fingerprint(noises, rirs) == fingerprint(noises, rirs, probability=0.1)
    assert fingerprint(noises, rirs) == f"{noises.fingerprint()} {rirs.fingerprint()}"
    assert len({fingerprint(), fingerprint(noises), fingerprint(None, rirs), fingerprint(noises, rirs)}) == 4


def test_real_noises_and_responses_go_all_the_way():
    augmenter = augmenter_of(
        NoiseLibrary.build(shared_utterances("musan_mini")),
        ImpulseLibrary.build(shared_utterances("rirs")),
        probability=1.0,
    )
    speech = hiss(32_240)
    rng = np.random.default_rng(0)
    for _ in range(25):
        drawn = augmenter.draw(rng)
        loaded = augmenter.load(drawn, len(speech))
        changed = augmenter.apply_to_crop(speech, loaded)
        assert changed.shape == speech.shape
        assert np.isfinite(changed).all()
        assert not np.array_equal(changed, speech)
        if list(drawn) == ["noise"] and np.abs(loaded["noise"]["noise"]).max() > 0:
            added = changed.astype(np.float64) - speech
            assert power_db(speech) - power_db(added) == pytest.approx(drawn["noise"]["snr_db"], abs=0.1)
