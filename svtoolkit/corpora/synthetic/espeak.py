"""Speech from eSpeak NG (https://github.com/espeak-ng/espeak-ng) through its C interface, speak_lib.h.

The library and its data come with the PyPI package espeakng-loader (extra ``demo``), imported on first use.

Two properties of the synthesiser shape this module. It keeps state in static variables that neither
espeak_Terminate nor a seed resets (phase of the pitch flutter, random generator), so that a sentence sounds
different after another one: every sentence therefore gets a freshly loaded copy of the library, which makes it a
function of the arguments alone. And voices can only be described by files in its data folder: a private data
folder, with what English needs of the installed one, holds the voice of the moment.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import numpy as np

from svtoolkit.errors import UserError

ENGLISH_DATA = ("phontab", "phonindex", "phondata", "intonations", "en_dict")
VARIANT = "speaker"
# eSpeak keeps the path of its data in 160 bytes and silently looks elsewhere where it does not fit.
LONGEST_TEMPORARY_FOLDER = 120

# Constants of speak_lib.h.
AUDIO_OUTPUT_SYNCHRONOUS = 2
INITIALIZE_DONT_EXIT = 0x8000
RATE, VOLUME, PITCH, RANGE = 1, 2, 3, 4
CHARS_UTF8 = 1
POS_CHARACTER = 1

SynthCallback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)


@contextmanager
def open_synthesiser() -> Iterator[Synthesiser]:
    """A synthesiser for the length of a block; it owns a temporary folder of about 2 MB.

    Raises:
        UserError: espeakng-loader is not installed or lacks its files, or the path of the system's folder for
            temporary files is too long for eSpeak.
    """
    library, data = find_espeak()
    _check_path_length(Path(tempfile.gettempdir()))
    # Some systems cannot remove a library that is still mapped; what stays there is theirs to clear.
    with tempfile.TemporaryDirectory(prefix="svt-", ignore_cleanup_errors=True) as folder:
        _copy_english(data, Path(folder) / "espeak-ng-data")
        yield Synthesiser(library, Path(folder))


class Synthesiser:
    """Speaks sentences; made by open_synthesiser."""

    def __init__(self, library: Path, home: Path) -> None:
        self._library = library
        self._home = home
        self._loads = 0

    def speak(
        self,
        text: str,
        *,
        language: str,
        variant: str,
        words_per_minute: int = 175,
        pitch: int = 50,
        pitch_range: int = 50,
        volume: int = 100,
        seed: int = 0,
    ) -> tuple[np.ndarray, int]:
        """Speak a sentence; equal arguments give equal samples, whatever was spoken before.

        Args:
            text: English, UTF-8.
            language: name of one of eSpeak's English voices, such as ``en-us`` or ``en-gb-scotland``.
            variant: content of a voice variant file after its ``language`` line, the form described in
                eSpeak NG's docs/voices.md.
            words_per_minute: 80 to 450.
            pitch: 0 to 100; 50 leaves the pitch of the variant as it is.
            pitch_range: 0 (monotone) to 100; 50 leaves the range of the variant as it is.
            volume: 0 to 200; 100 is eSpeak's default, at which loud voices are clipped.
            seed: of the random numbers behind flutter and breath.

        Returns:
            float32 samples in [-1, 1], shape (samples,), and their rate in Hz.

        Raises:
            UserError: the library cannot be loaded or refuses its data folder.
            ValueError: eSpeak has no such English voice, or refuses or swallows the text.
        """
        variants = self._home / "espeak-ng-data" / "voices" / "!v"
        (variants / VARIANT).write_text(f"language variant\nname {VARIANT}\n{variant}\n", encoding="utf-8")
        with self._fresh_library() as library:
            rate = _initialise(library, self._home)
            chunks: list[bytes] = []
            # In a name of its own: ctypes frees a callback that nothing refers to, and the library still calls it.
            callback = SynthCallback(lambda wav, count, _: _collect(chunks, wav, count))
            library.espeak_SetSynthCallback(callback)
            library.espeak_ng_SetRandSeed(ctypes.c_long(seed))
            if library.espeak_SetVoiceByName(f"{language}+{VARIANT}".encode()) != 0:
                raise ValueError(f"eSpeak NG has no English voice named {language!r}")
            for parameter, value in (
                (RATE, words_per_minute),
                (VOLUME, volume),
                (PITCH, pitch),
                (RANGE, pitch_range),
            ):
                if library.espeak_SetParameter(parameter, int(value), 0) != 0:
                    raise ValueError(f"eSpeak NG refuses value {value} of parameter {parameter}")
            _synthesise(library, text)
        samples = np.frombuffer(b"".join(chunks), dtype=np.int16)
        if not samples.any():
            raise ValueError(f"eSpeak NG made no sound of the text {text!r}")
        return samples.astype(np.float32) / 32768, rate

    @contextmanager
    def _fresh_library(self) -> Iterator[ctypes.CDLL]:
        """A library whose static variables have their initial values: the loader tells copies apart by file."""
        self._loads += 1
        copy = self._home / f"{self._loads}-{self._library.name}"
        shutil.copyfile(self._library, copy)
        try:
            library = ctypes.CDLL(str(copy))
        except OSError as error:
            raise UserError(
                f"{self._library}: the speech synthesiser cannot be loaded ({error}); "
                "reinstall espeakng-loader for this system, or prepare a corpus of recordings instead"
            ) from error
        try:
            yield library
        finally:
            library.espeak_Terminate()
            _unload(library)
            copy.unlink(missing_ok=True)


def find_espeak() -> tuple[Path, Path]:
    """Shared library and data folder that espeakng-loader installed.

    Raises:
        UserError: the package is not installed, or without its library or data.
    """
    try:
        import espeakng_loader
    except ImportError as error:
        raise UserError(
            "the synthetic corpus is spoken by eSpeak NG, which is not installed: install with "
            "`pip install espeakng-loader`"
        ) from error
    package = Path(espeakng_loader.__file__).parent
    library, data = Path(espeakng_loader.get_library_path()), package / "espeak-ng-data"
    for path in (library, data / "phondata"):
        if not path.is_file():
            raise UserError(f"{path}: missing; reinstall with `pip install --force-reinstall espeakng-loader`")
    return library, data


def _copy_english(installed: Path, copy: Path) -> None:
    """English alone, 1 MB: eSpeak lists every voice of the folder each time it is loaded."""
    (copy / "voices" / "!v").mkdir(parents=True)
    (copy / "lang" / "gmw").mkdir(parents=True)
    for name in ENGLISH_DATA:
        shutil.copyfile(installed / name, copy / name)
    for language in (installed / "lang" / "gmw").glob("en*"):
        shutil.copyfile(language, copy / "lang" / "gmw" / language.name)


def _check_path_length(folder: Path) -> None:
    length = len(os.fsencode(folder))
    if length > LONGEST_TEMPORARY_FOLDER:
        raise UserError(
            f"{folder}: the folder for temporary files has a path of {length} bytes, eSpeak NG takes at most "
            f"{LONGEST_TEMPORARY_FOLDER}; set TMPDIR to a shorter one"
        )


def _initialise(library: ctypes.CDLL, home: Path) -> int:
    rate = library.espeak_Initialize(AUDIO_OUTPUT_SYNCHRONOUS, 0, os.fsencode(home), INITIALIZE_DONT_EXIT)
    if rate <= 0:
        raise UserError(
            f"{home}: eSpeak NG cannot read the copy of its data there; check that the disk is not full and "
            "reinstall with `pip install --force-reinstall espeakng-loader`"
        )
    return rate


def _collect(chunks: list[bytes], wav: ctypes._Pointer[ctypes.c_short], count: int) -> int:
    """The callback of speak_lib.h: copy the samples; 0 asks for more."""
    if wav and count > 0:
        chunks.append(ctypes.string_at(wav, count * ctypes.sizeof(ctypes.c_short)))
    return 0


def _synthesise(library: ctypes.CDLL, text: str) -> None:
    encoded = text.encode() + b"\0"
    size = ctypes.c_size_t(len(encoded))
    with _interrupts_deferred():
        refused = library.espeak_Synth(encoded, size, 0, POS_CHARACTER, 0, CHARS_UTF8, None, None)
    if refused:
        raise ValueError(f"eSpeak NG refuses the text {text!r}")


@contextmanager
def _interrupts_deferred() -> Iterator[None]:
    """Let Ctrl-C wait for the end of the block.

    An exception in a callback of a C library is reported and forgotten: the interrupt would be lost, and with it the
    samples of that call.
    """
    previous = signal.getsignal(signal.SIGINT)
    if not callable(previous) or threading.current_thread() is not threading.main_thread():
        yield
        return
    caught: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda number, frame: caught.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
        if caught:
            previous(*caught[0])


def _unload(library: ctypes.CDLL) -> None:
    """Give the memory of a copy back; a corpus takes thousands of them."""
    handle = ctypes.c_void_p(library._handle)
    if sys.platform == "win32":
        ctypes.WinDLL("kernel32").FreeLibrary(handle)
    else:
        ctypes.CDLL(None).dlclose(handle)
