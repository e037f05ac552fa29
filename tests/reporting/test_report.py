from __future__ import annotations

import json
import re
from datetime import date
from html.parser import HTMLParser
from pathlib import Path

import pytest
from jinja2 import UndefinedError
from report_material import draw_scores, make_history, make_result

from svtoolkit.reporting.inline_svg import INK
from svtoolkit.reporting.page import page_template
from svtoolkit.reporting.report import write_report

VOID = {"meta", "link", "img", "br", "hr", "input", "base", "source", "embed"}
HOSTILE = '<script>alert("x")</script>&amp;'


class Page(HTMLParser):
    """The elements of a page, checked for nesting; its text without that of styles."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.cells: list[str] = []
        self.text = ""
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag in ("td", "th"):
            self.cells.append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.text += data
        if {"td", "th"} & set(self.open):
            self.cells[-1] += data

    def attributes(self, *names: str) -> list[str]:
        return [attrs[name] or "" for _, attrs in self.elements for name in names if name in attrs]


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> Path:
    scored = [draw_scores(400, seed=1), draw_scores(400, distance=4.0, seed=2)]
    results = [
        make_result(
            scored[0],
            scores="cosine",
            eer=0.0312,
            min_dcf_intervals={"0.01": [0.25, 0.4]},
            trials_file="data/eval/trials",
        ),
        make_result(scored[1], scores="as-norm", eer_interval=None, cllr=None),
    ]
    folder = tmp_path_factory.mktemp("report") / "new" / "folder"
    return write_report(
        folder,
        results=results,
        scored=scored,
        history=make_history(),
        config_text="model: resnet34\nurl: https://example.org/a?b&c\n",
        facts={
            "model": "resnet34",
            "parameters": 6_630_000,
            "embedding size": 256,
            "training data": "data/train",
            "training speakers": 5994,
            "training utterances": 1_092_009,
            "date": date(2026, 1, 2),
            "svtoolkit": "0.1",
            "git commit": "abc",
            "versions": {"torch": "2.13", "numpy": "2.4"},
            "commands": ["svt train name=mini", "svt report exp/mini && echo '<done>'"],
        },
    )


@pytest.fixture(scope="module")
def page(report) -> Page:
    return Page(report.read_text(encoding="utf-8"))


def test_all_files_of_a_report_are_written(report):
    assert sorted(path.name for path in report.parent.iterdir()) == [
        "curve-accuracy.svg",
        "curve-learning-rate.svg",
        "curve-loss.svg",
        "curve-peak-memory.svg",
        "curve-validation.svg",
        "curve-waiting-for-data.svg",
        "det.png",
        "det.svg",
        "index.html",
        "result.json",
        "scores-eval-as-norm.svg",
        "scores-eval-cosine.svg",
    ]
    assert (report.parent / "det.png").read_bytes().startswith(b"\x89PNG\r\n")


def test_page_has_its_sections_in_order(page, report):
    headings = re.findall(r"<h2 id=\"\w+\">(.*?)</h2>", report.read_text(encoding="utf-8"))
    assert headings == [
        "Results",
        "Detection error trade-off",
        "Score distributions",
        "Training",
        "How to repeat",
        "Configuration",
        "Facts",
        "Trial lists",
    ]
    assert sum(tag == "svg" for tag, _ in page.elements) == 9
    assert all(attrs.get("role") == "img" and attrs.get("aria-label") for tag, attrs in page.elements if tag == "svg")


def test_page_shows_every_number_in_its_form(page):
    rows = [page.cells[start : start + 11] for start in (0, 11, 22)]
    assert rows[0] == [
        *("evaluation", "scores", "EER", "minDCF 0.01", "minDCF 0.05", "Cllr", "minCllr"),
        *("trials", "target", "non-target", "missing"),
    ]
    assert rows[1] == [
        *("eval", "cosine", "3.12 %2.50–3.80", "0.31000.2500–0.4000", "0.2000", "1.2000", "0.1200"),
        *("400", "200", "200", "3"),
    ]
    assert rows[2][2].endswith(" %")  # no interval
    assert rows[2][5] == "–"
    assert "the bootstrap interval over speakers (95 %)" in page.text
    for shown in ("6,630,000", "torch 2.13, numpy 2.4", "5e" * 32, "svt train name=mini", "up to step 40, epoch 4"):
        assert shown in page.text
    assert "commands" not in page.cells


@pytest.mark.usefixtures("undrawn")
def test_network_and_data_are_named_at_the_top(page, tmp_path):
    top = page.text.partition("Results")[0]
    for shown in (
        "resnet34, 6,630,000 parameters, embeddings of 256",
        "data/train, 5,994 speakers, 1,092,009 utterances",
        "eval, 400 trials (200 target, 200 non-target), data/eval/trials",
        "2026-01-02, svtoolkit 0.1, commit abc",
    ):
        assert shown in top
    scored = draw_scores(60)
    index = write_report(tmp_path, results=[make_result(scored)], scored=[scored])
    assert "not recorded; `svt report model=FOLDER` names it" in index.read_text(encoding="utf-8")


def test_a_cell_says_what_it_is_of_where_rows_are_blocks(page):
    """On a phone the head of the table is gone."""
    named = [attrs["data-name"] for tag, attrs in page.elements if tag in ("td", "th") and "data-name" in attrs]
    assert named[:11] == page.cells[:11]


@pytest.mark.usefixtures("undrawn")
def test_several_networks_have_a_column(tmp_path):
    scored = draw_scores(60)
    results = [
        make_result(scored, "eval", name, system=name, label=name, network={"model": name, "parameters": 1_000_000})
        for name in ("resnet34", "revnet57")
    ]
    page = Page(write_report(tmp_path, results=results, scored=[scored] * 2).read_text(encoding="utf-8"))
    assert page.cells[:4] == ["system", "evaluation", "scores", "network"]
    assert "revnet57, 1,000,000 parameters" in page.cells
    assert page.text.index("resnet34, 1,000,000 parameters") < page.text.index("Results")


PAIR = {
    "first": "a", "second": "b", "difference": -0.012, "interval": [-0.02, -0.004], "confidence": 0.975,
    "p_value": 0.0005, "p_holm": 0.001, "better": "a",
}  # fmt: skip


@pytest.mark.usefixtures("undrawn")
def test_pairs_of_systems_have_a_verdict(tmp_path):
    scored = draw_scores(60)
    results = [make_result(scored, "eval", name, label=name) for name in "ab"]
    even = PAIR | {"difference": 0.0, "interval": [-0.01, 0.01], "p_holm": 0.6, "better": None}
    group = {
        "systems": ["a", "b"], "evaluations": ["eval"], "trials": 60, "speakers": 12, "resamples": 1000,
        "confidence": 0.95, "design": {"warnings": ["3 trials repeat a pair"]},
        "metrics": {"eer": [PAIR], "min_dcf_0.01": [even]},
    }  # fmt: skip
    index = write_report(
        tmp_path, results=results, scored=[scored] * 2, comparisons=[group], notes=["c, d: not compared"]
    )
    page = Page(index.read_text(encoding="utf-8"))
    assert page.cells[page.cells.index("first") :][:8] == [
        *("first", "second", "EER", "minDCF 0.01", "a", "b"),
        "a is better−1.20 points; 97.5 % interval −2.00 to −0.40; p 0.001",
        "cannot be told apart0.0000; 97.5 % interval −0.0100 to +0.0100; p 0.600",
    ]
    assert "12 speakers are few" in page.text
    assert "The trial list: 3 trials repeat a pair." in page.text
    assert "c, d: not compared" in page.text
    assert json.loads((tmp_path / "result.json").read_text())["comparisons"] == [group]


@pytest.mark.usefixtures("undrawn")
def test_page_says_what_is_chance(tmp_path, page):
    assert "chance" not in page.text
    scored = draw_scores(400, distance=0.0)
    index = write_report(tmp_path, results=[make_result(scored, "own", eer=0.49)], scored=[scored])
    assert (
        "own, as-norm: an EER of 49.00 % is chance: the scores say nothing of the speakers;"
        in Page(index.read_text(encoding="utf-8")).text
    )


def test_page_loads_nothing_and_runs_nothing(page, report):
    html = report.read_text(encoding="utf-8")
    assert not {"script", "link", "img", "iframe", "object", "base"} & {tag for tag, _ in page.elements}
    assert all(value.startswith("#") for value in page.attributes("src", "href", "xlink:href", "data", "action"))
    assert "@import" not in html
    assert re.findall(r"url\((?!#)", html) == []
    assert re.findall(r"https?://[^\s<]*", html) == ["https://example.org/a?b&amp;c"]  # the text of the config


def test_ids_are_unique_and_every_reference_finds_its_own(page, report):
    ids = page.attributes("id")
    assert len(ids) == len(set(ids))
    references = re.findall(r"url\(#([^)]*)\)|href=\"#([^\"]*)\"", report.read_text(encoding="utf-8"))
    named = [clip or link for clip, link in references] + page.attributes("aria-labelledby")
    assert len(named) > 50
    assert set(named) <= set(ids)


def test_text_of_figures_can_be_read_on_a_phone(report):
    """A page of 400 pixels leaves 353 to a figure, beside a scroll bar; what is larger is shrunk to that."""
    figures = list(report.parent.glob("*.svg"))
    assert len(figures) == 9
    for figure in figures:
        svg = figure.read_text(encoding="utf-8")
        width = float(re.findall(r'<svg[^>]* width="([\d.]+)pt"', svg)[0])
        sizes = [
            float(size) for size in re.findall(r"font(?:-size)?: [^;\"]*?([\d.]+)px", svg)
        ]  # of the drawing, whose unit is a point
        assert sizes, figure
        assert min(sizes) * min(4 / 3, 353 / width) >= 9, figure


def test_figures_take_the_ink_of_the_page(report):
    assert INK in (report.parent / "det.svg").read_text(encoding="utf-8")
    html = report.read_text(encoding="utf-8")
    assert INK not in html.split("</style>", 1)[1]
    assert "currentColor" in html


def test_result_json_holds_results_and_facts_with_stable_keys(report):
    text = (report.parent / "result.json").read_text(encoding="utf-8")
    content = json.loads(text)
    assert content["results"][0]["eer"] == 0.0312
    assert content["results"][1]["eer_interval"] is None
    assert content["facts"]["parameters"] == 6_630_000
    assert text == json.dumps(content, indent=2, sort_keys=True) + "\n"


def test_the_same_input_gives_the_same_bytes(tmp_path):
    scored = draw_scores(100)
    history = [{"kind": "step", "step": step, "loss": 1.0 / step} for step in range(1, 5)]
    first, second = (
        write_report(tmp_path / name, results=[make_result(scored)], scored=[scored], history=history).parent
        for name in ("first", "second")
    )
    for path in first.iterdir():
        assert path.read_bytes() == (second / path.name).read_bytes(), path.name


def test_hostile_names_stay_text(tmp_path):
    scored = draw_scores(60)
    result = make_result(scored, HOSTILE, "_../../$x$\x1b", trials_sha256=HOSTILE)
    index = write_report(
        tmp_path / "report",
        results=[result],
        scored=[scored],
        history=[{"kind": "step", "step": 1, "loss": 1.0, "extra": HOSTILE}],
        config_text=f"name: '{HOSTILE}'\n\ttab\x00\ud800</code></pre>",
        facts={HOSTILE: HOSTILE, "list": [HOSTILE, None, True], "commands": f"echo {HOSTILE}"},
    )
    html = index.read_text(encoding="utf-8")
    page = Page(html)
    assert "script" not in {tag for tag, _ in page.elements}
    assert not [name for _, attrs in page.elements for name in attrs if name.startswith("on")]
    assert page.text.count(HOSTILE) >= 5
    assert "\x00" not in html
    assert "\x1b" not in html
    assert len(page.attributes("id")) == len(set(page.attributes("id")))
    assert {path.parent for path in tmp_path.rglob("*.svg")} == {tmp_path / "report"}


def test_a_value_that_was_not_handed_over_is_an_error():
    with pytest.raises(UndefinedError, match="about"):
        page_template().render()


@pytest.mark.usefixtures("undrawn")
def test_a_report_without_history_config_and_facts_says_so(tmp_path):
    scored = draw_scores(60)
    result = {key: make_result(scored)[key] for key in ("evaluation", "scores", "eer", "eer_threshold")}
    index = write_report(tmp_path, results=[result], scored=[scored])
    page = Page(index.read_text(encoding="utf-8"))
    assert "No training history belongs to this report" in page.text
    assert "No commands were recorded." in page.text
    assert page.text.count("None was recorded.") == 1
    assert page.text.count("None were recorded.") == 1
    assert not list(tmp_path.glob("curve-*"))


@pytest.mark.usefixtures("undrawn")
def test_systems_that_differ_only_in_signs_get_files_of_their_own(tmp_path):
    scored = draw_scores(60)
    results = [make_result(scored, "eval", name) for name in ("a/b", "a b", "A-B")]
    write_report(tmp_path, results=results, scored=[scored] * 3)
    names = sorted(path.name for path in tmp_path.glob("scores-*"))
    assert names == ["scores-eval-A-B-3.svg", "scores-eval-a-b-2.svg", "scores-eval-a-b.svg"]


@pytest.mark.usefixtures("undrawn")
def test_different_trial_lists_of_one_evaluation_are_pointed_out(tmp_path):
    scored = draw_scores(60)
    results = [make_result(scored, "eval", "a"), make_result(scored, "eval", "b", trials_sha256="00" * 32)]
    html = write_report(tmp_path, results=results, scored=[scored] * 2).read_text(encoding="utf-8")
    assert "Results of eval stem from different trial lists" in html
    same = [make_result(scored, "eval", "a"), make_result(scored, "eval", "b")]
    html = write_report(tmp_path, results=same, scored=[scored] * 2).read_text(encoding="utf-8")
    assert "stem from different trial lists" not in html


def test_many_trials_give_a_small_page(tmp_path):
    scored = draw_scores(200_000)
    index = write_report(tmp_path, results=[make_result(scored)], scored=[scored], history=make_history(3000, 300))
    assert index.stat().st_size < 1_000_000
