"""scripts/stages.sh: options that a recipe declares, where it keeps its marks, and parts of a stage."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from paths import ROOT

STAGES = ROOT / "scripts" / "stages.sh"

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="recipes need bash")

OWN = r"""
own_options=("--source KIND: files or shards: what is read" "--no-lm: without fine-tuning" "--vox1 DIR: VoxCeleb1")
own_source=files own_no_lm=no takes_data=""
parse_options "$@"
printf '%s|' "$own_source" "$own_no_lm" "${own_vox1:-}" "$nj"; echo
printf '<%s>' "${overrides[@]}"; echo
"""


def run_recipe(folder: Path, body: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    script = folder / "run.sh"
    script.write_text(f"#!/usr/bin/env bash\n. '{STAGES}'\n{body}\n")
    command = ["bash", str(script), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def test_a_recipe_s_own_options_are_read_among_the_shared_ones(tmp_path: Path) -> None:
    words = ["--no-lm", "--nj", "3", "--vox1", "a b", "source=3", "--source=shards", "vox1=c"]
    done = run_recipe(tmp_path, OWN, *words)
    assert done.stdout.splitlines() == ["shards|yes|a b|3|", "<source=3><vox1=c>"], done.stderr
    assert run_recipe(tmp_path, OWN, "--nj", "1").stdout.splitlines() == ["files|no||1|", "<>"]


def test_help_tells_a_recipe_s_own_options_and_their_values(tmp_path: Path) -> None:
    shown = run_recipe(tmp_path, OWN, "--help").stdout.splitlines()
    assert "  --source KIND    files or shards: what is read (files)" in shown
    assert "  --no-lm          without fine-tuning (no)" in shown
    assert "  --vox1 DIR       VoxCeleb1 (none)" in shown
    assert any(line.startswith("  --stop-stage N   end after stage N") for line in shown)
    assert not any("--data" in line for line in shown)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "x"], "unknown option '--data': known are --source --no-lm --vox1 --stage --stop-stage"),
        (["--vox2", "x"], "unknown option '--vox2'"),
        (["--vox1"], "--vox1 needs a value"),
        (["--vox1", "--no-lm"], "--vox1 needs a value"),
        (["--source="], "--source needs a value"),
        (["--no-lm=no"], "--no-lm takes no value, found 'no'"),
        (["--no-lm", "yes"], "'yes' is neither an option nor an override"),
    ],
)
def test_wrong_options_are_named(arguments: list[str], message: str, tmp_path: Path) -> None:
    done = run_recipe(tmp_path, OWN, *arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert message in done.stderr


def test_options_of_one_recipe_are_unknown_to_another(tmp_path: Path) -> None:
    done = run_recipe(tmp_path, 'parse_options "$@"', "--vox1", "x")
    assert (
        "unknown option '--vox1': known are --stage --stop-stage --data --exp-dir --nj --no-setup --help\n"
        in done.stderr
    )


def test_stages_may_keep_their_marks_elsewhere(tmp_path: Path) -> None:
    body = """
    exp_dir=exp/$1
    for marks_dir in shared ''; do
        stage_fresh 1 input || { stage_begin 1 "of ${marks_dir:-$exp_dir}"; stage_done 1 input; }
    done
    """
    first = run_recipe(tmp_path, body, "one").stdout
    assert re.findall(r"=== stage 1: (of \S+)", first) == ["of shared", "of exp/one"]
    second = run_recipe(tmp_path, body, "two").stdout
    assert "rm 'shared/.stages/1'*" in second
    assert re.findall(r"=== stage 1: (of \S+)", second) == ["of exp/two"]
    missing = run_recipe(tmp_path, "exp_dir=exp marks_dir=shared\nrequire_file model 'the network'", "one")
    assert "rm -r 'shared/.stages'" in missing.stderr


PARTS = r"""
exp_dir=exp
stage_begin 2 "two parts"
for part in first second; do
    if ! part_fresh 2.$part "$part.txt" option; then
        echo "made $part"
        [[ ! -e stop-$part ]] || exit 1
        part_done 2.$part "$part.txt" option
    fi
done
stage_done 2 first.txt second.txt
"""


def test_a_stopped_stage_goes_on_with_its_first_missing_part(tmp_path: Path) -> None:
    for name in ("first.txt", "second.txt", "stop-second"):
        (tmp_path / name).write_text(name)

    def made() -> list[str]:
        return re.findall(r"made (\w+)", run_recipe(tmp_path, PARTS).stdout)

    assert made() == ["first", "second"]
    assert not (tmp_path / "exp" / ".stages" / "2").exists()
    (tmp_path / "stop-second").unlink()
    assert made() == ["second"]
    assert made() == []
    (tmp_path / "first.txt").write_text("changed")
    assert made() == ["first"]
