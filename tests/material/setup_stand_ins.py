"""A machine on which scripts/setup.sh runs in a test: stand-ins for Python and pip, no network."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from paths import ROOT

TOOLS = "bash env awk sed sort tr paste find dirname mkdir rm mv cp cat sleep touch nproc getconf".split()

# Stands for an interpreter: makes "environments" that hold a copy of itself, notes what pip is asked for, and does
# what the file `behaviour` beside the notes says. Code goes to the real Python, which takes itself for this one.
STAND_IN = r"""#!/usr/bin/env bash
notes={notes}
behaviour=$(cat "$notes/behaviour" 2>/dev/null || true)
case "$*" in
    '-m venv --without-pip '*)
        echo "venv of {version}" >>"$notes/calls"
        mkdir -p "$4/bin" "$4/lib/python3.11/site-packages"
        touch "$4/pyvenv.cfg"
        [[ "$behaviour" != *half-made* ]] || exit 9
        cp "$0" "$4/bin/python"
        ;;
    '-m ensurepip') [[ "$behaviour" != *no-ensurepip* ]] ;;
    '-m pip install --target '*)
        [[ "$behaviour" != *no-system-pip* ]] || exit 1
        echo "system pip to $5" >>"$notes/calls"
        ;;
    '-m pip install '*)
        printf '%s\n' "$*" >>"$notes/calls"
        printf '%s\n' "PYTHONPATH=${{PYTHONPATH:-}} PIP_USER=${{PIP_USER:-}}" >>"$notes/environment"
        if [[ "$behaviour" == *hang* ]]; then touch "$notes/hangs"; sleep 60; fi
        cat "$notes/output" 2>/dev/null
        [[ "$behaviour" != *fail* ]]
        ;;
    '-m pytest '*)
        echo "$PWD OMP_NUM_THREADS=$OMP_NUM_THREADS HYDRA_FULL_ERROR=${{HYDRA_FULL_ERROR:-}} $*" >>"$notes/tests"
        [[ "$behaviour" != *tests-fail* ]] || exit 3
        ;;
    -V) echo "Python {version}" ;;
    -c*)
        pretence="import sys; sys.version_info = tuple(map(int, '{version}'.split('.'))); sys._base_executable = '$0'"
        pretence+="; sys.modules['pip'] = $([[ "$behaviour" != *lost-pip* ]] && echo sys || echo None)"
        if [[ "$behaviour" == *no-ensurepip* ]]; then pretence+="; sys.modules['ensurepip'] = None"; fi
        exec {real} -IS -c "$pretence; exec(sys.argv.pop())" "$2"
        ;;
    *) echo "stand-in: unexpected: $*" >&2; exit 99 ;;
esac
"""


class Machine:
    """A copy of what setup.sh reads, and a PATH with nothing on it but what it needs and what a test puts there."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "my tree"
        self.programs = folder / "programs"
        self.notes = folder / "notes"
        self.elsewhere = folder / "elsewhere"
        self.environment: dict[str, str] = {}
        for made in (self.root / "scripts", self.programs, self.notes, self.elsewhere):
            made.mkdir(parents=True)
        for script in (ROOT / "scripts").glob("*.sh"):
            shutil.copy(script, self.root / "scripts")
        for name in ("pyproject.toml", "constraints.txt", "tests/oracles.txt", ".ci/run"):
            (self.root / name).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, self.root / name)
        for tool in TOOLS:
            found = shutil.which(tool)
            if found is not None:
                (self.programs / tool).symlink_to(found)
        self.venv = self.root / ".venv"

    def program(self, name: str, body: str) -> Path:
        path = self.programs / name
        path.unlink(missing_ok=True)
        path.write_text(body if body.startswith("#!") else f"#!/usr/bin/env bash\n{body}\n")
        path.chmod(0o755)
        return path

    def python(self, name: str = "python3", version: str = "3.11.7") -> Path:
        text = STAND_IN.format(notes=f"'{self.notes}'", version=version, real=f"'{sys.executable}'")
        return self.program(name, text)

    def behave(self, behaviour: str, output: str = "") -> None:
        (self.notes / "behaviour").write_text(behaviour)
        (self.notes / "output").write_text(output)

    @property
    def calls(self) -> list[str]:
        notes = self.notes / "calls"
        return notes.read_text().splitlines() if notes.exists() else []

    @property
    def installs(self) -> list[str]:
        return [call for call in self.calls if " install " in call]

    def start(self, *arguments: str, script: str = "scripts/setup.sh") -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(self.root / script), *arguments],
            cwd=self.elsewhere,
            env={"PATH": str(self.programs), "HOME": str(self.elsewhere), **self.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            # A test runner in the background may ignore Ctrl-C, and bash cannot undo what it inherits.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    def run(self, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments, script=script)
        output, errors = process.communicate(timeout=60)
        return subprocess.CompletedProcess(process.args, process.returncode, output, errors)

    def setup(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.run("scripts/setup.sh", *arguments)

    def wait_for(self, path: Path) -> None:
        deadline = time.monotonic() + 30
        while not path.exists():
            assert time.monotonic() < deadline, f"{path} did not appear"
            time.sleep(0.02)
