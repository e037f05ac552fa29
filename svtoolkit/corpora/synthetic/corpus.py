"""A corpus that needs no download: invented speakers, synthesised by eSpeak NG, over two simulated channels.

Layout: ``<out>/wav/<speaker>/<speaker>-<number>.flac`` (mono, 16 bit), ``<out>/utt2channel`` and
``<out>/synthetic.json`` (what the files were made of). It serves to try the toolkit and to test it; figures
reached on it say nothing about human voices.

A speaker is an accent, a pitch, a vocal tract length with its own formant pattern, a voice quality and a speed. An
utterance varies these a little, as a person does from day to day. Every speaker is heard half of the time over a
wide, clean channel and half over a narrow, reverberant, noisy one: the channel tells nothing about the speaker.
"""

from __future__ import annotations

import io
import random
from collections.abc import Iterator, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass
from importlib import metadata
from itertools import islice
from pathlib import Path

import numpy as np
import soundfile

from svtoolkit.audio.files import convert_rate
from svtoolkit.audio.inspection import inspect_audio
from svtoolkit.corpora.prepared import Prepared
from svtoolkit.corpora.synthetic.espeak import Synthesiser, find_espeak, open_synthesiser
from svtoolkit.corpora.synthetic.sentences import compose_sentences
from svtoolkit.corpora.synthetic.simulated_channels import CHANNELS, transmit
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.data.tables import write_table
from svtoolkit.errors import UserError
from svtoolkit.system.atomic import atomic_write
from svtoolkit.system.output_folder import claim_folder
from svtoolkit.system.processes import worker_processes
from svtoolkit.system.progress import show_progress

VERSION = 1  # of the sound: raise it with any change, here or in what this file imports, that alters it
ACCENTS = ("en-us", "en-us", "en", "en", "en-gb-scotland", "en-gb-x-rp", "en-us-nyc", "en-029", "en-gb-x-gbcwmd")


@dataclass(frozen=True)
class Voice:
    """An invented speaker.

    Attributes:
        accent: name of an English voice of eSpeak.
        pitch: mean of the fundamental frequency in Hz.
        melody: range of the fundamental frequency as a fraction of ``pitch``.
        formants: (frequency, strength, width) of formants 0 to 8, factors of eSpeak's own values.
        tone: gain of voiced sounds up to 600 Hz, at 1200, 2000 and 3500 Hz, 0 to 255.
        quality: the remaining lines of the voice file: flutter, roughness, voicing, consonants, breath.
        words_per_minute: speed of speech.
    """

    accent: str
    pitch: float
    melody: float
    formants: tuple[tuple[float, float, float], ...]
    tone: tuple[int, int, int, int]
    quality: tuple[str, ...]
    words_per_minute: float


def prepare_synthetic(
    *,
    out: str | Path,
    speakers: int = 60,
    utterances_per_speaker: int = 20,
    eval_speakers: int = 12,
    seed: int = 0,
    sample_rate: int = 16000,
    jobs: int = 1,
) -> Prepared:
    """Synthesise the corpus, or what is missing of it, and list it; an utterance depends on seed and name alone.

    Args:
        out: folder of the audio; may hold a part of the same corpus, whose finished files are kept.
        speakers: speakers made, those of the evaluation included.
        utterances_per_speaker: half over each channel.
        eval_speakers: how many of the speakers (the last ones) form the evaluation set.
        seed: the same seed gives the same bytes with the same versions of the libraries.
        sample_rate: of the files, in Hz.
        jobs: processes; with several, a script must call this under ``if __name__ == "__main__"``.

    Returns:
        training set and evaluation set, sharing no speaker, with durations, paths absolute.

    Raises:
        UserError: espeakng-loader is missing, impossible numbers, or ``out`` holds another synthetic corpus.
    """
    _check_numbers(speakers, utterances_per_speaker, eval_speakers, sample_rate, jobs)
    find_espeak()
    out = Path(out).absolute()
    # Files that are kept must be those that would be made now.
    made_of = {
        "version": VERSION,
        "seed": seed,
        "sample_rate": sample_rate,
        "espeakng-loader": metadata.version("espeakng-loader"),
    }
    claim_folder(out / "synthetic.json", made_of, content="a corpus made of")
    tasks = [SpeakerTask(out, number, utterances_per_speaker, seed, sample_rate) for number in range(1, speakers + 1)]
    with show_progress("synthesise", speakers * utterances_per_speaker, "utt") as progress:
        for finished in _run(tasks, jobs):
            progress.update(finished)
    channels = {
        path.stem: channel
        for task in tasks
        for path, channel in zip(task.paths, assign_channels(task.number, seed, task.utterances), strict=True)
    }
    write_table(out / "utt2channel", channels)
    training = speakers - eval_speakers
    return Prepared(_list_utterances(tasks[:training]), _list_utterances(tasks[training:]))


