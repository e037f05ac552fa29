"""svt publish: a released model of ours and its card on the Hugging Face Hub, or in a folder to look at."""

from __future__ import annotations

import io
import logging
import re
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from svtoolkit.checkpoints.hub import SCHEME, Address, is_address, parse_address
from svtoolkit.checkpoints.publication import publish
from svtoolkit.checkpoints.released import DESCRIPTION, WEIGHTS, content_of, read_released
from svtoolkit.checkpoints.releases import require_release
from svtoolkit.config import PublishConfig
from svtoolkit.errors import UserError, hide_credentials
from svtoolkit.reporting.model_card import write_card
from svtoolkit.reporting.result_file import read_result
from svtoolkit.runs.provenance import model_behind
from svtoolkit.system.atomic import atomic_folder
from svtoolkit.system.checksum import hash_file
from svtoolkit.system.output import say_next
from svtoolkit.system.plain_data import MalformedError, read_text, write_yaml
from svtoolkit.system.regular_file import is_regular

log = logging.getLogger(__name__)

CARD = "README.md"

_COMMIT = re.compile("[0-9a-f]{40}")
_LICENSE = re.compile(r"[a-z0-9][a-z0-9.-]*")


def run(config: PublishConfig, _command_line: str) -> int:
    """Check the model, write its card, and publish both in one commit."""
    address = _address(config)
    out = None if config.out is None else Path(config.out)
    if out is not None and (out.exists() or out.is_symlink()):
        raise UserError(f"{out}: is there already; choose another folder with out=DIR, or remove it")
    weights, network_name, files = _gather(config, address)
    if out is not None:
        with atomic_folder(out) as folder:
            for name, content in files.items():
                (folder / name).write_bytes(content)
            shutil.copyfile(weights, folder / WEIGHTS)
        log.info("written to %s: %s; nothing was uploaded", out, ", ".join([*files, WEIGHTS]))
        return 0
    message = config.message or f"{network_name}, a model of svtoolkit"
    done = publish(address, {**files, WEIGHTS: weights}, message=message, private=config.private)
    log.info(
        "%s: %s", done.page, "published" if done.is_new else "holds the same already, so that there is no new commit"
    )
    say_next("svt", "verify", str(done.address), "A.wav", "B.wav")
    return 0


def _address(config: PublishConfig) -> Address:
    if config.license is not None and not _LICENSE.fullmatch(config.license):
        raise UserError(
            f"license is {config.license!r}, expected a name of the hub's list, such as apache-2.0 or cc-by-4.0"
        )
    address = parse_address(config.repo if is_address(config.repo) else f"{SCHEME}{config.repo}")
    if address.revision is not None:
        raise UserError(f"repo is {config.repo}, expected org/name; say the branch with revision={address.revision}")
    if config.revision is not None and _COMMIT.fullmatch(config.revision):
        raise UserError(f"revision is the commit {config.revision}, expected a branch, which can get another commit")
    return parse_address(f"{address}@{config.revision}") if config.revision else address


def _gather(config: PublishConfig, address: Address) -> tuple[Path, str, dict[str, bytes]]:
    """The file of the weights, the network's name, and the content of the other files."""
    if is_address(config.model):
        raise UserError(
            f"{config.model}: is on the hub already; make a copy with "
            f"`svt convert-model model={config.model} out=DIR`, and publish that folder"
        )
    release = require_release(config.model)
    if not release.is_ours:
        raise UserError(
            f"{config.model}: is a release of {release.kind.name}; make it ours with "
            f"`svt convert-model model={config.model} out=DIR`, and publish that folder under the licence that it has"
        )
    network, description = read_released(release.weights.parent)
    digest = hash_file(release.weights)
    description = replace(
        description,
        training=_without_secrets(description.training),
        verification=_without_secrets(description.verification),
        weights_sha256=digest,
    )
    results = [_result(path, config.model, digest) for path in config.results]
    if config.card is None:
        parameters = sum(parameter.numel() for parameter in network.parameters())
        card = write_card(address, description, parameters, results, license=config.license)
    else:
        card = _own_card(config)
    text = io.StringIO()
    write_yaml(content_of(description), text)
    name = str(description.model["name"])
    return release.weights, name, {CARD: card.encode(), DESCRIPTION: text.getvalue().encode()}


def _own_card(config: PublishConfig) -> str:
    """A card that the user has written."""
    given = [key for key in ("results", "license") if asdict(config)[key]]
    if given:
        raise UserError(
            f"card is a file that is taken as it is, so that {' and '.join(given)} say nothing; leave them out"
        )
    path = Path(str(config.card))
    if not is_regular(path):
        raise UserError(f"{path}: there is no such file; expected a README.md; `svt publish out=DIR` writes one")
    try:
        return read_text(path)
    except MalformedError as error:
        raise UserError(f"{path}: is no text ({error}); expected a README.md") from error


def _result(path: str, model: str, digest: str) -> dict[str, Any]:
    """A result, refused where a record says that it is another model's."""
    result = read_result(Path(path))
    eer = result["eer"]
    if isinstance(eer, bool) or not isinstance(eer, int | float) or not 0 <= eer <= 1:
        raise UserError(f"{path}: eer is {eer!r}, expected a share from 0 to 1; run `svt evaluate` again")
    behind = model_behind(result["scores_file"])
    if behind is None:
        log.warning("%s: no record says which model its embeddings are of; they are taken for those of %s", path, model)
        return result
    other = behind.path
    try:
        found = hash_file(require_release(other).weights)
    except UserError as error:
        raise UserError(f"{path}: is of the model {other}, which cannot be compared with {model}: {error}") from error
    if found != digest:
        raise UserError(
            f"{path}: is of the model {other}, whose weights are not those of {model}; evaluate the model that is "
            "published, or leave the file out"
        )
    return result


def _without_secrets(content: Any) -> Any:
    """Nested plain data without credentials of URLs and the folder of the user's home."""
    if isinstance(content, dict):
        return {key: _without_secrets(value) for key, value in content.items()}
    if isinstance(content, list):
        return [_without_secrets(value) for value in content]
    return hide_credentials(content).replace(str(Path.home()), "~") if isinstance(content, str) else content
