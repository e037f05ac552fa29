"""`python -m svtoolkit` is `svt`."""

from __future__ import annotations

import sys

from svtoolkit.cli import main

if __name__ == "__main__":
    sys.exit(main())
