"""Settings of the commands that embed, score, evaluate and decide."""

from __future__ import annotations

from dataclasses import dataclass

from svtoolkit.config.data import CHANNEL, RESAMPLE, ROOT
from svtoolkit.config.setting import REQUIRED, setting
from svtoolkit.config.training import CROP_SECONDS, CROPS

FRONT_END = (
    "features of a release that does not say them, as features=... of svt train: fbank80 (WeSpeaker's), kaldi_3d "
    "(3D-Speaker's), ...; null: what it says"
)
RUNTIME = "of a file of svt export: onnx, openvino, ncnn or auto (the fastest here, which takes seconds); null: onnx"

MFCC_STATISTICS = "mfcc_statistics"
"""What stands in place of a model that embeds: no network, but statistics of MFCCs."""


@dataclass
class EmbedConfig:
    """`svt embed`: embeddings of whole utterances as Kaldi ark/scp."""

    model: str = setting(
        REQUIRED,
        "released model, ours or another toolkit's, or hf://org/name (docs/released_models.md); "
        "mfcc_statistics: no network, but means and deviations of MFCCs (docs/fusion.md)",
    )
    front_end: str | None = setting(None, FRONT_END)
    data: str = setting(REQUIRED, "Kaldi data directory")
    out: str = setting(
        REQUIRED, "writes <out>.ark, <out>.scp and, with settings and failures, <out>.yaml; resumed from <out>.parts"
    )
    root: str | None = setting(None, ROOT)
    source: str | None = setting(
        None, "files (wav.scp), shards (shards.scp) or features (feats.scp); null: the first of them that is there"
    )
    channel: int | None = setting(None, CHANNEL)
    resample: bool = setting(False, RESAMPLE)
    runtime: str | None = setting(None, RUNTIME)
    device: str = setting("auto", "auto (cuda where there is one), cpu, cuda or mps (a Mac's GPU)")
    precision: str = setting("fp32", "fp32, bf16 or fp16 (autocast)")
    threads: int | None = setting(
        None,
        "CPU threads: so many batches, or utterances of an exported file, go through the network beside each other; "
        "null: torch's choice, or one for each core",
    )
    memory_gib: float | None = setting(
        None,
        "memory that a pass may take on its device, model included: batches and stretches are made as short as is "
        "predicted to fit; null: a share of what is free",
    )
    batch_seconds: float = setting(
        120.0,
        "audio that goes through the network at once, at most, on a CPU never more than 8 s of several utterances; "
        "longer recordings go in stretches of that length",
    )
    batch_size: int = setting(
        32, "utterances of about equal length that go together at most, within batch_seconds; 1: nothing is padded"
    )
    crops: int | None = setting(None, CROPS)
    crop_seconds: float = setting(4.0, CROP_SECONDS)
    num_workers: int = setting(1, "reading threads")
    max_bad: float = setting(
        0.0,
        "share of the utterances that may have no embedding, above which the exit status is 1; above 0 one always may",
    )


@dataclass
class ScoreConfig:
    """`svt score`: scores of trials, `enrol test score` a line."""

    trials: str = setting(REQUIRED, "`enrol test target|nontarget`, `1 enrol test` or `enrol test 1`")
    embeddings: str = setting(REQUIRED, "scp of svt embed")
    out: str = setting(REQUIRED, "score file; its settings go to <out>.yaml")
    format: str = setting("kaldi", "kaldi (`enrol test score`) or wespeaker (`enrol test score target|nontarget`)")
    backend: str | None = setting(
        None, "file of svt backend: embeddings and cohort go through it first; null: cosines of them as they are"
    )
    normalisation: str = setting("none", "none (cosine, or the ratio of PLDA), z-norm, t-norm, s-norm or as-norm")
    cosine_out: str | None = setting(
        None, "score file of the cosines, or ratios of PLDA, before normalisation, from the same pass"
    )
    cohort: str | None = setting(None, "scp of the cohort's embeddings (usually the training set's)")
    cohort_utt2spk: str | None = setting(
        None, "speakers of the cohort: one mean vector each; null: every row of the cohort is a member as it is"
    )
    utt2spk: str | None = setting(None, "speakers of the trials: refused where they overlap the cohort's")
    top_n: int | None = setting(
        None,
        "as-norm: closest cohort members taken, an error if the cohort has fewer; null: 300, or all of a smaller one",
    )
    subtract_mean: bool = setting(False, "subtract the mean embedding of the cohort first; a back end has its own mean")
    enrolments: str | None = setting(
        None, "enrolment map, `model utterance ...` a line: trials name models in place of enrolment utterances"
    )
    enrolment_mean: str = setting("embeddings", "of a model's utterances: embeddings or scores")
    allow_missing: bool = setting(False, "leave out trials whose embedding is missing instead of stopping")


