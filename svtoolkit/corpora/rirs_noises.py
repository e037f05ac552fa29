"""The impulse responses of RIRS_NOISES: 60000 of simulated rooms and 325 of real ones, 16 kHz.

Corpus: T. Ko, V. Peddinti, D. Povey, M. L. Seltzer, S. Khudanpur, "A study on data augmentation of reverberant speech
for robust speech recognition", ICASSP 2017; https://www.openslr.org/28. Licence: Apache 2.0.

Layout: simulated_rirs/<small, medium, large>room/Room<number>/<file>.wav and real_rirs_isotropic_noises/<file>.wav, of
which rir_list there names the impulse responses (the other files are noises), as the archive unpacks into
RIRS_NOISES/. Real responses have one to several channels; what reads them has to choose one.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from svtoolkit.corpora.folders import Listed, Measure, audio_files, make_kaldi_dir, open_corpus, subfolders
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.errors import UserError
from svtoolkit.system.regular_file import is_regular

log = logging.getLogger(__name__)

SIMULATED = "simulated_rirs"
ROOMS = ("smallroom", "mediumroom", "largeroom")
REAL_FOLDER = "real_rirs_isotropic_noises"
REAL = "real"
FILES = 60_000, 325
"""Simulated and real responses of the whole corpus."""
EXTENSIONS = (".wav", ".flac")
LAYOUT = f"{SIMULATED}/{{{','.join(ROOMS)}}}/Room<number>/<file>.wav and {REAL_FOLDER}/rir_list"


def prepare_rirs_noises(folder: str | Path, *, jobs: int = 1, measure: Measure | None = None) -> KaldiDir:
    """Make a data directory of impulse responses: the "speaker" is smallroom, mediumroom, largeroom or real.

    The utterance id is <speaker>-<name of the file>: the simulated sizes use the same names.

    Args:
        folder: that of simulated_rirs and real_rirs_isotropic_noises, or the one that holds RIRS_NOISES/.
        jobs, measure: as for ``make_kaldi_dir``.

    Raises:
        UserError: no such folder or layout, a file of rir_list that is missing, files that cannot be read.
    """
    top = open_corpus(folder, f"RIRS_NOISES, unpacked: {LAYOUT}")
    inner = os.path.join(top, "RIRS_NOISES")
    if os.path.isdir(inner):
        top = inner
    simulated, real = _simulated(top), _real(top)
    if not simulated + real:
        raise UserError(f"{top}: no impulse response is there; expected {LAYOUT}")
    counts = len(simulated), len(real)
    verdict = "complete" if counts == FILES else f"the whole corpus has {FILES[0]} and {FILES[1]}"
    log.info("rirs_noises: %d simulated and %d real impulse responses: %s", *counts, verdict)
    return make_kaldi_dir(simulated + real, jobs=jobs, measure=measure)


def _simulated(top: str) -> list[Listed]:
    folders = [(room, os.path.join(top, SIMULATED, room)) for room in ROOMS]
    return [
        Listed(f"{room}-{stem}", room, path)
        for room, folder in folders
        if os.path.isdir(folder)
        for number in subfolders(folder)
        for stem, path in audio_files(number, EXTENSIONS)
    ]


def _real(top: str) -> list[Listed]:
    folder = os.path.join(top, REAL_FOLDER)
    if not os.path.isdir(folder):
        return []
    listing = Path(folder, "rir_list")
    if not is_regular(listing):
        raise UserError(
            f"{listing}: the file is missing; it tells the impulse responses from the noises of that folder: "
            "unpack the archive again"
        )
    files = {os.path.basename(path): (stem, path) for stem, path in audio_files(folder, EXTENSIONS)}
    listed = []
    for number, line in enumerate(listing.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
        # `--rir-id 00001 --room-id AULA RIRS_NOISES/real_rirs_isotropic_noises/file.wav`: of options, then the file
        fields = line.split()
        if not fields:
            continue
        name = os.path.basename(fields[-1])
        if name not in files:
            raise UserError(f"{listing}:{number}: there is no file {Path(folder, name)}; unpack the archive again")
        listed.append(Listed(f"{REAL}-{files[name][0]}", REAL, files[name][1]))
    return listed
