"""Settings of the commands that make, check and convert data directories."""

from __future__ import annotations

from dataclasses import dataclass

from svtoolkit.config.features import FeaturesConfig
from svtoolkit.config.setting import REQUIRED, setting

ROOT = "folder that relative paths of wav.scp are taken from"
CHANNEL = "channel of multi-channel files, counted from 0; null: such files are an error"
RESAMPLE = "convert files of another rate instead of refusing them"
MAX_BAD = "share of the utterances that may be left out for bad audio; any above 0 allows one"


@dataclass
class PrepareConfig:
    """`svt prepare`: a Kaldi data directory of a corpus."""

    corpus: str = setting(
        REQUIRED,
        "synthetic, kaldi, folders (one a speaker), librispeech, voxceleb1, voxceleb2, musan, rirs_noises, cnceleb, "
        "noise and rirs (files of your own)",
    )
    source: list[str] = setting([], "folder(s) of the corpus; several kaldi directories are joined; synthetic: none")
    out: str = setting(REQUIRED, "data directory to write; with a split: parent of train/ and eval/")
    root: str | None = setting(None, "kaldi: folder that relative paths are taken from")
    part: str = setting("all", "voxceleb1, voxceleb2, cnceleb: all, dev (to train on) or test")
    trials: list[str] = setting([], "voxceleb1: official trial lists, .txt or .gz (veri_test2.txt becomes trials_O)")
    other_trials: bool = setting(False, "voxceleb1: take trial lists of that form that are not the official ones")
    jobs: int = setting(1, "parallel workers")
    max_bad: float = setting(0.0, "share of the files that may be left out because they cannot be read or are cut off")
    seed: int = setting(0, "random numbers of the split, the trials and the synthetic speakers")
    limit_speakers: int | None = setting(
        None, "voxceleb1, voxceleb2: so many speakers alone, always the same, and their trials; null: all"
    )
    eval_speakers: int = setting(0, "speakers split off into out/eval, with trials; 0: none (synthetic: at least 2)")
    draw_trials: bool = setting(False, "without a split: draw a trial list where the source brings none")
    speakers: int = setting(60, "synthetic: speakers made, those of the evaluation included")
    utterances_per_speaker: int = setting(20, "synthetic: utterances of each")
    sample_rate: int = setting(16000, "synthetic: Hz")
    targets_per_speaker: int = setting(45, "ceiling on the target trials of one evaluation speaker")


@dataclass
class ArchivesConfig:
    """`svt archives`: whether archives of VoxCeleb, MUSAN, RIRS_NOISES and CN-Celeb are whole (MD5); unpacks them."""

    folder: str = setting(REQUIRED, "where they were downloaded to, under the names that they are published by")
    check: bool = setting(True, "compare with the published checksums; false: unpack whatever has the name")
    unpack: str | None = setting(
        None, "folder to unpack them to, each corpus in one of its own; what a stopped run left there is resumed"
    )
    corpora: list[str] = setting(["vox1", "vox2", "musan", "rirs"], "unpack: these, whose archives must all be there")
    limit_speakers: int | None = setting(
        None, "unpack: of VoxCeleb2 so many speakers alone, those that svt prepare takes; null: all"
    )
    jobs: int = setting(1, "archives read, or files unpacked, at a time")


@dataclass
class ValidateConfig:
    """`svt validate`: every fault of a data directory, or a repaired copy of it."""

    data: str = setting(REQUIRED, "Kaldi data directory")
    root: str | None = setting(None, ROOT)
    against: list[str] = setting([], "other directories that may share no speaker with it (train against eval)")
    sample_rate: int | None = setting(None, "Hz that all audio must have; null: any, but one")
    channel: int | None = setting(None, "channel of multi-channel files, counted from 0; null: such files are a fault")
    check_audio: bool = setting(True, "open and decode every file, or read all features; false: tables only")
    fix: str | None = setting(None, "folder that a repaired copy is written to")
    max_bad: float = setting(
        0.0,
        "share of the utterances with bad audio or features that are taken out of the tables and listed in "
        "bad_files.tsv, but for those in trial lists; any above 0 allows one, 0: a fault like all others",
    )
    jobs: int = setting(1, "parallel readers")


@dataclass
class ConvertConfig:
    """`svt convert`: a data directory whose audio, m4a included, is decoded once, to mono 16-bit files."""

    source: str = setting(REQUIRED, "Kaldi data directory")
    out: str = setting(
        REQUIRED, "data directory to write, audio in out/audio; what a stopped run left there is resumed"
    )
    root: str | None = setting(None, ROOT)
    format: str = setting("flac", "flac or wav")
    sample_rate: int = setting(16000, "Hz of the files; audio of another rate is converted")
    channel: int | None = setting(None, "channel of multi-channel files, counted from 0; null: such files are bad")
    run_pipes: bool = setting(
        False, "run the piped commands of wav.scp (`sox ... |`), with bash, in root; false: they are an error"
    )
    jobs: int = setting(1, "processes")
    max_bad: float = setting(0.001, MAX_BAD)


@dataclass
class ShardConfig:
    """`svt shard`: a data directory whose audio lies in tar shards (WebDataset layout), found by offset."""

    data: str = setting(REQUIRED, "Kaldi data directory")
    out: str = setting(REQUIRED, "data directory of the shards; what a stopped run left there is resumed")
    root: str | None = setting(None, ROOT)
    per_shard: int = setting(1000, "utterances of a shard")
    format: str = setting("flac", "flac (16 bits; segments are cut out) or original (whole files as they are)")
    sample_rate: int | None = setting(None, "Hz that all audio must have; null: each file keeps its own")
    channel: int | None = setting(None, "flac: channel of multi-channel files, from 0; null: such files cannot be used")
    resample: bool = setting(False, "flac: convert files of another rate instead of leaving them out")
    order: str = setting("shuffled", "shuffled: any few shards hold many speakers; sorted: by utterance id")
    seed: int = setting(0, "of the shuffled order")
    max_bad: float = setting(0.001, MAX_BAD)
    jobs: int = setting(1, "processes")


@dataclass
class ComputeFeaturesConfig:
    """`svt features`: the filter bank of whole utterances in Kaldi archives, to train and to embed from."""

    data: str = setting(REQUIRED, "Kaldi data directory")
    out: str = setting(REQUIRED, "data directory of the features; what a stopped run left there is resumed")
    root: str | None = setting(None, ROOT)
    format: str = setting(
        "float32", "float32, float16 (half the bytes) or compressed (Kaldi's matrices of one byte a value)"
    )
    per_archive: int = setting(200, "utterances of an archive")
    channel: int | None = setting(None, "channel of multi-channel files, from 0; null: such files cannot be used")
    resample: bool = setting(False, "convert files of another rate than features.sample_rate, not leave them out")
    max_bad: float = setting(0.001, MAX_BAD)
    jobs: int = setting(1, "processes, of one thread each")
    features: FeaturesConfig = setting(FeaturesConfig, "the filter bank")
