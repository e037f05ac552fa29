"""svt completion: what a shell evaluates to complete commands, keys and choices on Tab."""

from __future__ import annotations

from svtoolkit.composition.shell_scripts import script_for
from svtoolkit.config import CompletionConfig


def run(config: CompletionConfig, command_line: str) -> int:
    """Print the script."""
    print(script_for(config.shell), end="")
    return 0
