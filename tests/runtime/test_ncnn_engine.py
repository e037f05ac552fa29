"""Graphs whose convolutions ncnn runs: the same embeddings as by onnxruntime, and what it cannot have."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable

import numpy as np
import onnx
import pytest
import torch
from torch import nn

from svtoolkit.deploy.graph import export_graph
from svtoolkit.deploy.precision import quantise, store_in_16_bits
from svtoolkit.errors import UserError
from svtoolkit.models import build_model
from svtoolkit.models.front_ends import features_config, front_end_of
from svtoolkit.runtime import ncnn_engine
from svtoolkit.runtime.engines import OnnxRuntime
from svtoolkit.runtime.ncnn_engine import SPINS, Ncnn

pytest.importorskip("ncnn")
torch.set_num_threads(1)
BINS = 24
FRONT_END = front_end_of(features_config({"num_bins": BINS}))
NARROW = {"num_bins": BINS, "embedding_dim": 16, "base_width": 8}


def frames_of(batch: int, length: int) -> np.ndarray:
    return np.random.default_rng(length).standard_normal((batch, length, BINS)).astype(np.float32)


def export(network: nn.Module, *, waveform: bool = False) -> bytes:
    torch.manual_seed(0)
    with torch.no_grad():
        network.train()(torch.randn(4, 80, BINS))
    return export_graph(network.eval(), FRONT_END, waveform=waveform)


@pytest.fixture(scope="module")
def resnet() -> bytes:
    torch.manual_seed(0)
    return export(build_model("resnet10", **NARROW))


def assert_equal(content: bytes, values: np.ndarray, name: str = "feats") -> None:
    found, expected = Ncnn(content, 1).run(name, values), OnnxRuntime(content, 1).run(name, values)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize(("batch", "length"), [(1, 60), (3, 60), (1, 61), (2, 37), (1, 9)])
def test_embeddings_are_those_of_onnxruntime(resnet, batch, length):
    assert_equal(resnet, frames_of(batch, length))


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("resnet34", {"base_width": 8}),
        ("resnet50", {"base_width": 8}),
        ("df_resnet56", {}),  # grouped convolutions
        ("repvgg_b1g2", {}),  # grouped by two; norms of maps as they are
        ("resnet10", {"base_width": 6, "ranks": {"embedding": 4}}),
    ],
)
def test_families(name, settings):
    torch.manual_seed(1)
    assert_equal(export(build_model(name, num_bins=BINS, embedding_dim=16, **settings)), frames_of(1, 50))


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_weights_of_16_bits(resnet, precision):
    assert_equal(store_in_16_bits(resnet, precision), frames_of(1, 60))


def test_the_front_end_inside_the_graph():
    torch.manual_seed(0)
    content = export(build_model("resnet10", **NARROW), waveform=True)
    samples = np.random.default_rng(0).standard_normal((1, 9000)).astype(np.float32) * 0.1
    assert_equal(content, samples, "waveform")


class OverTime(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.only = nn.Conv1d(BINS, 4, 3)

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        return self.only(frames.transpose(1, 2)).mean(2)


class Gated(nn.Module):
    """A factor for each map stands between two convolutions, as in squeeze and excitation."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 3)

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        maps = self.first(frames.unsqueeze(1))
        return self.second(maps * torch.sigmoid(maps.mean((2, 3), keepdim=True))).mean((2, 3))


class TwoRead(Gated):
    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        maps = self.first(frames.unsqueeze(1))
        return self.second(maps).mean((2, 3)) + maps.mean((2, 3))


