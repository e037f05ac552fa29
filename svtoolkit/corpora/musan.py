"""MUSAN: 109 hours of noise, music and speech in many languages, 16 kHz, to be mixed into training speech.

Corpus: D. Snyder, G. Chen, D. Povey, "MUSAN: A Music, Speech, and Noise Corpus", arXiv:1510.08484, 2015;
https://www.openslr.org/17. Licence: per file, Creative Commons or public domain (LICENSE beside the files).

Layout: <category>/<source>/<file>.wav with the categories noise, music and speech, such as
noise/free-sound/noise-free-sound-0000.wav, as the archive unpacks into musan/; deeper, without a source or as FLAC
will do.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from svtoolkit.corpora.folders import Listed, Measure, files_below, make_kaldi_dir, open_corpus
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.errors import UserError

log = logging.getLogger(__name__)

CATEGORIES = ("noise", "music", "speech")
EXTENSIONS = (".wav", ".flac")
FILES = 2016
"""Of the whole corpus, as unpacked."""


def prepare_musan(folder: str | Path, *, jobs: int = 1, measure: Measure | None = None) -> KaldiDir:
    """Make a data directory of MUSAN: the "speaker" is the category, the utterance id <category>-<name of the file>.

    Args:
        folder: that of the categories, or the one that holds musan/.
        jobs, measure: as for ``make_kaldi_dir``.

    Raises:
        UserError: no such folder or layout, two files of one name, files that cannot be read.
    """
    top = open_corpus(folder, f"MUSAN, unpacked: {', '.join(CATEGORIES)}")
    inner = os.path.join(top, "musan")
    if not _present(top) and os.path.isdir(inner):
        top = inner
    if not _present(top):
        raise UserError(f"{top}: none of {', '.join(CATEGORIES)} is in it; expected <category>/<source>/<file>.wav")
    listed = [
        Listed(f"{category}-{stem}", category, path)
        for category in _present(top)
        for path in files_below(os.path.join(top, category))
        for stem, extension in [os.path.splitext(os.path.basename(path))]
        if extension.lower() in EXTENSIONS
    ]
    if not listed:
        found = ", ".join(_present(top))
        raise UserError(f"{top}: {found} hold no wav or flac; expected <category>/<source>/<file>.wav")
    verdict = "complete" if len(listed) == FILES else f"the whole corpus has {FILES}"
    log.info("musan: %d files: %s", len(listed), verdict)
    return make_kaldi_dir(listed, jobs=jobs, measure=measure)


def _present(top: str) -> list[str]:
    return [category for category in CATEGORIES if os.path.isdir(os.path.join(top, category))]
