"""Names of devices and precisions, with and without CUDA (which is pretended where it is not there)."""

from __future__ import annotations

import pytest
import torch

from svtoolkit.device import PRECISIONS, autocast, choose_device, half_precision
from svtoolkit.errors import UserError

torch.set_num_threads(1)


@pytest.fixture
def no_cuda(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.fixture
def two_gpus(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


def refusal(name: str) -> str:
    with pytest.raises(UserError) as caught:
        choose_device(name)
    return str(caught.value)


def test_auto_without_cuda(no_cuda):
    assert choose_device("auto") == torch.device("cpu")


def test_auto_with_cuda(two_gpus):
    assert choose_device("auto") == torch.device("cuda")


def test_cpu_is_there_with_and_without_cuda(two_gpus):
    assert choose_device("cpu") == torch.device("cpu")


@pytest.mark.parametrize("name", ["cuda", "cuda:0", "cuda:1"])
def test_a_gpu_that_is_there(two_gpus, name):
    assert choose_device(name) == torch.device(name)


@pytest.mark.parametrize("name", ["cuda", "cuda:0", "cuda:7"])
def test_cuda_that_is_not_there(no_cuda, name):
    assert refusal(name) == f"device is {name}, but torch {torch.__version__} sees no CUDA device; use device=cpu"


def test_a_gpu_beyond_the_last(two_gpus):
    assert refusal("cuda:2") == "device is cuda:2, but torch sees 2 CUDA devices; expected cuda:0 to cuda:1"


@pytest.mark.parametrize(
    "name",
    ["", "gpu", "CUDA", "MPS", "mps:0", "cudax", "cuda:", "cuda:x", "cuda:-1", "cpu:x", "cpu:0:1", " cpu", "cuda:1 "],
)
@pytest.mark.parametrize("cuda", ["no_cuda", "two_gpus"])
def test_unknown_names(request, name, cuda):
    request.getfixturevalue(cuda)
    assert refusal(name) == f"device is {name!r}, expected auto, cpu, cuda, cuda:N or mps"


@pytest.mark.parametrize(
    ("precision", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)]
)
def test_a_matrix_product_in_each_precision(precision, dtype):
    left, right = torch.randn(2, 3), torch.randn(3, 4)
    with autocast(torch.device("cpu"), precision):
        assert (left @ right).dtype == dtype
    assert (left @ right).dtype == torch.float32


def test_fp32_switches_an_outer_autocast_off():
    with torch.autocast("cpu", torch.bfloat16), autocast(torch.device("cpu"), "fp32"):
        assert (torch.randn(2, 3) @ torch.randn(3, 4)).dtype == torch.float32


def test_every_precision_is_known_to_autocast():
    assert list(PRECISIONS) == ["fp32", "bf16", "fp16"]


def test_an_unknown_precision():
    with pytest.raises(UserError) as caught:
        autocast(torch.device("cpu"), "float16")
    assert str(caught.value) == "precision is 'float16', expected one of fp32, bf16, fp16"


def test_a_device_without_the_precision(monkeypatch):
    def refuse(*_, **__):
        raise RuntimeError("This device does not support bfloat16.")

    monkeypatch.setattr(torch, "autocast", refuse)
    with pytest.raises(UserError) as caught:
        autocast(torch.device("cpu"), "bf16")
    assert str(caught.value) == (
        "precision is bf16, which cpu cannot do (This device does not support bfloat16.); use fp32"
    )


def test_gpus_before_ampere_have_fp16_and_refuse_bf16(two_gpus, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA GeForce RTX 2080 Ti")
    gpu = torch.device("cuda", 0)
    assert half_precision(gpu) == "fp16"
    with pytest.raises(UserError, match=r"which NVIDIA GeForce RTX 2080 Ti has no conv.*7\.5.*use fp16"):
        autocast(gpu, "bf16")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    assert half_precision(gpu) == "bf16"
    assert half_precision(torch.device("cpu")) == "bf16"
