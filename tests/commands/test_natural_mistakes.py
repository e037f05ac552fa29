"""Mistakes that anybody makes, each answered by words that, followed literally, succeed."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import soundfile
import torch
from command_material import RATE, TRAIN_WORDS, voice, write_data

from svtoolkit.cli import main
from svtoolkit.data.kaldi_dir import KaldiDir

TRAIN = ["train", *TRAIN_WORDS, "trainer.epochs=1", "exp_dir={tmp}/exp"]
TRAINED_ON = [*TRAIN, "--data.train", "{train}"]
SCORED = ["score", "trials={eval}/trials", "embeddings={embeddings}/eval.scp", "out={tmp}/scores"]
DECIDED = {"verify": (0, 2, 3)}
"""Exit statuses of a command that succeeds, where 0 is not all: one speaker, two, no threshold to tell by."""
COHORT = ["cohort={embeddings}/train.scp", "cohort_utt2spk={train}/utt2spk"]


class Mistake(NamedTuple):
    """A command, what the answer has to say, and what is typed instead: words added to it, or all words."""

    words: Sequence[str]
    advice: str
    added: Sequence[str] = ()
    instead: Sequence[str] = ()


MISTAKES = {
    "verify at another rate": Mistake(
        ["verify", "{model}", "{made}/fast.wav", "{made}/fast.wav"], "allow resample=true,", ["resample=true"]
    ),
    "verify of two channels": Mistake(
        ["verify", "{model}", "{made}/stereo.wav", "{made}/stereo.wav"], "choose one with channel=0 ", ["channel=0"]
    ),
    "embed at another rate": Mistake(
        ["embed", "model={model}", "data={made}/fast", "out={tmp}/e"], "allow resample=true,", ["resample=true"]
    ),
    "embed of two channels": Mistake(
        ["embed", "model={model}", "data={made}/stereo", "out={tmp}/e"], "choose one with channel=0 ", ["channel=0"]
    ),
    "train at another rate": Mistake(
        [*TRAIN, "data.train={made}/fast"], "allow data.resample=true,", ["data.resample=true"]
    ),
    "train at the rate of all": Mistake(
        [*TRAIN, "data.train={made}/fast"], "set features.sample_rate=16000 ", ["features.sample_rate=16000"]
    ),
    "train on two channels": Mistake(
        [*TRAIN, "data.train={made}/stereo"], "choose one with data.channel=0 ", ["data.channel=0"]
    ),
    "validate two channels": Mistake(
        ["validate", "{made}/stereo"], "choose one with channel=0 [", ["channel=0"]
    ),
    "train with a batch beyond the corpus": Mistake(
        [*TRAINED_ON, "trainer.batch_size=256"], "to trainer.batch_size=8\n", ["trainer.batch_size=8"]
    ),
    "train with a word misspelt": Mistake(
        [*TRAINED_ON, "optim.lrr=0.1"], "did you mean 'optim.lr'?", instead=[*TRAINED_ON, "optim.lr=0.1"]
    ),
    "train on a parent": Mistake(
        [*TRAIN, "data.train={made}/parent"], "give {made}/parent/train\n", ["data.train={made}/parent/train"]
    ),
    "train on a table": Mistake(
        [*TRAIN, "data.train={train}/wav.scp"], "give its folder, {train}\n", ["data.train={train}"]
    ),
    "a softmax with a margin": Mistake(
        [*TRAINED_ON, "loss=softmax", "loss.margin=0.2"], "use loss.margin=0", ["loss.margin=0"]
    ),
    "a ResNet recomputed": Mistake([*TRAINED_ON, "memory=reversible"], "choose memory=store,", ["memory=store"]),
    "one held-out speaker": Mistake(
        [*TRAINED_ON, "validation.speakers=1"], "0: no validation\n", ["validation.speakers=0"]
    ),
    "a head of a released model": Mistake(
        [*TRAINED_ON, "init_from={model}", "init_head=keep"], "use init_head=new\n", ["init_head=new"]
    ),
    "noises of one category": Mistake(
        [*TRAINED_ON, "augment.noise={made}/noises"],
        "set augment.music_weight=0 augment.babble_weight=0\n",
        ["augment.music_weight=0", "augment.babble_weight=0"],
    ),
    "as-norm without a cohort": Mistake(
        [*SCORED, "normalisation=as-norm"],
        "give cohort=embeddings.scp and cohort_utt2spk=utt2spk of speakers outside the evaluation\n",
        COHORT,
    ),
    "more of the cohort than there is": Mistake(
        [*SCORED, *COHORT, "normalisation=as-norm", "top_n=300"], "expected 2 to 6: lower top_n", ["top_n=6"]
    ),
    "a cohort for plain cosines": Mistake(
        [*SCORED, *COHORT, "top_n=3"], "top_n is for normalisation=as-norm", ["normalisation=as-norm"]
    ),
    "shards of another rate": Mistake(
        ["shard", "data={made}/fast", "out={tmp}/out", "sample_rate=8000"],
        "set sample_rate=16000",
        ["sample_rate=16000"],
    ),
    "a conversion of two channels": Mistake(
        ["convert", "source={made}/stereo", "out={tmp}/out"], "choose one with channel=0 ", ["channel=0"]
    ),
    "shards of two channels": Mistake(
        ["shard", "data={made}/stereo", "out={tmp}/out"], "choose one with channel=0", ["channel=0"]
    ),
    "one speaker split off": Mistake(
        ["prepare", "corpus=folders", "source=[{train}/wav]", "out={tmp}/out", "eval_speakers=1"],
        "eval_speakers is 1, expected 2 or more",
        ["eval_speakers=2"],
    ),
    "a table for a folder of recordings": Mistake(
        ["prepare", "corpus=folder", "source=[{train}/wav]", "out={tmp}/out"], "did you mean 'folders'?",
        ["corpus=folders"],
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, train_data: Path) -> Path:
    """Data of another rate and of two channels, noises, and a folder of data directories."""
    folder = tmp_path_factory.mktemp("made")
    for name, rate, channels in (("fast", 2 * RATE, 1), ("stereo", RATE, 2)):
        data = write_data(folder / name, range(4), 4)
        for path in KaldiDir.read(data).wav_scp.values():
            samples, _ = soundfile.read(path)
            samples = np.repeat(samples, 2) if rate > RATE else samples
            soundfile.write(path, np.stack([samples] * channels, axis=1), rate)
        shutil.copy(path, folder / f"{name}.wav")
    shutil.copytree(train_data, folder / "parent" / "train")
    (folder / "sounds").mkdir()
    soundfile.write(folder / "sounds" / "hum.wav", voice(1, 1, 1.0), RATE)
    assert main(["prepare", "corpus=noise", f"source=[{folder}/sounds]", f"out={folder}/noises"]) == 0
    return folder


@pytest.fixture
def places(made, tmp_path, train_data, eval_data, model, embeddings) -> dict[str, Path]:
    own = {"made": made, "tmp": tmp_path}
    return own | {"train": train_data, "eval": eval_data, "model": model, "embeddings": embeddings}


@pytest.mark.parametrize("name", MISTAKES)
def test_what_is_said_succeeds(name, places, capsys):
    mistake = MISTAKES[name]
    words, advice, added, instead = ([part.format(**places) for part in parts] for parts in (
        mistake.words, [mistake.advice], mistake.added, mistake.instead
    ))  # fmt: skip
    capsys.readouterr()
    assert main(words) == 1
    assert advice[0] in capsys.readouterr().err
    corrected = instead or [*words, *added]
    keys = [word.partition("=")[0] for word in added]
    kept = [word for word in corrected[: len(corrected) - len(added)] if word.partition("=")[0] not in keys]
    repeated = instead or [*kept, *added]
    assert main(repeated) in DECIDED.get(repeated[0], (0,))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize(
    ("words", "key"),
    [
        (["verify", "{model}", "{made}/fast.wav", "{made}/fast.wav", "resample=true"], "device"),
        (TRAINED_ON, "trainer.device"),
    ],
    ids=["verify", "train"],
)
def test_a_gpu_that_is_not_there(words, key, places, capsys):
    words = [word.format(**places) for word in words]
    assert main([*words, f"{key}=cuda"]) == 1
    (remedy,) = re.findall(r"use (\S+)\n", capsys.readouterr().err)
    assert remedy == f"{key}=cpu"
    assert main([*words, remedy]) in DECIDED.get(words[0], (0,))
