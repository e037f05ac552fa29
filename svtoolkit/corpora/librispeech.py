"""LibriSpeech: about 1000 hours of read English audiobooks, 2484 speakers, 16 kHz.

Corpus: V. Panayotov, G. Chen, D. Povey, S. Khudanpur, "Librispeech: an ASR corpus based on public domain audio books",
ICASSP 2015; https://www.openslr.org/12. Licence: CC BY 4.0.

Layout: <subset>/<speaker>/<chapter>/<speaker>-<chapter>-<number>.flac, as the archives unpack; subsets are
train-clean-100, dev-clean, test-other, ... The folder given is one subset or the folder of several.
"""

from __future__ import annotations

from pathlib import Path

from svtoolkit.corpora.folders import Listed, Measure, audio_files, make_kaldi_dir, open_corpus, subfolders
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.errors import UserError

EXTENSIONS = (".flac",)
LAYOUT = "<speaker>/<chapter>/<speaker>-<chapter>-<number>.flac"


def prepare_librispeech(folder: str | Path, *, jobs: int = 1, measure: Measure | None = None) -> KaldiDir:
    """Make a data directory of LibriSpeech or a part of it.

    The utterance id is the name of the file without its extension; it begins with the speaker id and a dash, so that
    in C locale utterances are sorted by speaker.

    Args:
        folder: a subset such as train-clean-100, or the folder of several subsets.
        jobs, measure: as for ``make_kaldi_dir``.

    Raises:
        UserError: no such folder or layout, an utterance in two subsets, files that cannot be read.
    """
    top = open_corpus(folder, "a subset of LibriSpeech or the folder of several")
    files = [Path(path) for chapter in _chapters(top) for _, path in audio_files(chapter, EXTENSIONS)]
    if not files:
        raise UserError(f"{top}: no file is laid out as in LibriSpeech, [<subset>/]{LAYOUT}; give that folder")
    for file in files:
        if [file.parent.parent.name, file.parent.name] != file.stem.split("-")[:-1]:
            raise UserError(
                f"{file}: expected a file named by its folders, {LAYOUT}; for another layout use corpus=folders"
            )
    listed = [Listed(file.stem, file.parent.parent.name, str(file)) for file in files]
    return make_kaldi_dir(listed, jobs=jobs, measure=measure)


def _chapters(top: str) -> list[str]:
    """Folders two and three levels below."""
    speakers = [speaker for subset in subfolders(top) for speaker in subfolders(subset)]
    return sorted(speakers + [chapter for speaker in speakers for chapter in subfolders(speaker)])
