"""What the speech check of `svt verify` refuses of silence, noise, music and short voices, and of real speech.

    python -m benchmarks.speech_check --data DATA --output benchmarks/results/speech_check.json

DATA is a folder with musan_mini, rirs, speechocean762 and librispeech_mini. Nothing of the check was fitted to these
recordings: its network is Silero's with the threshold of its authors, the rest was chosen on training speakers
(`--part train` shows their figures), and the figures are of the evaluation speakers. Music is listed twice, as music
without and with a singing voice, which is a voice. `before` is the check by level alone, the network left out.

A short voice is the loudest 0.05 to 0.28 s of an utterance in pink noise 40 dB below it. Made-up sounds: digital
silence, dither, white, pink and brown noise, hum and tones of levels from -90 to -6 dB, steps, fades and clicks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import soundfile
import soxr
from scipy.signal import fftconvolve

from benchmarks.machine import load_average, open_command, write_record
from svtoolkit.audio import voice_activity
from svtoolkit.audio.voice_activity import QUIET_DB, band_powers, measure_voice
from svtoolkit.data.kaldi_dir import KaldiDir

RATE = 16000
SHORT = (0.05, 0.1, 0.15, 0.2, 0.25, 0.28)
SUNG = "lets_go_fishin"
"""The pieces of musan_mini's music in which somebody sings."""

REFUSE, ACCEPT = "to be refused", "to be accepted"
Sounds = Iterator[np.ndarray]


def read(path: Path) -> np.ndarray:
    samples, rate = soundfile.read(path, dtype="float32")
    assert rate == RATE, path
    return samples


def noise(rng: np.random.Generator, samples: int, colour: float) -> np.ndarray:
    """Noise of deviation 1, whose power falls with frequency ** colour."""
    spectrum = np.fft.rfft(rng.standard_normal(samples))
    spectrum[1:] *= np.arange(1, len(spectrum)) ** (-colour / 2)
    spectrum[0] = 0
    shaped = np.fft.irfft(spectrum, samples)
    return shaped / shaped.std()


def level(rng: np.random.Generator) -> float:
    return float(10 ** (rng.uniform(-90, -6) / 20))


def silences(rng: np.random.Generator) -> Sounds:
    for number in range(100):
        samples = round(RATE * rng.uniform(0.5, 15))
        dither = np.round(noise(rng, samples, 0) * rng.uniform(0, 1)) / 32768
        yield dither if number % 2 else np.full(samples, rng.uniform(-0.5, 0.5) * (number % 4 == 2))


def made_up(rng: np.random.Generator) -> Sounds:
    for number in range(300):
        samples = round(RATE * rng.uniform(1, 15))
        time = np.arange(samples) / RATE
        pitch = rng.uniform(45, 1000)
        hum = sum(np.sin(2 * np.pi * k * pitch * time + k) / k for k in range(1, 12))
        steady = noise(rng, samples, number % 3) if number % 2 else hum
        shape = [
            np.ones(samples),
            np.where(time < time[-1] / 2, 0.01, 1.0),
            np.linspace(0.01, 1, samples),
            np.where(np.arange(samples) % round(RATE * rng.uniform(0.2, 1)) == 0, 50.0, 0.1),
        ][number % 4]
        yield np.clip(level(rng) * steady * shape, -1, 1)


