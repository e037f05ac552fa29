"""A thousand releases that mean harm, through the entry that users have: none runs, writes, waits or swells.

Each is refused with one sentence, or, where chance left it a release, is numbers alone: tensors of the network that it
names, of floating point or whole numbers, and a description of plain values.
"""

from __future__ import annotations

import dataclasses
import functools
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import hostile_releases
import pytest
import torch
from audit_watch import watching
from hostile_kinds import RELEASES
from hostile_releases import Case
from small_releases import SAMPLES, Files, small_networks

from svtoolkit import load_model
from svtoolkit.cli import main
from svtoolkit.errors import UserError
from svtoolkit.memory.peak import peak_bytes, reset_peak
from svtoolkit.models import onnx_graph
from svtoolkit.models.front_ends import FRONT_ENDS
from svtoolkit.models.registry import NETWORKS
from svtoolkit.registry import check_settings

MOST_SECONDS, MOST_BYTES = 3.0, 64 << 20
"""Of the CPU's time for one release, and of memory more than before, for all of a group."""

LONGEST = 2500
"""Characters of a refusal; one that lists all networks is the longest."""

BY_CHANCE = 40
"""Mutations of each format of weights; half as many of each kind's text."""

CPU = torch.device("cpu")


def plain(value: object) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str | int) and plain(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return all(map(plain, value))
    return value is None or type(value) in (bool, int, float, str)


def problem_of(case: Case, folder: Path) -> str | None:
    """What a release did that none may do, in a few words."""
    for name, content in case.files.items():
        (folder / name).write_bytes(content)
    begin = time.process_time()
    with watching() as seen:
        try:
            model = load_model(folder, device="cpu")
            refusal = None
        except UserError as error:
            refusal = str(error)
        except BaseException as error:
            return f"raised {type(error).__name__}: {error!s:.200}"
    seconds = time.process_time() - begin
    if seen:
        return f"did {seen[:3]}"
    if seconds > MOST_SECONDS:
        return f"took {seconds:.1f} s"
    if {file.name for file in folder.iterdir()} != set(case.files):
        return "wrote beside itself"
    if refusal is not None:
        one = refusal.isprintable() and refusal.startswith(str(folder)) and len(refusal) < LONGEST
        return None if one else f"was refused so: {refusal!r:.300}"
    if case.refused:
        return "was read"
    tensors = model.extractor.network.state_dict().values()
    if not all(type(tensor) is torch.Tensor and not tensor.is_complex() for tensor in tensors):
        return "has something else than numbers"
    return None if plain(dataclasses.asdict(model.description)) else f"says {model.description!r:.300}"


@functools.cache
def corpus() -> dict[str, list[Case]]:
    """Group -> its releases."""
    groups: dict[str, list[Case]] = {}
    with warnings.catch_warnings(), small_networks():
        warnings.simplefilter("ignore")  # two members of one name
        for kind in RELEASES:
            groups[f"settings of {kind}"] = list(hostile_releases.settings(kind))
            groups[f"weights of {kind}"] = list(hostile_releases.weights_by_hand(kind))
        for form, cases in hostile_releases.mutations(BY_CHANCE).items():
            groups[f"chance: {form}"] = cases
    return groups


GROUPS = [
    *(f"{part} of {kind}" for kind in RELEASES for part in ("settings", "weights")),
    *(f"chance: {name}" for name in (*hostile_releases.FORMATS, *RELEASES)),
]


def write(folder: Path, files: Files) -> Path:
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


@pytest.fixture(scope="module", autouse=True)
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Published names stand for small networks; what is imported and evaluated once is so before the first watch."""
    folder = tmp_path_factory.mktemp("good")
    for row in {row.settings for row in (*NETWORKS.rows.values(), *FRONT_ENDS.rows.values()) if row.settings}:
        check_settings("", row, {})
    for name in NETWORKS.rows:
        NETWORKS.load(name)
    with small_networks(), mock.patch.object(onnx_graph, "PROBE_SECONDS", 0.2):
        for kind, sample in SAMPLES.items():
            model = load_model(write(folder / kind, sample.files()), device="cpu").description.model
            assert model["name"] == ("onnx" if kind == "onnx" else sample.network["name"])
        for form, content in hostile_releases.good_weights().items():
            files = {**SAMPLES["wespeaker"].files(), "avg_model.pt": content}
            assert load_model(write(folder / f"as {form}", files), device="cpu").description.model["name"] == "xvector"
        yield


def test_there_are_more_than_a_thousand():
    groups = corpus()
    assert list(groups) == GROUPS
    assert list(hostile_releases.good_weights()) == list(hostile_releases.FORMATS)
    distinct = {tuple(case.files.items()) for cases in groups.values() for case in cases}
    assert len(distinct) > 1000
    assert len({tuple(case.files.items()) for cases in groups.values() for case in cases if case.refused}) > 400
    assert min(map(len, groups.values())) >= 20


@pytest.mark.filterwarnings("ignore:invalid escape sequence:DeprecationWarning")
@pytest.mark.parametrize("group", GROUPS)
def test_hostile_releases_are_refused_or_numbers_alone(group, tmp_path, monkeypatch):
    cases = corpus()[group]
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    reset_peak(CPU)
    before = peak_bytes(CPU)
    problems = []
    for number, case in enumerate(cases):
        folder = tmp_path / str(number)
        folder.mkdir()
        if problem := problem_of(case, folder):
            problems.append(f"{case.name}: {problem}")
    assert problems == []
    assert peak_bytes(CPU) - before < MOST_BYTES
    assert list((tmp_path / "here").iterdir()) == []


@pytest.mark.parametrize("kind", RELEASES)
def test_what_is_no_file_is_refused_where_one_is_expected(kind, tmp_path):
    row = RELEASES[kind]
    for name in filter(None, (row.weights, row.text)):
        for what, make in hostile_releases.IN_ITS_PLACE.items():
            folder = write(tmp_path / f"{name}, {what}", SAMPLES[kind].files())
            (folder / name).unlink()
            make(str(folder / name))
            with watching() as seen, pytest.raises(UserError) as refusal:
                load_model(folder, device="cpu")
            assert seen == []
            assert str(refusal.value).startswith(str(folder))
            assert str(refusal.value).isprintable()


def test_the_command_refuses_one_of_every_group_in_a_sentence(tmp_path, capsys):
    for group, cases in corpus().items():
        if (case := next((case for case in cases if case.refused), None)) is None:
            continue
        folder = write(tmp_path / group, case.files)
        assert main(["convert-model", f"model={folder}", f"out={tmp_path / 'out'}"]) == 1
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.startswith(f"error: {folder}")
        assert said.err.count("\n") == 1
        assert not (tmp_path / "out").exists()
