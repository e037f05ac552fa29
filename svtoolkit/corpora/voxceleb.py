"""VoxCeleb1 and VoxCeleb2: speech of celebrities in interviews on YouTube, 16 kHz.

Corpora: A. Nagrani, J. S. Chung, A. Zisserman, "VoxCeleb: a large-scale speaker identification dataset", Interspeech
2017; J. S. Chung, A. Nagrani, A. Zisserman, "VoxCeleb2: Deep Speaker Recognition", Interspeech 2018;
https://www.robots.ox.ac.uk/~vgg/data/voxceleb/. Licence: CC BY 4.0 for the metadata, copyright of the audio remains
with the owners of the videos.

Layout: [<part>/]<wav or aac>/<speaker>/<video>/<number>.<wav, m4a, flac>, as the archives unpack: VoxCeleb1 as wav,
VoxCeleb2 as AAC in m4a, or converted in the same layout. The folder given is that of the speakers or one or two
levels above it, with the archives unpacked side by side or into each other. Which part a speaker belongs to is known
from the speaker, whatever the folders are called.
"""

from __future__ import annotations

import logging
import os
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from svtoolkit.corpora.folders import Listed, Measure, audio_files, make_kaldi_dir, open_corpus, subfolders
from svtoolkit.corpora.rehearsal import choose_speakers
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.errors import UserError
from svtoolkit.system.threads import map_in_order

log = logging.getLogger(__name__)

PARTS = ("all", "dev", "test")
LAYOUT = "<speaker>/<video>/<number>"
EXTENSIONS = (".wav", ".flac", ".m4a")
NO_AUDIO = ("txt", "mp4", "vid")
"""Folders of speakers that hold face tracks and videos."""
LEVELS = 2
"""Folders between the one given and those of the speakers."""

VOX2_TEST = frozenset(
    f"id{number}"
    for number in """
    00017 00061 00081 00154 00419 00562 00812 00817 00866 00926 01000 01041 01066 01106 01224 01228 01298 01333 01437
    01460 01509 01541 01567 01593 01618 01822 01892 01989 02019 02057 02086 02181 02286 02317 02445 02465 02542 02548
    02576 02577 02685 02725 02745 03030 03041 03127 03178 03347 03382 03524 03677 03789 03839 03862 03969 03978 03980
    03981 04006 04030 04094 04119 04232 04253 04276 04295 04366 04478 04536 04570 04627 04656 04657 04862 04950 05015
    05055 05124 05176 05202 05459 05594 05654 05714 05816 05850 05999 06104 06209 06310 06484 06692 06811 06816 06913
    07312 07354 07396 07414 07426 07494 07620 07621 07663 07802 07868 07874 07961 08149 08374 08392 08456 08548 08552
    08696 08701 08911 09017
    """.split()
)
"""Test speakers of VoxCeleb2 by vox2_meta.csv, but for the two (id04170, id05348) that have no audio."""


@dataclass(frozen=True)
class Corpus:
    """What is known of a corpus.

    Attributes:
        name: as ``svt prepare`` calls it.
        speaker: form of a speaker id.
        is_test: speaker id -> it belongs to the test part.
        sizes: part -> (speakers, utterances) of the whole of it.
    """

    name: str
    speaker: re.Pattern[str]
    is_test: Callable[[str], bool]
    sizes: dict[str, tuple[int, int]]


# The test speakers of VoxCeleb1 are those whose name begins with E, id10270 to id10309: 40, as in veri_test.txt. Sizes
# are those of the pages above; dev and test of VoxCeleb2 add up to the 1,128,246 of its paper.
VOXCELEB1 = Corpus(
    "voxceleb1",
    re.compile(r"id1\d{4}"),
    lambda speaker: "id10270" <= speaker <= "id10309",
    {"dev": (1211, 148_642), "test": (40, 4_874)},
)
VOXCELEB2 = Corpus(
    "voxceleb2",
    re.compile(r"id0\d{4}"),
    VOX2_TEST.__contains__,
    {"dev": (5994, 1_092_009), "test": (118, 36_237)},
)


def prepare_voxceleb1(
    folder: str | Path,
    *,
    part: str = "all",
    limit_speakers: int | None = None,
    jobs: int = 1,
    measure: Measure | None = None,
) -> KaldiDir:
    """Make a data directory of VoxCeleb1 or a part of it, and log whether it is complete.

    The utterance id is <speaker>-<video>-<number>, such as id10001-1zcIwhmdeo4-00001.

    Args:
        folder: of the speakers, or one or two levels above.
        part: ``dev`` (1211 speakers), ``test`` (40 speakers) or ``all``.
        limit_speakers: so many of them alone, those of ``choose_speakers``.
        jobs: folders and headers read at a time.
        measure: as for ``make_kaldi_dir``.

    Returns:
        the directory; without durations where a file is m4a, which ``svt convert`` measures.

    Raises:
        UserError: no such folder, layout or part, speakers of the other corpus, an utterance twice, broken files.
    """
    listed = list_voxceleb(VOXCELEB1, folder, part, jobs, limit_speakers)
    return make_kaldi_dir(listed, jobs=jobs, measure=measure)


