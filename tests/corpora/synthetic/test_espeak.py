from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest
from espeak_material import SENTENCE, espeakng_loader, measure_pitch, needs_espeak

from svtoolkit.corpora.synthetic import espeak
from svtoolkit.corpora.synthetic.espeak import Synthesiser, open_synthesiser
from svtoolkit.errors import UserError


@needs_espeak
def test_a_broken_installation_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    library = tmp_path / "libespeak-ng.so"
    monkeypatch.setattr(espeakng_loader, "get_library_path", lambda: str(library))
    with pytest.raises(UserError, match=r"libespeak-ng\.so: missing; reinstall"), open_synthesiser():
        pass
    library.write_text("no library")
    with open_synthesiser() as broken, pytest.raises(UserError, match=r"cannot be loaded .*reinstall espeakng-loader"):
        broken.speak(SENTENCE, language="en", variant="")


@needs_espeak
def test_incomplete_data_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(espeak, "_copy_english", lambda installed, copy: (copy / "voices" / "!v").mkdir(parents=True))
    with open_synthesiser() as empty, pytest.raises(UserError, match="cannot read the copy of its data"):
        empty.speak(SENTENCE, language="en", variant="")


@needs_espeak
def test_too_long_a_temporary_folder_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 130)
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    with pytest.raises(UserError, match=r"takes at most 120; set TMPDIR to a shorter one"), open_synthesiser():
        pass


@needs_espeak
def test_the_longest_temporary_folder_works(monkeypatch: pytest.MonkeyPatch, tmp_path_factory) -> None:
    base = tmp_path_factory.getbasetemp()
    missing = espeak.LONGEST_TEMPORARY_FOLDER - len(os.fsencode(base)) - 1
    if missing < 1:
        pytest.skip(f"the folder of temporary files, {base}, has too long a path itself")
    folder = base / ("x" * missing)
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    with open_synthesiser() as opened:
        assert len(opened.speak("Hello there.", language="en", variant="")[0]) > 5000


@needs_espeak
def test_speech_does_not_depend_on_what_was_spoken_before(synthesiser: Synthesiser) -> None:
    arguments = {"language": "en-us", "variant": "flutter 20\nbreath 20 20 20 20", "seed": 3}
    first, rate = synthesiser.speak(SENTENCE, **arguments)
    synthesiser.speak("Something else altogether.", language="en-029", variant="echo 100 50")
    second, _ = synthesiser.speak(SENTENCE, **arguments)
    assert rate == 22050
    assert first.dtype == np.float32
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, synthesiser.speak(SENTENCE, **arguments | {"seed": 4})[0])


@needs_espeak
def test_parameters_do_what_they_say(synthesiser: Synthesiser) -> None:
    def speak(**changes: object) -> np.ndarray:
        return synthesiser.speak(SENTENCE, **{"language": "en-us", "variant": "flutter 0", "volume": 30} | changes)[0]

    plain = speak()
    assert len(speak(words_per_minute=250)) < 0.8 * len(plain) < 0.64 * len(speak(words_per_minute=110))
    assert np.std(speak(volume=15)) == pytest.approx(np.std(plain) / 2, rel=0.05)
    assert measure_pitch(speak(pitch=70), 22050) > 1.1 * measure_pitch(plain, 22050)
    assert not np.array_equal(speak(pitch_range=20), plain)
    assert not np.array_equal(speak(language="en-gb-scotland"), plain)


@needs_espeak
def test_what_espeak_cannot_speak_is_refused(synthesiser: Synthesiser) -> None:
    with pytest.raises(ValueError, match="no English voice named 'en-xx'"):
        synthesiser.speak(SENTENCE, language="en-xx", variant="")
    with pytest.raises(ValueError, match="made no sound of the text ''"):
        synthesiser.speak("", language="en", variant="")


@needs_espeak
def test_an_interrupt_waits_for_the_end_of_the_sentence(
    synthesiser: Synthesiser, monkeypatch: pytest.MonkeyPatch
) -> None:
    collected: list[int] = []
    collect = espeak._collect

    def press_ctrl_c(chunks: list[bytes], wav: object, count: int) -> int:
        if not collected:
            os.kill(os.getpid(), signal.SIGINT)
        collected.append(count)
        return collect(chunks, wav, count)

    reference, _ = synthesiser.speak(SENTENCE, language="en", variant="")
    monkeypatch.setattr(espeak, "_collect", press_ctrl_c)
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            synthesiser.speak(SENTENCE, language="en", variant="")
    finally:
        signal.signal(signal.SIGINT, previous)
    assert sum(collected) == len(reference)


@needs_espeak
def test_a_shorter_vocal_tract_moves_the_spectrum_up(synthesiser: Synthesiser) -> None:
    def centroid(percent: int) -> float:
        formants = "\n".join(f"formant {number} {percent} 100 100" for number in range(1, 9))
        samples, rate = synthesiser.speak("ah", language="en-us", variant=f"flutter 0\n{formants}", volume=30)
        power = np.abs(np.fft.rfft(samples)) ** 2
        hertz = np.fft.rfftfreq(len(samples), 1 / rate)
        band = (hertz > 300) & (hertz < 4000)
        return float((power * hertz)[band].sum() / power[band].sum())

    assert centroid(85) < 0.95 * centroid(100)
    assert centroid(100) < 0.95 * centroid(115)
