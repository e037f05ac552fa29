"""Models at `hf://org/name[@revision]`: listed on the Hugging Face Hub, fetched into its cache, found there again.

All is done by huggingface_hub, with its settings: the cache (HF_HOME, HF_HUB_CACHE), offline mode (HF_HUB_OFFLINE), the
endpoint (HF_ENDPOINT) and the token (HF_TOKEN, or what `hf auth login` has stored), which no message shows.
"""

from __future__ import annotations

import glob
import logging
import re
import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from svtoolkit.errors import UserError, hide_credentials

log = logging.getLogger(__name__)

SCHEME = "hf://"

_BEGINNING = re.compile("hf:/{1,2}")
"""A path that was made of an address has lost a slash."""

_WORD = r"[A-Za-z0-9_](?:[\w.-]{0,94}[A-Za-z0-9_])?"
_ADDRESS = re.compile(rf"(?P<repository>{_WORD}/{_WORD})(?:@(?P<revision>[^\s@?#]+))?", re.ASCII)
_COMMIT = re.compile("[0-9a-f]{40}")
_SNAPSHOT = re.compile(rf"models--({_WORD})--({_WORD})/snapshots/([0-9a-f]{{40}})(?:/|$)", re.ASCII)
"""Where a file of a repository lies in the cache."""

FETCH_YOURSELF = "download the files yourself and give their folder"

PASSING = (429, 500, 502, 503, 504)
"""Answers of a hub that is there, and may give another one later."""


class Address(NamedTuple):
    """Of a repository, at a branch, tag or commit; None: its main branch."""

    repository: str
    revision: str | None = None

    def __str__(self) -> str:
        return f"{SCHEME}{self.repository}" + (f"@{self.revision}" if self.revision else "")


class Listing(NamedTuple):
    """What a repository holds.

    Attributes:
        address: as it was asked for.
        commit: that its revision is at.
        files: of that commit; of a cached one those that were fetched before.
        cached: folder of a commit that is taken from the cache; None: files are fetched.
    """

    address: Address
    commit: str
    files: tuple[str, ...]
    cached: Path | None = None


def is_address(path: str | Path) -> bool:
    """Whether it names a repository of the hub, not a path; so does ``Path`` of an address."""
    return _BEGINNING.match(str(path)) is not None


def parse_address(path: str | Path) -> Address:
    """Take an address apart.

    Raises:
        UserError: it is not hf://org/name or hf://org/name@revision.
    """
    found = _ADDRESS.fullmatch(_BEGINNING.sub("", str(path), count=1))
    if found is None or any(bad in found["repository"] for bad in ("--", "..")):
        raise UserError(f"{path}: is no address of a model, expected hf://org/name or hf://org/name@revision")
    return Address(found["repository"], found["revision"])


def origin_of(path: str | Path) -> str | None:
    """The address with its commit of what lies in the cache of the hub; None: it lies elsewhere."""
    found = _SNAPSHOT.search(Path(path).absolute().as_posix())
    return None if found is None else str(Address(f"{found[1]}/{found[2]}", found[3]))


def name_of(folder: Path) -> str:
    """What a release is called: its repository's name, or its folder's."""
    origin = origin_of(folder)
    return folder.name if origin is None else parse_address(origin).repository.partition("/")[2]


def listings(address: Address) -> Iterator[Listing]:
    """What a repository holds, as often as there are places to ask: of a commit the cache, which knows of no other
    files than those that were fetched; then the hub, or the cache where it is out of reach.

    Raises:
        UserError: huggingface_hub is missing, there is no such repository or revision, it may not be read, or the hub
            is out of reach and the cache does not hold it.
    """
    hub = import_hub(str(address))
    if _COMMIT.fullmatch(address.revision or "") and (cached := _cached(hub, address)) is not None:
        yield cached
    try:
        found = hub.HfApi(library_name="svtoolkit").model_info(address.repository, revision=address.revision)
    except failures(hub) as error:
        if not is_out_of_reach(hub, error) or (cached := _cached(hub, address)) is None:
            raise explained(hub, address, error) from error
        expected = isinstance(error, hub.errors.OfflineModeIsEnabled)
        told = logging.INFO if expected else logging.WARNING
        log.log(told, "%s: %s; commit %s is taken from the cache", address, in_short(hub, error), cached.commit)
        yield cached
        return
    yield Listing(address, str(found.sha), tuple(file.rfilename for file in found.siblings or ()))


def complete(words: str, files: Collection[str]) -> list[tuple[str, ...]]:
    """The files that a set consists of, once for each way to find it whole.

    Args:
        words: names with blanks between them, the weights last; one in brackets may be missing; a star is the same in
            all of them, and no slash.
        files: those that there are.
    """
    names = words.split()
    beginning, star, end = names[-1].partition("*")
    found = (re.fullmatch(f"{re.escape(beginning)}([^/]+){re.escape(end)}", file) for file in sorted(files))
    stems = [match[1] for match in found if match] if star else [""]
    sets = []
    for stem in stems:
        needed = [name.replace("*", stem) for name in names]
        there = [name.strip("[]") for name in needed if name.strip("[]") in files]
        if all(name in files or name.startswith("[") for name in needed):
            sets.append(tuple(there))
    return sets


