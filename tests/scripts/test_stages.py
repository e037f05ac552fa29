"""scripts/stages.sh: options, marks of finished stages, checks and logging, each through a small recipe run by bash."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from paths import ROOT

STAGES = ROOT / "scripts" / "stages.sh"

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="recipes need bash")


def recipe_file(folder: Path, body: str) -> Path:
    script = folder / "run.sh"
    script.write_text(f"#!/usr/bin/env bash\n. '{STAGES}'\n{body}\n")
    return script


def run_recipe(folder: Path, body: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["bash", str(recipe_file(folder, body)), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


SHOW_OPTIONS = r"""
exp_dir=exp/default data_dirs=(data/default)
parse_options "$@"
printf '%s|' "$stage" "$stop_stage" "$exp_dir" "$nj"; echo
printf '<%s>' "${data_dirs[@]}"; echo
printf '<%s>' "${overrides[@]}"; echo
"""


def test_options_are_read_and_the_rest_are_overrides(tmp_path: Path) -> None:
    done = run_recipe(
        tmp_path,
        SHOW_OPTIONS,
        *["--stage", "2", "--stop-stage=08", "model=resnet18", "--data", "a b", "+x.y=1 2", "--data=c"],
        *["--nj", "3", "~trainer.amp", "--exp-dir", "exp/my run", "note=--stage"],
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "2|8|exp/my run|3|",
        "<a b><c>",
        "<model=resnet18><+x.y=1 2><~trainer.amp><note=--stage>",
    ]


def test_options_are_read_with_underscores_too(tmp_path: Path) -> None:
    done = run_recipe(
        tmp_path, SHOW_OPTIONS, "--stop_stage", "5", "--exp_dir=exp/a_b", "--data", "c_d", "--nj=1", "data.x_y=1"
    )
    assert done.stdout.splitlines() == ["0|5|exp/a_b|1|", "<c_d>", "<data.x_y=1>"], done.stderr


def test_defaults_of_the_recipe_stay_without_options(tmp_path: Path) -> None:
    done = run_recipe(tmp_path, SHOW_OPTIONS)
    assert done.returncode == 0, done.stderr
    first, data, overrides = done.stdout.splitlines()
    assert re.fullmatch(r"0\|1000\|exp/default\|[1-9]\d*\|", first)
    assert data == "<data/default>"
    assert overrides == "<>"


def test_help_names_every_option_and_the_recipe(tmp_path: Path) -> None:
    done = run_recipe(tmp_path, f"help_message='Trains a toy.'\n{SHOW_OPTIONS}echo not reached", "--help")
    assert done.returncode == 0
    for word in ("Trains a toy.", "run.sh", "--stage N", "--stop-stage N", "--data DIR", "--exp-dir DIR", "--nj N"):
        assert word in done.stdout
    assert "data/default" in done.stdout
    assert "not reached" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--stages", "2"],
            "unknown option '--stages': known are --stage --stop-stage --data --exp-dir --nj --no-setup --help",
        ),
        (["--lr=2"], "unknown option '--lr'"),
        (["--stop_at=2"], "unknown option '--stop_at'"),
        (["-j", "2"], "unknown option '-j'"),
        (["--stage"], "--stage needs a value"),
        (["--data", "--nj", "2"], "--data needs a value"),
        (["--exp-dir="], "--exp-dir needs a value"),
        (["--stage", "two"], "--stage takes a whole number of 0 or more, found 'two'"),
        (["--stage", "-1"], "--stage takes a whole number of 0 or more, found '-1'"),
        (["--stop-stage="], "--stop-stage takes a whole number of 0 or more, found ''"),
        (["--nj", "0"], "--nj takes a whole number of 1 or more, found '0'"),
        (["--stage", "3", "--stop-stage", "2"], "--stage 3 is after --stop-stage 2: nothing would run"),
        (["stage", "3"], "'stage' is neither an option nor an override"),
    ],
)
def test_wrong_options_are_named(tmp_path: Path, arguments: list[str], message: str) -> None:
    done = run_recipe(tmp_path, SHOW_OPTIONS, *arguments)
    assert done.returncode == 1
    assert "run.sh: error: " in done.stderr
    assert message in done.stderr
    assert done.stdout == ""


# Three stages that tell when they run; stage 2 reads a file and a directory whose names have spaces.
THREE_STAGES = r"""
exp_dir="exp/my run"
parse_options "$@"
check_what_was_made() {
    mkdir -p "$exp_dir/it's new"
    for file in "$exp_dir/it's new/model" elsewhere; do [[ -f "$file" ]] || echo line >"$file"; done
    require_file "$exp_dir/it's new/model" "a model"
    require_lines elsewhere 1 "results"
}
one_stage() {
    local number=$1
    shift
    if stage_wanted "$number" && ! stage_fresh "$number" "$@"; then
        stage_begin "$number" "title of $number"
        echo "ran $number"
        [[ ! -e "fail $number" ]] || die "stage $number was told to fail"
        [[ ! -e "make $number" ]] || check_what_was_made
        [[ ! -e "edit $number" ]] || echo "edited" >>"conf file.yaml"
        stage_done "$number" "$@"
    fi
}
one_stage 1 first
one_stage 2 "conf file.yaml" "data dir" "${overrides[@]}"
one_stage 10 last
"""


@pytest.fixture
def three_stages(tmp_path: Path) -> Path:
    folder = tmp_path / "a recipe"
    (folder / "data dir").mkdir(parents=True)
    (folder / "data dir" / "wav.scp").write_text("utt1 a.wav\n")
    (folder / "conf file.yaml").write_text("lr: 0.1\n")
    return folder


def stages_run(folder: Path, *arguments: str) -> list[int]:
    done = run_recipe(folder, THREE_STAGES, *arguments)
    assert done.returncode == 0, done.stderr
    return [int(number) for number in re.findall(r"^ran (\d+)$", done.stdout, re.MULTILINE)]


def test_a_finished_stage_is_skipped(three_stages: Path) -> None:
    first = run_recipe(three_stages, THREE_STAGES)
    assert re.search(r"^=== stage 10: title of 10 \(\d\d:\d\d:\d\d\)$", first.stdout, re.MULTILINE), first.stderr
    again = run_recipe(three_stages, THREE_STAGES)
    assert again.returncode == 0
    assert "ran" not in again.stdout.replace("ran all the same", "")
    assert again.stdout.count("nothing has changed, skipped") == 3
    assert "rm 'exp/my run/.stages/10'" in again.stdout


def test_only_wanted_stages_run(three_stages: Path) -> None:
    assert stages_run(three_stages, "--stage", "2", "--stop-stage", "2") == [2]
    assert stages_run(three_stages, "--stop-stage", "9") == [1, 2]  # the mark of 2 fell when 1 ran
    assert stages_run(three_stages, "--stage", "2") == [10]


@pytest.mark.parametrize("change", ["file", "directory", "listing", "option"])
def test_a_changed_input_runs_the_stage_and_all_later_ones(three_stages: Path, change: str) -> None:
    assert stages_run(three_stages) == [1, 2, 10]
    arguments = []
    if change == "file":
        (three_stages / "conf file.yaml").write_text("lr: 0.2\n")  # same size
    elif change == "directory":
        (three_stages / "data dir" / "wav.scp").write_text("utt1 b.wav\n")  # same size, later time
    elif change == "listing":
        (three_stages / "data dir" / "text").write_text("")
    else:
        arguments = ["model=resnet34"]
    done = run_recipe(three_stages, THREE_STAGES, *arguments)
    assert re.findall(r"^ran (\d+)$", done.stdout, re.MULTILINE) == ["2", "10"]
    named = {"file": r"file conf\ file.yaml", "option": "text model=resnet34"}.get(change, r"directory data\ dir")
    assert f"stage 2: runs again, its inputs changed: {named}" in done.stdout
    assert stages_run(three_stages, *arguments) == []


def test_an_option_taken_away_runs_the_stage(three_stages: Path) -> None:
    assert stages_run(three_stages, "a=1") == [1, 2, 10]
    done = run_recipe(three_stages, THREE_STAGES)
    assert "stage 2: runs again, its inputs changed: one was taken away" in done.stdout


def test_a_touched_file_with_the_same_content_is_fresh(three_stages: Path) -> None:
    assert stages_run(three_stages) == [1, 2, 10]
    os.utime(three_stages / "conf file.yaml", (1, 1))
    assert stages_run(three_stages) == []


def test_a_missing_input_that_appears_is_a_change(three_stages: Path) -> None:
    (three_stages / "conf file.yaml").unlink()
    assert stages_run(three_stages) == [1, 2, 10]
    (three_stages / "conf file.yaml").write_text("lr: 0.1\n")
    assert stages_run(three_stages) == [2, 10]


def test_a_stage_runs_again_when_what_it_made_is_gone(three_stages: Path) -> None:
    (three_stages / "make 2").touch()
    assert stages_run(three_stages) == [1, 2, 10]
    assert stages_run(three_stages) == []
    (three_stages / "elsewhere").unlink()
    done = run_recipe(three_stages, THREE_STAGES)
    assert "=== stage 2: runs again, what it made is gone: elsewhere\n" in done.stdout
    assert re.findall(r"^ran (\d+)$", done.stdout, re.MULTILINE) == ["2", "10"]
    shutil.rmtree(three_stages / "exp" / "my run" / "it's new")
    assert "what it made is gone: it's new/model\n" in run_recipe(three_stages, THREE_STAGES).stdout
    assert stages_run(three_stages) == []


def test_what_was_made_may_be_moved_with_its_marks(three_stages: Path) -> None:
    (three_stages / "make 2").touch()
    assert stages_run(three_stages) == [1, 2, 10]
    (three_stages / "exp" / "my run").rename(three_stages / "exp" / "moved")
    assert stages_run(three_stages, "--exp-dir", "exp/moved") == []


def test_a_failed_stage_is_not_marked_and_later_marks_fall(three_stages: Path) -> None:
    assert stages_run(three_stages) == [1, 2, 10]
    marks = three_stages / "exp" / "my run" / ".stages"
    assert sorted(mark.name for mark in marks.iterdir()) == ["1", "10", "2"]
    (three_stages / "conf file.yaml").write_text("lr: 0.3\n")
    (three_stages / "fail 2").touch()
    done = run_recipe(three_stages, THREE_STAGES)
    assert done.returncode == 1
    assert "error: stage 2 was told to fail" in done.stderr
    assert "ran 10" not in done.stdout
    assert [mark.name for mark in marks.iterdir()] == ["1"]
    (three_stages / "fail 2").unlink()
    assert stages_run(three_stages) == [2, 10]


def test_an_input_edited_while_the_stage_runs_makes_it_run_again(three_stages: Path) -> None:
    (three_stages / "edit 2").touch()
    assert stages_run(three_stages) == [1, 2, 10]
    (three_stages / "edit 2").unlink()
    assert stages_run(three_stages) == [2, 10]
    assert stages_run(three_stages) == []


def test_stage_done_must_name_the_inputs_of_stage_fresh(tmp_path: Path) -> None:
    body = "exp_dir=exp\nstage_fresh 1 a b || stage_begin 1 title\nstage_done 1 a"
    done = run_recipe(tmp_path, body)
    assert done.returncode == 1
    assert "stage 1: stage_done names other inputs than stage_fresh did (a b )" in done.stderr
    assert not (tmp_path / "exp" / ".stages" / "1").exists()


def test_stages_need_an_exp_dir(tmp_path: Path) -> None:
    done = run_recipe(tmp_path, "if ! stage_fresh 1 a; then echo not reached; fi")
    assert done.returncode == 1
    assert "exp_dir is not set: name it with --exp-dir DIR" in done.stderr
    assert "not reached" not in done.stdout


CHECKED = 'exp_dir=exp\nstage_begin 4 score\n{check}\necho "went on"'


@pytest.mark.parametrize(
    ("content", "check", "message"),
    [
        ("a\nb\n", "require_lines 'my scores' 3 'one per trial'", "my scores has 2 lines, expected 3, one per trial"),
        ("a\nb\nc\nd", "require_lines 'my scores' 3 'one per trial'", "my scores has 4 lines, expected 3"),
        (None, "require_lines 'my scores' 3 'one per trial'", "my scores is missing, expected 3 lines, one per trial"),
        (None, "require_file 'my scores' 'the scores'", "my scores is missing, expected the scores"),
        ("", "require_file 'my scores' 'the scores'", "my scores is empty, expected the scores"),
    ],
)
def test_missing_output_stops_the_recipe(tmp_path: Path, content: str | None, check: str, message: str) -> None:
    if content is not None:
        (tmp_path / "my scores").write_text(content)
    done = run_recipe(tmp_path, CHECKED.format(check=check))
    assert done.returncode == 1
    assert "went on" not in done.stdout
    assert message in done.stderr
    assert "run again with --stage 4" in done.stderr


def test_output_as_expected_lets_the_recipe_go_on(tmp_path: Path) -> None:
    (tmp_path / "my scores").write_text("a\nb\nc")  # the last line counts without its newline, too
    check = "require_file 'my scores' scores; require_lines 'my scores' 3 scores"
    done = run_recipe(tmp_path, CHECKED.format(check=check))
    assert done.returncode == 0, done.stderr
    assert "went on" in done.stdout


def test_outside_a_stage_the_message_says_how_to_begin_anew(tmp_path: Path) -> None:
    done = run_recipe(tmp_path, "exp_dir=exp\nrequire_file model 'the network'")
    assert "model is missing, expected the network: to make everything again: rm -r 'exp/.stages'" in done.stderr


def test_run_logged_shows_and_appends_both_streams(tmp_path: Path) -> None:
    body = """run_logged "my logs/train.log" bash -c 'echo out; printf "50%%\\r100%%\\n" >&2'\necho after"""
    for _ in range(2):
        done = run_recipe(tmp_path, body)
        assert done.returncode == 0, done.stderr
        assert done.stdout == "out\n50%\n100%\nafter\n"  # text mode reads \r as a line end
    log = (tmp_path / "my logs" / "train.log").read_bytes().decode()
    assert log.count("out\n50%\r100%\n") == 2
    assert len(re.findall(r"^# \d{4}-\d\d-\d\d \d\d:\d\d:\d\d \$ bash -c ", log, re.MULTILINE)) == 2


def test_credentials_of_urls_are_in_no_log_and_no_mark(tmp_path: Path) -> None:
    words = "data.root=https://me:secret@host/shards x"
    body = f"exp_dir=exp\nstage_fresh 1 {words} || stage_begin 1 title\nrun_logged exp/a.log : {words}"
    done = run_recipe(tmp_path, f"{body}\nstage_done 1 {words}")
    assert done.returncode == 0, done.stderr
    for file in ("a.log", ".stages/1"):
        assert "data.root=https://***@host/shards" in (tmp_path / "exp" / file).read_text().replace("\\", "")
        assert "secret" not in (tmp_path / "exp" / file).read_text()


def test_run_logged_fails_with_the_commands_status(tmp_path: Path) -> None:
    done = run_recipe(tmp_path, "run_logged log/a.log bash -c 'echo told you; exit 7'\necho went on")
    assert done.returncode == 7
    assert done.stdout == "told you\n"
    assert "run.sh: failed with exit code 7: bash -c echo\\ told\\ you\\;\\ exit\\ 7" in done.stderr
    assert "its output is in log/a.log" in done.stderr


def test_run_logged_stops_a_function_at_its_first_failure(tmp_path: Path) -> None:
    done = run_recipe(tmp_path, "both() { false; echo went on; }\nrun_logged a.log both")
    assert done.returncode == 1
    assert "went on" not in done.stdout


def test_run_logged_keeps_status_and_shell_in_a_condition(tmp_path: Path) -> None:
    body = "if run_logged a.log bash -c 'exit 3'; then echo fine; else echo \"status $?\"; fi\nfalse\necho went on"
    done = run_recipe(tmp_path, body)
    assert done.stdout == "status 3\n"  # and `set -e` is in force again: false ended the recipe
    assert done.returncode == 1


def test_run_logged_refuses_a_log_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = run_recipe(tmp_path, "run_logged file/a.log echo ran\necho went on")
    assert done.returncode == 1
    assert done.stdout == ""


@pytest.mark.parametrize("last_words", ["exit 0", "trap - INT; kill -INT $$"])
def test_ctrl_c_ends_the_recipe_and_leaves_the_stage_unfinished(tmp_path: Path, last_words: str) -> None:
    """A command that saves its state on Ctrl-C is waited for, its output kept, and no later stage starts."""
    body = rf"""
exp_dir=exp
stage_fresh 1 input || stage_begin 1 "train"
run_logged exp/train.log bash -c 'trap "sleep 0.2; echo saved; {last_words}" INT
    echo started; for _ in $(seq 200); do sleep 0.05; done; echo never'
stage_done 1 input
echo "went on"
"""
    recipe = subprocess.Popen(
        ["bash", str(recipe_file(tmp_path, body))],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A test runner in the background may ignore Ctrl-C, and bash cannot undo what it inherits.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 30
    log = tmp_path / "exp" / "train.log"
    while not (log.exists() and "\nstarted\n" in log.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.killpg(recipe.pid, signal.SIGINT)
    output, errors = recipe.communicate(timeout=30)
    assert recipe.returncode == 130
    assert "saved" in output
    assert "went on" not in output
    assert "run.sh: interrupted; output so far is in exp/train.log" in errors
    assert "\nsaved\n" in log.read_text()
    assert not (tmp_path / "exp" / ".stages" / "1").exists()
