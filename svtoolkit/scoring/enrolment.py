"""Models of several enrolment utterances, which trials name in place of one utterance (Kaldi's enrolment map)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from svtoolkit.data.trials import Trials
from svtoolkit.errors import UserError
from svtoolkit.scoring.cosine import EmbeddingTable, first_of
from svtoolkit.system.plain_data import MalformedError, read_text

MEANS = ("embeddings", "scores")
"""Of what the mean is taken: one score against the mean embedding, or the mean of the scores against each."""


@dataclass(frozen=True)
class EnrolledTrials:
    """Trials as they are scored.

    Attributes:
        table: embeddings of the utterances, and of the models where they have one.
        trials: pairs of what has an embedding in ``table``.
        listed: the trials whose models they are, in the order of the list.
        sizes: how many of ``trials``, one after the other, belong to each of them; shape (listed,).
    """

    table: EmbeddingTable
    trials: Trials
    listed: Trials
    sizes: np.ndarray

    def join(self, scores: np.ndarray) -> np.ndarray:
        """Mean scores of the listed trials, (listed,), from those of ``trials``."""
        begins = np.append(0, np.cumsum(self.sizes)[:-1])
        return np.add.reduceat(scores, begins) / self.sizes


def read_enrolments(path: str | Path) -> dict[str, list[str]]:
    """Model -> enrolment utterances, from lines `model utterance utterance ...`, as Kaldi's spk2utt.

    Raises:
        UserError: missing or empty file, a model without utterances or listed twice; names file and line.
    """
    if not Path(path).is_file():
        raise UserError(f"{path}: there is no such file; expected an enrolment map, lines `model utterance ...`")
    try:
        text = read_text(path)
    except MalformedError as error:
        raise UserError(f"{path}:{error.line}: is no UTF-8 text ({error}); re-encode it") from error
    models: dict[str, list[str]] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        model, *utterances = line.split()
        if not utterances or model in models:
            fault = f"lists the model {model!r} again" if utterances else f"lists no utterance for {model!r}"
            raise UserError(f"{path}:{number}: {fault}; expected `model utterance ...`, each model once")
        models[model] = list(dict.fromkeys(utterances))
    if not models:
        raise UserError(f"{path}: the enrolment map is empty; expected lines `model utterance ...`")
    return models


def enrol_models(
    table: EmbeddingTable, trials: Trials, models: Mapping[str, Sequence[str]], *, mean: str, allow_missing: bool
) -> EnrolledTrials:
    """Put models in the place of the enrolment utterances of trials.

    Args:
        table: embeddings of utterances.
        trials: a model and a test utterance each.
        models: model -> its enrolment utterances.
        mean: one of ``MEANS``; embeddings are averaged as they are, as WeSpeaker and Kaldi do.
        allow_missing: leave out utterances without an embedding, and trials that are left without any.

    Raises:
        UserError: another ``mean``, models that the map does not have, utterances without an embedding.
    """
    if mean not in MEANS:
        raise UserError(f"enrolment_mean is {mean!r}, expected {' or '.join(MEANS)}")
    unknown = sorted(set(trials.enrol) - models.keys())
    if unknown:
        raise UserError(
            f"{len(unknown)} models of the trials are not in the enrolment map: {first_of(unknown)}; expected trials "
            "`model test ...` of its models"
        )
    used = {model: models[model] for model in dict.fromkeys(trials.enrol)}
    wanted = {utterance for utterances in used.values() for utterance in utterances} | set(trials.test)
    missing = wanted - table.index.keys()
    if missing and not allow_missing:
        raise UserError(
            f"{len(missing)} of {len(wanted)} utterances of models and trials have no embedding: "
            f"{first_of(sorted(missing))}; extract them, or allow_missing=true leaves them out"
        )
    present = {model: [utt for utt in utts if utt not in missing] for model, utts in used.items()}
    rows = [
        row
        for row, (model, test) in enumerate(zip(trials.enrol, trials.test, strict=True))
        if present[model] and test not in missing
    ]
    if not rows:
        raise UserError(f"none of the {len(trials)} trials has embeddings of its model and its test utterance")
    listed = trials.take(np.array(rows)) if len(rows) < len(trials) else trials
    if mean == "embeddings":
        names = {model: f"{model} (model)" for model, utterances in present.items() if utterances}  # as no utterance
        means = [table.matrix[table.lookup(present[model])].mean(axis=0, dtype=np.float64) for model in names]
        matrix = np.concatenate([table.matrix, np.array(means, dtype=table.matrix.dtype)])
        recordings = np.array([1] * len(table) + [len(present[model]) for model in names])
        return EnrolledTrials(
            EmbeddingTable([*table.utterances, *names.values()], matrix, recordings),
            Trials([names[model] for model in listed.enrol], listed.test, listed.target),
            listed,
            np.ones(len(listed), dtype=np.int64),
        )
    sizes = np.array([len(present[model]) for model in listed.enrol])
    enrol = [utterance for model in listed.enrol for utterance in present[model]]
    test = [utterance for utterance, size in zip(listed.test, sizes, strict=True) for _ in range(size)]
    return EnrolledTrials(table, Trials(enrol, test, np.repeat(listed.target, sizes)), listed, sizes)
