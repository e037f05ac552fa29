"""A small release of every kind: what `svt convert-model` makes of it, and weights that are no numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from small_releases import SAMPLES, Files, small_networks

from svtoolkit import load_model
from svtoolkit.checkpoints.kinds import KINDS, RUN
from svtoolkit.checkpoints.releases import find_release, read_release
from svtoolkit.cli import main
from svtoolkit.errors import UserError

torch.set_num_threads(1)

LENGTHS = (9_600, 20_001)
"""Samples of waveforms."""


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    with small_networks():
        yield


def write(folder: Path, files: Files) -> Path:
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def test_there_is_a_sample_of_every_kind(tmp_path):
    found = {find_release(write(tmp_path / kind, sample.files())).kind.name for kind, sample in SAMPLES.items()}
    absent = {"transformers": "transformers", "onnx": "ONNX"}
    without = {name for kind, name in absent.items() if kind not in SAMPLES}
    assert found == {kind.name for kind in KINDS} - {RUN.name} - without


@pytest.mark.parametrize("kind", SAMPLES)
def test_what_is_converted_gives_the_embeddings_of_the_release(kind, tmp_path, capsys):
    release, ours = write(tmp_path / "release", SAMPLES[kind].files()), tmp_path / "ours"
    assert main(["convert-model", f"model={release}", f"out={ours}"]) == 0, capsys.readouterr().err
    assert find_release(ours).is_ours
    before, after = (load_model(folder, device="cpu") for folder in (release, ours))
    assert before.description == after.description
    assert after.description.weights_sha256 is not None
    generator = np.random.default_rng(0)
    for samples in LENGTHS:
        waveforms = list((0.1 * generator.standard_normal((3, samples))).astype(np.float32))
        expected = before.embed(waveforms)
        assert np.isfinite(expected).all()
        assert expected.any()
        np.testing.assert_array_equal(after.embed(waveforms), expected)
        np.testing.assert_array_equal(after.embed(waveforms[0]), before.embed(waveforms[0]))


@pytest.mark.parametrize("kind", [kind for kind in SAMPLES if kind != "onnx"])
def test_weights_that_are_no_numbers_are_named(kind, tmp_path):
    sample = SAMPLES[kind]
    name, good = next((name, tensor) for name, tensor in sample.weights.items() if tensor.is_floating_point())
    for value in (math.nan, math.inf, -math.inf):
        bad = good.clone()
        bad.view(-1)[-1] = value
        folder = write(tmp_path / str(value), sample.files(**{name: bad}))
        with pytest.raises(UserError) as refusal:
            read_release(folder)
        message = str(refusal.value)
        assert message.startswith(str(folder / find_release(folder).weights.name))
        assert f"'{name}' (under our names) has values that are NaN or infinite; copy or download the file" in message
        assert message.isprintable()


def test_large_weights_whose_sum_is_infinite_are_numbers(tmp_path):
    sample = SAMPLES["ours"]
    name, good = next(item for item in sample.weights.items() if item[1].numel() > 2 and item[1].is_floating_point())
    large = torch.full_like(good, 3e38)
    assert large.sum().isinf()
    network, _ = read_release(write(tmp_path / "large", sample.files(**{name: large})))
    assert torch.equal(network.state_dict()[name], large)