@dataclass(frozen=True)
class SpeakerTask:
    """The utterances of one speaker: the unit of work of a process."""

    out: Path
    number: int
    utterances: int
    seed: int
    sample_rate: int

    @property
    def speaker(self) -> str:
        return f"syn{self.number:03d}"

    @property
    def paths(self) -> list[Path]:
        folder = self.out / "wav" / self.speaker
        return [folder / f"{self.speaker}-{index:04d}.flac" for index in range(1, self.utterances + 1)]

    def generator(self, *purpose: object) -> random.Random:
        return make_generator(self.seed, self.number, *purpose)


def make_generator(*name: object) -> random.Random:
    """Random numbers that depend on a name alone, such as (seed, speaker, utterance)."""
    return random.Random("/".join(map(str, name)))


def assign_channels(speaker: int, seed: int, utterances: int) -> list[str]:
    """Channel of each utterance of a speaker: one after the other, beginning with either."""
    first = make_generator(seed, speaker, "channel").randrange(len(CHANNELS))
    return [CHANNELS[(first + index) % len(CHANNELS)] for index in range(utterances)]


def synthesise_speaker(task: SpeakerTask) -> int:
    """Write the missing utterances of a speaker; returns how many utterances the speaker now has."""
    missing = {path for path in task.paths if not path.is_file()}
    if missing:
        voice = draw_voice(task.generator("voice"))
        sentences = islice(compose_sentences(task.generator("sentences")), task.utterances)
        channels = assign_channels(task.number, task.seed, task.utterances)
        with open_synthesiser() as synthesiser:
            for path, sentence, channel in zip(task.paths, sentences, channels, strict=True):
                if path in missing:
                    rng = task.generator("utterance", path.stem)
                    speech = synthesise_utterance(synthesiser, voice, sentence, rng, task.sample_rate)
                    write_flac(path, transmit(speech, task.sample_rate, channel, rng), task.sample_rate)
    return task.utterances


def draw_voice(rng: random.Random) -> Voice:
    """A speaker; formants of women lie a sixth above those of men (Peterson and Barney, 1952, table II)."""
    female = rng.random() < 0.5
    pitch = (205.0 if female else 118.0) * 2 ** rng.gauss(0, 0.22)
    tract = (1.14 if female else 0.98) * 2 ** rng.gauss(0, 0.06)
    formants = [(1.0, rng.uniform(0.6, 1.3), 1.0)]
    for number in range(1, 9):
        strength = rng.uniform(0.6, 1.2) if number < 6 else rng.uniform(0.2, 1.1)
        formants.append((tract * 2 ** rng.gauss(0, 0.04), strength, rng.uniform(0.8, 1.5)))
    breath = rng.choice((0, 0, 2, 4, 7))
    return Voice(
        accent=rng.choice(ACCENTS),
        pitch=pitch,
        melody=rng.uniform(0.15, 0.75),
        formants=tuple(formants),
        tone=(rng.randint(120, 255), rng.randint(90, 200), rng.randint(60, 170), rng.randint(40, 150)),
        quality=(
            f"flutter {rng.randint(0, 14)}",
            f"roughness {rng.choice((0, 0, 1, 2, 3))}",
            f"voicing {rng.randint(70, 130)}",
            f"consonants {rng.randint(50, 130)} {rng.randint(50, 130)}",
            "breath " + " ".join([str(breath)] * 8),
        ),
        words_per_minute=rng.uniform(140, 195),
    )


