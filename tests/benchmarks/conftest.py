"""The benchmarks are no part of the package: Python finds them beside it, however pytest is called."""

from __future__ import annotations

import sys

from paths import ROOT

if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))
