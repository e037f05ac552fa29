"""Main memory that a process may still take: of the machine, its control group (SLURM, containers), `ulimit -v`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

PROC, CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")


def free_memory(proc: Path = PROC, cgroups: Path = CGROUPS) -> int | None:
    """Bytes that can be taken without swapping; where the system does not tell, half of its memory; None: unknown.

    Args:
        proc, cgroups: where Linux tells it; control groups of version 2.
    """
    limits = [*_of_machine(proc), *_of_control_groups(proc, cgroups), *_of_process(proc)]
    return max(0, min(limits)) if limits else None


def _of_machine(proc: Path) -> Iterator[int]:
    with suppress(OSError, ValueError, KeyError):
        yield 1024 * int(_table(proc / "meminfo", ":")["MemAvailable"].split()[0])
        return
    with suppress(AttributeError, OSError, ValueError):
        yield os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def _of_control_groups(proc: Path, cgroups: Path) -> Iterator[int]:
    """Of the group of this process and those around it; files that were read count as free: they can be dropped."""
    group = None
    with suppress(OSError, ValueError):
        lines = (proc / "self" / "cgroup").read_text().splitlines()
        group = next((line[3:].strip("/") for line in lines if line.startswith("0::")), None)
    if group is None:
        return
    for folder in [cgroups / group, *(cgroups / group).parents]:
        if not folder.is_relative_to(cgroups):
            return
        with suppress(OSError, ValueError, KeyError):  # without a limit it says max, the outermost has no file
            limit, used = (int((folder / f"memory.{name}").read_text()) for name in ("max", "current"))
            yield limit - used + int(_table(folder / "memory.stat", " ")["inactive_file"])


def _of_process(proc: Path) -> Iterator[int]:
    with suppress(ImportError, OSError, ValueError, KeyError):
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        if limit != resource.RLIM_INFINITY:
            yield limit - 1024 * int(_table(proc / "self" / "status", ":")["VmSize"].split()[0])


def _table(path: Path, separator: str) -> dict[str, str]:
    lines = [line.partition(separator) for line in path.read_text().splitlines()]
    return {name: value for name, _, value in lines}
