"""A folder of recordings, one folder a speaker.

Layout: <folder>/<speaker>/.../<anything>.<wav, flac, ogg, mp3, m4a, ...>, audio at any depth below the speaker.
Corpus and licence are the user's own.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from svtoolkit.audio.formats import is_audio
from svtoolkit.corpora.folders import Listed, Measure, as_id, check_link, files_below, make_kaldi_dir
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.data.raw_folders import is_data_directory, parts_of, prepare_command
from svtoolkit.errors import UserError


def prepare_speaker_folders(
    folder: str | Path, *, out: str | Path | None = None, jobs: int = 1, measure: Measure | None = None
) -> KaldiDir:
    """Make a data directory of one folder a speaker.

    The speaker id is the name of the first-level folder; the utterance id is that name and the path below it without
    the extension. White space and `/` become `-`. Hidden files and files that are no audio are passed over; links are
    followed.

    Args:
        folder: the folder of speaker folders.
        out: where the data directory will be written, if that is known: it may not lie in the corpus itself.
        jobs, measure: as for ``make_kaldi_dir``.

    Returns:
        the directory; without durations where a file is left to FFmpeg (m4a and others), which ``svt convert``
        measures.

    Raises:
        UserError: no such folder, no speaker folder, audio outside a speaker folder, a speaker without audio, two
            files or speakers that get the same id, a link to nothing, files that cannot be read.
    """
    top = Path(folder)
    if not top.is_dir():
        raise UserError(f"{top}: there is no such folder; expected one folder a speaker in it")
    if out is not None and Path(out).resolve().is_relative_to(top.resolve()):
        raise UserError(
            f"out={out} lies in the source {folder}, whose folders are taken for speakers; choose a folder outside"
        )
    _refuse_parts(top, out)
    entries = sorted(entry for entry in top.iterdir() if not entry.name.startswith("."))
    stray = [entry for entry in entries if entry.is_file() and is_audio(entry)]
    for entry in entries:
        check_link(entry)
    if stray:
        raise UserError(
            f"{stray[0]}: audio outside a speaker folder ({len(stray)} such files); expected {top}/<speaker>/...; "
            "move it into the folder of its speaker"
        )
    speakers: dict[str, Path] = {}
    listed: list[Listed] = []
    for directory in (entry for entry in entries if entry.is_dir()):
        speaker = as_id(directory.name)
        if speaker in speakers:
            raise UserError(
                f"{speakers[speaker]} and {directory} would both be speaker {speaker!r}; rename one of them"
            )
        speakers[speaker] = directory
        files = [Path(path) for path in files_below(str(directory))]
        audio = [file for file in files if is_audio(file)]
        if not audio:
            raise UserError(f"{directory}: the speaker folder holds no audio{_describe(files)}; add some or remove it")
        for file in audio:
            utterance = as_id(f"{directory.name}/{file.relative_to(directory).with_suffix('').as_posix()}")
            listed.append(Listed(utterance, speaker, str(file.absolute())))
    if not speakers:
        raise UserError(f"{top}: there is no speaker folder; expected {top}/<speaker>/<audio>")
    return make_kaldi_dir(listed, jobs=jobs, measure=measure)


def _refuse_parts(top: Path, out: str | Path | None) -> None:
    """train/ and eval/ are no speakers."""
    if is_data_directory(top):
        raise UserError(f"{top}: is a data directory already, with wav.scp and utt2spk; give it as it is")
    parts = parts_of(top)
    ready = [part for part in parts if is_data_directory(part)]
    if ready:
        raise UserError(
            f"{top}: holds data directories already, {' and '.join(map(str, ready))}; give these as they are"
        )
    if parts and not any(is_audio(path) for part in parts for path in part.iterdir() if path.is_file()):
        target = top.with_name(f"{top.name}_data") if out is None else Path(out)
        commands = " and ".join(prepare_command(part, target / part.name) for part in parts)
        raise UserError(
            f"{top}: holds {', '.join(part.name for part in parts)}, which are parts of a corpus and no speakers; "
            f"prepare each by itself: {commands}"
        )


def _describe(files: list[Path]) -> str:
    if not files:
        return ""
    counts = Counter(file.suffix.lower() or "no extension" for file in files)
    found = ", ".join(f"{number} with {extension}" for extension, number in sorted(counts.items()))
    return f" that can be read (found {len(files)} files: {found})"
