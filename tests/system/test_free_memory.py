"""The memory that is left: the least of machine, control groups and the limit of the process."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from svtoolkit.system.free_memory import free_memory

GIB = 2**30


@pytest.fixture
def system(tmp_path: Path) -> tuple[Path, Path]:
    """A machine with 8 GiB left, and a process in a group without a limit."""
    proc, cgroups = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text(f"MemTotal: 99999999 kB\nMemAvailable:    {8 * GIB // 1024} kB\n")
    (proc / "self" / "cgroup").write_text("0::/slurm/job\n")
    (cgroups / "slurm" / "job").mkdir(parents=True)
    write_group(cgroups / "slurm" / "job", "max", 0, 0)
    return proc, cgroups


def write_group(folder: Path, limit: int | str, used: int, files: int) -> None:
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 5\ninactive_file {files}\n")


def test_without_another_limit_it_is_that_of_the_machine(system: tuple[Path, Path]) -> None:
    assert free_memory(*system) == 8 * GIB


@pytest.mark.parametrize("group", ["slurm/job", "slurm"])
def test_a_group_has_less_whose_files_can_be_dropped(system: tuple[Path, Path], group: str) -> None:
    write_group(system[1] / group, 4 * GIB, 3 * GIB, GIB // 2)
    assert free_memory(*system) == 1.5 * GIB


def test_a_group_beyond_its_limit_has_nothing(system: tuple[Path, Path]) -> None:
    write_group(system[1] / "slurm", GIB, 2 * GIB, 0)
    assert free_memory(*system) == 0


def test_a_limit_of_the_process_counts(system: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    (system[0] / "self" / "status").write_text(f"Name: x\nVmSize:\t {GIB // 1024} kB\n")
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (3 * GIB, 3 * GIB))
    assert free_memory(*system) == 2 * GIB


def test_where_linux_tells_nothing_half_of_all_memory_counts(tmp_path: Path) -> None:
    found = free_memory(tmp_path / "no", tmp_path / "no")
    assert found is not None
    assert found > 2**28