def fetch(listing: Listing, files: Sequence[str]) -> Path:
    """The folder in the cache with these files, fetched where they are not there yet, the last one after the others.

    Raises:
        UserError: as ``listings``, or the cache cannot be written.
    """
    if listing.cached is not None:
        return listing.cached
    address = listing.address
    hub = import_hub(str(address))
    cached = _cached(hub, Address(address.repository, listing.commit))
    missing = [file for file in files if cached is None or file not in cached.files]
    options: dict[str, Any] = {"tqdm_class": _bars(hub, shown=bool(missing) and sys.stderr.isatty())}
    if missing:
        log.info("%s: fetching %s of commit %s", address, ", ".join(missing), listing.commit)
    first, last = [glob.escape(file) for file in files[:-1]], [glob.escape(file) for file in files[-1:]]
    try:
        fetched = hub.snapshot_download(
            address.repository, revision=address.revision, allow_patterns=first, **options
        )  # asked for by its name, which the cache then knows
        commit = Path(fetched).name
        return Path(hub.snapshot_download(address.repository, revision=commit, allow_patterns=last, **options))
    except failures(hub) as error:
        raise explained(hub, address, error) from error


def import_hub(wanted_by: str, *, otherwise: str = FETCH_YOURSELF) -> ModuleType:
    """The package huggingface_hub.

    Args:
        wanted_by: what the message begins with.
        otherwise: what can be done without the package.

    Raises:
        UserError: it is not installed.
    """
    try:
        import huggingface_hub
        import huggingface_hub.constants
        import huggingface_hub.errors
        import huggingface_hub.utils
    except ImportError as error:
        raise UserError(
            f"{wanted_by}: needs a package that is not installed: `pip install huggingface_hub`, or {otherwise}"
        ) from error
    return huggingface_hub


def failures(hub: ModuleType) -> tuple[type[Exception], ...]:
    """What the calls of huggingface_hub raise: errors of its HTTP client, which is another in each of its versions, of
    files, of threads that upload, and of names that it does not take."""
    return (*hub.errors.HfHubHTTPError.__bases__, OSError, RuntimeError, ValueError)


def is_out_of_reach(hub: ModuleType, error: Exception) -> bool:
    """Whether the cache may stand in: the hub did not answer, or may answer otherwise later."""
    if isinstance(error, hub.errors.HfHubHTTPError):
        return _status(error) in PASSING
    return not isinstance(error, ValueError)


def in_short(hub: ModuleType, error: Exception) -> str:
    """Why the hub was not reached."""
    if isinstance(error, hub.errors.OfflineModeIsEnabled):
        return "HF_HUB_OFFLINE is set"
    endpoint = hide_credentials(hub.constants.ENDPOINT)
    if isinstance(error, hub.errors.HfHubHTTPError):
        return f"{endpoint} answers with status {_status(error)}"
    return f"{endpoint} cannot be reached ({type(error).__name__})"


def explained(hub: ModuleType, address: Address, error: Exception, *, lost: str | None = None) -> UserError:
    """What failed in a sentence: nothing of the request is in it.

    Args:
        hub: the package.
        address: what was asked for.
        error: what it raised.
        lost: what this means; None: a model cannot be fetched.
    """
    errors, place = hub.errors, f"{hub.constants.ENDPOINT}/{address.repository}"
    while isinstance(error, errors.LocalEntryNotFoundError | RuntimeError) and isinstance(error.__cause__, Exception):
        error = error.__cause__
    if isinstance(error, errors.GatedRepoError):
        return UserError(
            f"{address}: is gated; accept its conditions at {place}, then log in with `hf auth login` or set HF_TOKEN"
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return UserError(f"{address}: has no such revision; expected a branch, a tag or a commit of {place}")
    if isinstance(error, errors.RepositoryNotFoundError):
        return UserError(
            f"{address}: there is no such repository at {hub.constants.ENDPOINT}, or it is private; correct the name, "
            "or log in with `hf auth login` or HF_TOKEN as someone who may read it"
        )
    if isinstance(error, errors.HFValidationError):
        return UserError(f"{address}: is no address of a model, expected hf://org/name or hf://org/name@revision")
    status = _status(error)
    if status in (401, 403):
        return UserError(
            f"{address}: {hub.constants.ENDPOINT} refuses the token (status {status}); log in again with "
            "`hf auth login`, or set HF_TOKEN to one that may do this"
        )
    if is_out_of_reach(hub, error) and not (isinstance(error, OSError) and error.errno and error.filename):
        remedy = "unset it" if isinstance(error, errors.OfflineModeIsEnabled) else "try again, or set HF_ENDPOINT"
        if lost is not None:
            return UserError(f"{address}: {in_short(hub, error)}: {lost}; {remedy}")
        return UserError(
            f"{address}: {in_short(hub, error)}, and {hub.constants.HF_HUB_CACHE} does not hold all of it; {remedy}, "
            "or copy the files here and give their folder"
        )
    reason = f"status {status}" if status else " ".join(str(error).split())[:200] or type(error).__name__
    remedy = f"see {place}" + (", or give a folder of your own" if lost is None else "")
    return UserError(f"{address}: huggingface_hub failed ({reason}){f': {lost}' if lost else ''}; {remedy}")


def _bars(hub: ModuleType, *, shown: bool) -> type[Any]:
    """Progress bars that are shown, or not."""

    class Bars(hub.utils.tqdm):  # type: ignore[name-defined]
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options | ({} if shown else {"disable": True}))

    return Bars


def _status(error: Exception) -> int | None:
    return getattr(getattr(error, "response", None), "status_code", None)


def _cached(hub: ModuleType, address: Address) -> Listing | None:
    """What the cache holds of a revision, without asking anyone."""
    options: dict[str, Any] = {"local_files_only": True, "allow_patterns": []}
    try:
        folder = Path(hub.snapshot_download(address.repository, revision=address.revision, **options))
    except failures(hub):
        return None
    files = tuple(sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()))
    return Listing(address, folder.name, files, folder)
