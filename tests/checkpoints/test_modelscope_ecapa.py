"""3D-Speaker's ECAPA-TDNN as ModelScope has it: SpeechBrain's network behind Kaldi's features, from the waveform."""

from __future__ import annotations

import importlib
import json

import kaldi_native_fbank
import numpy as np
import pytest
import torch
from foreign_networks import randomise

from svtoolkit import load_model
from svtoolkit.checkpoints.releases import read_release
from svtoolkit.config.front_ends import Kaldi3DConfig
from svtoolkit.errors import UserError
from svtoolkit.models.registry import NETWORKS

torch.set_num_threads(1)

CONFIGURATION = {
    "framework": "pytorch",
    "task": "speaker-verification",
    "model": {
        "type": "ecapa-tdnn-sv",
        "model_config": {"sample_rate": 16000, "channel": 1024},
        "pretrained_model": "ecapa-tdnn.ckpt",
        "yesOrno_thr": 0.34,
    },
}
WIDTH = 16


def features_of(waveform: np.ndarray) -> np.ndarray:
    """(frames, 80): Kaldi's defaults, without dither, of samples in [-1, 1]; the mean over time removed."""
    options = kaldi_native_fbank.FbankOptions()
    options.frame_opts.dither = 0.0
    options.mel_opts.num_bins = 80
    filter_bank = kaldi_native_fbank.OnlineFbank(options)
    filter_bank.accept_waveform(16_000, waveform.tolist())
    filter_bank.input_finished()
    frames = np.stack([filter_bank.get_frame(index) for index in range(filter_bank.num_frames_ready)])
    return frames - frames.mean(axis=0)


@pytest.fixture(scope="module")
def theirs():
    """3D-Speaker's network, narrow, as if it were trained."""
    pytest.importorskip("speakerlab", reason="3D-Speaker is not installed: scripts/setup.sh --extras dev")
    torch.manual_seed(2)
    found = importlib.import_module("speakerlab.models.ecapa_tdnn.ECAPA_TDNN")
    return randomise(found.ECAPA_TDNN(80, lin_neurons=192, channels=[WIDTH] * 4 + [3 * WIDTH])).eval()


@pytest.fixture
def snapshot(tmp_path, theirs):
    folder = tmp_path / "speech_ecapa-tdnn_sv_zh-cn_cnceleb_16k"
    folder.mkdir()
    (folder / "configuration.json").write_text(json.dumps(CONFIGURATION))
    torch.save(theirs.state_dict(), folder / "ecapa-tdnn.ckpt")
    return folder


def test_its_embeddings_and_its_threshold(snapshot, theirs, monkeypatch):
    monkeypatch.setitem(NETWORKS.rows["sb_ecapa_tdnn"].arguments, "width", WIDTH)
    model = load_model(snapshot, device="cpu")
    assert (model.description.model["name"], model.description.model["embedding_dim"]) == ("sb_ecapa_tdnn", 192)
    assert model.description.features == Kaldi3DConfig()
    assert model.threshold == 0.34
    generator = np.random.default_rng(0)
    for samples in (9_600, 50_720):
        waveforms = (0.1 * generator.standard_normal((3, samples))).astype(np.float32)
        frames = torch.from_numpy(np.stack([features_of(waveform) for waveform in waveforms]))
        with torch.no_grad():
            features = model.extractor.front_end(torch.from_numpy(waveforms))
            torch.testing.assert_close(features, frames, rtol=0, atol=1e-3)
            expected, found = theirs(frames).numpy(), model.extractor.network(features).numpy()
        tolerance = 1e-5 * np.abs(expected).max()
        assert np.abs(found - expected).max() <= tolerance
        assert np.abs(model.embed(waveforms[2]) - expected[2]).max() <= tolerance


def test_another_width_than_the_published_one(snapshot):
    with pytest.raises(UserError, match="the weights are not of the sizes of sb_ecapa_tdnn with 80 mel bins; expected"):
        read_release(snapshot)
