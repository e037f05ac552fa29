"""The program svt, which `python -m svtoolkit` is too."""

from __future__ import annotations

import signal
import sys


def main() -> int:
    """``svtoolkit.cli.main``, interrupted in a sentence while it is still being imported, too."""
    try:
        from svtoolkit.cli import main as run
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    return run()


if __name__ == "__main__":
    sys.exit(main())
