"""Statistics of MFCCs against those of kaldi-native-fbank, through `svt embed`."""

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
from svtoolkit.scoring.embedding_file import read_embeddings
from svtoolkit.scoring.mfcc_statistics import CEPSTRA, MEL_BANDS
from svtoolkit.scoring.score_file import read_scores

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


def test_whitened_within_speakers_they_tell_voices(embedded):
    utt2spk, backend = embedded / "train" / "utt2spk", embedded / "wccn.safetensors"
    trained = [f"embeddings={embedded / 'train-mfcc.scp'}", f"utt2spk={utt2spk}", f"out={backend}"]
    assert main(["backend", "kind=wccn", "whiten=true", *trained]) == 0
    pairs = [(f"eval{a:02d}-0", f"eval{b:02d}-1") for a in range(SPEAKERS) for b in range(SPEAKERS)]
    lines = [f"{a} {b} {'target' if a[:6] == b[:6] else 'nontarget'}\n" for a, b in pairs]
    (embedded / "trials").write_text("".join(lines))
    words = [f"trials={embedded / 'trials'}", f"embeddings={embedded / 'eval-mfcc.scp'}", f"out={embedded / 'scores'}"]
    assert main(["score", *words, f"backend={backend}"]) == 0
    enrol, test, found = read_scores(embedded / "scores")
    target = np.array([a[:6] == b[:6] for a, b in zip(enrol, test, strict=True)])
    assert found[target].mean() > found[~target].mean() + 0.3


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
