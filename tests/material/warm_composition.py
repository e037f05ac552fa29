"""Composes a configuration when it is imported: processes forked afterwards find Hydra's plug-ins and parser warm."""

from __future__ import annotations

import gc
from pathlib import Path

from tiny_runs import command_words, tiny_config

from svtoolkit import composition

composition.load("train", command_words(tiny_config(Path("data"), Path("exp"))))
gc.freeze()  # nobody looks through what was imported again, in any of the processes
