"""svt copy: an experiment or a preset of svtoolkit as a file of one's own."""

from __future__ import annotations

import logging
from pathlib import Path

from svtoolkit.composition.catalogue import EXPERIMENT
from svtoolkit.composition.shipped import shipped_names, shipped_text
from svtoolkit.config import CopyConfig
from svtoolkit.errors import UserError
from svtoolkit.system.atomic import atomic_write
from svtoolkit.system.output import say_next

log = logging.getLogger(__name__)


def run(config: CopyConfig, command_line: str) -> int:
    """List what there is, print one, or write it to a file."""
    if config.name is None:
        print("\n".join(shipped_names()))
        return 0
    text = shipped_text(config.name)
    if config.out is None:
        print(text, end="")
        return 0
    out = Path(config.out)
    if out.exists() or out.is_symlink():
        raise UserError(f"{out}: is there already; choose another file with out=FILE, or remove it")
    if out.suffix != ".yaml":
        raise UserError(f"out is {out}, expected the name of a file that ends with .yaml")
    group = config.name.partition("/")[0]
    if group == EXPERIMENT:
        words = [f"{EXPERIMENT}={out}"]
    else:
        words = [f"{group}={out.stem}", "--config-dir", str(out.absolute().parents[1])]
        if out.absolute().parent.name != group:
            raise UserError(
                f"out is {out}: a preset of {group} is found in a folder of that name; write out={group}/{out.name}"
            )
    with atomic_write(out) as stream:
        stream.write(text)
    log.info("%s: %s", out, config.name)
    say_next("svt", "train", *words)
    return 0
