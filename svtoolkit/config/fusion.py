"""Settings of the commands that measure quality and fuse scores."""

from __future__ import annotations

from dataclasses import dataclass

from svtoolkit.config.data import CHANNEL, ROOT
from svtoolkit.config.setting import REQUIRED, setting


@dataclass
class QualityConfig:
    """`svt quality`: quality measures of utterances, a header and then a line an utterance."""

    data: str = setting(REQUIRED, "Kaldi data directory")
    out: str = setting(REQUIRED, "table `utterance MEASURE ...`; its settings go to <out>.yaml")
    measures: list[str] = setting(
        ["log_duration", "magnitude", "cohort_mean"],
        "log_duration (of utt2dur, segments or the file), log_voice (of voice in it; reads the audio), magnitude "
        "(length of the embedding), cohort_mean (mean cosine to the closest of the cohort)",
    )
    embeddings: str | None = setting(None, "scp of svt embed, of these utterances; for magnitude and cohort_mean")
    cohort: str | None = setting(None, "scp of the cohort's embeddings (of training speakers); for cohort_mean")
    cohort_utt2spk: str | None = setting(
        None, "speakers of the cohort: one mean vector each; null: every row of the cohort is a member as it is"
    )
    top_n: int | None = setting(None, "closest cohort members taken; null: 300, or all of a smaller one")
    root: str | None = setting(None, ROOT)
    channel: int | None = setting(None, CHANNEL)
    jobs: int = setting(1, "files read at a time")


@dataclass
class FuseConfig:
    """`svt fuse`: scores of several systems, and quality measures, as one calibrated log-likelihood ratio a trial."""

    scores: list[str] = setting([], "score files of the trials, one a system; of one system they are calibrated")
    trials: str = setting(REQUIRED, "trial list of scores")
    out: str = setting(REQUIRED, "score file of log-likelihood ratios; the fusion and its settings go to <out>.yaml")
    quality: str | None = setting(None, "quality measures of the utterances of trials, of svt quality")
    utt2spk: str | None = setting(None, "speakers of trials: refused where they overlap those of train_trials")
    train_scores: list[str] = setting([], "score files of train_trials, of the same systems in the same order")
    train_trials: str | None = setting(None, "trial list, of other speakers, that the fusion is trained with")
    train_quality: str | None = setting(None, "quality measures of the utterances of train_trials")
    train_utt2spk: str | None = setting(None, "speakers of train_trials")
    fusion: str | None = setting(
        None, "<out>.yaml of a fusion that is trained already, in place of all train_... keys; null: train one"
    )
    p_target: float = setting(0.5, "share of target trials that the log-likelihood ratios are best for")
    l2: float = setting(1e-4, "penalty on the squared weights of standardised scores and measures")
