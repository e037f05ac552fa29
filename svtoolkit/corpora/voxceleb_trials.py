"""The trial lists of VoxCeleb1: Vox1-O (original), Vox1-E (entire), Vox1-H (hard), cleaned and as first published.

Lines are ``1 id10270/x6uYqmx31kE/00001.wav id10270/8jEAjG6SegY/00008.wav``, 1 for a target trial, 0 for a nontarget
one. Lists: https://www.robots.ox.ac.uk/~vgg/data/voxceleb/vox1.html; E and H are of J. S. Chung, A. Nagrani,
A. Zisserman, "VoxCeleb2: Deep Speaker Recognition", Interspeech 2018.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from svtoolkit.corpora.folders import Measure, make_kaldi_dir
from svtoolkit.corpora.prepared import Prepared
from svtoolkit.corpora.rehearsal import choose_trial_speakers, restrict_trials
from svtoolkit.corpora.voxceleb import VOXCELEB1, list_voxceleb, prepare_voxceleb1
from svtoolkit.data.tables import BYTE_ORDER_MARK
from svtoolkit.data.trials import Trials
from svtoolkit.errors import UserError
from svtoolkit.system.regular_file import is_regular

LINE_FORM = "`1 <speaker>/<video>/<file>.wav <speaker>/<video>/<file>.wav` or the same with 0"
GZIP = b"\x1f\x8b"

LONGEST_LIST = 1 << 30
"""Bytes; the longest official list has some 600 000 lines."""


@dataclass(frozen=True)
class OfficialList:
    """A list as it is published.

    Attributes:
        file: its name.
        name: what it is called in a data directory, after ``trials_``.
        trials: number of its lines.
        md5: of its bytes, uncompressed.
        sha256: the same; None where only the md5 is published and the list was not at hand.
    """

    file: str
    name: str
    trials: int
    md5: str
    sha256: str | None


# Sources. Trials: the page above and examples/voxceleb/README.md of https://github.com/PaddlePaddle/PaddleSpeech. md5:
# dataset/voxceleb/voxceleb1.py there; the same of the cleaned lists in recipes/resnet/local/download_voxceleb1.py of
# https://github.com/mrouvier/kiwano. Of Vox1-O and the original lists, trials and hashes were computed again from
# the lists themselves, sha256 from them alone.
OFFICIAL_LISTS = (
    OfficialList(
        "veri_test2.txt",
        "O",
        37_611,
        "b73110731c9223c1461fe49cb48dddfc",
        "0bc0a0fe3e557f1a75fb71e566d862d460709e80a4fe28e80e49bc0ab3a536ea",
    ),
    OfficialList("list_test_all2.txt", "E", 579_818, "a53e059deb562ffcfc092bf5d90d9f3a", None),
    OfficialList("list_test_hard2.txt", "H", 550_894, "857790e09d579a68eb2e339a090343c8", None),
    OfficialList(
        "veri_test.txt",
        "O_original",
        37_720,
        "29fc7cc1c5d59f0816dc15d6e8be60f7",
        "303b2b657042a27bf465d4c8aa84e12765373cdc01046665241ccd5783bd5976",
    ),
    OfficialList(
        "list_test_all.txt",
        "E_original",
        581_480,
        "b9ecf7aa49d4b656aa927a8092844e4a",
        "9048088123377f652694679df99ec3282939f2b7ef6d299b20f410df7051b20b",
    ),
    OfficialList(
        "list_test_hard.txt",
        "H_original",
        552_536,
        "21c341b6b2168eea2634df0fb4b8fff1",
        "33271aa73d7d4ad049d1703d261c6229b2860b358cec466cdbde5a3e02ceb59c",
    ),
)


def prepare_with_trials(
    folder: str | Path,
    *,
    part: str,
    trials: Sequence[str],
    other_trials: bool,
    limit_speakers: int | None = None,
    jobs: int = 1,
    measure: Measure | None = None,
) -> Prepared:
    """``prepare_voxceleb1`` with trial lists.

    Args:
        trials: the lists.
        other_trials: take any list of the same form.
        limit_speakers: so many speakers alone, those of ``choose_trial_speakers``, and of each list the trials among
            them, under a name that says so.

    Raises:
        UserError: as ``prepare_voxceleb1`` and ``read_voxceleb_trials``; two lists of one name.
    """
    if limit_speakers is None or not trials:
        kaldi_dir = prepare_voxceleb1(folder, part=part, limit_speakers=limit_speakers, jobs=jobs, measure=measure)
        return Prepared(kaldi_dir, trials=_read_lists(trials, kaldi_dir.utt2spk, other_trials))
    listed = list_voxceleb(VOXCELEB1, folder, part, jobs)
    utt2spk = {item.utterance: item.speaker for item in listed}
    lists = _read_lists(trials, utt2spk, other_trials)
    speakers = set(choose_trial_speakers(lists, utt2spk, limit_speakers))
    kaldi_dir = make_kaldi_dir((item for item in listed if item.speaker in speakers), jobs=jobs, measure=measure)
    limited = {
        f"{name}_of_{limit_speakers}_speakers": restrict_trials(found, kaldi_dir.utt2spk)
        for name, found in lists.items()
    }
    return Prepared(kaldi_dir, trials=limited)


def _read_lists(paths: Sequence[str], utt2spk: Mapping[str, str], other_trials: bool) -> dict[str, Trials]:
    lists: dict[str, Trials] = {}
    for path in paths:
        name, found = read_voxceleb_trials(path, utt2spk, allow_other=other_trials)
        if name in lists:
            raise UserError(f"{path}: would be {name}, which another list is already; leave one out or rename the file")
        lists[name] = found
    return lists


def read_voxceleb_trials(
    path: str | Path, utt2spk: Mapping[str, str], *, allow_other: bool = False
) -> tuple[str, Trials]:
    """Read a list of VoxCeleb1 and check that it is the official one.

    Args:
        path: the list, plain or gzip; recognised by its content, whatever its name, also with line ends of Windows.
        utt2spk: utterance id -> speaker of the data directory that it is used with.
        allow_other: take any list of this form.

    Returns:
        (name, trials): ``trials_O``, ``trials_E``, ``trials_H`` of the cleaned lists, with ``_original`` of the others,
        ``trials_<name of the file>`` of a list that is none of these; trials in the order of the list.

    Raises:
        UserError: no such file; not one of the official lists; a line of another form; an utterance that is not in
            ``utt2spk``. Names file and line.
    """
    content = _read(path)
    official = _recognise(content)
    trials = _parse(path, content, utt2spk, check=official is not None or allow_other)
    if official is None and not allow_other:
        raise UserError(f"{path}: {_difference(path, content, len(trials))}")
    own_name = re.sub(r"\s+", "_", os.path.splitext(Path(path).name.removesuffix(".gz"))[0])
    return f"trials_{own_name if official is None else official.name}", trials


def as_utterance(file: str) -> str:
    """``id10270/x6uYqmx31kE/00001.wav`` -> ``id10270-x6uYqmx31kE-00001``; empty where it has another form."""
    parts = os.path.splitext(file)[0].split("/")
    return "-".join(parts) if len(parts) == 3 and all(parts) else ""


def _read(path: str | Path) -> bytes:
    file = Path(path)
    if not is_regular(file):
        raise UserError(f"{file}: there is no such trial list; expected lines {LINE_FORM}")
    content = file.read_bytes()
    try:
        text = _decompress(content) if content.startswith(GZIP) else content
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{file}: cannot be decompressed ({error}); download it again") from error
    if b"\0" in text:
        raise UserError(f"{file}: is no UTF-8 text; save it as UTF-8, or download it again")
    return text.removeprefix(BYTE_ORDER_MARK)


def _decompress(content: bytes) -> bytes:
    with gzip.open(io.BytesIO(content)) as stream:
        text = stream.read(LONGEST_LIST + 1)
    if len(text) > LONGEST_LIST:
        raise OSError(f"it unfolds to more than {LONGEST_LIST} bytes, longer than any list")
    return text


def _recognise(content: bytes) -> OfficialList | None:
    for text in (content, content.replace(b"\r\n", b"\n")):
        md5 = hashlib.md5(text, usedforsecurity=False).hexdigest()
        sha256 = hashlib.sha256(text).hexdigest()
        for official in OFFICIAL_LISTS:
            if official.md5 == md5 and official.sha256 in (None, sha256):
                return official
    return None


def _parse(path: str | Path, content: bytes, utt2spk: Mapping[str, str], *, check: bool) -> Trials:
    listed: list[tuple[str, str, bool]] = []
    utterances: dict[str, str] = {}  # each file is in many lines: one string for all of them
    for number, line in enumerate(content.decode("utf-8", "backslashreplace").split("\n"), start=1):
        fields = line.split()
        if not fields:
            continue
        ids = [utterances.get(file) or utterances.setdefault(file, as_utterance(file)) for file in fields[1:]]
        if len(fields) != 3 or fields[0] not in ("0", "1") or not all(ids):
            raise UserError(f"{path}:{number}: found {line.strip()!r}, expected {LINE_FORM}")
        absent = [utterance for utterance in ids if utterance not in utt2spk]
        if check and absent:
            raise UserError(
                f"{path}:{number}: names {absent[0]!r}, which is not in the data directory; prepare the speakers of "
                "the list as well (O: the test part, E and H: part=all)"
            )
        listed.append((ids[0], ids[1], fields[0] == "1"))
    if not listed:
        raise UserError(f"{path}: the trial list is empty; expected lines {LINE_FORM}")
    return Trials.of(listed)


def _difference(path: str | Path, content: bytes, trials: int) -> str:
    """Why a list is none of the official ones."""
    of_that_name = [official for official in OFFICIAL_LISTS if official.file == Path(path).name.removesuffix(".gz")]
    remedy = "download it again; other_trials=true takes it as a list of your own"
    if not of_that_name:
        names = ", ".join(official.file for official in OFFICIAL_LISTS)
        return f"is none of the lists of VoxCeleb1 ({names}), by its {trials} trials and its hash; {remedy}"
    official = of_that_name[0]
    if trials != official.trials:
        return f"holds {trials} trials, the published list of that name {official.trials}; {remedy}"
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    return f"has md5 {found}, the published list of that name {official.md5}; {remedy}"
