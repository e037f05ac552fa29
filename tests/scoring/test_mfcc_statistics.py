"""Statistics of MFCCs against those of kaldi-native-fbank, through `svt embed`, and whitened in `svt score`."""

from __future__ import annotations

from pathlib import Path

import kaldi_native_fbank as knf
import numpy as np
import pytest
import soundfile
import torch
import yaml

from svtoolkit.cli import main
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.scoring.cosine import cosine_scores, speaker_means
from svtoolkit.scoring.embedding_file import read_embeddings
from svtoolkit.scoring.mfcc_statistics import CEPSTRA, MEL_BANDS
from svtoolkit.scoring.normalisation import normalise_scores
from svtoolkit.scoring.score_file import read_scores
from svtoolkit.scoring.whitening import Whitening

SPEAKERS = 12


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> None:
    torch.set_num_threads(1)


def kaldis(samples: np.ndarray) -> np.ndarray:
    options = knf.MfccOptions()
    options.frame_opts.samp_freq = 16000
    options.frame_opts.dither = 0.0
    options.mel_opts.num_bins = MEL_BANDS
    options.num_ceps = CEPSTRA
    options.cepstral_lifter = 0.0
    options.use_energy = False
    extractor = knf.OnlineMfcc(options)
    extractor.accept_waveform(16000, (samples * 32768).tolist())
    extractor.input_finished()
    frames = np.array([extractor.get_frame(row) for row in range(extractor.num_frames_ready)], np.float64)
    return np.concatenate([frames.mean(axis=0), frames.std(axis=0)])


@pytest.fixture(scope="module")
def embedded(tmp_path_factory) -> Path:
    """train and eval: data directories of coloured noise, a colour a speaker, and their statistics beside them."""
    folder = tmp_path_factory.mktemp("statistics")
    rng = np.random.default_rng(0)
    for name, count in (("train", 8), ("eval", 3)):
        table = KaldiDir()
        (folder / name).mkdir()
        for speaker in range(SPEAKERS):
            colour = rng.normal(size=12)
            for number in range(count):
                samples = np.convolve(rng.normal(size=4000 + 400 * number), colour + 0.1 * rng.normal(size=12))
                utterance = f"{name}{speaker:02d}-{number}"
                path = folder / name / f"{utterance}.wav"
                soundfile.write(path, samples / np.abs(samples).max() / 2, 16000)
                table.wav_scp[utterance], table.utt2spk[utterance] = str(path), f"{name}{speaker:02d}"
        table.write(folder / name)
        words = ["embed", "model=mfcc_statistics", f"data={folder / name}", f"out={folder / name}-mfcc"]
        assert main(words) == 0
    return folder


def test_they_are_kaldis(embedded):
    table = read_embeddings(embedded / "eval-mfcc.scp")
    assert table.matrix.shape == (3 * SPEAKERS, 2 * CEPSTRA)
    for name, vector in zip(table.utterances, table.matrix, strict=True):
        samples, _ = soundfile.read(embedded / "eval" / f"{name}.wav", dtype="float32")
        np.testing.assert_allclose(vector, kaldis(samples), atol=2e-3)
    assert yaml.safe_load((embedded / "eval-mfcc.yaml").read_text())["model"] == "mfcc_statistics"


def score_words(folder: Path, *further: str) -> list[str]:
    pairs = [(f"eval{a:02d}-0", f"eval{b:02d}-1") for a in range(SPEAKERS) for b in range(SPEAKERS)]
    lines = [f"{a} {b} {'target' if a[:6] == b[:6] else 'nontarget'}\n" for a, b in pairs]
    (folder / "trials").write_text("".join(lines))
    return [
        "score", f"trials={folder / 'trials'}", f"embeddings={folder / 'eval-mfcc.scp'}",
        f"cohort={folder / 'train-mfcc.scp'}", f"cohort_utt2spk={folder / 'train' / 'utt2spk'}", "whiten=true",
        f"utt2spk={folder / 'eval' / 'utt2spk'}", f"out={folder / 'scores'}", *further,
    ]  # fmt: skip


def test_scores_are_those_of_whitened_embeddings(embedded):
    from svtoolkit.data.trials import read_trials

    assert main(score_words(embedded, "normalisation=as-norm", "top_n=5", f"cosine_out={embedded / 'cosine'}")) == 0
    train, utt2spk = read_embeddings(embedded / "train-mfcc.scp"), KaldiDir.read(embedded / "train").utt2spk
    matrix = train.matrix.astype(np.float64)
    speakers = np.array([utt2spk[name] for name in train.utterances])
    within = matrix - np.stack([matrix[speakers == speaker].mean(axis=0) for speaker in speakers])
    values, vectors = np.linalg.eigh(within.T @ within)  # another root, of what is not standardised
    root = vectors / np.sqrt(values)
    evaluated = read_embeddings(embedded / "eval-mfcc.scp")
    rows = {
        name: (row - matrix.mean(axis=0)) @ root
        for name, row in zip(evaluated.utterances, evaluated.matrix, strict=True)
    }
    enrol, test, found = read_scores(embedded / "cosine")
    wanted = [
        rows[a] @ rows[b] / np.linalg.norm(rows[a]) / np.linalg.norm(rows[b]) for a, b in zip(enrol, test, strict=True)
    ]
    np.testing.assert_allclose(found, wanted, atol=1e-4)
    target = np.array([a[:6] == b[:6] for a, b in zip(enrol, test, strict=True)])
    assert found[target].mean() > found[~target].mean() + 0.3
    whitening, trials = Whitening(train, utt2spk), read_trials(embedded / "trials")
    table, cohort = whitening.apply(evaluated), speaker_means(whitening.apply(train), utt2spk)
    normalised = normalise_scores(cosine_scores(table, trials), trials, table, cohort, top_n=5)
    np.testing.assert_allclose(read_scores(embedded / "scores")[2], normalised, atol=1e-5)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["precision=bf16"], "precision is 'bf16', but mfcc_statistics is no network, and is computed on the CPU"),
        (["runtime=onnx"], "runtime is 'onnx', but mfcc_statistics is no network"),
        (["device=cuda"], "device is 'cuda', but mfcc_statistics is no network"),
        (["memory_gib=1"], "memory_gib is 1.0, but mfcc_statistics is no network"),
    ],
)
def test_settings_of_networks_are_refused(embedded, words, message, tmp_path, capsys):
    given = ["embed", "model=mfcc_statistics", f"data={embedded / 'eval'}", f"out={tmp_path / 'out'}"]
    assert main([*given, *words]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["subtract_mean=true"], "whiten=true subtracts the mean as well; leave out subtract_mean"),
        (
            ["cohort_utt2spk=null", "utt2spk=null"],
            "whiten=true is by the speakers of a cohort; give cohort=embeddings.scp and cohort_utt2spk=utt2spk",
        ),
        (["cohort=null"], "whiten=true is by the speakers of a cohort; give"),
    ],
)
def test_whitening_asks_for_speakers(embedded, words, message, capsys):
    assert main(score_words(embedded, *words)) == 1
    assert message in capsys.readouterr().err
