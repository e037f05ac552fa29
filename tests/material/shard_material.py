"""A small data directory of 16-bit recordings, and how a crop is decoded from a shard."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import soundfile

from svtoolkit.audio.shards.location import ShardLocation
from svtoolkit.audio.shards.reader import open_member
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.data.shard_index import INDEX, parse_shard_index
from svtoolkit.data.tables import Fault, read_table
from svtoolkit.data.trial_drawing import make_trials
from svtoolkit.data.trials import write_trials

RATE = 16000


def noise(name: str, samples: int) -> np.ndarray:
    """int16 noise of a recording's own, (samples,), over the whole range."""
    return np.random.default_rng(list(name.encode())).integers(-32768, 32768, samples).astype(np.int16)


def write_recording(path: Path, samples: int = RATE // 4, rate: int = RATE) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, noise(path.stem, samples), rate, subtype="PCM_16")
    return path


def write_corpus(base: Path, speakers: int = 4, utterances: int = 3, extension: str = "wav") -> KaldiDir:
    """Recordings in base/audio, each of another length, and their directory in base/data, with trials if possible."""
    kaldi_dir = KaldiDir()
    for speaker in range(speakers):
        for number in range(utterances):
            name = f"s{speaker:02d}-{number}"
            samples = 3000 + 100 * speaker + 10 * number
            path = write_recording(base / "audio" / f"{name}.{extension}", samples)
            kaldi_dir.wav_scp[name] = str(path)
            kaldi_dir.utt2spk[name] = f"s{speaker:02d}"
            kaldi_dir.utt2dur[name] = samples / RATE
    kaldi_dir.write(base / "data")
    if utterances > 1:
        write_trials(base / "data" / "trials", make_trials(kaldi_dir.spk2utt, seed=0))
    return kaldi_dir


def read_locations(folder: Path) -> dict[str, ShardLocation]:
    faults: list[Fault] = []
    locations = parse_shard_index(read_table(folder / INDEX, faults, 2), faults, folder)
    assert not faults
    return locations


def decode(location: ShardLocation, first: int = 0, count: int = -1) -> np.ndarray:
    """int16 samples of a stretch of an utterance in a shard."""
    with open_member(location) as member, soundfile.SoundFile(member) as stream:
        stream.seek(first)
        return stream.read(count, dtype="int16")


def read_shards(folder: Path) -> dict[str, bytes]:
    """What has to be the same whenever the same shards are written: archives and tables, without the records."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}
