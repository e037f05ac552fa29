"""What a figure was measured on: goes into the JSON of every benchmark."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path


def describe_machine(*packages: str) -> dict[str, object]:
    """System, processor, cores, Python, and the versions of these packages."""
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor_name(),
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        **{package: version(package) for package in packages},
    }


def _processor_name() -> str:
    """As Linux names it; what Python knows elsewhere."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text(encoding="utf-8").splitlines() if information.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
