"""EER on speakers held out of training, on trials that stay the same through a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from svtoolkit.config import TrainConfig
from svtoolkit.crops.loader import workers_of
from svtoolkit.crops.manifest import Manifest
from svtoolkit.data.bad_files import BadFile
from svtoolkit.data.feature_settings import StoredFeatures
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.data.trial_drawing import make_trials
from svtoolkit.data.trials import write_trials
from svtoolkit.errors import UserError, hide_credentials
from svtoolkit.optim import WeightAverage
from svtoolkit.runs.exp_dir import VALIDATION
from svtoolkit.scoring.cosine import EmbeddingTable, cosine_scores
from svtoolkit.scoring.extraction import EmbeddingExtractor
from svtoolkit.scoring.metrics import equal_error_rate, min_dcf
from svtoolkit.training.step import OptimizerStep


class HeldOutValidation:
    """Held-out speakers and their trials.

    Args:
        kaldi_dir: the held-out speakers.
        targets_per_speaker, seed: as for ``make_trials``.
        folder: gets the data directory and the trial list, so that the figures can be recomputed; URLs without
            their credentials.
    """

    def __init__(self, kaldi_dir: KaldiDir, *, targets_per_speaker: int, seed: int, folder: Path) -> None:
        self.utterances = kaldi_dir.utterances()
        self.trials = make_trials(kaldi_dir.spk2utt, seed=seed, targets_per_speaker=targets_per_speaker)
        shown = {recording: hide_credentials(location) for recording, location in kaldi_dir.wav_scp.items()}
        replace(kaldi_dir, wav_scp=shown).write(folder)
        write_trials(folder / "trials", self.trials)

    def run(self, extractor: EmbeddingExtractor) -> dict[str, float]:
        """Embed, score and evaluate: {"validation_eer": ..., "validation_min_dcf": ...}, both as fractions.

        Raises:
            UserError: an utterance cannot be read.
        """
        extraction = extractor.extract(self.utterances)
        if extraction.failures:
            utterance, reason = next(iter(extraction.failures.items()))
            raise UserError(
                f"validation: {len(extraction.failures)} utterances have no embedding, the first is {utterance!r}: "
                f"{reason}; repair the data directory with `svt validate`"
            )
        table = EmbeddingTable(extraction.utterances, extraction.embeddings)
        scores = cosine_scores(table, self.trials)
        eer, _ = equal_error_rate(scores, self.trials.target)
        dcf, _ = min_dcf(scores, self.trials.target, p_target=0.05)
        return {"validation_eer": eer, "validation_min_dcf": dcf}


def build_validation(
    config: TrainConfig,
    held_out: Manifest,
    step: OptimizerStep,
    stored: StoredFeatures | None = None,
    average: WeightAverage | None = None,
) -> tuple[Callable[[], dict[str, float]], list[BadFile]]:
    """Validation of the step's network as it is when this is called, and the utterances that are left out of it.

    All audio is read once: what would have no embedding, or that of silence, is in no trial. So are stored features.

    Args:
        stored: what the features are that the held-out speakers are listed by; None: they are listed by audio.
        average: of the weights; its figures are those of the same names after ``ema_``.

    Raises:
        UserError: what is left makes no trials.
    """
    extractor = EmbeddingExtractor(
        step.network,
        step.front_end,
        step.device,
        channel=config.data.channel,
        resample=config.data.resample,
        num_workers=max(1, workers_of(config.data.num_workers)),
        keys="data.",
        stored=stored is not None,
    )
    utterances = list(held_out)
    reasons = extractor.unusable(utterances)
    kept = np.array([row for row in range(len(utterances)) if row not in reasons], dtype=np.int64)
    if not len(kept):
        raise UserError(
            f"validation: no utterance of the held-out speakers can be used: {next(iter(reasons.values()))}"
        )
    folder = Path(config.exp_dir) / VALIDATION
    validation = HeldOutValidation(
        held_out.take(kept).kaldi_dir(),
        targets_per_speaker=config.validation.targets_per_speaker,
        seed=config.seed,
        folder=folder,
    )
    if stored is not None:
        stored.write(folder)
    bad = [BadFile(utterances[row].utterance_id, str(utterances[row].path), why) for row, why in reasons.items()]

    def run() -> dict[str, float]:
        figures = validation.run(extractor)
        if average is not None:
            with average.in_place_of_weights(step.network):
                figures |= {f"ema_{name}": value for name, value in validation.run(extractor).items()}
        return figures

    return run, bad
