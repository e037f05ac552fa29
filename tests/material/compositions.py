"""Configurations composed from words of the command line."""

from __future__ import annotations

from hypothesis import strategies as st

from svtoolkit import composition

GIVEN = ["exp_dir=exp/x", "data.train=data/train"]
NASTY = st.text(alphabet="'\"\\${}()[],=:# \t\n%~+aé日", min_size=1)


def load(*overrides: str, command: str = "train"):
    """The configuration of a command; of `svt train` with what it cannot do without."""
    return composition.load(command, [*(GIVEN if command == "train" else []), *overrides])
