"""Commands that print audio."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import pytest
import soundfile

from svtoolkit.audio.files import read_audio
from svtoolkit.audio.pipes import is_pipe, read_pipe
from svtoolkit.errors import UserError

RATE = 8000


@pytest.fixture
def wav(tmp_path: Path) -> Path:
    path = tmp_path / "a b.wav"
    soundfile.write(path, np.random.default_rng(3).uniform(-0.5, 0.5, (RATE, 2)), RATE)
    return path


def cat(path: Path) -> str:
    return f"cat {shlex.quote(str(path))} |"


def test_what_is_a_pipe():
    assert [is_pipe(location) for location in ("cat a |", "| cat", "a|b.wav", "a.wav")] == [True, True, False, False]


@pytest.mark.parametrize(("start", "duration"), [(0.0, None), (0.25, 0.5), (0.75, 1.0)])
@pytest.mark.parametrize("rate", [RATE, 2 * RATE])
def test_a_stretch_is_that_of_the_file(wav, start, duration, rate):
    stretch = {"sample_rate": rate, "start": start, "duration": duration, "channel": 1}
    expected = read_audio(wav, resample=True, **stretch)
    np.testing.assert_array_equal(read_pipe(cat(wav), folder=None, **stretch), expected)


def test_a_header_that_was_written_before_the_length_was_known(wav):
    """As sox writes it to a pipe."""
    content = bytearray(wav.read_bytes())
    content[4:8] = content[40:44] = b"\xff\xff\xff\x7f"
    piped = wav.with_name("piped.wav")
    piped.write_bytes(content)
    expected = read_audio(wav, sample_rate=RATE, channel=0)
    np.testing.assert_array_equal(read_pipe(cat(piped), folder=None, sample_rate=RATE, channel=0), expected)


def test_commands_run_where_they_are_told_to(wav):
    samples = read_pipe("cat 'a b.wav' | cat |", folder=wav.parent, sample_rate=RATE, channel=0)
    assert len(samples) == RATE


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("cat nowhere.wav |", r"'cat nowhere\.wav \|': failed with status 1 \(cat: .*nowhere\.wav.*\); correct it"),
        ("cat nowhere.wav | cat |", "failed with status 1"),
        ("echo no audio |", r"'echo no audio \|': prints nothing that can be read as audio"),
        ("true |", "prints nothing that can be read as audio"),
        ("| cat", r"'\| cat': is a command that takes audio, expected one that prints it"),
        ("cat 'a b.wav' |", r"prints 2 channels, expected one; choose one with channel=0"),
    ],
)
def test_commands_that_print_no_audio(location, message, wav):
    with pytest.raises(UserError, match=message):
        read_pipe(location, folder=wav.parent, sample_rate=RATE)
