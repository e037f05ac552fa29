"""constraints.txt against the requirements of pyproject.toml."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from setup_stand_ins import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def test_constraints_pin_every_requirement() -> None:
    """Each requirement of the package, the extras demo, dev and docs and the build has one version for each Python."""
    packaging_requirements = pytest.importorskip("packaging.requirements")
    pins: dict[str, list[Any]] = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if not line.startswith("#"):
            pin = packaging_requirements.Requirement(line)
            assert [specifier.operator for specifier in pin.specifier] == ["=="], line
            pins.setdefault(pin.name.lower().replace("_", "-"), []).append(pin)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    wanted = project["project"]["dependencies"] + project["build-system"]["requires"]
    for text in [*wanted, *extras["demo"], *extras["dev"], *extras["docs"]]:
        requirement = packaging_requirements.Requirement(text)
        candidates = pins.get(requirement.name.lower().replace("_", "-"), [])
        for python in ("3.10", "3.11", "3.12", "3.13"):
            environment = {"python_version": python, "python_full_version": f"{python}.0", "sys_platform": "linux"}
            fitting = [pin for pin in candidates if pin.marker is None or pin.marker.evaluate(environment)]
            assert len(fitting) == 1, f"{requirement.name} for Python {python}: {fitting}"
            version = next(iter(fitting[0].specifier)).version
            assert requirement.specifier.contains(version), f"{text} excludes the pinned {version}"
