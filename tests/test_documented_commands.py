"""Commands in README.md and docs/ mean the same in zsh, which expands what bash leaves alone."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from paths import ROOT

PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("recipes/*/README.md"))]

PROGRAMS = r"(?:\$ )?(?:[A-Z_]+=\S+ )*(?:svt|pip|python|bash|torchrun|source|eval)\s"


def commands_of(text: str) -> list[str]:
    """Of blocks, fenced or indented, and in a line's backticks; without those that say how a command looks."""
    text = re.sub(r"\\\n\s*", " ", text)
    block = "\n".join(re.findall(r"```(?:bash|sh)?\n(.*?)```", text, flags=re.DOTALL))
    block += "\n" + "\n".join(re.findall(r"^(?: {4}|\t)(.*)$", text, flags=re.MULTILINE))
    lines = [line.strip() for line in block.splitlines() if re.match(PROGRAMS, line.strip())]
    inline = [word for word in re.findall(r"`([^`\n]+)`", text) if re.match(PROGRAMS, word)]
    return [line for line in lines + inline if not re.search(r"<[a-z]+>|\.\.\.", line)]


def expanded_by_zsh(command: str) -> str:
    """What of a command zsh takes for a pattern, a named folder or a list; empty: nothing."""
    bare = re.sub(r"'[^']*'|\"[^\"]*\"", "", re.sub(r"\s#.*", "", command))
    return " ".join(word for word in bare.split() if re.search(r"[][?*{}]", word) or re.match(r"[~=]", word))


def test_nothing_is_expanded():
    found = {f"{page.name}: {command}" for page in PAGES for command in commands_of(page.read_text(encoding="utf-8"))}
    assert len(found) > 80
    assert not [command for command in found if expanded_by_zsh(command.partition(": ")[2])]


@pytest.mark.parametrize(
    ("command", "word"),
    [
        ("svt train data.speeds=[1.0] seed=1", "data.speeds=[1.0]"),
        ("pip install .[demo]", ".[demo]"),
        ("svt train ~optim.nesterov", "~optim.nesterov"),
        ("svt train 'data.speeds=[1.0]' \"a=[b]\" seed=1,2 # [why]", ""),
    ],
)
def test_it_would_be_seen(command, word):
    (found,) = commands_of(f"text\n\n    {command}\n")
    assert expanded_by_zsh(found) == word


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_takes_them_as_they_stand(tmp_path):
    blocks = re.findall(r"```bash\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line.strip()]
    stand_ins = "\n".join(
        f'{name}() {{ print -r -- {name} "$@" }}' for name in ("svt", "bash", "source", "pip", "eval")
    )
    script = f"disable source eval\n{stand_ins}\n" + "\n".join(lines)
    done = subprocess.run(["zsh", "-f", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [line.replace("'", "").replace('"', "") for line in lines]
