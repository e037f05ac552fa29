"""From a generator to a plan: how often, which and how much; and to the samples that it needs."""

from __future__ import annotations

import pickle
from collections import Counter

import numpy as np
import pytest
import soundfile
from sounds import RATE, hiss, noise_utterances, power_db, shared_utterances, small_noises, small_rooms, utterance

from svtoolkit.augmentation import AugmentationPolicy, Augmenter, ImpulseLibrary, NoiseLibrary, Plan, Slice
from svtoolkit.augmentation.materials import load
from svtoolkit.augmentation.plan import CLEAN
from svtoolkit.errors import UserError

SAMPLES = 16_000
DRAWS = 20_000


@pytest.fixture(scope="module")
def noises(tmp_path_factory) -> NoiseLibrary:
    return small_noises(tmp_path_factory.mktemp("noises"))


@pytest.fixture(scope="module")
def rooms(tmp_path_factory) -> ImpulseLibrary:
    return small_rooms(tmp_path_factory.mktemp("rooms"))


def draws(augmenter: Augmenter, count: int = DRAWS, seed: int = 0) -> list[Plan]:
    rng = np.random.default_rng(seed)
    return [augmenter.draw(rng, SAMPLES) for _ in range(count)]


def shares(values) -> dict:
    counts = Counter(values)
    return {value: count / counts.total() for value, count in counts.items()}


def is_close(found: dict, expected: dict) -> bool:
    """Within 4.5 standard errors of a share of 2,000 or more draws."""
    return found.keys() == expected.keys() and all(abs(found[key] - expected[key]) < 0.05 for key in expected)


def test_draws_keep_to_probabilities_and_ranges(noises, rooms):
    policy = AugmentationPolicy(
        only_reverberation_weight=2.0, both_weight=1.0, music_weight=3.0, gain=(-6, 3), telephone_probability=0.25
    )
    plans = draws(Augmenter(policy, noises, rooms, sample_rate=RATE))
    assert np.mean([plan.is_clean for plan in plans]) == pytest.approx(0.4, abs=0.015)
    changed = [plan for plan in plans if not plan.is_clean]
    ways = shares((plan.category is not None, plan.response is not None) for plan in changed)
    assert is_close(ways, {(True, False): 0.25, (False, True): 0.5, (True, True): 0.25})
    noisy = [plan for plan in changed if plan.category]
    assert is_close(shares(plan.category for plan in noisy), {"noise": 0.2, "music": 0.6, "babble": 0.2})
    assert is_close(shares(plan.telephone for plan in changed), {None: 0.75, "mu": 0.125, "a": 0.125})
    assert is_close(
        shares(plan.response for plan in changed if plan.response is not None), dict.fromkeys(range(3), 1 / 3)
    )
    for values, (low, high) in [
        ([plan.gain_db for plan in changed], (-6, 3)),
        ([plan.snr_db for plan in noisy if plan.category == "noise"], (0, 15)),
        ([plan.snr_db for plan in noisy if plan.category == "music"], (5, 15)),
        ([plan.snr_db for plan in noisy if plan.category == "babble"], (10, 30)),
    ]:
        assert low <= min(values) < low + 0.02 * (high - low)
        assert high - 0.02 * (high - low) < max(values) <= high
        quarters = np.histogram(values, 4, (low, high))[0] / len(values)
        np.testing.assert_allclose(quarters, 0.25, atol=0.05)


def test_slices_lie_within_their_files_and_talkers_differ(noises):
    plans = draws(Augmenter(AugmentationPolicy(probability=1.0), noises, sample_rate=RATE))
    by_category: dict[str, list[Plan]] = {"noise": [], "music": [], "babble": []}
    for plan in plans:
        assert plan.response is None
        by_category[plan.category].append(plan)
    for category, files in (("noise", noises.categories["noise"]), ("music", noises.categories["music"])):
        assert {len(plan.slices) for plan in by_category[category]} == {1}
        chosen = [plan.slices[0] for plan in by_category[category]]
        assert is_close(shares(slice_.file for slice_ in chosen), dict.fromkeys(range(len(files)), 1 / len(files)))
        for index, seconds in enumerate(files.seconds):
            starts = [slice_.start for slice_ in chosen if slice_.file == index]
            latest = max(seconds - SAMPLES / RATE, 0.0)
            assert 0 <= min(starts) <= max(starts) <= latest
            if latest:
                np.testing.assert_allclose(np.histogram(starts, 4, (0, latest))[0] / len(starts), 0.25, atol=0.06)
    talkers = shares(len(plan.slices) for plan in by_category["babble"])
    assert is_close(talkers, dict.fromkeys(range(3, 8), 0.2))
    assert all(len({slice_.file for slice_ in plan.slices}) == len(plan.slices) for plan in by_category["babble"])
    everyone = Counter(slice_.file for plan in by_category["babble"] for slice_ in plan.slices)
    assert max(everyone.values()) < 1.1 * min(everyone.values())


