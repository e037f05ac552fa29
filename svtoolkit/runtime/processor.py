"""What the processor can do, as far as the speed of networks depends on it."""

from __future__ import annotations

from pathlib import Path

FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "avx512_bf16", "amx_int8", "amx_bf16")
"""Names of Linux."""


def processor_flags() -> list[str]:
    """Of ``FLAGS`` those that the processor has; empty where the system does not say."""
    info = Path("/proc/cpuinfo")
    found = info.read_text().split() if info.is_file() else []
    return [flag for flag in FLAGS if flag in found]
