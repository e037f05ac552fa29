"""Noises and impulse responses of one's own: a folder of files, at any depth below it.

Layout: <folder>/.../<anything>.<wav, flac, ogg, mp3, ...>. Corpus and licence are the user's own.
"""

from __future__ import annotations

import logging
import os
import shlex
from collections import Counter
from pathlib import Path

from svtoolkit.audio.formats import audio_extensions, extension_of
from svtoolkit.audio.m4a import is_left_to_ffmpeg
from svtoolkit.corpora.folders import Listed, Measure, as_id, files_below, make_kaldi_dir, open_corpus
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.errors import UserError

log = logging.getLogger(__name__)

NOISE, RIR = "noise", "rir"
"""The category, which a data directory of sounds has in the place of the speaker."""


def prepare_noise(
    folder: str | Path, *, out: str | Path | None = None, jobs: int = 1, measure: Measure | None = None
) -> KaldiDir:
    """Make a data directory of noises, all of the category noise; the utterance id is noise-<path below the folder>.

    Args:
        folder: that of the files. Hidden files and files that are no audio are passed over; links are followed.
        out: where the data directory will be written, which the log names.
        jobs, measure: as for ``make_kaldi_dir``.

    Raises:
        UserError: no such folder, no audio in it, files left to FFmpeg, two files of one id, files that cannot be read.
    """
    made = _prepare(folder, NOISE, jobs, measure)
    log.info("train with --augment.noise %s augment.music_weight=0 augment.babble_weight=0", _shown(out))
    return made


def prepare_rirs(
    folder: str | Path, *, out: str | Path | None = None, jobs: int = 1, measure: Measure | None = None
) -> KaldiDir:
    """The same of room impulse responses; of several channels the first is used.

    Args and errors as of ``prepare_noise``.
    """
    made = _prepare(folder, RIR, jobs, measure)
    log.info("train with --augment.reverberation %s", _shown(out))
    return made


def _shown(out: str | Path | None) -> str:
    return "DIR" if out is None else shlex.quote(str(out))


def _prepare(folder: str | Path, category: str, jobs: int, measure: Measure | None) -> KaldiDir:
    top = open_corpus(folder, "a folder of audio files")
    files = list(files_below(top))
    audio = [file for file in files if extension_of(file) in audio_extensions()]
    if not audio:
        counts = Counter(extension_of(file) or "no extension" for file in files)
        found = ", ".join(f"{number} with {extension}" for extension, number in sorted(counts.items()))
        raise UserError(f"{folder}: holds no audio that can be read (found {found or 'no file'}); add some")
    compressed = [file for file in audio if is_left_to_ffmpeg(file)]
    if compressed:
        raise UserError(
            f"{compressed[0]}: is read as a whole for every slice of it ({len(compressed)} such files); convert it to "
            "flac or wav, for example with ffmpeg"
        )
    listed = [
        Listed(as_id(f"{category}/{os.path.splitext(os.path.relpath(file, top))[0]}"), category, file) for file in audio
    ]
    return make_kaldi_dir(listed, jobs=jobs, measure=measure)