def test_a_babble_has_no_more_talkers_than_there_are_files(tmp_path):
    library = NoiseLibrary.build(noise_utterances(tmp_path, {"speech": [0.5, 0.5, 0.5, 0.5]}))
    policy = AugmentationPolicy(probability=1.0, noise_weight=0, music_weight=0)
    plans = draws(Augmenter(policy, library, sample_rate=RATE), 300)
    assert {len(plan.slices) for plan in plans} == {3, 4}


def test_a_draw_depends_on_the_generator_alone(noises, rooms):
    augmenter = Augmenter(AugmentationPolicy(gain=(-3, 3), telephone_probability=0.5), noises, rooms, sample_rate=RATE)
    copy = pickle.loads(pickle.dumps(augmenter))

    def drawn(source: Augmenter, epoch: int) -> list[Plan]:
        return [source.draw(np.random.default_rng([5, epoch, entry]), SAMPLES) for entry in range(40)]

    first = drawn(augmenter, 2)
    draws(augmenter, 10)
    assert drawn(augmenter, 2) == drawn(copy, 2) == first
    assert drawn(augmenter, 3) != first


@pytest.mark.parametrize("probability", [0.0, 1.0])
def test_never_and_always(noises, rooms, probability):
    policy = AugmentationPolicy(probability=probability)
    plans = draws(Augmenter(policy, noises, rooms, sample_rate=RATE), 300)
    assert {plan.is_clean for plan in plans} == {probability == 0.0}


def test_without_data_a_crop_is_left_alone_but_for_gain_and_telephone():
    assert set(draws(Augmenter(AugmentationPolicy(probability=1.0), sample_rate=RATE), 50)) == {CLEAN}
    policy = AugmentationPolicy(probability=1.0, gain=(6, 6), telephone_probability=1.0)
    plans = draws(Augmenter(policy, sample_rate=RATE), 50)
    assert set(plans) == {Plan(gain_db=6.0, telephone="mu"), Plan(gain_db=6.0, telephone="a")}


def test_materials_are_the_slices_of_the_plan(noises, rooms):
    augmenter = Augmenter(AugmentationPolicy(), noises, rooms, sample_rate=RATE)
    long = noises.categories["music"]
    plan = Plan(response=2, category="music", slices=(Slice(1, 0.75),), snr_db=3.0)
    materials = augmenter.load(plan, SAMPLES)
    np.testing.assert_array_equal(materials.noise, long.read(1, 0.75, SAMPLES, RATE))
    np.testing.assert_array_equal(materials.noise, hiss(3 * RATE, 1)[12_000 : 12_000 + SAMPLES])
    np.testing.assert_array_equal(materials.response, rooms.response(2, RATE))
    assert augmenter.load(CLEAN, SAMPLES) == load(CLEAN, SAMPLES, RATE, None, None)