def short_voices(rng: np.random.Generator, speech: Sequence[Path]) -> Sounds:
    for number, path in enumerate(speech):
        voice = read(path)
        samples = round(SHORT[number % len(SHORT)] * RATE)
        begin = int(np.convolve(np.square(voice), np.ones(samples), "valid").argmax())
        background = noise(rng, 3 * RATE, 1) * voice.std() / 100
        at = int(rng.integers(RATE // 2, 2 * RATE))
        background[at : at + samples] += voice[begin : begin + samples]
        yield background


def in_noise(rng: np.random.Generator, speech: Sequence[Path], colour: float, ratio_db: float) -> Sounds:
    for path in speech:
        voice = read(path)
        yield voice + noise(rng, len(voice), colour) * voice.std() / 10 ** (ratio_db / 20)


def in_rooms(data: Path, speech: Sequence[Path]) -> Sounds:
    rooms = [read(path) for path in sorted((data / "rirs").glob("*.flac"))]
    for number, path in enumerate(speech):
        yield fftconvolve(read(path), rooms[number % len(rooms)])


def telephone(speech: Sequence[Path]) -> Sounds:
    for path in speech:
        yield soxr.resample(soxr.resample(read(path), RATE, 8000), 8000, RATE)


def files_of(data: Path, corpus: str, part: str) -> list[Path]:
    kaldi_dir = KaldiDir.read(data / corpus / part, data)
    return [Path(kaldi_dir.utterance(name).path) for name in kaldi_dir.utt2spk]


def level_alone(samples: np.ndarray, rate: int) -> float:
    """Seconds of voice by level alone, as the check counted them before it had a network."""
    bands = band_powers(samples.astype(np.float64), rate)
    loud = 10 * np.log10(bands.sum(axis=1) + 1e-20) > QUIET_DB
    return voice_activity._risen(bands, loud)


def measure(sounds: Sounds) -> dict[str, int]:
    counts = {"clips": 0, "refused": 0, "refused_before": 0}
    for samples in sounds:
        counts["clips"] += 1
        counts["refused"] += measure_voice(samples, RATE).why_no_speech() is not None
        counts["refused_before"] += level_alone(samples, RATE) < voice_activity.MIN_VOICE
    return counts


def rows(data: Path, part: str) -> dict[tuple[str, str], Callable[[], Sounds]]:
    """What is measured: (verdict, name) -> its sounds."""
    rng = np.random.default_rng(5)
    speech = {name: files_of(data, name, part) for name in ("speechocean762", "librispeech_mini")}
    both = [path for files in speech.values() for path in files]
    music = sorted((data / "musan_mini" / "music").glob("*.flac"))
    sung = [path for path in music if path.name.startswith(SUNG)]
    table: dict[tuple[str, str], Callable[[], Sounds]] = {
        (REFUSE, "silence"): lambda: silences(rng),
        (REFUSE, "made-up noise, hum, clicks"): lambda: made_up(rng),
        (REFUSE, "musan_mini/noise"): lambda: map(read, sorted((data / "musan_mini" / "noise").glob("*.flac"))),
        (REFUSE, "musan_mini/music, not sung"): lambda: map(read, [path for path in music if path not in sung]),
        (REFUSE, "musan_mini/music, sung"): lambda: map(read, sung),
        (REFUSE, "less than 0.3 s of voice"): lambda: short_voices(rng, both),
    }
    for name, files in speech.items():
        table[(ACCEPT, name)] = lambda files=files: map(read, files)
    table[(ACCEPT, "musan_mini/speech")] = lambda: map(read, sorted((data / "musan_mini/speech").glob("*.flac")))
    table[(ACCEPT, "at 8 kHz")] = lambda: telephone(both)
    table[(ACCEPT, "40 dB quieter")] = lambda: (np.round(read(path) * 327.67) / 32767 for path in both)
    for ratio in (10, 5):
        table[(ACCEPT, f"in white noise of {ratio} dB")] = lambda ratio=ratio: in_noise(rng, both, 0, ratio)
    table[(ACCEPT, "in pink noise of 5 dB")] = lambda: in_noise(rng, both, 1, 5)
    table[(ACCEPT, "in churches and halls")] = lambda: in_rooms(data, both)
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    words, parser = open_command(__doc__, arguments)
    parser.add_argument("--data", type=Path, required=True, help="folder of the corpora")
    parser.add_argument("--part", default="eval", help="eval, or train: the speakers that the check was chosen on")
    options = parser.parse_args(words)
    results = []
    for (verdict, name), sounds in rows(options.data, options.part).items():
        found = measure(sounds())
        results.append({"verdict": verdict, "what": name, **found})
        print(f"{verdict}: {name}: {found}", flush=True)
    words = ["DATA" if word == str(options.data) else word for word in words]
    write_record(
        options.output,
        "speech_check",
        words,
        ["numpy", "soxr"],
        load_average=load_average(),
        part=options.part,
        min_voice=voice_activity.MIN_VOICE,
        results=results,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