def write_variant(voice: Voice, rng: random.Random) -> str:
    """The voice file of one utterance: formants and tone as on that day."""
    low = voice.pitch / (1 + voice.melody / 2)
    lines = [f"pitch {round(low)} {round(low * (1 + voice.melody))}", *voice.quality]
    day = 2 ** rng.gauss(0, 0.015)
    for number, (frequency, strength, width) in enumerate(voice.formants):
        shift = 1.0 if number == 0 else day * 2 ** rng.gauss(0, 0.02)
        percents = (100 * frequency * shift, 100 * strength * 2 ** rng.gauss(0, 0.2), 100 * width)
        lines.append(f"formant {number} " + " ".join(str(round(percent)) for percent in percents))
    gains = [min(255, round(gain * 2 ** rng.gauss(0, 0.25))) for gain in voice.tone]
    lines.append(
        "tone " + " ".join(f"{hertz} {gain}" for hertz, gain in zip((600, 1200, 2000, 3500), gains, strict=True))
    )
    return "\n".join(lines)


def synthesise_utterance(
    synthesiser: Synthesiser, voice: Voice, sentence: str, rng: random.Random, sample_rate: int
) -> np.ndarray:
    """One sentence over no channel: float32, (samples,), at ``sample_rate``."""
    samples, rate = synthesiser.speak(
        sentence,
        language=voice.accent,
        variant=write_variant(voice, rng),
        words_per_minute=round(voice.words_per_minute * 2 ** rng.gauss(0, 0.08)),
        pitch=min(100, max(0, round(rng.gauss(50, 5)))),
        pitch_range=min(100, max(0, round(rng.gauss(50, 8)))),
        volume=25,  # eSpeak clips loud voices at its default, 100
        seed=rng.getrandbits(31),
    )
    return convert_rate(samples, rate, sample_rate)


def write_flac(path: Path, samples: np.ndarray, sample_rate: int) -> None:
    encoded = io.BytesIO()
    soundfile.write(encoded, samples, sample_rate, format="FLAC", subtype="PCM_16")
    with atomic_write(path, "wb") as stream:
        stream.write(encoded.getvalue())


def _check_numbers(speakers: int, utterances: int, eval_speakers: int, sample_rate: int, jobs: int) -> None:
    for name, value, least in (
        ("utterances_per_speaker", utterances, 2),
        ("eval_speakers", eval_speakers, 2),
        ("sample_rate", sample_rate, 8000),
        ("jobs", jobs, 1),
    ):
        if value < least:
            raise UserError(f"{name}={value}: the synthetic corpus needs {name}={least} or more")
    if speakers - eval_speakers < 2:
        raise UserError(
            f"speakers={speakers}, of which eval_speakers={eval_speakers} are for evaluation: "
            f"training needs at least 2 more; raise speakers to {eval_speakers + 2} or beyond"
        )


def _run(tasks: Sequence[SpeakerTask], jobs: int) -> Iterator[int]:
    if jobs == 1:
        yield from map(synthesise_speaker, tasks)
        return
    killed = (
        "a process that makes the synthetic corpus was killed, probably because memory ran out; run the same command "
        "again, which keeps what was made, with fewer jobs if it happens again"
    )
    with worker_processes(min(jobs, len(tasks)), killed=killed) as workers:
        for future in as_completed([workers.submit(synthesise_speaker, task) for task in tasks]):
            yield future.result()


def _list_utterances(tasks: Sequence[SpeakerTask]) -> KaldiDir:
    kaldi_dir = KaldiDir()
    for task in tasks:
        for path in task.paths:
            kaldi_dir.wav_scp[path.stem] = str(path)
            kaldi_dir.utt2spk[path.stem] = task.speaker
            kaldi_dir.utt2dur[path.stem] = inspect_audio(path).seconds
    return kaldi_dir
