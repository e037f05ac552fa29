""".nemo files of TitaNet and SpeakerNet: NeMo's own code against ours from the waveform, and what is no such file."""

from __future__ import annotations

import copy

import nemo_networks
import numpy as np
import pytest
import torch
from nemo_networks import nemo_file, original, original_layers, speakernet, titanet

from svtoolkit import load_model
from svtoolkit.checkpoints import nemo
from svtoolkit.checkpoints.releases import find_release, read_release
from svtoolkit.cli import main
from svtoolkit.config.front_ends import Nemo80Config
from svtoolkit.errors import UserError
from svtoolkit.models import build_model

torch.set_num_threads(1)
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script`:DeprecationWarning")

SMALL = titanet(16, 24, size=12)
SMALL_SPEAKERNET = speakernet(16, 24, size=12)
FULL = {
    "titanet_small": (titanet, 256, 3072),
    "titanet_large": (titanet, 1024, 3072),
    "speakernet": (speakernet, 512, 1500),
}


@pytest.fixture(scope="module")
def networks():
    """The small ones by their own code."""
    return {"titanet": original(SMALL), "speakernet": original(SMALL_SPEAKERNET)}


@pytest.fixture
def release(tmp_path, networks):
    return nemo_file(tmp_path / "titanet-s.nemo", SMALL, networks["titanet"])


def refusal(path, **options):
    with pytest.raises(UserError) as caught:
        read_release(path, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def assert_the_same_from_the_waveform(model, theirs, *lengths):
    """Features first; the frames that NeMo puts after the last one are zeros, and masked."""
    generator = np.random.default_rng(0)
    for samples in lengths:
        waveforms = torch.from_numpy((0.1 * generator.standard_normal((3, samples))).astype(np.float32))
        waveforms[1] *= torch.linspace(0, 1, samples)
        for batch in (1, 3):
            with torch.no_grad():
                found = model.extractor.front_end(waveforms[:batch])
                padded, frames = theirs.preprocessor.featurizer(
                    waveforms[:batch].clone(), torch.full((batch,), samples)
                )
                assert set(frames.tolist()) == {found.shape[1]}
                torch.testing.assert_close(found, padded[..., : found.shape[1]].mT, rtol=0, atol=1e-4)
                ours, expected = model.extractor.network(found), theirs(waveforms[:batch])
            assert ours.shape == expected.shape
            assert (ours - expected).abs().max() <= 1e-5 * expected.abs().max()
        assert (expected[0] - expected[1]).abs().max() > 1e-3 * expected.abs().max()


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_titanet_gives_its_embeddings(tmp_path, networks, mode):
    file = nemo_file(tmp_path / "titanet.nemo", SMALL, networks["titanet"], mode=mode, **{"./labels.txt": b"a\nb\n"})
    model = load_model(file, device="cpu")
    assert_the_same_from_the_waveform(model, networks["titanet"], 9_600, 50_720)
    assert model.description.model == {
        "name": "titanet_large", "num_bins": 80, "embedding_dim": 12, "base_width": 16, "map_channels": 24,
        "dropout": 0.1,
    }  # fmt: skip
    assert model.description.features == Nemo80Config()
    assert model.description.training == {"toolkit": "NeMo", "release": "titanet.nemo"}


def test_speakernet_gives_its_embeddings(tmp_path, networks):
    model = load_model(nemo_file(tmp_path / "a.nemo", SMALL_SPEAKERNET, networks["speakernet"]), device="cpu")
    assert_the_same_from_the_waveform(model, networks["speakernet"], 9_600, 50_720)
    assert model.description.features == Nemo80Config(num_bins=64, frame_length_ms=20.0)


@pytest.mark.parametrize("name", FULL)
def test_the_published_sizes(tmp_path, networks, name):
    make, *sizes = FULL[name]
    family = name.partition("_")[0]
    file = nemo_file(tmp_path / "a.nemo", make(*sizes), networks[family])
    assert "where the network has" in refusal(file)
    model = nemo.read(file, None)[1].model
    assert (model["name"], model["base_width"]) == (name, None)
    with torch.device("meta"):
        ours, theirs = build_model(**model), original_layers(make(*sizes))
    counts = [sum(parameter.numel() for parameter in network.parameters()) for network in (ours, theirs)]
    assert counts[0] == counts[1] - sum(parameter.numel() for parameter in theirs.decoder.final.parameters())


def test_without_masked_convolutions(tmp_path, networks):
    """conv_mask: false names the convolutions otherwise."""
    config = copy.deepcopy(SMALL_SPEAKERNET)
    config["encoder"]["conv_mask"] = False
    theirs = original(config)
    network, _ = read_release(nemo_file(tmp_path / "a.nemo", config, theirs))
    frames = torch.randn(2, 64, 33)
    with torch.no_grad():
        encoded, lengths = theirs.encoder(audio_signal=frames, length=torch.tensor([33, 33]))
        expected = theirs.decoder(encoder_output=encoded, length=lengths)[1]
        assert (network(frames.mT) - expected).abs().max() <= 1e-5 * expected.abs().max()


def test_the_only_one_of_a_folder_and_what_becomes_of_it(release, tmp_path, capsys):
    assert find_release(tmp_path) == find_release(release)
    ours = tmp_path / "ours"
    assert main(["convert-model", f"model={tmp_path}", f"out={ours}"]) == 0, capsys.readouterr().err
    first, second = read_release(release), read_release(ours)
    assert (first[1].model, first[1].features) == (second[1].model, second[1].features)
    assert all(torch.equal(tensor, second[0].state_dict()[name]) for name, tensor in first[0].state_dict().items())
    release.rename(tmp_path / "any_name")
    assert find_release(tmp_path / "any_name").kind.name == "NeMo"
    for name in ("a", "b"):
        (tmp_path / f"{name}.nemo").write_bytes(b"")
    assert f"{tmp_path}: holds several models, 'a.nemo', 'b.nemo'; give the file of one" in refusal(tmp_path)


def changed(path, value, config=SMALL):
    """A configuration with one value changed, or without the key where it is None."""
    made = copy.deepcopy(config)
    *sections, key = path.split(".")
    at = made
    for section in sections:
        at = at[int(section) if isinstance(at, list) else section]
    at[int(key) if isinstance(at, list) else key] = value
    if value is None:
        del at[key]
    return made


TARGET = nemo_networks.MODULES


@pytest.mark.parametrize(
    ("path", "value", "found"),
    [
        ("encoder", None, "has no section encoder"),
        ("encoder._target_", f"{TARGET}ECAPAEncoder", "encoder is a ECAPAEncoder, and ConvASREncoder (TitaNet, Speak"),
        ("decoder._target_", f"{TARGET}ConvASRDecoder", "decoder is a ConvASRDecoder, and SpeakerDecoder"),
        ("preprocessor._target_", ["os.system"], "preprocessor is a "),
        ("preprocessor.normalize", "all_features", "preprocessor.normalize is 'all_features', and 'per_feature' alone"),
        ("preprocessor.window", "hamming", "preprocessor.window is 'hamming', and 'hann' alone"),
        ("preprocessor.window_stride", 0.02, "preprocessor.window_stride is 0.02, and 0.01 alone"),
        ("preprocessor.window_size", "0.025", "preprocessor.window_size is '0.025', expected seconds"),
        ("preprocessor.n_fft", 1024, "preprocessor.n_fft is 1024, and 512 alone"),
        ("preprocessor.window_size", 0.04, "features.frame_length_ms is 40, expected a window of 2 to 512 samples"),
        ("preprocessor.highfreq", 4000, "preprocessor.highfreq is 4000, and 8000.0 alone"),
        ("preprocessor.log", 1, "preprocessor.log is 1, and True alone"),
        ("preprocessor.features", 64, "encoder.feat_in is 80, expected 64"),
        ("preprocessor.features", 0, "preprocessor.features is 0, expected a whole number of 1 or more"),
        ("preprocessor.features", 500_000, "num_bins is 500000, expected"),
        ("preprocessor.mel_scale", "htk", "preprocessor has 'mel_scale', expected no other keys than sample_rate"),
        ("encoder.activation", "swish", "encoder.activation is 'swish', and 'relu' alone"),
        ("encoder.jasper", "${jasper}", "encoder.jasper is no list of blocks"),
        ("encoder.jasper.1.stride", [2], "encoder.jasper[1].stride is [2], and [1] alone"),
        ("encoder.jasper.1.se_reduction_ratio", 16, "encoder.jasper[1].se_reduction_ratio is 16, and 8 alone"),
        ("encoder.jasper.1.kernel", 7, "encoder.jasper[1] has kernel 7"),
        (
            "encoder.jasper.1.kernel",
            [9],
            "has blocks of filters 16 of 3x1, 16 of 9x3, 16 of 11x3, 16 of 15x3, 24 of 1x1",
        ),
        ("encoder.jasper.1.filters", 32, "has blocks of filters 16 of 3x1, 32 of 7x3"),
        ("encoder.jasper.1.filters", "${filters}", "encoder.jasper.filters is '${filters}', expected a whole number"),
        ("encoder.jasper.1.se", False, "has blocks of filters"),
        ("decoder.pool_mode", "xvector", "decoder.pool_mode is 'xvector', and 'attention' alone"),
        ("decoder.feat_in", 25, "decoder.feat_in is 25, expected 24"),
        ("decoder.emb_sizes", [512, 12], "decoder.emb_sizes is [512, 12], expected a whole number"),
        ("decoder.emb_sizes", 13, "'embedding.1.weight' is (12, 48) where the network has (13, 48)"),
    ],
)
def test_configurations_that_are_not_known(tmp_path, networks, path, value, found):
    file = nemo_file(tmp_path / "a.nemo", changed(path, value), networks["titanet"])
    message = refusal(file)
    assert message.startswith(f"{file}: ")
    assert found in message


def test_what_changes_no_embedding_may_be_anything(tmp_path, networks):
    config = changed("preprocessor.window_size", None)
    config["preprocessor"] |= {"n_window_size": 400, "dither": 0.0, "pad_to": 0, "stft_conv": False, "highfreq": 8000}
    config["decoder"] |= {"emb_sizes": [12], "angular": True, "num_classes": 16681}
    config["encoder"]["jasper"][1]["dropout"] = 0.5
    state = {name: value for name, value in networks["titanet"].state_dict().items() if "featurizer" not in name}
    first, second = (
        read_release(nemo_file(tmp_path / f"{name}.nemo", *content))[0].state_dict()
        for name, content in (("a", (config, state)), ("b", (SMALL, networks["titanet"])))
    )
    assert all(torch.equal(tensor, second[name]) for name, tensor in first.items())


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("encoder.encoder.2.mconv.13.fc.2.weight", None, "TitaNet has weights 'encoder.encoder.2.mconv.13.fc.2.*'"),
        ("decoder.emb_layers.0.1.bias", None, "there is no 'embedding.1.bias'"),
        ("decoder.emb_layers.1.1.bias", torch.zeros(1), "'decoder.emb_layers.1.1.bias' is not a weight of a NeMo Tita"),
        ("encoder.encoder.0.mconv.0.conv.weight", torch.zeros(80, 1, 5), "(80, 1, 5) where the network has (80, 1, 3)"),
        ("preprocessor.featurizer.fb", torch.ones(1, 80, 257), "preprocessor.featurizer.fb is not that of the front"),
        ("preprocessor.featurizer.window", torch.hamming_window(400), "preprocessor.featurizer.window is not that"),
        ("preprocessor.featurizer.dct", torch.ones(3), "'preprocessor.featurizer.dct' are of another front end"),
    ],
)
def test_weights_that_are_missing_or_others(tmp_path, networks, name, value, found):
    state = {**networks["titanet"].state_dict(), name: value}
    state = {key: tensor for key, tensor in state.items() if tensor is not None}
    message = refusal(nemo_file(tmp_path / "a.nemo", SMALL, state))
    assert message.startswith(f"{tmp_path / 'a.nemo'}: ")
    assert found in message


def test_files_that_are_damaged_or_no_nemo_file(release, networks):
    whole = release.read_bytes()
    for content in (b"", whole[: len(whole) // 2], b"<html>not found</html>", whole[:512] + b"\1" * 4096):
        release.write_bytes(content)
        assert refusal(release).startswith(f"{release}: cannot be ")
    torch.save(networks["titanet"].state_dict(), release)
    assert f"{release}: is no .nemo file with a model_config.yaml" in refusal(release)
    for config in (["a"], "text", {"preprocessor": 3}):
        message = refusal(nemo_file(release, config, networks["titanet"]))
        assert message.startswith(f"{release}: ")
        assert "model_config.yaml" in message
    assert "is no part of weights and would be run by another reader" in refusal(
        nemo_file(release, SMALL, {"encoder": torch.zeros(1), "more": _Runs()})
    )


class _Runs:
    def __reduce__(self):
        return print, ("was run",)
