"""pyannote's file of a WeSpeaker ResNet: its own network against ours from the waveform, and what is no such file."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from foreign_networks import randomise
from pyannote_names import stand_in_for_pyannote
from released_families import kaldi_frames
from toolkit_modules import toolkit_modules

from svtoolkit import load_model
from svtoolkit.checkpoints.releases import find_release, read_release
from svtoolkit.cli import main
from svtoolkit.config import FeaturesConfig
from svtoolkit.errors import UserError

BINS, DIM = 8, 24
SETTINGS = {
    "sample_rate": 16000, "num_channels": 1, "num_mel_bins": BINS, "frame_length": 25, "frame_shift": 10,
    "dither": 0.0, "round_to_power_of_two": True, "snip_edges": True, "window_type": "hamming", "use_energy": False,
    "fbank_centering_span": None,
}  # fmt: skip


@pytest.fixture(scope="module")
def theirs():
    """ResNet34 for few mel bins, as if it were trained."""
    torch.manual_seed(3)
    with toolkit_modules("pyannote.audio", "models.embedding.wespeaker.resnet") as (module,):
        return randomise(module.ResNet34(BINS, DIM, pooling_func="TSTP", two_emb_layer=False)).eval()


def checkpoint(network, **changes):
    """As Model.save_checkpoint writes it; classes of its task are written by their names."""
    return {
        "state_dict": {f"resnet.{name}": tensor for name, tensor in network.state_dict().items()},
        "hyper_parameters": dict(SETTINGS),
        "pytorch-lightning_version": "1.9.0",
        "epoch": 0,
        "pyannote.audio": {
            "versions": {"torch": torch.torch_version.TorchVersion("2.0.0"), "pyannote.audio": "2.1.1"},
            "architecture": {"module": "pyannote.audio.models.embedding.wespeaker", "class": "WeSpeakerResNet34"},
            "specifications": specifications(),
        },
        **changes,
    }


def specifications():
    task = sys.modules["pyannote.audio.core.task"]
    return task.Specifications(task.Problem(2), task.Resolution(2), 5.0)


@pytest.fixture(autouse=True)
def classes(monkeypatch):
    """Those that a pickle names have to be there to write it."""
    stand_in_for_pyannote(monkeypatch)


@pytest.fixture
def release(tmp_path, theirs):
    folder = tmp_path / "wespeaker-voxceleb-resnet34-LM"
    folder.mkdir()
    torch.save(checkpoint(theirs), folder / "pytorch_model.bin")
    (folder / "config.yaml").write_text("_target_: pyannote.audio.models.embedding.wespeaker.WeSpeakerResNet34\n")
    return folder


def features_of(waveform):
    """(frames, bins): pyannote has WeSpeaker's."""
    return torch.from_numpy(kaldi_frames(waveform, "wespeaker", BINS))


def refusal(path, **options):
    with pytest.raises(UserError) as caught:
        read_release(path, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_embeddings_are_those_of_the_original(release, theirs):
    model = load_model(release, device="cpu")
    generator = np.random.default_rng(0)
    for samples in (9_600, 50_720):
        waveforms = (0.1 * generator.standard_normal((3, samples))).astype(np.float32)
        frames = torch.stack([features_of(waveform) for waveform in waveforms])
        found = model.extractor.front_end(torch.from_numpy(waveforms))
        torch.testing.assert_close(found, frames, rtol=0, atol=1e-4)
        for batch in (1, 3):
            with torch.no_grad():
                expected, ours = theirs(frames[:batch])[1], model.extractor.network(found[:batch])
            assert (ours - expected).abs().max() <= 1e-5 * expected.abs().max()
    assert model.description.model == {
        "name": "resnet34", "num_bins": BINS, "embedding_dim": DIM, "base_width": None, "embedding_layers": 1,
        "pooling_eps": 0.0,
    }  # fmt: skip
    assert model.description.features == FeaturesConfig(num_bins=BINS)
    assert model.description.training["toolkit"] == "pyannote.audio"


def test_a_channel_that_does_not_vary_has_no_deviation(release, theirs):
    """Where WeSpeaker's pooling has 1e-7 under the root."""
    network = read_release(release)[0]
    still = torch.ones(1, 4, 2, 9)
    assert torch.equal(network.pooling(still), theirs.pool(still))
    assert network.pooling(still)[0, 8:].eq(0).all()


def test_the_file_itself_and_what_becomes_of_it(release, tmp_path, capsys):
    file = (release / "pytorch_model.bin").rename(tmp_path / "renamed.ckpt")
    ours = tmp_path / "ours"
    assert main(["convert-model", f"model={file}", f"out={ours}"]) == 0, capsys.readouterr().err
    first, second = read_release(file), read_release(ours)
    assert first[1].model == second[1].model
    assert all(torch.equal(tensor, second[0].state_dict()[name]) for name, tensor in first[0].state_dict().items())
    assert main(["convert-model", f"model={ours}", f"out={tmp_path / 'theirs'}", "format=wespeaker"]) == 1
    assert "model.pooling_eps is 0.0, and WeSpeaker's ResNet34 has no such setting" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"fbank_centering_span": 3.0}, "hyper_parameters.fbank_centering_span is 3.0"),
        ({"dither": 1.0}, "hyper_parameters.dither is 1.0"),
        ({"num_mel_bins": "80"}, "hyper_parameters.num_mel_bins is '80', expected a whole number above 0"),
        ({"window_type": ["hamming"]}, "hyper_parameters.window_type is ['hamming'], expected hamming, povey"),
        ({"frame_shift": -10}, "hyper_parameters.frame_shift is -10, expected a number above 0"),
        ({"num_mel_bins": 80}, "where the network has"),
    ],
)
def test_front_ends_that_are_not_known(release, theirs, change, found):
    torch.save(checkpoint(theirs, hyper_parameters={**SETTINGS, **change}), release / "pytorch_model.bin")
    message = refusal(release)
    assert message.startswith(str(release))
    assert found in message


def test_other_classes_and_other_weights(release, theirs):
    file = release / "pytorch_model.bin"
    content = checkpoint(theirs)
    content["pyannote.audio"]["architecture"]["class"] = "PyanNet"
    torch.save(content, file)
    assert f"{file}: is of pyannote's class 'PyanNet', and a network is known for WeSpeakerResNet34" in refusal(release)
    torch.save(checkpoint(theirs, **{"pyannote.audio": "2.1.1"}), file)
    assert "is of pyannote's class None" in refusal(release)
    content = checkpoint(theirs)
    content["state_dict"]["loss.weight"] = torch.zeros(1)
    torch.save(content, file)
    assert "'loss.weight' of its weights do not begin with resnet." in refusal(release)
    content = checkpoint(theirs)
    del content["state_dict"]["resnet.bn1.running_mean"], content["state_dict"]["resnet.layer1.0.conv1.weight"]
    torch.save(content, file)
    assert "there is no 'stem.1.running_mean', 'stages.0.0.conv1.weight'" in refusal(release)


def test_files_of_the_same_name_that_are_not_pyannotes(release):
    file = release / "pytorch_model.bin"
    torch.save({"wavlm.encoder.weight": torch.zeros(2)}, file)
    assert find_release(release) is None
    assert f"{file}: holds 'wavlm.encoder.weight', weights of no kind that is known" in refusal(file)
    file.write_bytes(file.read_bytes()[:100])
    assert f"{file}: cannot be " in refusal(release)
    assert f"{file}: cannot be " in refusal(file)
    (release / "config.json").write_text("{}")
    assert find_release(release) is None