def test_a_noise_shorter_than_the_crop_is_repeated_from_its_beginning(noises):
    augmenter = Augmenter(AugmentationPolicy(), noises, sample_rate=RATE)
    materials = augmenter.load(Plan(category="noise", slices=(Slice(0, 0.0),)), SAMPLES)
    np.testing.assert_array_equal(materials.noise, np.tile(hiss(RATE // 2, 0), 2))


def test_talkers_of_a_babble_are_equally_loud(tmp_path):
    """Tones of very different levels, told apart by their frequency; a silent talker says nothing."""
    time = np.arange(SAMPLES) / RATE
    levels = [0.001, 0.03, 0.9, 0.0]
    sounds = [level * np.sin(2 * np.pi * 1000 * (number + 1) * time) for number, level in enumerate(levels)]
    paths = noise_utterances(tmp_path, {"speech": [1.0] * len(levels)})
    for part, sound in zip(paths, sounds, strict=True):
        soundfile.write(part.path, sound, RATE, subtype="FLOAT")
    library = NoiseLibrary.build([utterance(part.path, "speech") for part in paths])
    plan = Plan(category="babble", slices=tuple(Slice(number, 0.0) for number in range(len(levels))))
    babble = load(plan, SAMPLES, RATE, library, None).noise
    assert babble.dtype == np.float32
    amplitudes = np.abs(np.fft.rfft(babble))[[1000, 2000, 3000, 4000]] / (SAMPLES / 2)
    np.testing.assert_allclose(amplitudes, [2**0.5, 2**0.5, 2**0.5, 0], atol=1e-3)


def test_the_fingerprint_is_of_the_libraries(noises, rooms):
    def fingerprint(*libraries, **change) -> str:
        return Augmenter(AugmentationPolicy(**change), *libraries, sample_rate=RATE).fingerprint()

    assert fingerprint() == ""
    assert fingerprint(noises, rooms) == fingerprint(noises, rooms, probability=0.1)
    assert len({fingerprint(), fingerprint(noises), fingerprint(None, rooms), fingerprint(noises, rooms)}) == 4


@pytest.mark.parametrize(
    ("weights", "held", "message"),
    [
        (
            {"only_noise_weight": 0, "both_weight": 0},
            ("noise", "rooms"),
            "augment.noise is given but would never be used: augment.only_noise_weight is 0, and "
            "augment.both_weight is 0 or augment.reverberation null; raise a weight or set augment.noise=null",
        ),
        ({"only_noise_weight": 0}, ("noise",), "augment.noise is given but would never be used"),
        ({"only_reverberation_weight": 0}, ("rooms",), "augment.reverberation is given but would never be used"),
    ],
)
def test_data_that_would_never_be_used_are_refused(noises, rooms, weights, held, message):
    given = (noises if "noise" in held else None, rooms if "rooms" in held else None)
    with pytest.raises(UserError) as caught:
        Augmenter(AugmentationPolicy(**weights), *given, sample_rate=RATE)
    assert str(caught.value).startswith(message)


def test_categories_that_the_library_lacks_are_refused(tmp_path):
    library = NoiseLibrary.build(noise_utterances(tmp_path, {"noise": [0.5], "speech": [0.5, 0.5]}))
    with pytest.raises(UserError) as caught:
        Augmenter(AugmentationPolicy(), library, sample_rate=RATE)
    assert str(caught.value) == (
        "augment.music_weight is 1, but augment.noise holds 0 utterances of the category 'music', expected 1 or more; "
        "add some or set augment.music_weight=0"
    )
    with pytest.raises(UserError, match=r"augment\.babble_weight is 1, .* 2 utterances of the category 'speech'"):
        Augmenter(AugmentationPolicy(music_weight=0), library, sample_rate=RATE)
    assert Augmenter(AugmentationPolicy(music_weight=0, babble_talkers=(2, 5)), library, sample_rate=RATE)


def test_a_telephone_at_a_rate_that_is_no_multiple_of_its_own_is_refused():
    with pytest.raises(UserError, match=r"features\.sample_rate is 22050 Hz, expected a multiple of 8000 Hz"):
        Augmenter(AugmentationPolicy(telephone_probability=0.1), sample_rate=22_050)
    assert Augmenter(AugmentationPolicy(), sample_rate=22_050)


def test_a_plan_without_its_library_is_refused():
    with pytest.raises(ValueError, match="mixes in music, but there is no library of noises"):
        load(Plan(category="music", slices=(Slice(0, 0.0),)), SAMPLES, RATE, None, None)
    with pytest.raises(ValueError, match="asks for reverberation, but there is no library"):
        load(Plan(response=0), SAMPLES, RATE, None, None)


def test_real_noises_and_rooms_go_all_the_way():
    augmenter = Augmenter(
        AugmentationPolicy(probability=1.0),
        NoiseLibrary.build(shared_utterances("musan_mini")),
        ImpulseLibrary.build(shared_utterances("rirs")),
        sample_rate=RATE,
    )
    speech = hiss(32_240)
    rng = np.random.default_rng(0)
    for _ in range(25):
        plan = augmenter.draw(rng, len(speech))
        materials = augmenter.load(plan, len(speech))
        changed = augmenter.apply(speech, plan, materials)
        assert changed.shape == speech.shape
        assert np.isfinite(changed).all()
        assert not np.array_equal(changed, speech)
        if plan.category and plan.response is None and np.abs(materials.noise).max() > 0:
            added = changed.astype(np.float64) - speech
            assert power_db(speech) - power_db(added) == pytest.approx(plan.snr_db, abs=0.1)