@dataclass
class SearchConfig:
    """`svt search`: the nearest of many embeddings, `query neighbour cosine` a line, the nearest first."""

    embeddings: str = setting(REQUIRED, "scp of the embeddings that are looked for")
    among: str = setting(REQUIRED, "scp of those that are looked through, millions or few")
    out: str = setting(REQUIRED, "file of the neighbours; its settings go to <out>.yaml")
    n: int = setting(10, "neighbours of each")
    index: str = setting(
        "exact", "exact (all are compared, a part at a time) or faiss (an inverted index in memory; states its recall)"
    )
    probes: int = setting(32, "faiss: cells of the index that are looked through; more find more, and take longer")


@dataclass
class EvaluateConfig:
    """`svt evaluate`: EER, minDCF, Cllr, minCllr and a bootstrap interval of a score file."""

    scores: str = setting(REQUIRED, "score file, `enrol test score` or `enrol test score target|nontarget`")
    trials: str = setting(REQUIRED, "trial list of the score file")
    out: str | None = setting(None, "result file; null: <scores>.json")
    name: str | None = setting(None, "name of the evaluation in the report; null: that of the score file's folder")
    utt2spk: str | None = setting(None, "speakers of the trials; without it there is no interval")
    resamples: int = setting(1000, "bootstrap resamples of the speakers; 0: no interval")
    confidence: float = setting(0.95, "of the bootstrap interval: share of resamples within it")
    seed: int = setting(0, "of the bootstrap's random numbers")
    fa_rate: float | None = setting(None, "false-alarm rate whose threshold is wanted; null: that of equal errors")
    store_threshold: str | None = setting(
        None, "released model that gets the threshold and a calibration (plain cosine scores only)"
    )
    allow_missing: bool = setting(False, "accept a score file that lacks trials of the list")


@dataclass
class CompareConfig:
    """`svt compare`: which of several systems is better by scores of the same trials, or that none can be told."""

    results: list[str] = setting([], "files of svt evaluate, two or more with those of scores")
    scores: list[str] = setting([], "score files, of any toolkit, that are evaluated here, on trials and utt2spk")
    trials: str | None = setting(None, "trial list of scores")
    utt2spk: str | None = setting(
        None,
        "speakers of the trials; null: those that svt evaluate was given; durations (utt2dur, segments) and further "
        "columns (utt2*) beside it are looked at for what else sets the trials apart",
    )
    names: list[str] = setting([], "names of the systems, one a result, then one a score file; []: from the files")
    resamples: int = setting(1000, "bootstrap resamples of the speakers, more where many pairs need them")
    confidence: float = setting(0.95, "one less the chance that any two systems of equal quality are told apart")
    seed: int = setting(0, "of the bootstrap's random numbers")
    out: str | None = setting(None, "folder for the page with the DET curves and for result.json; null: no file")


@dataclass
class ReportConfig:
    """`svt report`: result.json, figures and one page that opens offline; several systems are compared in pairs."""

    results: list[str] = setting([], "files of svt evaluate")
    scores: list[str] = setting([], "score files, of any toolkit, that are evaluated here, on trials and utt2spk")
    trials: str | None = setting(None, "trial list of scores")
    utt2spk: str | None = setting(
        None, "speakers of the trials, for intervals and comparisons; null: those that svt evaluate was given"
    )
    names: list[str] = setting([], "names of the systems, one a result, then one a score file; []: from the files")
    compare: str = setting(
        "auto",
        "systems of the same trials in pairs: auto (a list that differs is another evaluation, and needs another "
        "name), all (a list that differs is refused) or none",
    )
    resamples: int = setting(
        1000, "bootstrap resamples of the speakers, more where many pairs need them; 0: no comparison"
    )
    confidence: float = setting(0.95, "one less the chance that any two systems of equal quality are told apart")
    seed: int = setting(0, "of the bootstrap's random numbers")
    out: str = setting(REQUIRED, "folder of the report")
    exp_dir: str | None = setting(None, "run whose learning curves, training data and configuration are shown")
    model: str | None = setting(
        None, "released model, or hf://org/name, whose facts are shown; null: that of the embeddings"
    )
    front_end: str | None = setting(None, FRONT_END)


