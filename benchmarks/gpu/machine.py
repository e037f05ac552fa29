"""Part machine: what the GPU reaches, to which predictions of time and `memory.intensity` refer."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from benchmarks.gpu.parts import Items, Settings
from benchmarks.gpu.subjects import cudnn_switched, seconds_of

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def items(settings: Settings) -> Items:
    """Keys: what is moved or computed."""
    for precision in DTYPES:
        for tf32 in (False, True) if precision == "fp32" else (False,):
            words = precision + (", TF32" if tf32 else "")
            yield f"matrix product, {words}", partial(matrix_product, precision, tf32, settings)
            for width in (32, 128):
                yield (
                    f"convolution of {width} channels, {words}",
                    partial(convolution, width, precision, tf32, settings),
                )
    yield "copy on the device", partial(copy, "device", settings)
    yield "copy to the device, pinned", partial(copy, "host", settings)
    yield "copy from the device, pinned", partial(copy, "back", settings)


def matrix_product(precision: str, tf32: bool, settings: Settings) -> dict[str, Any]:
    """FLOP a second."""
    size = 64 if settings.tiny else 4096
    one, other = (torch.randn(size, size, device=settings.device, dtype=DTYPES[precision]) for _ in range(2))
    with cudnn_switched(deterministic=True, tf32=tf32):
        found = seconds_of(lambda: one @ other, settings)
    return {**found, "flops_per_second": 2 * size**3 / found["median_s"]}


def convolution(width: int, precision: str, tf32: bool, settings: Settings) -> dict[str, Any]:
    """FLOP a second, forward and backward, of 3x3 on the maps of a stage."""
    batch, rows, columns = (1, 8, 8) if settings.tiny else (32, 80, 200) if width < 64 else (32, 20, 50)
    layer = torch.nn.Conv2d(width, width, 3, padding=1, bias=False)
    layer = layer.to(settings.device, DTYPES[precision], memory_format=torch.channels_last)
    x = torch.randn(batch, width, rows, columns, device=settings.device, dtype=DTYPES[precision])
    x = x.to(memory_format=torch.channels_last).requires_grad_()

    def run() -> None:
        layer(x).sum().backward()

    with cudnn_switched(deterministic=True, tf32=tf32):
        found = seconds_of(run, settings)
    return {**found, "flops_per_second": 3 * 2 * 9 * width**2 * batch * rows * columns / found["median_s"]}


def copy(way: str, settings: Settings) -> dict[str, Any]:
    """Bytes that arrive a second."""
    count = 2**16 if settings.tiny else 2**26
    cuda = settings.device.type == "cuda"
    near = torch.empty(count, device=settings.device)
    far = torch.empty(count, pin_memory=cuda) if way != "device" else torch.empty_like(near)
    source, target = (near, far) if way == "back" else (far, near)
    found = seconds_of(lambda: target.copy_(source, non_blocking=True), settings)
    return {**found, "bytes_per_second": 4 * count / found["median_s"]}
