"""Systems of a report: their names, which scored the same trials, and their comparison in pairs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from svtoolkit.data.trials import hash_trials, read_trials
from svtoolkit.errors import UserError
from svtoolkit.reporting.result_file import System
from svtoolkit.reporting.systems import Request, compare_in_groups, name_systems
from svtoolkit.scoring.bootstrap import trial_speakers
from svtoolkit.scoring.metrics import eer_from_rates, equal_error_rate
from svtoolkit.scoring.paired import compare_systems

SPEAKERS, UTTERANCES = 8, 3
UTT2SPK = {f"s{s}-{n}": f"s{s}" for s in range(SPEAKERS) for n in range(UTTERANCES)}
NAMES = sorted(UTT2SPK)
PAIRS = [(a, b, UTT2SPK[a] == UTT2SPK[b]) for i, a in enumerate(NAMES) for b in NAMES[i + 1 :]]
LINES = [f"{a} {b} {'target' if same else 'nontarget'}" for a, b, same in PAIRS]


def make_system(folder: Path, lines: list[str], *, distance: float = 2.0, seed: int = 0, **result: Any) -> System:
    """A system whose list of these lines stands in a file of its own; the score of a trial is that of its pair."""
    file = folder / f"trials-{seed}"
    file.write_text("".join(f"{line}\n" for line in lines))
    trials = read_trials(file)
    noise = np.random.default_rng(seed).normal(size=len(PAIRS))
    place = {pair[:2]: row for row, pair in enumerate(PAIRS)}
    rows = [place[pair] for pair in zip(trials.enrol, trials.test, strict=True)]
    known = {
        "evaluation": "eval", "scores": f"system {seed}", "scores_file": f"exp/{seed}/scores",
        "trials_file": str(file), "trials_sha256": hash_trials(file), "utt2spk_file": None,
    }  # fmt: skip
    return System(known | result, trials, noise[rows] + distance * trials.target)


@pytest.fixture
def request_of(tmp_path):
    (tmp_path / "utt2spk").write_text("".join(f"{utt} {speaker}\n" for utt, speaker in UTT2SPK.items()))

    def make(**changes: Any) -> Request:
        drawn = {"resamples": 100, "confidence": 0.95, "seed": 3}
        return Request(**{"compare": "auto", "utt2spk": str(tmp_path / "utt2spk"), **drawn, **changes})

    return make


def test_pairs_are_those_of_the_statistics(tmp_path, request_of):
    systems = [make_system(tmp_path, LINES, seed=seed, distance=2.0 + 2 * seed) for seed in range(2)]
    (group,), notes = compare_in_groups(systems, request_of())
    sides = trial_speakers(systems[0].trials, UTT2SPK)
    ((expected,),) = compare_systems(
        [system.scores for system in systems], *sides, systems[0].trials.target, [eer_from_rates], resamples=100, seed=3
    )
    assert group["metrics"]["eer"] == [
        {
            "first": "eval, system 0", "second": "eval, system 1", "difference": expected.difference,
            "interval": list(expected.interval), "confidence": expected.confidence, "p_value": expected.p_value,
            "p_holm": expected.p_holm, "better": "eval, system 1",
        }
    ]  # fmt: skip
    assert set(group["metrics"]) == {"eer", "min_dcf_0.01", "min_dcf_0.05"}
    assert (group["trials"], group["speakers"], group["resamples"]) == (len(LINES), SPEAKERS, 100)
    assert notes == []


def test_the_same_trials_in_another_order_and_form_are_the_same(tmp_path, request_of):
    digits = [f"{int(same)} {a} {b}" for a, b, same in PAIRS]
    one, other = make_system(tmp_path, LINES, seed=0), make_system(tmp_path, digits[::-1], seed=1)
    (group,), _ = compare_in_groups([one, other], request_of())
    difference = (
        equal_error_rate(one.scores, one.trials.target)[0] - equal_error_rate(other.scores, other.trials.target)[0]
    )
    assert group["metrics"]["eer"][0]["difference"] == pytest.approx(difference)


def test_trials_that_one_has_not_scored_count_for_none(tmp_path, request_of):
    one, other = (make_system(tmp_path, LINES, seed=seed) for seed in range(2))
    kept = np.arange(5, len(PAIRS))
    fewer = System(other.result, other.trials.take(kept), other.scores[kept])
    (group,), _ = compare_in_groups([one, fewer], request_of())
    assert group["trials"] == len(PAIRS) - 5
    difference = (
        equal_error_rate(one.scores[kept], one.trials.target[kept])[0]
        - equal_error_rate(fewer.scores, fewer.trials.target)[0]
    )
    assert group["metrics"]["eer"][0]["difference"] == pytest.approx(difference)


def test_each_evaluation_is_a_group_of_its_own(tmp_path, request_of):
    systems = [
        make_system(tmp_path, LINES, seed=0),
        make_system(tmp_path, LINES[:-1], seed=1, evaluation="short"),
        make_system(tmp_path, LINES, seed=2, evaluation="eval, fine-tuned"),
        make_system(tmp_path, LINES[:-1], seed=3, evaluation="short"),
        make_system(tmp_path, LINES[1:], seed=4, evaluation="alone"),
    ]
    groups, _ = compare_in_groups(systems, request_of())
    assert [group["evaluations"] for group in groups] == [["eval", "eval, fine-tuned"], ["short"]]
    assert compare_in_groups(systems, request_of(compare="none")) == ([], [])
    assert compare_in_groups(systems, request_of(resamples=0)) == ([], [])


@pytest.mark.parametrize(
    ("change", "compare", "message"),
    [
        ({3: "s0-0 s7-2 nontarget"}, "auto", r"trials-1:4: found `s0-0 s7-2 nontarget`, but .*trials-0:4 has `{line}`"),
        ({3: None}, "auto", r"trials-1:4: found `{after}`, but .*trials-0:4 has `{line}`"),
        ({-1: None}, "auto", r"trials-1: lacks `{last}` of .*trials-0:276; .*, or compare=none"),
        ({2: "s0-1 s0-2 nontarget"}, "all", r"trials-1:3: found .* or compare=auto"),
    ],
)
def test_different_lists_are_refused_by_their_first_line(tmp_path, request_of, change, compare, message):
    lines = list(LINES)
    for place, line in change.items():
        lines[place : place + 1 or None] = [] if line is None else [line]
    other = "eval" if compare == "auto" else "another"
    systems = [make_system(tmp_path, LINES, seed=0), make_system(tmp_path, lines, seed=1, evaluation=other)]
    with pytest.raises(UserError, match=message.format(line=LINES[3], after=LINES[4], last=LINES[-1])):
        compare_in_groups(systems, request_of(compare=compare))


def test_a_list_in_another_order_is_refused_by_the_trial_that_differs(tmp_path, request_of):
    lines = LINES[::-1]
    one = make_system(tmp_path, LINES, seed=0)
    for changed, message in (
        (
            [*lines[:5], "s0-0 s7-2 target", *lines[6:]],
            r"trials-1:6: found `s0-0 s7-2 target`, but .*trials-0 lacks it",
        ),
        ([*lines[:5], *lines[6:]], f"trials-1: lacks `{lines[5]}` of .*trials-0:271; "),
    ):
        other = make_system(tmp_path, changed, seed=1)
        with pytest.raises(UserError, match=message):
            compare_in_groups([one, other], request_of())


def test_without_speakers_a_note_says_what_is_missing(tmp_path, request_of):
    systems = [make_system(tmp_path, LINES, seed=seed, utt2spk_file=str(tmp_path / "gone")) for seed in range(2)]
    groups, notes = compare_in_groups(systems, request_of(utt2spk=None))
    assert groups == []
    assert notes == [
        "eval, system 0, eval, system 1: not compared, as the speakers of the trials are not known; give utt2spk=FILE."
    ]
    systems[1].result["utt2spk_file"] = str(tmp_path / "utt2spk")
    assert len(compare_in_groups(systems, request_of(utt2spk=None))[0]) == 1


def test_speakers_that_are_not_those_of_the_trials_are_named(tmp_path, request_of):
    systems = [make_system(tmp_path, LINES, seed=seed) for seed in range(2)]
    (tmp_path / "utt2spk").write_text("s0-0 s0\n")
    with pytest.raises(UserError, match=r"utt2spk, eval, system 0 and eval, system 1: 23 of 24 utterances"):
        compare_in_groups(systems, request_of())
    with pytest.raises(UserError, match="compare is 'some'; expected auto, all or none"):
        compare_in_groups(systems, request_of(compare="some"))


def named(files: list[str], names: list[str], **changes: Any) -> list[tuple[str | None, str | None]]:
    results = [{"evaluation": "eval", "scores": "cosine", "scores_file": file, **changes} for file in files]
    name_systems(results, names)
    return [(result.get("system"), result.get("label")) for result in results]


def test_names_are_given_or_what_differs_in_the_paths():
    assert named(["exp/r34/scores/cosine"], []) == [(None, None)]
    files = ["exp/r34/scores/cosine", "exp/rev57/scores/cosine"]
    assert [label for _, label in named(files, [])] == ["r34", "rev57"]
    assert [label for _, label in named([*files, "exp/r34/cosine"], [])] == ["r34/scores", "rev57/scores", "r34"]
    assert [label for _, label in named(files, ["large", "small"])] == ["large", "small"]
    results = [{"evaluation": e, "scores": "cosine", "scores_file": "f"} for e in "OE"]
    name_systems(results, ["r34", "r34"])
    assert [result["label"] for result in results] == ["r34, O", "r34, E"]
    with pytest.raises(UserError, match="names lists 1 for 2 systems"):
        named(files, ["a"])
    with pytest.raises(UserError, match=r"found two results of 'a, eval'; list each system once, and give each a name"):
        named(files, ["a", "a"])
    with pytest.raises(UserError, match="found two results of 'cosine, eval'"):
        named(files[:1] * 2, [])
