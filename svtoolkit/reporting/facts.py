"""What a report says beside its results: program, machine, run, network, and where its parts came from."""

from __future__ import annotations

import datetime
import logging
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from svtoolkit import __version__
from svtoolkit.checkpoints.releases import folder_of, read_release
from svtoolkit.errors import UserError
from svtoolkit.runs.exp_dir import CONFIG
from svtoolkit.runs.provenance import model_behind, read_record, source_commit
from svtoolkit.system.checksum import hash_file
from svtoolkit.system.regular_file import is_regular

log = logging.getLogger(__name__)


def facts_of(
    results: Sequence[dict[str, Any]],
    *,
    model: str | None = None,
    front_end: str | None = None,
    exp_dir: str | None = None,
) -> dict[str, Any]:
    """What is known of program, machine, run and network.

    Args:
        results: each gets its ``network``, that of its own embeddings.
        model, front_end: the released model that is described; None: that of the embeddings, where it is one.
        exp_dir: the run that is described.

    Raises:
        UserError: ``model`` cannot be read.
    """
    facts: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.timezone.utc).date(),
        "svtoolkit": __version__,
        "git commit": source_commit(Path(__file__).resolve().parent),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "machine": f"{platform.system()} {platform.machine()}, {torch.get_num_threads()} threads",
    }
    if torch.cuda.is_available():
        facts["gpu"] = torch.cuda.get_device_name()
    of_results = [model_behind(result["scores_file"]) for result in results]
    networks = {behind: _network(*behind) for behind in dict.fromkeys(of_results) if behind}
    for result, behind in zip(results, of_results, strict=True):
        result["network"] = networks[behind] if behind else {}
    if model is not None:
        facts |= _network(model, front_end, strict=True)
    elif len(networks) == 1 and all(of_results):
        facts |= next(iter(networks.values()))
    if exp_dir is not None:
        saved = Path(exp_dir) / CONFIG
        record = read_record(saved)
        facts["seed"] = record.get("seed")
        facts["config sha256"] = hash_file(saved)
        data = record.get("data")
        facts["training data"] = data.get("train") if isinstance(data, dict) else None
    if isinstance(facts.get("training data"), str):
        facts |= _size_of(Path(facts["training data"]))
    return facts


def _network(folder: str, front_end: str | None, *, strict: bool = False) -> dict[str, Any]:
    """Facts of a released model; none of one that can no longer be read, unless ``strict``."""
    try:
        network, description = read_release(folder, front_end=front_end)
    except UserError:
        if strict:
            raise
        log.warning("%s: the model of the embeddings cannot be read, so that the report does not describe it", folder)
        return {}
    return {
        "model": description.model.get("name"),
        "model folder": folder,
        "parameters": sum(parameter.numel() for parameter in network.parameters()) or None,
        "embedding size": network.embedding_dim,
        "epochs averaged": description.training.get("epochs_averaged"),
        "moving average after step": description.training.get("ema_of_step"),
        "training data": description.training.get("data"),
    }


def locate_model(model: str) -> Path:
    """The folder of a model; of the hub's that cannot be had, one that is not there."""
    try:
        return folder_of(model)
    except UserError as error:
        log.warning("%s", error)
        return Path(model)


def _size_of(folder: Path) -> dict[str, int]:
    """Speakers and utterances of a data directory, where it is still there."""
    tables = {"training speakers": folder / "spk2utt", "training utterances": folder / "utt2spk"}
    return {
        name: sum(1 for line in table.read_bytes().splitlines() if line.strip())
        for name, table in tables.items()
        if is_regular(table)
    }
