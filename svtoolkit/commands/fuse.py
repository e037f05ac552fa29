"""svt fuse: scores of several systems, and quality measures, as one calibrated log-likelihood ratio a trial."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from svtoolkit.config import FuseConfig
from svtoolkit.data.trials import Trials, read_trials
from svtoolkit.data.utt2spk import read_utt2spk
from svtoolkit.errors import UserError
from svtoolkit.runs.provenance import read_record, write_record
from svtoolkit.scoring.bootstrap import trial_speakers
from svtoolkit.scoring.calibration import cllr
from svtoolkit.scoring.fusion import Features, Fusion, check_unheard, fit_fusion, trial_features
from svtoolkit.scoring.quality.table import read_quality
from svtoolkit.scoring.score_file import align_scores, write_scores
from svtoolkit.system.output import say_next
from svtoolkit.system.regular_file import is_regular

log = logging.getLogger(__name__)

FEW_SPEAKERS = 50
"""With eight a fusion with quality measures doubled the error rate on other speakers; with 200 it did not."""


@dataclass(frozen=True)
class Trained:
    """A fusion, and whose trials it was trained with.

    Attributes:
        speakers: of these trials, sorted; None where nothing says who they are.
    """

    fusion: Fusion
    speakers: list[str] | None


def run(config: FuseConfig, command_line: str) -> int:
    """Train or read a fusion, write log-likelihood ratios; weights and speakers go to <out>.yaml."""
    _check(config)
    trials = read_trials(config.trials)
    trained = _train(config, trials) if config.fusion is None else _read(config.fusion)
    if trained.speakers is not None and config.utt2spk is not None:
        check_unheard(set(trained.speakers), _speakers(trials, config.utt2spk))
    else:
        log.warning("utt2spk or train_utt2spk is not given: whether both lists share speakers is not checked")
    features = _features(config.scores, trials, config.quality)
    write_scores(config.out, trials, trained.fusion.llr(features))
    facts = asdict(config) | {"trained": asdict(trained)}
    write_record(f"{config.out}.yaml", command_line, facts)
    log.info("%d trials fused -> %s", len(trials), config.out)
    of_speakers = [] if config.utt2spk is None else ["--utt2spk", config.utt2spk]
    say_next("svt", "evaluate", "--scores", config.out, "--trials", config.trials, *of_speakers)
    return 0


def _check(config: FuseConfig) -> None:
    """Refuse what the words alone contradict, before anything is read."""
    if not config.scores:
        raise UserError("scores lists no file; give one of each system, scores=[a,b]")
    of_training = {
        "train_scores": config.train_scores, "train_trials": config.train_trials,
        "train_quality": config.train_quality, "train_utt2spk": config.train_utt2spk,
    }  # fmt: skip
    given = [key for key, value in of_training.items() if value]
    if config.fusion is not None and given:
        raise UserError(f"{given[0]} trains a fusion, but fusion={config.fusion} is trained already; leave one out")
    if config.fusion is None:
        if not (config.train_scores and config.train_trials):
            raise UserError(
                "a fusion is trained with train_scores=[a,b] and train_trials=FILE, of training speakers; give both, "
                "or fusion=FILE.yaml of one that is trained already"
            )
        if len(config.scores) != len(config.train_scores):
            raise UserError(
                f"scores lists {len(config.scores)} files, train_scores {len(config.train_scores)}; expected one of "
                "each system in both, in the same order"
            )
        for key, other in (("quality", "train_quality"), ("train_quality", "quality")):
            if getattr(config, key) is not None and getattr(config, other) is None:
                raise UserError(f"{key} is given without {other}; give both, or neither")
    if not 0 < config.p_target < 1:
        raise UserError(f"p_target is {config.p_target:g}; expected a share between 0 and 1, such as 0.05")
    if not 0 < config.l2 < 1:
        raise UserError(f"l2 is {config.l2:g}; expected a small number above 0, such as 0.0001")
    if Path(config.out).resolve() in {Path(file).resolve() for file in [*config.scores, *config.train_scores]}:
        raise UserError(f"out={config.out} would overwrite the scores that are fused; choose another name")


def _train(config: FuseConfig, trials: Trials) -> Trained:
    """The fusion of trials of other speakers, and what it makes of these."""
    assert config.train_trials is not None
    listed = read_trials(config.train_trials)
    shared = sorted(listed.utterances & trials.utterances)
    if shared:
        raise UserError(
            f"{config.train_trials}: {len(shared)} utterances are in {config.trials}, too (the first is "
            f"{shared[0]!r}); train the fusion with trials of training speakers"
        )
    speakers = None if config.train_utt2spk is None else _speakers(listed, config.train_utt2spk)
    features = _features(config.train_scores, listed, config.train_quality)
    try:
        fusion = fit_fusion(features, listed.target, p_target=config.p_target, l2=config.l2)
    except UserError as error:
        raise UserError(f"{config.train_trials}: {error}") from error
    of_whom = "" if speakers is None else f" of {len(speakers)} speakers"
    log.info(
        "trained with %d trials%s: Cllr %.4f", len(listed), of_whom, cllr(fusion.llr(features), listed.target)
    )  # fmt: skip
    for (name, weight), deviation in zip(fusion.weights.items(), features.matrix.std(axis=0), strict=True):
        log.info("  %s: weight %.4g, %.3g a standard deviation", name, weight, weight * deviation)
    if speakers is not None and len(speakers) < FEW_SPEAKERS:
        log.warning(
            "%d speakers are few: weights fit them alone, those of quality measures first; take %d or more, or fuse "
            "fewer scores and no quality",
            len(speakers), FEW_SPEAKERS,
        )  # fmt: skip
    return Trained(fusion, None if speakers is None else sorted(speakers))


def _read(path: str) -> Trained:
    """What a former `svt fuse` wrote beside its scores."""
    if not is_regular(path):
        raise UserError(f"{path}: there is no such file; expected the <out>.yaml that `svt fuse` wrote")
    content = read_record(path).get("trained")
    try:
        fusion = Fusion.parse(content.get("fusion") if isinstance(content, Mapping) else None)
    except ValueError as error:
        raise UserError(f"{path}: {error}; expected the <out>.yaml that `svt fuse` wrote") from error
    speakers: Any = content["speakers"] if isinstance(content, Mapping) and "speakers" in content else None
    return Trained(fusion, list(map(str, speakers)) if isinstance(speakers, list) else None)


def _features(scores: Sequence[str], trials: Trials, quality: str | None) -> Features:
    columns = [align_scores(trials, path) for path in scores]
    return trial_features(columns, trials, None if quality is None else read_quality(quality))


def _speakers(trials: Trials, utt2spk: str) -> set[str]:
    try:
        return {name for side in trial_speakers(trials, read_utt2spk(utt2spk)) for name in side}
    except UserError as error:
        raise UserError(f"{utt2spk}: {error}") from error
