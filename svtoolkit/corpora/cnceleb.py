"""CN-Celeb1 and CN-Celeb2: speech of Chinese celebrities in eleven genres, from singing to interviews, 16 kHz.

Corpora: Y. Fan and others, "CN-Celeb: a challenging Chinese speaker recognition dataset", ICASSP 2020; L. Li and
others, "CN-Celeb: multi-genre speaker recognition", Speech Communication 137, 2022; https://www.openslr.org/82.
Licence: CC BY-SA 4.0.

Layout, as the archives unpack (the second versions, in FLAC; WAV will do):

- CN-Celeb_flac: data/<speaker>/<genre>-<session>-<number>.flac of all speakers; dev/dev.lst, the speakers to train on;
  eval/enroll/<speaker>-enroll.flac, eval/test/<speaker>-<genre>-<session>-<number>.flac and eval/lists/trials.lst.
- CN-Celeb2_flac: data/<speaker>/<genre>-<session>-<number>.flac; spk.lst. All of it is to train on.

The folder given is one of these or the one that holds both.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from pathlib import Path

from svtoolkit.corpora.folders import Listed, Measure, audio_files, make_kaldi_dir, open_corpus, subfolders
from svtoolkit.corpora.prepared import Prepared
from svtoolkit.data.trials import Trials
from svtoolkit.errors import UserError
from svtoolkit.system.regular_file import is_regular
from svtoolkit.system.threads import map_in_order

log = logging.getLogger(__name__)

PARTS = ("all", "dev", "test")
EXTENSIONS = (".flac", ".wav")
LAYOUT = "data/<speaker>/<genre>-<session>-<number>.flac"
TRIAL_LIST = os.path.join("eval", "lists", "trials.lst")


def prepare_cnceleb(
    folder: str | Path, *, part: str = "all", eval_speakers: int = 0, jobs: int = 1, measure: Measure | None = None
) -> Prepared:
    """Make a data directory of CN-Celeb1, CN-Celeb2 or both.

    Args:
        folder: one of CN-Celeb_flac and CN-Celeb2_flac, or the one that holds them.
        part: ``dev``: the speakers to train on, those of dev.lst and all of CN-Celeb2; ``test``: the enrolment and test
            files of CN-Celeb1 with their trials; ``all``: all of data/.
        eval_speakers: where the speakers are split further, the trials of part=test are left out.
        jobs: folders and headers read at a time.
        measure: as for ``make_kaldi_dir``.

    Returns:
        the directory; utterance ids are <speaker>-<genre>-<session>-<number>, those of enrolment <speaker>-enroll.

    Raises:
        UserError: no such folder, layout or part, a list that is missing, files that cannot be read.
    """
    if part not in PARTS:
        raise UserError(f"part is {part!r}, expected one of {', '.join(PARTS)}")
    roots = _find_roots(folder)
    if part == "test":
        listed = _list_evaluation(_with_trials(roots))
    else:
        folders = [path for root in roots for path in _speaker_folders(root, part)]
        listed = [item for items in map_in_order(_list_speaker, folders, jobs) for item in items]
    if not listed:
        raise UserError(f"{folder}: no audio of part={part} is there; expected {LAYOUT}")
    speakers = len({item.speaker for item in listed})
    log.info("cnceleb %s: %d speakers, %d utterances", part, speakers, len(listed))
    kaldi_dir = make_kaldi_dir(listed, jobs=jobs, measure=measure)
    if part != "test" or eval_speakers:
        return Prepared(kaldi_dir)
    return Prepared(kaldi_dir, trials={"trials": read_cnceleb_trials(folder, kaldi_dir.utt2spk)})


def read_cnceleb_trials(folder: str | Path, utterances: Iterable[str]) -> Trials:
    """The trials of CN-Celeb1, lines ``id00800-enroll test/id00800-singing-01-001.wav 1`` of eval/lists/trials.lst.

    Args:
        folder: as for ``prepare_cnceleb``.
        utterances: those of the data directory of ``part="test"``.

    Raises:
        UserError: no such list, a line of another form, an utterance that is not there; names file and line.
    """
    path = os.path.join(_with_trials(_find_roots(folder)), TRIAL_LIST)
    known = set(utterances)
    listed = []
    for number, line in enumerate(Path(path).read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
        fields = line.split()
        if not fields:
            continue
        if len(fields) != 3 or fields[2] not in ("0", "1"):
            raise UserError(f"{path}:{number}: found {line!r}, expected `<speaker>-enroll test/<file>.wav 0` or 1")
        pair = [os.path.splitext(os.path.basename(field))[0] for field in fields[:2]]
        absent = [utterance for utterance in pair if utterance not in known]
        if absent:
            raise UserError(f"{path}:{number}: names {absent[0]!r}, which has no file; unpack the archive again")
        listed.append((pair[0], pair[1], fields[2] == "1"))
    if not listed:
        raise UserError(f"{path}: the trial list is empty; unpack the archive again")
    return Trials.of(listed)


def _find_roots(folder: str | Path) -> list[str]:
    top = open_corpus(folder, "CN-Celeb_flac, CN-Celeb2_flac or the folder of both")
    roots = [path for path in (top, *subfolders(top)) if os.path.isdir(os.path.join(path, "data"))]
    if not roots:
        raise UserError(f"{top}: neither it nor a folder in it holds data/; expected {LAYOUT}, as the archives unpack")
    return roots


def _with_trials(roots: list[str]) -> str:
    for root in roots:
        if is_regular(os.path.join(root, TRIAL_LIST)):
            return root
    missing = os.path.join(roots[0], TRIAL_LIST)
    raise UserError(f"{missing}: the file is missing; expected CN-Celeb1 (CN-Celeb_flac), which alone has part=test")


def _speaker_folders(root: str, part: str) -> list[str]:
    folders = subfolders(os.path.join(root, "data"))
    if part == "all" or os.path.isfile(os.path.join(root, "spk.lst")):
        return folders
    listing = Path(root, "dev", "dev.lst")
    if not is_regular(listing):
        raise UserError(
            f"{listing}: the file is missing; it names the speakers of CN-Celeb1 to train on (CN-Celeb2 has spk.lst "
            "instead): unpack the archive again"
        )
    wanted = set(listing.read_text(encoding="utf-8", errors="replace").split())
    found = [path for path in folders if os.path.basename(path) in wanted]
    if len(found) < len(wanted):
        log.info("%s: %d of the %d speakers have no folder", listing, len(wanted) - len(found), len(wanted))
    return found


def _list_speaker(folder: str) -> list[Listed]:
    speaker = os.path.basename(folder)
    return [Listed(f"{speaker}-{stem}", speaker, path) for stem, path in audio_files(folder, EXTENSIONS)]


def _list_evaluation(root: str) -> list[Listed]:
    folders = [os.path.join(root, "eval", name) for name in ("enroll", "test")]
    for folder in folders:
        if not os.path.isdir(folder):
            raise UserError(f"{folder}: there is no such folder; unpack the archive of CN-Celeb1 again")
    files = [file for folder in folders for file in audio_files(folder, EXTENSIONS)]
    return [Listed(stem, stem.partition("-")[0], path) for stem, path in files]
