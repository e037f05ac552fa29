"""Settings of `svt compress`."""

from __future__ import annotations

from dataclasses import dataclass

from svtoolkit.config.compression import LAYERS, PARAMETERS
from svtoolkit.config.data import ROOT
from svtoolkit.config.scoring import FRONT_END
from svtoolkit.config.setting import REQUIRED, setting


@dataclass
class CompressModelConfig:
    """`svt compress`: a released model with layers of low rank, cut without training."""

    model: str = setting(
        REQUIRED, "released model, ours or another toolkit's, or hf://org/name (docs/released_models.md)"
    )
    out: str = setting(REQUIRED, "folder to make, of a released model that `svt train init_from=...` can fine-tune")
    layers: list[str] = setting([], LAYERS)
    min_values: int = setting(65536, "a matrix of fewer values stays whole")
    variance: float | None = setting(
        None, "share of the variance of each layer that its rank explains; null: 0.9, unless another is given"
    )
    parameters: float | None = setting(None, PARAMETERS)
    rank: int | None = setting(None, "the same for all layers")
    calibration: str | None = setting(
        None,
        "Kaldi data directory of speech, to what layers make of which they are cut: much less is lost than by cutting "
        "to the weights alone; null: to these",
    )
    calibration_utterances: int = setting(200, "recordings taken of these at most, evenly over the list")
    data: str | None = setting(
        None, "Kaldi data directory whose embeddings are compared, with each layer cut alone; null: none are"
    )
    trials: str | None = setting(None, "trials of these utterances, for the EER; null: the first list of data, if any")
    root: str | None = setting(None, ROOT)
    front_end: str | None = setting(None, FRONT_END)
    device: str = setting("auto", "auto (cuda where there is one), cpu, cuda or mps (a Mac's GPU)")
    threads: int | None = setting(None, "CPU threads of the arithmetic; null: torch's choice")
