"""What can be embedded: a path, an open file, an array or a tensor."""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from svtoolkit.audio.files import convert_rate, name_of, read_audio
from svtoolkit.errors import UserError

Samples: TypeAlias = "npt.NDArray[Any] | torch.Tensor"
Audio: TypeAlias = "str | Path | BinaryIO | Samples | tuple[Samples, int]"
"""A path; a file object open for reading bytes; samples in [-1, 1], of an array (samples,) or a tensor (samples,) or
(channels, samples); or samples with their rate in Hz, as soundfile.read and torchaudio.load return them."""


def read_samples(
    audio: Audio, *, sample_rate: int, given_rate: int | None = None, channel: int | None = None, resample: bool = False
) -> npt.NDArray[np.float32]:
    """Samples of one channel at a rate: (samples,) float32.

    Args:
        sample_rate: wanted, in Hz.
        given_rate: of an array or a tensor that comes without one; None: ``sample_rate``.
        channel: to take of several, counted from 0.
        resample: convert what has another rate instead of refusing it.

    Raises:
        UserError: a file that cannot be read, another rate, several channels and none chosen, samples that are
            integers or of another shape, an object of another type.
    """
    if isinstance(audio, tuple):
        samples, given_rate = audio
        return read_samples(samples, sample_rate=sample_rate, given_rate=given_rate, channel=channel, resample=resample)
    if isinstance(audio, np.ndarray | torch.Tensor):
        mono = _one_channel(audio, channel)
        rate = sample_rate if given_rate is None else given_rate
        if rate == sample_rate:
            return mono
        if not resample:
            raise UserError(
                f"found samples of {rate} Hz, expected {sample_rate} Hz; convert them, or load the model with "
                "resample=True"
            )
        return convert_rate(mono, rate, sample_rate)
    if isinstance(audio, str | Path) or hasattr(audio, "read"):
        return read_audio(audio, sample_rate=sample_rate, channel=channel, resample=resample)
    raise UserError(
        f"found {type(audio).__name__}, expected a path, a file object, an array, a tensor, or samples with their rate"
    )


def described(audio: Audio) -> str:
    """How a message begins that is about a file; empty for samples, which have no name."""
    if isinstance(audio, tuple | np.ndarray | torch.Tensor):
        return ""
    return f"{name_of(audio)}: "


def _one_channel(samples: Samples, channel: int | None) -> npt.NDArray[np.float32]:
    """(samples,) float32 of an array, or of a tensor of one or several channels."""
    if isinstance(samples, torch.Tensor):
        if samples.ndim == 2 and (channel is not None or len(samples) == 1):
            if not 0 <= (channel or 0) < len(samples):
                raise UserError(f"there is no channel {channel}, the tensor has {len(samples)} (counted from 0)")
            samples = samples[channel or 0]
        if not samples.is_floating_point():
            raise UserError(_not_floating(str(samples.dtype).removeprefix("torch.")))
        samples = samples.detach().to("cpu", torch.float32).numpy()
    if not np.issubdtype(samples.dtype, np.floating):
        raise UserError(_not_floating(str(samples.dtype)))
    if samples.ndim != 1:
        raise UserError(
            f"found samples of shape {tuple(samples.shape)}, expected one channel of shape (samples,); choose one"
        )
    return np.ascontiguousarray(samples, dtype=np.float32)


def _not_floating(kind: str) -> str:
    return f"found samples of type {kind}, expected floating-point numbers in [-1, 1]; divide 16-bit samples by 32768"
