"""Every command of README.md, executed in the order it stands there; the long ones in a reduced form."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT
from warm_svt import in_bash

pytest.importorskip("espeakng_loader", reason="the extra `demo` is not installed: pip install espeakng-loader")

TRAINING = (
    "model.base_width=4 features.num_bins=24 data.crop_frames=50 data.speeds=[1.0] data.num_workers=0 "
    "trainer.epochs=2 trainer.batch_size=8 trainer.threads=1 validation.speakers=2"
)
CORPUS = "prepare.speakers=9 prepare.utterances_per_speaker=4 prepare.eval_speakers=4"
RESAMPLES = "evaluate.resamples=20 report.resamples=20"
SCORING = f"score.top_n=3 {RESAMPLES}"
REDUCED = {
    "bash recipes/mini/run.sh": f"{CORPUS} {TRAINING} {SCORING} --exp-dir recipes/mini/exp/synthetic --nj 1",
    "bash recipes/mini/run.sh --stage 5 score.top_n=30": (
        f"{CORPUS} {TRAINING} score.top_n=4 {RESAMPLES} --exp-dir recipes/mini/exp/synthetic --nj 1"
    ),
    "bash recipes/mini/run.sh --data exp/my_data --exp-dir exp/mine": f"{TRAINING} {SCORING} --nj 1",
    "svt train experiment=mini model.base_width=24": TRAINING,
    "svt memory": "model=revnet_tiny",
    "bash scripts/test.sh": "--version",
}
"""Beginning of a command -> what makes it short; the longest beginning that fits counts."""


def blocks(language: str) -> list[str]:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def reduced(command: str) -> str:
    fitting = [begin for begin in REDUCED if command.startswith(begin)]
    return f"{command} {REDUCED[max(fitting, key=len)]}" if fitting else command


def placed(text: str, folder: Path) -> str:
    """The same with artefacts in ``folder`` instead of the source tree."""
    text = re.sub(r"recipes/mini/exp/", f"{folder}/recipe_exp/", text)
    text = re.sub(r"(?<![\w/])exp/", f"{folder}/exp/", text)
    return re.sub(r"(?<![\w/])(a\.wav|b\.wav|my_speech)\b", rf"{folder}/\1", text)


def run(command: str, folder: Path, program: Path) -> None:
    path = f"{Path(sys.prefix) / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "SVT_VENV": sys.prefix, "OMP_NUM_THREADS": "1", **in_bash(program)}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", placed(reduced(command), folder)],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    expected = (0, 2) if command.startswith(("svt verify", "svt identify")) else (0,)  # 2: another speaker
    assert done.returncode in expected, f"{command}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"


def add_own_speech(folder: Path) -> None:
    """What a reader has: two recordings and a folder per speaker."""
    wav = folder / "recipe_exp" / "synthetic" / "data" / "wav"
    shutil.copytree(wav, folder / "my_speech")
    first, second = sorted(wav.rglob("*.flac"))[:2]
    shutil.copyfile(first, folder / "a.wav")
    shutil.copyfile(second, folder / "b.wav")


@pytest.mark.timeout(1200)  # many commands, one after the other
def test_the_commands_run_as_they_stand(tmp_path: Path, warm_svt: Path) -> None:
    commands = [line for block in blocks("bash") for line in block.splitlines() if line.strip()]
    assert len(commands) >= 10
    for begin in REDUCED:
        assert any(command.startswith(begin) for command in commands), f"{begin!r} is in README.md no more"
    for command in commands:
        if command.startswith("source "):
            continue  # the environment of the tests takes its place
        run(command, tmp_path, warm_svt)
        if command == "bash recipes/mini/run.sh":
            add_own_speech(tmp_path)
    assert (tmp_path / "exp" / "mine" / "report" / "index.html").is_file()
    scope: dict[str, object] = {}
    for block in blocks("python"):
        exec(compile(placed(block, tmp_path), "README.md", "exec"), scope)
    assert scope["embedding"].shape == (256,)  # type: ignore[attr-defined]
    assert -1 <= scope["score"] <= 1  # type: ignore[operator]
    assert scope["result"].same_speaker == (scope["score"] >= 0.4)  # type: ignore[attr-defined,operator]


def test_links_lead_somewhere() -> None:
    for document in [
        ROOT / "README.md",
        ROOT / "RESULTS.md",
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("recipes/*/README.md"),
    ]:
        for target in re.findall(r"\]\(([^)#]+)\)", document.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (document.parent / target).exists(), f"{document}: {target}"
