"""What the loader is measured on: speech joined to utterances of one length, noise and RIRs, as data directories."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile

from svtoolkit.audio.files import read_audio
from svtoolkit.corpora.folders import Listed, files_below, make_kaldi_dir
from svtoolkit.corpora.musan import CATEGORIES, EXTENSIONS, prepare_musan
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.data.sharding.writer import write_shards
from svtoolkit.errors import UserError

RATE = 16000
SPEECH, NOISE, ROOMS = "speechocean762/train", "musan_mini", "rirs"
"""Below the folder of real recordings: a data directory, a folder laid out as MUSAN, one of impulse responses."""

REAL = "joined from real recordings of 16 bits; their lowest bits are rounded away, which makes FLAC of them cheap"
SYNTHETIC = (
    "synthetic: noise of the spectrum and the syllables of speech, noise, chords and decaying noise for RIRs; "
    "give --data for real recordings"
)


@dataclass(frozen=True)
class Material:
    """Data directories, and what is in them.

    Attributes:
        files, shards: the same speech in files and in archives.
        noise, rirs: what augments it, in FLAC.
        noise_wav, rirs_wav: the same in WAV, as MUSAN and RIRS_NOISES are published.
        note: where it is from.
    """

    files: Path
    shards: Path
    noise: Path
    rirs: Path
    noise_wav: Path
    rirs_wav: Path
    note: str

    def audio(self) -> dict[str, list[Path]]:
        """The files that hold the speech, either way."""
        kaldi_dir = KaldiDir.read(self.files)
        return {
            "files": [kaldi_dir.audio_path(name) for name in kaldi_dir.wav_scp],
            "shards": sorted(self.shards.glob("*.tar")),
        }


def make_material(folder: Path, data: Path | None, *, utterances: int, seconds: float, per_shard: int) -> Material:
    """Write everything below a folder.

    Args:
        data: folder of real recordings; None: synthetic ones.
        utterances: how many to make.
        seconds: length of each.
        per_shard: utterances of an archive.

    Raises:
        UserError: the real recordings are missing, or too few.
    """
    speech = _synthetic_speech(utterances, seconds) if data is None else _joined_speech(data / SPEECH, data, seconds)
    listed = []
    (folder / "audio").mkdir()
    for number, (speaker, samples) in zip(range(utterances), speech, strict=False):
        name = f"{speaker}-{number:05d}"
        path = folder / "audio" / f"{name}.flac"
        soundfile.write(path, samples, RATE, subtype="PCM_16")
        listed.append(Listed(name, speaker, str(path)))
    if len(listed) < utterances:
        raise UserError(f"{data}: gives {len(listed)} utterances of {seconds:g} s, expected {utterances}")
    kaldi_dir = make_kaldi_dir(listed)
    kaldi_dir.write(folder / "files")
    write_shards(kaldi_dir, folder / "shards", per_shard=per_shard)
    sounds = _write_synthetic_sounds(folder / "sounds") if data is None else data
    _write_tables(sounds, folder / "noise", folder / "rirs")
    _write_tables(_as_wav(sounds, folder / "wav"), folder / "noise_wav", folder / "rirs_wav")
    names = ("files", "shards", "noise", "rirs", "noise_wav", "rirs_wav")
    return Material(*(folder / name for name in names), note=SYNTHETIC if data is None else REAL)


def describe(material: Material) -> dict[str, object]:
    """Numbers that the cost of decoding depends on."""
    speech, noise, rirs = (KaldiDir.read(path) for path in (material.files, material.noise, material.rirs))
    seconds = sum(speech.utt2dur.values())
    size = sum(path.stat().st_size for path in material.audio()["files"])
    lengths = {
        category: [noise.utt2dur[name] for name, of in noise.utt2spk.items() if of == category]
        for category in CATEGORIES
    }
    return {
        "note": material.note,
        "utterances": len(speech.utt2spk),
        "seconds_each": round(seconds / len(speech.utt2spk), 2),
        "flac_kbit_per_second": round(size * 8 / 1000 / seconds),
        "noise_files": {category: len(values) for category, values in lengths.items()},
        "noise_mean_seconds": {category: round(float(np.mean(values)), 1) for category, values in lengths.items()},
        "rooms": len(rirs.utt2dur),
        "room_mean_seconds": round(float(np.mean(list(rirs.utt2dur.values()))), 2),
    }


def _write_tables(sounds: Path, noise: Path, rirs: Path) -> None:
    prepare_musan(sounds / NOISE).write(noise)
    listed = [Listed(path.stem, "room", str(path)) for path in _sounds_below(sounds / ROOMS)]
    make_kaldi_dir(listed).write(rirs)


def _as_wav(sounds: Path, folder: Path) -> Path:
    for top in (NOISE, ROOMS):
        for path in _sounds_below(sounds / top):
            target = folder / path.relative_to(sounds).with_suffix(".wav")
            target.parent.mkdir(parents=True, exist_ok=True)
            samples, rate = soundfile.read(path, dtype="int16")
            soundfile.write(target, samples, rate, subtype="PCM_16")
    return folder


def _joined_speech(folder: Path, root: Path, seconds: float) -> Iterator[tuple[str, np.ndarray]]:
    """The utterances of each speaker one after the other, cut into equal lengths; what is left over is dropped."""
    kaldi_dir, length = KaldiDir.read(folder, root), round(seconds * RATE)
    for speaker, names in kaldi_dir.spk2utt.items():
        whole = np.concatenate([read_audio(kaldi_dir.audio_path(name), sample_rate=RATE) for name in names])
        for begin in range(0, len(whole) - length + 1, length):
            yield speaker, whole[begin : begin + length]


def _synthetic_speech(utterances: int, seconds: float) -> Iterator[tuple[str, np.ndarray]]:
    for number in range(utterances):
        rng = np.random.default_rng([1, number])
        yield f"spk{number % 50:02d}", _syllables(rng, round(seconds * RATE))


def _write_synthetic_sounds(folder: Path) -> Path:
    """Folders laid out as those of the real noises and impulse responses."""
    rng = np.random.default_rng(2)
    makers = {"noise": _hiss, "music": _chord, "speech": _syllables}
    sounds = {
        f"{NOISE}/{category}/{category}-{number}": makers[category](rng, RATE * int(rng.integers(3, 16)))
        for category in CATEGORIES
        for number in range(10)
    }
    sounds |= {f"{ROOMS}/room-{number}": _room(rng, rng.uniform(0.2, 1.5)) for number in range(20)}
    for name, samples in sounds.items():
        path = folder / f"{name}.flac"
        path.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(path, samples, RATE, subtype="PCM_16")
    return folder


def _syllables(rng: np.random.Generator, samples: int) -> np.ndarray:
    """Noise that falls by 9 dB an octave above 500 Hz, eight syllables a second, over a quiet floor."""
    frequencies = np.fft.rfftfreq(samples, 1 / RATE)
    slope = np.maximum(frequencies, 500.0) ** -1.5 * (frequencies > 80)
    voice = np.fft.irfft(np.fft.rfft(rng.standard_normal(samples)) * slope, samples)
    loudness = np.interp(
        np.arange(samples), np.arange(0, samples + 2000, 2000), rng.random(-(-samples // 2000) + 1) ** 2
    )
    return 0.3 * voice / np.abs(voice).max() * loudness + 0.0003 * _hiss(rng, samples)


def _hiss(rng: np.random.Generator, samples: int) -> np.ndarray:
    return 0.1 * rng.standard_normal(samples)


def _chord(rng: np.random.Generator, samples: int) -> np.ndarray:
    tones = rng.uniform(100, 2000, 5)[:, np.newaxis]
    return 0.1 * np.sin(2 * np.pi * tones * np.arange(samples) / RATE).sum(axis=0) + 0.01 * _hiss(rng, samples)


def _room(rng: np.random.Generator, seconds: float) -> np.ndarray:
    """A direct path, and behind it noise that decays by 60 dB."""
    samples = round(seconds * RATE)
    response = 0.1 * rng.standard_normal(samples) * 10 ** (-3 * np.arange(samples) / samples)
    response[0] = 0.9
    return response


def _sounds_below(folder: Path) -> list[Path]:
    return sorted(Path(path) for path in files_below(str(folder)) if Path(path).suffix.lower() in EXTENSIONS)
