"""What must neither hang nor blow up a command: files that none can use, and the key noun of what is said of them."""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import soundfile

RATE = 8000

Build = Callable[[Path], object]
"""Makes the broken file at a path where there is none."""


def tone(seconds: float = 1.0) -> np.ndarray:
    return 0.3 * np.sin(np.arange(round(seconds * RATE)) * 0.3)


def encoded(audio_format: str, subtype: str | None = None, samples: np.ndarray | None = None) -> bytearray:
    stream = io.BytesIO()
    soundfile.write(stream, tone() if samples is None else samples, RATE, format=audio_format, subtype=subtype)
    return bytearray(stream.getvalue())


def a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def a_linked_pipe(path: Path) -> None:
    os.mkfifo(path.with_name(f"{path.name}.pipe"))
    path.symlink_to(path.with_name(f"{path.name}.pipe"))


def flac_of_billions(path: Path) -> None:
    """Total samples of STREAMINFO, 36 bits (RFC 9639, 8.2): as many as they can say."""
    content = encoded("FLAC")
    begin = 8 + 13
    content[begin] |= 0x0F
    content[begin + 1 : begin + 5] = b"\xff\xff\xff\xfe"
    path.write_bytes(content)


def ogg_of_billions(subtype: str) -> Build:
    def build(path: Path) -> None:
        """The granule position of the last page of several (RFC 3533, 6), with the checksum that goes with it."""
        noise = 0.1 * np.random.default_rng(0).standard_normal(5 * RATE)
        content = encoded("OGG", subtype, noise)
        page = content.rindex(b"OggS")
        struct.pack_into("<q", content, page + 6, 1 << 40)
        struct.pack_into("<I", content, page + 22, 0)
        struct.pack_into("<I", content, page + 22, ogg_checksum(content[page:]))
        path.write_bytes(content)

    return build


def ogg_checksum(page: bytes) -> int:
    """CRC of polynomial 0x04c11db7, nothing inverted (RFC 3533, 6)."""
    crc = 0
    for byte in page:
        crc ^= byte << 24
        for _ in range(8):
            crc = (crc << 1) ^ 0x04C11DB7 if crc & 0x80000000 else crc << 1
        crc &= 0xFFFFFFFF
    return crc


def wav_header(**changes: int) -> Build:
    """A WAV file of 16 bits with other numbers in its header; ``data`` is what it says of the samples, in bytes."""

    def build(path: Path) -> None:
        samples = (tone() * 32767).astype("<i2").tobytes()
        said = {"rate": RATE, "channels": 1, "bits": 16, "data": len(samples)} | changes
        block = said["channels"] * said["bits"] // 8
        form = struct.pack("<HHIIHH", 1, said["channels"], said["rate"], said["rate"] * block, block, said["bits"])
        body = b"WAVEfmt " + struct.pack("<I", len(form)) + form + b"data" + struct.pack("<I", said["data"]) + samples
        path.write_bytes(b"RIFF" + struct.pack("<I", len(body)) + body)

    return build


def mp3_of_billions(path: Path) -> None:
    """The number of frames in the Xing header, after its name and its flags."""
    content = encoded("MP3")
    struct.pack_into(">I", content, max(content.find(b"Xing"), content.find(b"Info")) + 8, 0x0FFFFFFF)
    path.write_bytes(content)


def cut_off(path: Path) -> None:
    path.write_bytes(encoded("WAV")[:5000])


RECORDINGS: dict[str, tuple[str, Build, str]] = {
    "a pipe": ("wav", os.mkfifo, "is a pipe, expected a regular file"),
    "a link to a pipe": ("flac", a_linked_pipe, "is a pipe, expected a regular file"),
    "a pipe for FFmpeg": ("m4a", os.mkfifo, "is a pipe, expected a regular file"),
    "a device": ("wav", a_device, "is a device, expected a regular file"),
    "nothing": ("wav", lambda path: path.write_bytes(b""), "cannot be read as audio"),
    "text": ("flac", lambda path: path.write_text("speech\n" * 100), "cannot be read as audio"),
    "cut off": ("wav", cut_off, "the file is cut off"),
    "FLAC of billions": ("flac", flac_of_billions, "its header promises"),
    "Vorbis of billions": ("ogg", ogg_of_billions("VORBIS"), "its header promises"),
    "Opus of billions": ("opus", ogg_of_billions("OPUS"), "its header promises"),
    "MP3 of billions": ("mp3", mp3_of_billions, "its header promises"),
    "WAV of 1 Hz": ("wav", wav_header(rate=1), "its header says 1 Hz"),
    "WAV of 2 GHz": ("wav", wav_header(rate=2**31 - 1), "its header says 2147483647 Hz"),
}
"""What it is -> extension, how it is made, what is said of it."""


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


ALIASES = (
    "\n".join(["a0: &a0 [x, x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 40))]) + "\n"
)
"""YAML whose last line stands for 2 x 9**39 words."""
