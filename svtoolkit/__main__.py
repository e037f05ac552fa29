"""The program svt, which `python -m svtoolkit` is too."""

from __future__ import annotations

import sys

from svtoolkit.system.signals import leave_on_interrupt


def main() -> int:
    """``svtoolkit.cli.main``, interrupted in a word while it is still being imported, too."""
    with leave_on_interrupt():
        from svtoolkit.cli import main as run
    return run()


if __name__ == "__main__":
    sys.exit(main())
