"""The mark of a key that has to be given."""

from __future__ import annotations

REQUIRED = "???"
"""Marks a key without a default: Hydra refuses to run until it is given."""