@dataclass
class VerifyConfig:
    """`svt verify`: score and decision; exit status 0 same speaker, 2 different speakers, 3 no threshold, 1 error."""

    model: str = setting(REQUIRED, "released model, hf://org/name, or a file of svt export")
    enrol: list[str] = setting([], "audio file of a known speaker; of several the embeddings are averaged")
    test: str | None = setting(None, "audio file to compare with")
    name: str | None = setting(None, "speaker of a store, in place of enrol")
    store: str | None = setting(None, "file of known speakers, as svt enrol makes it; with name")
    pairs: str | None = setting(None, "file of lines `enrol test`, in place of both; exit status 0: all were compared")
    front_end: str | None = setting(None, FRONT_END)
    device: str = setting("auto", "auto (cuda where there is one), cpu, cuda or mps (a Mac's GPU)")
    threshold: float | None = setting(None, "decision threshold on the cosine; null: the one stored in the model")
    min_voice: float = setting(0.3, "seconds of voice that every file must have; 0: not checked")
    format: str = setting("text", "text or json (one record a line), on standard output")
    channel: int | None = setting(None, CHANNEL)
    resample: bool = setting(False, RESAMPLE)


STORE = "file of known speakers, as svt enrol makes it"
MIN_VOICE = "seconds of voice that every file must have; 0: not checked"
DEVICE = "auto (cuda where there is one), cpu, cuda or mps (a Mac's GPU)"


@dataclass
class EnrolConfig:
    """`svt enrol`: a speaker's recordings, as embeddings, into a store that svt identify, verify and serve read."""

    name: str = setting(REQUIRED, "of the speaker; one that is known gets further recordings")
    wavs: list[str] = setting(REQUIRED, "audio files of the speaker")
    store: str = setting(REQUIRED, "file of the store, made where it is missing")
    model: str = setting(
        REQUIRED, "released model, hf://org/name, or a file of svt export; a store holds embeddings of one model"
    )
    replace: bool = setting(False, "delete the speaker's former recordings")
    threshold: float | None = setting(
        None, "decision threshold on the cosine that the store gets; null: the store's, or that of the model"
    )
    min_voice: float = setting(0.3, MIN_VOICE)
    front_end: str | None = setting(None, FRONT_END)
    device: str = setting("auto", DEVICE)
    channel: int | None = setting(None, CHANNEL)
    resample: bool = setting(False, RESAMPLE)


@dataclass
class IdentifyConfig:
    """`svt identify`: who of a store is heard; exit status 0 somebody known, 2 nobody, 3 no threshold, 1 error."""

    wav: str = setting(REQUIRED, "audio file")
    store: str = setting(REQUIRED, STORE)
    model: str = setting(REQUIRED, "model of the store: released, hf://org/name, or a file of svt export")
    n: int = setting(5, "speakers that are listed at most, the closest first")
    threshold: float | None = setting(None, "decision threshold on the cosine; null: that of the store")
    min_voice: float = setting(0.3, MIN_VOICE)
    format: str = setting("text", "text or json, on standard output")
    front_end: str | None = setting(None, FRONT_END)
    device: str = setting("auto", DEVICE)
    channel: int | None = setting(None, CHANNEL)
    resample: bool = setting(False, RESAMPLE)


@dataclass
class EnrolledConfig:
    """`svt enrolled`: the speakers of a store."""

    store: str = setting(REQUIRED, STORE)
    format: str = setting("text", "text or json, on standard output")


@dataclass
class ForgetConfig:
    """`svt forget`: delete a speaker from a store, so that no byte of the embeddings and the name stays in it."""

    name: str = setting(REQUIRED, "of the speaker")
    store: str = setting(REQUIRED, STORE)


@dataclass
class CalibrateConfig:
    """`svt calibrate`: a threshold from recordings of one's own speakers, stored in the released model."""

    model: str = setting(REQUIRED, "released model that gets the threshold; with store=false hf://org/name, too")
    data: str = setting(REQUIRED, "Kaldi data directory of 5 speakers or more, each with 2 recordings or more")
    fa_rate: float = setting(0.01, "share of pairs of different speakers that may be accepted")
    store: bool = setting(
        True, "write the threshold into the model, one of ours; false: say it only, of another toolkit's, too"
    )
    front_end: str | None = setting(None, FRONT_END)
    root: str | None = setting(None, ROOT)
    channel: int | None = setting(None, CHANNEL)
    resample: bool = setting(False, RESAMPLE)
    min_voice: float = setting(0.3, "recordings with fewer seconds of voice are left out; 0: none is")
    device: str = setting("auto", "auto (cuda where there is one), cpu, cuda or mps (a Mac's GPU)")
    threads: int | None = setting(None, "CPU threads of the arithmetic; null: torch's choice")