class Uneven(nn.Module):
    """Maps that two layers read, kernels, strides and padding that differ by axis; what is made is read as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 6, (5, 3), stride=(2, 1), padding=(2, 0), bias=False)
        self.second = nn.Conv2d(6, 6, 3, padding=(2, 1), dilation=(2, 1), groups=3)
        self.third = nn.Conv2d(6, 4, (1, 2))

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        maps = self.first(frames.transpose(1, 2).unsqueeze(1))
        added = torch.relu(maps) + self.second(maps) + maps
        return self.third(torch.relu(added)).mean((2, 3))


@pytest.mark.parametrize("length", [31, 40])
def test_every_setting_of_a_convolution(length):
    torch.manual_seed(0)
    assert_equal(export_graph(Uneven().eval(), FRONT_END, waveform=False), frames_of(2, length))


def small_graph(*nodes: onnx.NodeProto, **constants: np.ndarray) -> bytes:
    given, made = (
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", None, None, None])
        for name in ("maps", "embs")
    )
    tensors = [onnx.numpy_helper.from_array(value.astype(np.float32), name) for name, value in constants.items()]
    graph = onnx.helper.make_graph(nodes, "small", [given], [made], tensors)
    content = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    return bytes(content.SerializeToString())


def conv(read: str, kernel: str, made: str, **settings: object) -> onnx.NodeProto:
    return onnx.helper.make_node("Conv", [read, *kernel.split()], [made], name=made, **settings)


KERNEL = np.random.default_rng(0).standard_normal((4, 3, 3, 3))


def test_a_graph_of_convolutions_alone():
    content = small_graph(conv("maps", "kernel", "embs", pads=[1, 1, 0, 2], strides=[1, 2]), kernel=KERNEL)
    values = np.random.default_rng(1).standard_normal((2, 3, 7, 9)).astype(np.float32)
    assert_equal(content, values, "maps")
    with pytest.raises(ValueError, match=r"its convolutions read 3 maps, found the shape \(2, 1, 7, 9\)"):
        Ncnn(content, 1).run("maps", values[:, :1])


@pytest.mark.parametrize(
    ("nodes", "constants"),
    [
        ([conv("maps", "kernel", "a"), conv("a", "kernel", "embs")], {}),
        ([conv("maps", "kernel bias", "embs")], {"bias": np.zeros(3)}),
        ([conv("maps", "kernel", "embs", pads=[-1, 0, 0, 0])], {}),
        ([conv("maps", "kernel", "embs", strides=[0, 1])], {}),
        (
            [
                conv("maps", "kernel", "a", pads=[1, 1, 1, 1]),
                conv("maps", "kernel", "b", pads=[1, 1, 1, 1], strides=[2, 1]),
                onnx.helper.make_node("Add", ["a", "b"], ["embs"], name="embs"),
            ],
            {},
        ),
        (
            [
                conv("maps", "kernel", "a"),
                onnx.helper.make_node("BatchNormalization", ["a", *["short"] * 4], ["embs"], name="embs"),
            ],
            {"short": np.ones(2)},
        ),
    ],
    ids=["channels", "bias", "padding", "stride", "sum", "norm"],
)
def test_sizes_that_do_not_fit_are_refused(nodes, constants):
    """ncnn would read beyond the end of what is there."""
    with pytest.raises(ValueError, match=r"its (Conv|Add|BatchNormalization) 'embs' does not fit the maps"):
        Ncnn(small_graph(*nodes, kernel=KERNEL, **constants), 1)


def test_runs_beside_each_other(resnet):
    engine, found = Ncnn(resnet, 2, streams=2), {}
    given = {number: frames_of(1, 40 + number) for number in range(6)}
    threads = [
        threading.Thread(target=lambda number=number: found.update({number: engine.run("feats", given[number])}))
        for number in given
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, values in given.items():
        np.testing.assert_array_equal(found[number], engine.run("feats", values))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda resnet: export(OverTime()), "no convolutions in two dimensions in float32"),
        (lambda resnet: quantise(resnet, "feats", [frames_of(1, 60)]), "no convolutions in two dimensions in float32"),
        (lambda resnet: export(Gated()), "an operation Mul between or in its convolutions"),
        (lambda resnet: export(TwoRead()), "2 maps of its convolutions are read by other operations"),
        (lambda resnet: resnet[:1000], "it is cut off"),
    ],
    ids=["over time", "8 bits", "others between", "two read", "damaged"],
)
def test_what_it_cannot_have(resnet, make: Callable[[bytes], bytes], said):
    with pytest.raises(ValueError, match=said):
        Ncnn(make(resnet), 1)


def test_recordings_of_no_frame(resnet):
    with pytest.raises(ValueError, match="ncnn cannot run its convolutions on it"):
        Ncnn(resnet, 1).run("feats", frames_of(1, 0))


def test_a_package_that_is_missing(resnet, monkeypatch):
    def missing():
        raise ImportError("No module named 'ncnn'")

    monkeypatch.setattr(ncnn_engine, "_import_ncnn", missing)
    with pytest.raises(UserError, match=r"ncnn needs the packages ncnn and onnx, .*'ncnn'.*pip install ncnn onnx"):
        Ncnn(resnet, 1)


@pytest.mark.parametrize("given", [None, "77"])
def test_the_variable_of_its_threads_is_put_back(given):
    code = (
        "import os; from svtoolkit.runtime.ncnn_engine import SPINS, _import_ncnn; "
        "_import_ncnn(); print(os.environ.get(SPINS))"
    )
    environment = {key: value for key, value in os.environ.items() if key != SPINS}
    environment |= {} if given is None else {SPINS: given}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == str(given)
