"""The scripts of recipes run under bash 3.2, which macOS has: they use nothing that is newer."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from paths import ROOT

SCRIPTS = sorted([*ROOT.glob("scripts/*.sh"), *ROOT.glob("recipes/*/*.sh")])

NEWER = {
    "associative arrays": r"\b(declare|local|typeset)\b[^;#]* -\w*A",
    "name references": r"\b(declare|local|typeset)\b[^;#]* -\w*n\b",
    "global declarations": r"\bdeclare\b[^;#]* -\w*g",
    "mapfile": r"\b(mapfile|readarray)\b",
    "coproc": r"\bcoproc\b",
    "&>>": r"&>>",
    "|&": r"\|&",
    "case modification": r"\$\{[\w\[\]@*]+(,,?|\^\^?)",
    "transformations": r"\$\{[\w\[\]@*]+@[A-Za-z]\}",
    "[[ -v ]]": r"\[\[[^]]* -v ",
    "wait -n": r"\bwait -n\b",
    "time formats of printf": r"printf [^;|]*%\(",
    "negative subscripts": r"\[-\d+\]",
    "the end of a slice": r"\$\{[\w\[\]@*]+:[^}:]*:\s*-\d",
    "EPOCHSECONDS": r"\bEPOCH(SECONDS|REALTIME)\b|\bSRANDOM\b|\bBASHPID\b",
    "redirection to a variable": r"\{\w+\}[<>]",
    "lastpipe, globstar": r"\b(lastpipe|globstar|inherit_errexit)\b",
    "case fall-through": r";;?&",
    "patterns of extglob, which are off": r"(==|!=) *[@?+!]\(",
    "an empty pattern with an anchor": r"\$\{[\w\[\]@*]+/[%#]/",
    "quotes in a substitution": r"\$\{[\w\[\]@*]+//?[^}]*\\['\"]",
}
"""What bash 3.2 lacks or takes otherwise -> how it looks."""


def code_of(text: str) -> list[str]:
    """Lines without comments that stand alone or after white space."""
    return [re.sub(r"(^|\s)#.*", "", line) for line in text.splitlines()]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_nothing_is_newer(script):
    found = [
        f"{number}: {name}: {line.strip()}"
        for number, line in enumerate(code_of(script.read_text()), start=1)
        for name, pattern in NEWER.items()
        if re.search(pattern, line)
    ]
    assert not found


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("declare -A own=()", "associative arrays"),
        ("local -n of=${x%%.*}", "name references"),
        ("mapfile -t a < b", "mapfile"),
        ("echo ${x,,}", "case modification"),
        ('echo "${a[0]^}"', "case modification"),
        ("x &>> log", "&>>"),
        ("if [[ -f a && -v x ]]; then", "[[ -v ]]"),
        ("echo ${a[-1]}", "negative subscripts"),
        ("printf '%(%F)T' -1", "time formats of printf"),
        ('[[ "$a" == @(b|c) ]]', "patterns of extglob, which are off"),
        ('x=("${a[@]/%//b}")', "an empty pattern with an anchor"),
        ("y=${x//\\'/z}", "quotes in a substitution"),
        ("exec {lock}>file", "redirection to a variable"),
    ],
)
def test_it_would_be_seen(line, name):
    assert re.search(NEWER[name], line)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_empty_arrays_are_unset_before_bash_4_4(script):
    """`set -u` ends a recipe there; stages.sh has it where it can be had, and scripts without arrays everywhere."""
    text = "\n".join(code_of(script.read_text()))
    if script.name == "stages.sh":
        assert "(BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] < 404)); then set +u; else set -u; fi" in text
    elif re.search(r"\[@\]|\[\*\]", text):
        assert not re.search(r"^set -\w*u", text, re.MULTILINE)


@pytest.mark.skipif(shutil.which("bash") is None, reason="recipes need bash")
def test_bash_reads_them():
    for script in SCRIPTS:
        subprocess.run(["bash", "-n", script], check=True)


@pytest.mark.skipif(shutil.which("bash") is None, reason="recipes need bash")
def test_words_are_appended_as_they_are(tmp_path):
    body = """. '%s'
prepare=(a)
append prepare 'x $y "z"' "it's"
append prepare
printf '<%%s>' "${prepare[@]}"
append 'a b' c"""
    done = subprocess.run(
        ["bash", "-c", body % (ROOT / "scripts" / "stages.sh")], capture_output=True, text=True, check=False
    )
    assert done.stdout == """<a><x $y "z"><it's>"""
    assert (done.returncode, "'a b' is no name of an array" in done.stderr) == (1, True)
