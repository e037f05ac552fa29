"""The program svt, which `python -m svtoolkit` is too."""

from __future__ import annotations

import gc
import sys

from svtoolkit.system.signals import leave_on_interrupt


def main() -> int:
    """``svtoolkit.cli.main``, interrupted in a word while it is still being imported, too."""
    with leave_on_interrupt():
        from svtoolkit.cli import main as run
    try:
        return run()
    finally:
        gc.freeze()  # on its way out Python would look through all of torch for circles, again and again


if __name__ == "__main__":
    sys.exit(main())
