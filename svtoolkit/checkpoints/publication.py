"""Files as a commit of a repository of the Hugging Face Hub, all or none of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from svtoolkit.checkpoints.hub import Address, explained, failures, import_hub
from svtoolkit.errors import UserError

LOST = "nothing was published"


class Publication(NamedTuple):
    """What a repository holds now.

    Attributes:
        address: with the commit.
        page: where it can be looked at.
        is_new: False: it held the same files before, and there is no new commit.
    """

    address: Address
    page: str
    is_new: bool


def publish(
    address: Address, files: Mapping[str, bytes | Path], *, message: str, private: bool | None = None
) -> Publication:
    """Make a repository and a branch where there are none, and commit to it.

    Args:
        address: the repository, and its branch as revision; None: the main one.
        files: content, or the file that has it, by name there; what else the repository holds stays.
        message: of the commit.
        private: who may read it; None: as it is, or as the hub makes repositories.

    Raises:
        UserError: huggingface_hub is missing, the token does not do, the hub is out of reach or refuses the files, or
            the repository is there and not as private as asked.
    """
    hub = import_hub(f"hf://{address.repository}", otherwise="write the files with out=DIR and upload these")
    talk = hub.utils.logging.get_verbosity()
    hub.utils.logging.set_verbosity_error()  # that nothing has changed is said by who publishes
    try:
        return _publish(hub, address, files, message, private)
    except failures(hub) as error:
        raise explained(hub, address, error, lost=LOST) from error
    finally:
        hub.utils.logging.set_verbosity(talk)


def _publish(
    hub: ModuleType, address: Address, files: Mapping[str, bytes | Path], message: str, private: bool | None
) -> Publication:
    api = hub.HfApi(library_name="svtoolkit")
    repository, branch = address
    if (before := _look_at(hub, api, repository)) is None:
        api.create_repo(repository, private=private, repo_type="model", exist_ok=True)
    elif private is not None and bool(before.private) != private:
        kind = "private" if before.private else "public"
        raise UserError(
            f"hf://{repository}: is {kind} already, and private is {str(private).lower()}; leave private out, or "
            f"change it at {hub.constants.ENDPOINT}/{repository}/settings"
        )
    if branch is not None:
        api.create_branch(repository, branch=branch, repo_type="model", exist_ok=True)
    head = api.model_info(repository, revision=branch).sha
    content = {name: str(file) if isinstance(file, Path) else file for name, file in files.items()}
    operations = [hub.CommitOperationAdd(path_in_repo=name, path_or_fileobj=file) for name, file in content.items()]
    commit = api.create_commit(
        repository, operations, commit_message=message, revision=branch, repo_type="model", parent_commit=head
    )
    page = f"{hub.constants.ENDPOINT}/{repository}/tree/{commit.oid}"
    return Publication(Address(repository, commit.oid), page, commit.oid != head)


def _look_at(hub: ModuleType, api: Any, repository: str) -> Any:
    """What the hub says of a repository; None: there is none that this token may see."""
    try:
        return api.model_info(repository)
    except hub.errors.RepositoryNotFoundError as error:
        if isinstance(error, hub.errors.GatedRepoError):
            raise
        return None
