"""svt verify: do two recordings share a speaker? One pair, or all pairs of a file.

Exit status of one pair: 0 same speaker, 2 different speakers, 3 no threshold and so no decision, 1 an error: a file
that cannot be read, or that is no speech. Of a file of pairs: 0 where all were compared, 1 where one could not be.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from svtoolkit.config import VerifyConfig
from svtoolkit.deploy.any_model import open_model
from svtoolkit.errors import UserError
from svtoolkit.scoring.verification import Verification

if TYPE_CHECKING:
    from svtoolkit.runtime.model import RuntimeModel
    from svtoolkit.scoring.speaker_model import SpeakerModel

SAME, DIFFERENT, NO_DECISION = 0, 2, 3
FORMATS = ("text", "json")


def run(config: VerifyConfig, _command_line: str) -> int:
    """Print score and decision; nothing is written."""
    _check(config)
    pairs = None if config.pairs is None else list(read_pairs(config.pairs))
    model = open_model(config)
    if config.name is not None:
        return _known_speaker(model, config)
    comparing = Comparing(model, config)
    if pairs is None:
        return _one_pair(comparing, config)
    failures = 0
    for enrol, test in pairs:
        result = comparing.compare([enrol], test)
        failures += isinstance(result, str)
        line = _as_json([enrol], test, result) if config.format == "json" else _as_line(enrol, test, result)
        print(line, flush=True)
    if failures:
        print(f"error: {failures} of {len(pairs)} pairs could not be compared; their lines say why", file=sys.stderr)
    return 1 if failures else 0


class Comparing:
    """Compares files, each of which is embedded once."""

    def __init__(self, model: SpeakerModel | RuntimeModel, config: VerifyConfig) -> None:
        self.model = model
        self.config = config
        self._embedded: dict[str, np.ndarray | str] = {}

    def compare(self, enrol: Sequence[str], test: str) -> Verification | str:
        """The decision, or why there is none."""
        found = [self._embed(file) for file in (*enrol, test)]
        embeddings = [embedding for embedding in found if not isinstance(embedding, str)]
        if len(embeddings) < len(found):
            return next(reason for reason in found if isinstance(reason, str))
        return self.model.decide(np.stack(embeddings[:-1]), embeddings[-1], threshold=self.config.threshold)

    def _embed(self, file: str) -> np.ndarray | str:
        if file not in self._embedded:
            try:
                self._embedded[file] = self.model.embed(file, min_voice=self.config.min_voice)
            except UserError as error:
                self._embedded[file] = str(error)
        return self._embedded[file]


def read_pairs(path: str) -> Iterator[tuple[str, str]]:
    """The two files of each line.

    Raises:
        UserError: missing or empty file, a line of another form; names file and line.
    """
    from svtoolkit.data.trials import trial_lines

    if not Path(path).is_file():
        raise UserError(f"{path}: there is no such file; expected lines `enrol test`, two audio files each")
    empty = True
    for number, line in trial_lines(path):
        files = line.split()
        if len(files) != 2:
            raise UserError(f"{path}:{number}: found {line!r}, expected two files without spaces: `enrol test`")
        empty = False
        yield files[0], files[1]
    if empty:
        raise UserError(f"{path}: is empty; expected lines `enrol test`, two audio files each")


def _check(config: VerifyConfig) -> None:
    if config.format not in FORMATS:
        raise UserError(f"format is {config.format!r}, expected text or json")
    if (config.name is None) != (config.store is None):
        raise UserError("svt verify: a speaker of a store needs both, name=... and store=...; give both, or enrol=...")
    if config.name is not None and (config.enrol or config.pairs):
        raise UserError("svt verify: found name=... beside enrol=... or pairs=...; leave out one of them")
    if config.name is not None:
        if not config.test:
            raise UserError("svt verify: required and not given: test; add test=...")
        return
    missing = [key for key, value in (("enrol", config.enrol), ("test", config.test)) if not value]
    if config.pairs is None and missing:
        added = " ".join(f"{key}=..." for key in missing)
        raise UserError(f"svt verify: required and not given: {', '.join(missing)}; add {added}, or pairs=FILE of many")
    if config.pairs is not None and len(missing) < 2:
        raise UserError("svt verify: found pairs=... beside enrol=... or test=...; leave out one of the two ways")


def _one_pair(comparing: Comparing, config: VerifyConfig) -> int:
    assert config.test is not None
    return _said(config.enrol, config.test, comparing.compare(config.enrol, config.test), config.format)


def _known_speaker(model: SpeakerModel | RuntimeModel, config: VerifyConfig) -> int:
    """Decide against a speaker of a store."""
    from svtoolkit.enrolment.model_identity import identify_model
    from svtoolkit.enrolment.store import SpeakerStore

    assert config.name is not None
    assert config.store is not None
    assert config.test is not None
    store = SpeakerStore(config.store)
    known = store.check_model(identify_model(model, config.model))
    enrolled = store.embeddings(config.name)
    test = model.embed(config.test, min_voice=config.min_voice)
    threshold = known.threshold if config.threshold is None else config.threshold
    return _said([config.name], config.test, model.decide(enrolled, test, threshold=threshold), config.format)


def _said(enrol: Sequence[str], test: str, result: Verification | str, form: str) -> int:
    """Print the decision on one pair; returns the exit status."""
    if form == "json":
        print(_as_json(enrol, test, result))
    if isinstance(result, str):
        raise UserError(result)
    if form == "text":
        print("\n".join(_as_text(result)))
    if result.same_speaker is None:
        return NO_DECISION
    return SAME if result.same_speaker else DIFFERENT


def _as_text(result: Verification) -> Iterator[str]:
    yield f"score {result.score:.4f}"
    if result.llr is not None:
        yield f"log-likelihood ratio {result.llr:.2f} (natural logarithm; above 0: rather the same speaker)"
    if result.threshold is None:
        yield (
            "no decision: the model has no threshold; give threshold=... or store one with `svt calibrate` or "
            "`svt evaluate`"
        )
        return
    point = f", {result.operating_point}" if result.operating_point else ""
    yield f"{result.decision} (threshold {result.threshold:.4f}{point})"
    rates = [
        f"{100 * rate:.3g} % {name}"
        for name, rate in (("false alarms", result.p_fa), ("misses", result.p_miss))
        if rate is not None
    ]
    if rates:
        yield f"expected at this threshold: {', '.join(rates)}"


def _as_line(enrol: str, test: str, result: Verification | str) -> str:
    if isinstance(result, str):
        return f"{enrol} {test} error: {result}"
    return f"{enrol} {test} {result.score:.4f} {result.decision or 'no decision'}"


def _as_json(enrol: Sequence[str], test: str, result: Verification | str) -> str:
    record: dict[str, Any] = {"enrol": list(enrol), "test": test}
    return json.dumps(record | ({"error": result} if isinstance(result, str) else result.as_dict()))
