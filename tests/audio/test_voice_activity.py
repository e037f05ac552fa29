"""What is speech and what is none: synthetic voices, noises, hum, silence and, where they are, real recordings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
from paths import SHARED
from spoken import RATE, spoken

from svtoolkit.audio import voice_activity
from svtoolkit.audio.voice_activity import MIN_VOICE, VoiceActivity, measure_voice

DATA = SHARED / "data"
SECONDS = 4


def noise(level: float = 0.05, seconds: float = SECONDS, *, colour: float = 0.0, seed: int = 0) -> np.ndarray:
    """Noise whose power falls with frequency ** colour: 0 white, 1 pink, 2 brown."""
    samples = round(seconds * RATE)
    spectrum = np.fft.rfft(np.random.default_rng([3, seed]).standard_normal(samples))
    spectrum[1:] *= np.arange(1, len(spectrum)) ** (-colour / 2)
    spectrum[0] = 0
    shaped = np.fft.irfft(spectrum, samples)
    return level * shaped / shaped.std()


def hum(frequency: float, level: float = 0.1, seconds: float = SECONDS) -> np.ndarray:
    """The mains with their harmonics."""
    time = np.arange(round(seconds * RATE)) / RATE
    return level * sum(np.sin(2 * np.pi * k * frequency * time + k) / k for k in range(1, 12))


def voice(seconds: float = SECONDS) -> np.ndarray:
    return spoken(3, 0, seconds).astype(np.float64)


def sixteen_bits(samples: np.ndarray) -> np.ndarray:
    return np.round(samples * 32767) / 32767


def seconds_of(samples: np.ndarray, rate: int = RATE) -> float:
    return measure_voice(samples.astype(np.float32), rate).voice


NO_SPEECH = {
    "zeros": np.zeros(SECONDS * RATE),
    "constant": np.full(SECONDS * RATE, 0.3),
    "dither": sixteen_bits(noise(2e-5)),
    "white noise": noise(),
    "loud white noise": noise(0.3),
    "pink noise": noise(colour=1),
    "brown noise": noise(colour=2),
    "a minute of white noise": noise(seconds=60),
    "a minute of pink noise": noise(seconds=60, colour=1),
    "hum of 50 Hz": hum(50),
    "hum of 60 Hz": hum(60),
    "hum in noise": hum(50) + noise(0.02),
    "tone": hum(440),
    "zeros, then noise": np.concatenate([np.zeros(2 * RATE), noise()]),
    "noise, then zeros": np.concatenate([noise(), np.zeros(2 * RATE)]),
    "noise that gets louder at once": np.concatenate([noise(0.002), noise(0.1, seed=1)]),
    "noise that gets louder slowly": noise() * np.linspace(0.01, 1, SECONDS * RATE),
    "clicks": np.where(np.arange(SECONDS * RATE) % (RATE // 3) == 0, 0.9, 0.0) + noise(0.001),
    "nothing at all": np.zeros(0),
    "less than one stretch": voice()[:300],
    "not a number": np.full(RATE, np.nan),
}


@pytest.mark.parametrize("name", NO_SPEECH)
def test_what_is_no_speech_has_no_voice(name: str) -> None:
    activity = measure_voice(NO_SPEECH[name].astype(np.float32), RATE)
    assert activity.voice < 0.1
    assert activity.why_no_speech() is not None
    assert activity.silent == (name in ("zeros", "constant", "dither", "nothing at all", "less than one stretch",
                                        "not a number"))  # fmt: skip


@pytest.mark.parametrize("gain_db", [0, -20, -40, -50])
def test_a_voice_is_heard_however_quiet_it_is(gain_db: float) -> None:
    quiet = sixteen_bits(voice() * 10 ** (gain_db / 20))
    assert seconds_of(quiet) == pytest.approx(seconds_of(voice()), abs=0.6)
    assert seconds_of(quiet) > 1.0


@pytest.mark.parametrize("rate", [8000, 16000, 22050, 48000])
def test_the_rate_does_not_matter(rate: int) -> None:
    from svtoolkit.audio.files import convert_rate

    converted = convert_rate(voice().astype(np.float32), RATE, rate)
    assert seconds_of(converted, rate) == pytest.approx(seconds_of(voice()), rel=0.2)


def test_a_voice_in_noise_or_hum_or_beside_an_offset_is_heard() -> None:
    level = voice().std()
    for disturbance in (noise(level / 10), noise(level / 3), hum(50, level), np.full(SECONDS * RATE, 0.2)):
        assert seconds_of(voice() + disturbance) > 2 * MIN_VOICE


def test_a_short_voice_in_a_long_silence_is_as_much_voice_as_it_is() -> None:
    background = noise(0.0005, 6)
    for seconds, enough in ((0.1, False), (0.2, False), (1.5, True)):
        samples = background.copy()
        samples[2 * RATE : 2 * RATE + round(seconds * RATE)] += voice(seconds)
        activity = measure_voice(samples, RATE)
        assert activity.voice < seconds + 0.05
        assert (activity.why_no_speech() is None) == enough
        assert activity.total == pytest.approx(6)
        assert not activity.silent


def test_the_reason_says_what_was_found() -> None:
    assert VoiceActivity(0.5, 1.0, False).why_no_speech() is None
    assert VoiceActivity(0.5, 1.0, False).why_no_speech(0.6) == (
        "0.50 s of voice in 1.00 s, expected 0.6 s or more (the rest is silence, noise or music); "
        "record speech, nearer to the microphone or for longer"
    )
    assert "(it is silent)" in str(VoiceActivity(0.0, 2.0, True).why_no_speech())


def test_synthetic_speech_is_speech(synthesiser) -> None:  # type: ignore[no-untyped-def]
    samples, rate = synthesiser.speak("Good morning, this is a test.", language="en-us", variant="")
    for scale in (1.0, 0.01):
        assert measure_voice(samples * scale, rate).why_no_speech() is None


def recordings(pattern: str, wanted: int) -> list[Path]:
    files = sorted(DATA.glob(pattern))
    if not files:
        pytest.skip(f"{DATA}: real recordings are not beside the repository")
    return files[:: max(1, len(files) // wanted)]


@pytest.mark.parametrize("pattern", ["speechocean762/wav/*/*.flac", "librispeech_mini/wav/*/*.flac"])
def test_real_speech_is_speech_quiet_or_in_noise(pattern: str) -> None:
    files = recordings(pattern, 60)
    refused = []
    for number, file in enumerate(files):
        samples, rate = soundfile.read(file)
        level = samples.std()
        noisy = samples + noise(1.0, len(samples) / rate, seed=number)[: len(samples)] * level / 10 ** (10 / 20)
        for name, heard in (("as it is", samples), ("quiet", sixteen_bits(samples / 100)), ("noisy", noisy)):
            if measure_voice(heard, rate).why_no_speech() is not None:
                refused.append((file.name, name))
    assert refused == []


@pytest.mark.parametrize("count", [1, 2, 3, 10, 11, 400])
def test_the_quantile_is_numpy_s(count):
    values = np.random.default_rng(count).random(count)
    assert voice_activity._quantile(values, 0.9) == pytest.approx(np.quantile(values, 0.9), rel=1e-14)
