"""The model of a command that embeds single recordings: a released one by torch, an exported file without."""

from __future__ import annotations

from typing import TYPE_CHECKING

from svtoolkit.checkpoints.exported import is_exported
from svtoolkit.errors import UserError

if TYPE_CHECKING:
    from svtoolkit.runtime.model import RuntimeModel
    from svtoolkit.scoring.speaker_model import ModelSettings, SpeakerModel


def open_model(
    config: ModelSettings, *, threads: int | None = None, runtime: str | None = None
) -> SpeakerModel | RuntimeModel:
    """Load the model that a command names; torch is imported only where it is no exported file.

    Args:
        threads: of the CPU; None: torch's choice, and of an exported file one for each core.
        runtime: of an exported file; None: onnxruntime.

    Raises:
        UserError: as the models; settings that an exported file has no use for.
    """
    if not is_exported(config.model):
        refuse_runtime(runtime, config.model)
        import torch

        from svtoolkit.scoring.speaker_model import SpeakerModel

        if threads is not None:
            torch.set_num_threads(threads)
        return SpeakerModel.of(config)
    for key, value, usual in (("device", config.device, ("auto", "cpu")), ("front_end", config.front_end, (None,))):
        if value not in usual:
            raise UserError(
                f"{key} is {value!r:.80}, but {config.model} is an exported file, which says its features and runs on "
                "the CPU; leave it out"
            )
    from svtoolkit.runtime.model import RuntimeModel

    return RuntimeModel.load(
        config.model, runtime=runtime or "onnx", threads=threads, channel=config.channel, resample=config.resample
    )


def refuse_runtime(runtime: str | None, model: str) -> None:
    """Refuse ``runtime=`` of a model that is no exported file.

    Raises:
        UserError: one was given.
    """
    if runtime is not None:
        raise UserError(
            f"runtime is {runtime!r:.80}, but {model} is no file of `svt export`; make one, or leave it out"
        )
