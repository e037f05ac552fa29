"""Where and how precisely the arithmetic runs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import Tensor

from svtoolkit.errors import UserError

_OUT_OF_MEMORY = ("MPS backend out of memory", "DefaultCPUAllocator: ", "CUDNN_STATUS_ALLOC_", "CUBLAS_STATUS_ALLOC_")
"""In the message of a RuntimeError. The CPU's allocator has nothing else to complain of."""

PRECISIONS: dict[str, torch.dtype | None] = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


def choose_device(name: str, key: str = "device") -> torch.device:
    """auto (CUDA where there is one, else the CPU), cpu, cuda, cuda:N or mps (the GPU of a Mac).

    Args:
        key: that a user sets it by, for messages.

    Raises:
        UserError: the name is unknown, or a GPU is asked for that is not there.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    found = re.fullmatch("cpu|mps|cuda(:([0-9]+))?", name)
    if found is None:
        raise UserError(f"{key} is {name!r}, expected auto, cpu, cuda, cuda:N or mps")
    if name == "mps" and not torch.backends.mps.is_available():
        raise UserError(
            f"{key} is mps, but torch {torch.__version__} sees no GPU of a Mac (Apple silicon or AMD, macOS 12.3 or "
            f"newer); use {key}=cpu"
        )
    if name.startswith("cuda"):
        if not torch.cuda.is_available():
            raise UserError(f"{key} is {name}, but torch {torch.__version__} sees no CUDA device; use {key}=cpu")
        count = torch.cuda.device_count()
        if int(found[2] or 0) >= count:
            raise UserError(
                f"{key} is {name}, but torch sees {count} CUDA devices; expected cuda:0 to cuda:{count - 1}"
            )
    return torch.device(name)


def leaves_mps_idle(name: str) -> bool:
    """Whether ``auto`` computes on the CPU of a Mac whose GPU could be asked for: nobody has seen it compute yet."""
    return name == "auto" and not torch.cuda.is_available() and torch.backends.mps.is_available()


def half_precision(device: torch.device) -> str:
    """The precision of 16 bits that a device computes convolutions in: fp16 on GPUs before Ampere, else bf16."""
    is_old = device.type == "cuda" and torch.cuda.get_device_capability(device) < (8, 0)
    return "fp16" if is_old else "bf16"


def autocast(device: torch.device, precision: str) -> AbstractContextManager[None]:
    """Context of the forward pass for fp32, bf16 or fp16.

    Raises:
        UserError: unknown precision, or one that the device does not have.
    """
    if precision not in PRECISIONS:
        raise UserError(f"precision is {precision!r}, expected one of {', '.join(PRECISIONS)}")
    dtype = PRECISIONS[precision]
    if device.type == "mps" and dtype is not None:
        raise UserError(
            f"precision is {precision}, with which several releases of torch compute wrong gradients on mps; use fp32"
        )
    if precision == "bf16" and half_precision(device) != "bf16":
        major, minor = torch.cuda.get_device_capability(device)
        raise UserError(
            f"precision is bf16, which {torch.cuda.get_device_name(device)} has no convolutions for (its compute "
            f"capability is {major}.{minor}, expected 8.0 or more); use fp16"
        )
    try:
        return torch.autocast(device.type, dtype=dtype, enabled=dtype is not None)
    except RuntimeError as error:
        raise UserError(f"precision is {precision}, which {device} cannot do ({error}); use fp32") from error


def send(tensors: Iterable[Tensor], device: torch.device) -> list[Tensor]:
    """Tensors on another device; to CUDA the copy of pinned ones is asynchronous.

    To mps an asynchronous one may read what is overwritten meanwhile (https://github.com/pytorch/pytorch/issues/139550).
    """
    return [tensor.to(device, non_blocking=device.type == "cuda") for tensor in tensors]


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory has run out, of a GPU or of the machine; some say so in words alone."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or (
        isinstance(error, RuntimeError) and any(words in str(error) for words in _OUT_OF_MEMORY)
    )


def empty_cache(device: torch.device) -> None:
    """Give memory of the GPU that no tensor uses back to the system."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
    elif device.type == "mps":
        torch.mps.empty_cache()


def synchronize(device: torch.device) -> None:
    """Wait until the GPU has done what it was told to."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


@contextmanager
def single_threads(count: int) -> Iterator[ThreadPoolExecutor]:
    """Threads in each of which torch has one thread; nothing that waits is begun after an error."""
    before = torch.get_num_threads()
    pool = ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(1,))
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(before)
