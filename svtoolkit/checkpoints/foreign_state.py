"""The weights in a file that another toolkit wrote with ``torch.save``; nothing in it is executed."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from svtoolkit.errors import UserError
from svtoolkit.system.regular_file import is_regular

INNER = "state_dict"
"""Key under which some files keep the weights, beside other things."""


def read_state(path: Path) -> dict[str, Tensor]:
    """The state dict of a file of ``torch.save``, tensors on the CPU.

    Raises:
        UserError: no such file, none of ``torch.save``, one with anything but plain data in it, or without weights.
    """
    if not is_regular(path):
        raise UserError(f"{path}: there is no such file; expected the weights of a released model")
    content = _read(path)
    if isinstance(content, dict) and isinstance(content.get(INNER), dict):
        content = content[INNER]
    if not isinstance(content, dict):
        raise UserError(f"{path}: holds a {type(content).__name__}, expected the state dict of a network")
    for name, value in content.items():
        if not (isinstance(name, str) and isinstance(value, Tensor)):
            raise UserError(
                f"{path}: {name!r} is a {type(value).__name__}, expected a state dict, names of weights and tensors"
            )
    return dict(content)


def _read(path: Path) -> Any:
    """The one place where a foreign pickle is read."""
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except pickle.UnpicklingError as error:
        raise UserError(
            f"{path}: is no file of weights alone, and nothing else in it is read or run "
            f"({_first_sentence(error)}); save the state dict of the network again, without anything beside it"
        ) from error
    except Exception as error:  # torch raises what the parsing of a damaged file happens to raise
        raise UserError(f"{path}: cannot be read ({_first_sentence(error)}); copy it again") from error


def _first_sentence(error: Exception) -> str:
    """Of torch's pages of advice what it met; the advice would be to run what is in the file."""
    text = " ".join(str(error).split())
    met = text.partition("WeightsUnpickler error: ")[2] or text
    return met.partition(". ")[0].partition(" Please ")[0][:160] or type(error).__name__
