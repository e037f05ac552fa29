"""Small data directories, broken in every way that has a name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from small_directories import (
    RATE,
    SAMPLES,
    UTTERANCES,
    make_directory,
    make_segmented_directory,
    write_lines,
    write_noise,
)


def edit(name: str, old: str, new: str) -> Callable[[Path], None]:
    """Replace a piece of a table that stands in it."""

    def change(data: Path) -> None:
        text = (data / name).read_text(encoding="utf-8")
        assert old in text
        (data / name).write_text(text.replace(old, new, 1), encoding="utf-8")

    return change


def append(name: str, line: str) -> Callable[[Path], None]:
    def change(data: Path) -> None:
        with (data / name).open("a", encoding="utf-8") as stream:
            stream.write(f"{line}\n")

    return change


def replace_audio(name: str, samples: np.ndarray, rate: int = RATE, **options: Any) -> Callable[[Path], None]:
    def change(data: Path) -> None:
        soundfile.write(data.parent / "audio" / name, samples, rate, **options)

    return change


def with_value(value: float, at: int = 1000) -> np.ndarray:
    samples = np.random.default_rng(1).uniform(-0.1, 0.1, SAMPLES).astype(np.float32)
    samples[at] = value
    return samples


def cut_off(data: Path) -> None:
    """Half of an MP3 file: its header still gives the full length."""
    whole = write_noise(data.parent / "audio" / "whole.mp3", 3 * RATE)
    part = data.parent / "audio" / "cut.mp3"
    part.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    edit("wav.scp", "bob-2.wav", "cut.mp3")(data)
    edit("utt2dur", "bob-2 0.15", "bob-2 3.0")(data)


def silence_one_segment(data: Path) -> None:
    samples = np.random.default_rng(1).uniform(-0.1, 0.1, 4 * SAMPLES)
    samples[:SAMPLES] = 0
    replace_audio("bob.flac", samples)(data)


@dataclass(frozen=True)
class Broken:
    """A way to break a directory, the fault it must give and the utterances a repair must drop."""

    code: str
    change: Callable[[Path], object]
    where: str
    says: str
    drops: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    segmented: bool = False
    name: str = ""

    def make(self, base: Path) -> Path:
        data = make_segmented_directory(base) if self.segmented else make_directory(base)
        self.change(data)
        return data

    def __str__(self) -> str:
        return f"{self.code}{self.name and '-' + self.name}{'-segmented' if self.segmented else ''}"


ZEROS = np.zeros(SAMPLES)
BOB = ("bob-1", "bob-2", "bob-3")

BROKEN = [
    Broken(
        "malformed", append("wav.scp", "dan-1"), "wav.scp:10", "found 'dan-1', expected a key and a value", ("dan-1",)
    ),
    Broken(
        "malformed",
        edit("utt2spk", "bob-2 bob", "bob-2 bob extra"),
        "utt2spk:5",
        "found 'bob-2 bob extra', expected 2 columns",
        ("bob-2",),
        also=("no-speaker", "unknown-duration", "spk2utt-mismatch", "unknown-trial-utterance"),
        name="columns",
    ),
    Broken(
        "malformed", append("spk2utt", "dan"), "spk2utt:4", "found 'dan', expected a key and a value", name="spk2utt"
    ),
    Broken("duplicate", edit("utt2spk", "bob-2 bob\n", "bob-2 bob\nbob-2 bob\n"), "utt2spk:6", "first on line 5"),
    Broken(
        "duplicate",
        edit("utt2spk", "bob-2 bob\n", "bob-2 bob\nbob-2 cid\n"),
        "utt2spk:6",
        "'bob-2' is listed twice (first on line 5); keep one",
        ("bob-2",),
        name="contradiction",
    ),
    Broken("duplicate", append("utt2dur", "cid-3 9.0"), "utt2dur:10", "first on line 9", name="utt2dur"),
    Broken(
        "unsorted",
        edit("utt2spk", "ann-1 ann\nann-2 ann\n", "ann-2 ann\nann-1 ann\n"),
        "utt2spk:2",
        "'ann-1' comes after 'ann-2'; sort with LC_ALL=C sort",
    ),
    Broken(
        "encoding",
        lambda data: (data / "utt2spk").write_bytes(
            (data / "utt2spk").read_bytes().replace(b"bob-2 bob", b"bob-2 b\xf6b")
        ),
        "utt2spk:5",
        "is not UTF-8; re-encode the list",
        ("bob-2",),
        also=("no-speaker", "unknown-duration", "spk2utt-mismatch", "unknown-trial-utterance"),
    ),
    Broken(
        "encoding",
        lambda data: (data / "wav.scp").write_bytes(b"\xef\xbb\xbf" + (data / "wav.scp").read_bytes()),
        "wav.scp:1",
        "byte order mark",
        name="mark",
    ),
    Broken("empty-table", lambda data: (data / "utt2dur").write_text("\n"), "utt2dur", "holds no entry"),
    Broken(
        "pipe",
        lambda data: edit("wav.scp", f"{data.parent}/audio/bob-2.wav", "sox bob-2.wav -t wav - |")(data),
        "wav.scp:5",
        "is a command; commands of a list are never run unasked",
        ("bob-2",),
    ),
    Broken(
        "no-audio-entry",
        append("utt2spk", "cid-4 cid"),
        "utt2spk:10",
        "'cid-4' is not in wav.scp; add it there or drop it here",
        ("cid-4",),
        also=("no-duration", "spk2utt-mismatch"),
    ),
    Broken(
        "no-speaker",
        lambda data: append("wav.scp", f"dan-1 {data.parent}/audio/bob-1.wav")(data),
        "wav.scp:10",
        "'dan-1' is not in utt2spk; say whose speech it is or drop it",
        ("dan-1",),
    ),
    Broken("unknown-duration", append("utt2dur", "dan-1 2.0"), "utt2dur:10", "'dan-1' is not in utt2spk"),
    Broken(
        "no-duration", edit("utt2dur", "bob-2 0.15\n", ""), "utt2dur", "'bob-2' is not in utt2dur; complete the table"
    ),
    Broken("bad-duration", edit("utt2dur", "bob-2 0.15", "bob-2 -1"), "utt2dur:5", "above 0", also=("no-duration",)),
    Broken(
        "bad-duration", edit("utt2dur", "bob-2 0.15", "bob-2 x"), "utt2dur:5", "'x'", also=("no-duration",), name="word"
    ),
    Broken("no-spk2utt", lambda data: (data / "spk2utt").unlink(), "spk2utt", "svt validate --fix"),
    Broken("spk2utt-mismatch", edit("spk2utt", "bob-1 bob-2", "bob-1"), "spk2utt", "of 'bob' differ"),
    # Audio
    Broken(
        "missing-audio",
        lambda data: (data.parent / "audio" / "bob-2.wav").unlink(),
        "wav.scp:5",
        "bob-2.wav; check the path",
        ("bob-2",),
    ),
    Broken(
        "missing-audio",
        lambda data: edit("wav.scp", f"{data.parent}/audio/bob-2.wav", "nowhere/bob-2.wav")(data),
        "wav.scp:5",
        "nowhere/bob-2.wav; the list has a relative path: give the root",
        ("bob-2",),
        name="relative",
    ),
    Broken(
        "missing-audio",
        lambda data: (data.parent / "audio" / "bob.flac").unlink(),
        "wav.scp:2",
        "'tape-bob': there is no file",
        BOB,
        segmented=True,
    ),
    Broken(
        "unreadable-audio",
        lambda data: (data.parent / "audio" / "bob-2.wav").write_text("<html>404</html>"),
        "wav.scp:5",
        "cannot be read as audio",
        ("bob-2",),
    ),
    Broken(
        "unreadable-audio",
        lambda data: (data.parent / "audio" / "bob.flac").write_bytes(
            (data.parent / "audio/bob.flac").read_bytes()[:7000]
        ),
        "wav.scp:2",
        "cannot be read as audio",
        BOB,
        segmented=True,
        name="cut",
    ),
    Broken(
        "unreadable-audio",
        lambda data: (data.parent / "audio/bob-2.wav").write_bytes(
            (data.parent / "audio/bob-2.wav").read_bytes()[:999]
        ),
        "wav.scp:5",
        "its header announces: the file is cut off",
        ("bob-2",),
        name="cut wav",
    ),
    Broken("truncated-audio", cut_off, "wav.scp:5", "its header says 3.00 s", ("bob-2",), also=("wrong-duration",)),
    Broken(
        "sample-rate",
        replace_audio("bob-2.wav", with_value(0.0)[: SAMPLES // 2], 8000),
        "wav.scp:5",
        "'bob-2' has 8000 Hz, expected 16000 Hz (recordings: 8000 Hz: 1, 16000 Hz: 8)",
        ("bob-2",),
    ),
    Broken(
        "multi-channel",
        replace_audio("bob-2.wav", np.stack([with_value(0.0), with_value(0.1)], axis=1)),
        "wav.scp:5",
        "2 channels, expected one; choose one with channel=0",
        ("bob-2",),
    ),
    Broken(
        "no-channel",
        lambda data: [
            write_noise(data.parent / "audio" / f"{utt}.wav", channels=2) for utt in UTTERANCES if utt != "bob-2"
        ],
        "wav.scp:5",
        "there is no channel 1, the file has 1",
        ("bob-2",),
        options={"channel": 1},
    ),
    Broken("empty-audio", replace_audio("bob-2.wav", ZEROS[:0]), "wav.scp:5", "holds no sample", ("bob-2",)),
    Broken("silent-audio", replace_audio("bob-2.wav", ZEROS), "wav.scp:5", "its peak is -inf dBFS", ("bob-2",)),
    Broken("silent-audio", replace_audio("bob-2.wav", ZEROS + 0.5), "wav.scp:5", "-inf", ("bob-2",), name="offset"),
    Broken(
        "silent-audio",
        replace_audio("bob-2.wav", np.where(np.arange(SAMPLES) % 2, 8e-5, -8e-5), subtype="FLOAT"),
        "wav.scp:5",
        "its peak is -82 dBFS, expected -80 or more",
        ("bob-2",),
        name="faint",
    ),
    Broken("silent-audio", silence_one_segment, "segments:4", "'bob-1' is silent", ("bob-1",), segmented=True),
    Broken(
        "not-finite", replace_audio("bob-2.wav", with_value(np.nan), subtype="FLOAT"), "wav.scp:5", "NaN", ("bob-2",)
    ),
    Broken(
        "not-finite",
        replace_audio("bob-2.wav", with_value(-np.inf, SAMPLES - 1), subtype="FLOAT"),
        "wav.scp:5",
        "'bob-2' has samples that are NaN or infinite",
        ("bob-2",),
        name="infinite",
    ),
    Broken(
        "wrong-duration", edit("utt2dur", "bob-2 0.15", "bob-2 0.21"), "utt2dur:5", "0.150 s long, the table says 0.21"
    ),
    # Segments
    Broken(
        "beyond-end",
        edit("segments", "bob-2 tape-bob 0.1500625 0.3", "bob-2 tape-bob 0.1500625 0.7"),
        "segments:5",
        "'bob-2' runs from 0.150062 s to 0.7 s, but recording 'tape-bob' is 0.60 s long",
        ("bob-2",),
        segmented=True,
    ),
    Broken(
        "beyond-end",
        edit("segments", "bob-3 tape-bob 0.3 -1", "bob-3 tape-bob 0.6 -1"),
        "segments:6",
        "'bob-3' runs from 0.6 s to its end",
        ("bob-3",),
        segmented=True,
        name="open",
    ),
    Broken(
        "bad-segment",
        edit("segments", "bob-2 tape-bob 0.1500625 0.3", "bob-2 tape-bob 0.3 0.3"),
        "segments:5",
        "the end must come after the start",
        ("bob-2",),
        also=("no-audio-entry",),
        segmented=True,
    ),
    Broken(
        "malformed",
        edit("segments", "bob-2 tape-bob 0.1500625 0.3", "bob-2 tape-bob 0.1500625 nan"),
        "segments:5",
        "expected recording, start and end in seconds",
        ("bob-2",),
        also=("no-audio-entry",),
        segmented=True,
    ),
    Broken(
        "no-recording",
        edit("segments", "bob-2 tape-bob", "bob-2 tape-rob"),
        "segments:5",
        "'bob-2' names recording 'tape-rob', which is not in wav.scp",
        ("bob-2",),
        segmented=True,
    ),
    Broken(
        "missing-audio",
        append("wav.scp", "tape-zoe /nowhere/zoe.flac"),
        "wav.scp:4",
        "'tape-zoe': there is no file /nowhere/zoe.flac",
        ("tape-zoe",),
        segmented=True,
        name="unused",
    ),
    # Trials
    Broken(
        "malformed-trial", append("trials", "ann-1 ann-2 1"), "trials:13", "found 'ann-1 ann-2 1', expected `enrol test"
    ),
    Broken(
        "unknown-trial-utterance", append("trials", "dan-1 ann-1 nontarget"), "trials:13", "'dan-1' is not in utt2spk"
    ),
    Broken(
        "trial-label",
        append("trials", "ann-1 bob-1 target"),
        "trials:13",
        "by utt2spk the speakers are 'ann' and 'bob'",
    ),
    Broken(
        "one-class-trials",
        lambda data: write_lines(data / "trials", ["ann-1 ann-2 target"]),
        "trials",
        "there is no nontarget trial",
    ),
    Broken(
        "one-class-trials", lambda data: write_lines(data / "trials", []), "trials", "there is no target", name="empty"
    ),
]
