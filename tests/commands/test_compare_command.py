"""svt compare: what it says of systems that differ, of those that do not, and of what cannot be compared."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import numpy as np
import pytest
from command_material import said

from svtoolkit.cli import main

SPEAKERS, UTTERANCES = 24, 4
UTT2SPK = {f"s{s:02d}-{n}": f"s{s:02d}" for s in range(SPEAKERS) for n in range(UTTERANCES)}
PAIRS = [(a, b, UTT2SPK[a] == UTT2SPK[b]) for a, b in itertools.combinations(UTT2SPK, 2)]


def write_scores(folder: Path, name: str, distance: float, *, own: float, seed: int = 1) -> Path:
    """Scores of a system: what is hard in a trial is hard for all, ``own`` is what each adds for itself."""
    target = np.array([same for _, _, same in PAIRS])
    shared = np.random.default_rng(0).normal(size=len(PAIRS))
    scores = shared + distance * target + own * np.random.default_rng(seed).normal(size=len(PAIRS))
    file = folder / name
    file.write_text("".join(f"{a} {b} {score:.6f}\n" for (a, b, _), score in zip(PAIRS, scores, strict=True)))
    return file


@pytest.fixture(scope="module")
def systems(tmp_path_factory) -> Path:
    """Results of `base`, of `same`, which differs from it by noise, and of `better`; not to be changed."""
    folder = tmp_path_factory.mktemp("systems")
    (folder / "utt2spk").write_text("".join(f"{utt} {speaker}\n" for utt, speaker in UTT2SPK.items()))
    lengths = np.random.default_rng(5).uniform(2, 6, len(UTT2SPK))
    (folder / "utt2dur").write_text("".join(f"{u} {s:.2f}\n" for u, s in zip(UTT2SPK, lengths, strict=True)))
    (folder / "trials").write_text("".join(f"{a} {b} {'target' if same else 'nontarget'}\n" for a, b, same in PAIRS))
    for name, distance, seed in (("base", 2.0, 1), ("same", 2.0, 2), ("better", 3.0, 3)):
        scores = write_scores(folder, name, distance, own=0.2, seed=seed)
        words = [f"scores={scores}", f"trials={folder}/trials", f"utt2spk={folder}/utt2spk", "resamples=20"]
        assert main(["evaluate", *words, "name=eval"]) == 0
    return folder


def test_what_is_better_and_what_cannot_be_told_apart(systems, capsys):
    words = [f"{systems}/{name}.json" for name in ("base", "same", "better")]
    assert main(["compare", *words, "names=[base,same,better]", "resamples=300"]) == 0
    out = capsys.readouterr().out
    rates = [100 * json.loads((systems / f"{name}.json").read_text())["eer"] for name in ("base", "same", "better")]
    lines = out[out.index("EER:") :].splitlines()
    assert lines[1].startswith(f"  base {rates[0]:.2f} %, same {rates[1]:.2f} %: cannot be told apart; ")
    assert lines[2].startswith(f"  base {rates[0]:.2f} %, better {rates[2]:.2f} %: better is better; ")
    assert f"{rates[0] - rates[2]:+.2f} points; 98.33 % interval +" in lines[2]
    assert lines[4] == "minDCF 0.01:"
    assert "4,560 trials of 24 speakers, who were drawn 300 times; 94 of 96 utterances are enrolment and test" in out
    assert re.search(r"^  difference of the durations alone: AUC 0\.[45]\d\d \(chance is 0\.5\)$", out, re.MULTILINE)
    assert "the trial list" not in out


@pytest.mark.usefixtures("undrawn")
def test_the_page_has_the_pairs_and_all_systems_in_one_figure(systems, tmp_path, capsys):
    words = ["--scores", f"[{systems}/base,{systems}/better]", f"trials={systems}/trials"]
    assert main(["compare", *words, f"utt2spk={systems}/utt2spk", f"out={tmp_path}/page", "resamples=100"]) == 0
    assert f"page: {tmp_path}/page/index.html" in capsys.readouterr().out
    content = json.loads((tmp_path / "page" / "result.json").read_text())
    (group,) = content["comparisons"]
    assert group["metrics"]["eer"][0]["better"] == f"{systems.name}, better"
    assert group["design"]["warnings"] == []
    assert {path.name for path in (tmp_path / "page").iterdir()} >= {"index.html", "det.svg", "det.png"}
    page = (tmp_path / "page" / "index.html").read_text()
    assert f"{systems.name}, better is better" in page
    assert f"{systems.name}, base: " in page[page.index('id="det"') :]


def test_a_list_that_gives_the_speaker_away_is_warned_of(systems, tmp_path, capsys):
    for name in ("utt2spk", "utt2dur"):
        (tmp_path / name).write_text((systems / name).read_text())
    words = [f"{systems}/base.json", f"{systems}/same.json", f"utt2spk={tmp_path}/utt2spk", "resamples=80"]
    own = "".join(f"{utt} {speaker}-{int(utt[-1]) // 2}\n" for utt, speaker in UTT2SPK.items())
    (tmp_path / "utt2channel").write_text(own)
    assert main(["compare", *words]) == 0
    warned = (
        "utt2channel alone tells target from non-target trials (AUC 0.667, 95 % interval 0.667 to 0.667; chance is "
    )
    assert f"the trial list: {warned}0.5): both sides have one value in 33.3 % of the target and 0.0 % of the" in (
        capsys.readouterr().out
    )


def test_other_trials_are_refused_with_the_first_that_differs(systems, tmp_path, capsys):
    lines = (systems / "trials").read_text().splitlines(keepends=True)
    (tmp_path / "trials").write_text("".join(lines[:6] + lines[7:]))
    scores = (systems / "same").read_text().splitlines(keepends=True)
    (tmp_path / "same").write_text("".join(scores[:6] + scores[7:]))
    assert main(["evaluate", f"scores={tmp_path}/same", f"trials={tmp_path}/trials", "name=other"]) == 0
    capsys.readouterr()
    assert said(capsys, "compare", f"{systems}/base.json", f"{tmp_path}/same.json", f"out={tmp_path}/page") == (
        f"error: {tmp_path}/trials:7: found `{lines[7].strip()}`, but {systems}/trials:7 has `{lines[6].strip()}`; "
        "other, same and eval, base can be compared on the same trials alone: score both on one list and compare these"
        "\n"
    )
    assert not (tmp_path / "page").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["{systems}/base.json"], "found one system, {systems}/base.json; expected two or more"),
        ([], "results lists no file; give results=[a.json,b.json]"),
        (["{systems}/base.json", "{systems}/base.json"], "found two results of 'base, eval'; list each system once"),
        (["{systems}/base.json", "{systems}/same.json", "confidence=1"], "confidence is 1.0; expected a share"),
        (["{systems}/base.json", "{systems}/same.json", "resamples=0"], "resamples is 0; expected 1 or more"),
        (["scores=[a,b]"], "scores needs the trial list that was scored; give trials=FILE"),
        (["scores=[{systems}/base,{systems}/same]", "trials={systems}/trials"], "the speakers of the trials are not"),
    ],
)
def test_refuses(systems, capsys, words, message):
    assert said(capsys, "compare", *(word.format(systems=systems) for word in words)).startswith(
        f"error: {message.format(systems=systems)}"
    )
