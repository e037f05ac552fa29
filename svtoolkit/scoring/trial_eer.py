"""The equal error rate of an extractor on the trials of a data directory, in one step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from svtoolkit.data.kaldi_dir import Utterance
from svtoolkit.data.trials import Trials
from svtoolkit.errors import UserError
from svtoolkit.scoring.cosine import EmbeddingTable, cosine_scores
from svtoolkit.scoring.extraction import EmbeddingExtractor
from svtoolkit.scoring.metrics import equal_error_rate


def trial_eer(
    extractor: EmbeddingExtractor, utterances: Sequence[Utterance], trials: Trials | None
) -> tuple[float | None, np.ndarray]:
    """EER of the plain cosine, as a fraction, None without trials; and the embeddings, (utterances, embedding_dim).

    Raises:
        UserError: an utterance without an embedding, or trials of others.
    """
    extraction = extractor.extract(utterances)
    if extraction.failures:
        utterance, reason = next(iter(extraction.failures.items()))
        raise UserError(
            f"{len(extraction.failures)} utterances have no embedding, the first is {utterance!r}: {reason}; repair "
            "the data directory with `svt validate`"
        )
    if trials is None:
        return None, extraction.embeddings
    scores = cosine_scores(EmbeddingTable(extraction.utterances, extraction.embeddings), trials)
    return equal_error_rate(scores, trials.target)[0], extraction.embeddings