def prepare_voxceleb2(
    folder: str | Path,
    *,
    part: str = "all",
    limit_speakers: int | None = None,
    jobs: int = 1,
    measure: Measure | None = None,
) -> KaldiDir:
    """Make a data directory of VoxCeleb2 (``dev``: 5994 speakers, ``test``: 118); as ``prepare_voxceleb1``."""
    listed = list_voxceleb(VOXCELEB2, folder, part, jobs, limit_speakers)
    return make_kaldi_dir(listed, jobs=jobs, measure=measure)


def list_voxceleb(
    corpus: Corpus, folder: str | Path, part: str, jobs: int, limit_speakers: int | None = None
) -> list[Listed]:
    """The files of a corpus, or of so many of its speakers; logs whether the whole is complete.

    Raises:
        UserError: as ``prepare_voxceleb1``, but for the files, which are not opened.
    """
    if part not in PARTS:
        raise UserError(f"part is {part!r}, expected one of {', '.join(PARTS)}")
    top = open_corpus(folder, f"{corpus.name}, unpacked")
    speakers = _find_speakers(top)
    if not speakers:
        raise UserError(
            f"{top}: no folder of a speaker such as id10001 is in it or {LEVELS} levels below; expected "
            f"[dev/]wav/{LAYOUT}.wav or [dev/]aac/{LAYOUT}.m4a, as the archives unpack"
        )
    foreign = [path for path in speakers if not corpus.speaker.fullmatch(os.path.basename(path))]
    if foreign:
        other = VOXCELEB2 if corpus is VOXCELEB1 else VOXCELEB1
        raise UserError(
            f"{foreign[0]}: is no speaker of {corpus.name} ({len(foreign)} of {len(speakers)} folders); "
            f"expected {corpus.speaker.pattern}; prepare {other.name} apart, with corpus={other.name}"
        )
    wanted = [path for path in speakers if part in ("all", _part_of(corpus, os.path.basename(path)))]
    if limit_speakers is not None:
        chosen = set(choose_speakers(map(os.path.basename, wanted), limit_speakers))
        wanted = [path for path in wanted if os.path.basename(path) in chosen]
    listed = [item for items in map_in_order(_list_speaker, wanted, jobs) for item in items]
    if not listed:
        parts = sorted({_part_of(corpus, os.path.basename(path)) for path in speakers})
        raise UserError(
            f"{top}: no audio of part={part} is there, only folders of {len(speakers)} speakers "
            f"({', '.join(parts)}); "
            f"expected {LAYOUT}.{{{','.join(extension[1:] for extension in EXTENSIONS)}}}"
        )
    if limit_speakers is None:
        _compare_sizes(corpus, part, listed)
    else:
        log.info("%s: limited to %d speakers, %d utterances", corpus.name, limit_speakers, len(listed))
    return listed


def _part_of(corpus: Corpus, speaker: str) -> str:
    return "test" if corpus.is_test(speaker) else "dev"


def _find_speakers(top: str) -> list[str]:
    """Folders named like a speaker, in the one given and down to LEVELS below."""
    speakers: list[str] = []
    folders = [top]
    for _ in range(LEVELS + 1):
        inner = [path for folder in folders for path in subfolders(folder)]
        named = [path for path in inner if re.fullmatch(r"id\d{5}", os.path.basename(path))]
        speakers += named
        folders = sorted(set(inner) - set(named))
        folders = [path for path in folders if os.path.basename(path) not in NO_AUDIO]
    return speakers


def _list_speaker(folder: str) -> list[Listed]:
    speaker = os.path.basename(folder)
    stray = audio_files(folder, EXTENSIONS)
    if stray:
        raise UserError(
            f"{stray[0][1]}: the folder of its video is missing; expected {LAYOUT}, as the archives unpack; for "
            "another layout use corpus=folders"
        )
    return [
        Listed(f"{speaker}-{os.path.basename(video)}-{number}", speaker, path)
        for video in subfolders(folder)
        for number, path in audio_files(video, EXTENSIONS)
    ]


def _compare_sizes(corpus: Corpus, part: str, listed: list[Listed]) -> None:
    """Log what is missing of each part that is asked for."""
    of_speaker = Counter(item.speaker for item in listed)
    for name, (speakers, utterances) in corpus.sizes.items():
        if part not in ("all", name):
            continue
        counts = [count for speaker, count in of_speaker.items() if _part_of(corpus, speaker) == name]
        missing = speakers - len(counts), utterances - sum(counts)
        if missing == (0, 0):
            verdict = "complete"
        elif not counts:
            verdict = f"none of its {speakers} speakers and {utterances} utterances is there"
        elif min(missing) < 0:
            verdict = f"more than its {speakers} speakers and {utterances} utterances: other files are among them"
        else:
            verdict = f"{missing[0]} of {speakers} speakers and {missing[1]} of {utterances} utterances are missing"
        log.info("%s %s: %d speakers, %d utterances: %s", corpus.name, name, len(counts), sum(counts), verdict)
