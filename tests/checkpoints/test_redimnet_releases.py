"""Released files of ReDimNet and ReDimNet2, and WeSpeaker's tfmel: their own code against ours, from the waveform."""

from __future__ import annotations

import copy
import os

import pytest
import redimnet_files
import torch
import yaml
from network_material import of_zeros
from redimnet_files import NARROW2, assert_same_from_the_waveform, released
from torch import nn

from svtoolkit import load_model
from svtoolkit.checkpoints.foreign_file import ForeignWeights
from svtoolkit.checkpoints.layout import check_fit
from svtoolkit.checkpoints.redimnet import model_of
from svtoolkit.checkpoints.redimnet_config import FIRST, SECOND, arguments_of, network_of
from svtoolkit.checkpoints.released import ModelDescription, write_released
from svtoolkit.checkpoints.releases import describe, find_release, read_release
from svtoolkit.checkpoints.wespeaker import release as wespeaker_release
from svtoolkit.cli import main
from svtoolkit.composition import load
from svtoolkit.config.front_ends import ReDimNetConfig, ReDimNetTFConfig
from svtoolkit.errors import UserError
from svtoolkit.models import build_model
from svtoolkit.models.build import complete_model

torch.set_num_threads(1)
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")

NORM = {"spec_params": {"norm_signal": True, "do_spec_aug": True, "freq_mask_width": (0, 6)}}
KERNELS = [((1, 1), 2, 1, [(3, 3), (1, 5)], 8), ((2, 2), 1, 2, [(5, 3)], None)]

VARIANTS = {
    "pt": (False, {"feat_type": "pt", **NORM}),
    "tf": (False, {"feat_type": "tf", "spec_params": {"do_preemph": False, "f_min": 60}}),
    "hop": (False, {"hop_length": 240, "emb_bn": True, "block_2d_type": "basic_resnet_fwse", "group_divisor": 4}),
    "blocks": (False, {"block_2d_type": "convnext_like", "block_1d_type": "fc", "out_channels": 10}),
    "attention": (False, {"block_1d_type": "att", "group_divisor": None, "global_context_att": False}),
    "pt2": (True, {"feat_type": "pt", "pad_right_samples": 80, "before_pool_offset": 3, **NORM}),
    "tf2": (True, {"feat_type": "tf", "pad_right_samples": 200, "return_2d_output": True, "emb_bn": True}),
    "dual": (True, {"dual_agg": True, "agg_gnorm": True, "out_channels": 6, "return_2d_output": True}),
    "norm": (True, {"agg_gnorm": True, "compress_tconvs": False, "out_channels": 6, "block_1d_type": "att"}),
    "kernels": (True, {"block_2d_type": "convnext_like", "stages_setup": KERNELS, "block_1d_type": "conv"}),
    "relu": (True, {"block_2d_type": "convnext_like_relu", "use_freq_pos_enc": True, "block_1d_type": "fc"}),
}
"""Second generation or not, and arguments beside those of a narrow network."""


def write(folder, content, name="b2-vox2-ft_lm.pt"):
    folder.mkdir(exist_ok=True)
    torch.save(content, folder / name)
    return folder / name


def refusal(path, **options) -> str:
    with pytest.raises(UserError) as caught:
        read_release(path, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert str(path) in message
    return message


def refusal_of(content, change) -> str:
    """Of a file whose model_config is changed, which is not written; as ``plain`` as a file is read."""
    config = plain({**content["model_config"], **change})

    def read():
        weights, description = model_of(ForeignWeights(content["state_dict"], {"model_config": config}), "b2")
        with torch.device("meta"):
            check_fit(build_model(**description.model), weights)

    with pytest.raises(UserError) as caught:
        read()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def plain(value):
    """Tuples as the lists that YAML has."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_released_file_gives_its_embeddings(wespeaker, tmp_path, variant):
    second, arguments = VARIANTS[variant]
    theirs, content = released(wespeaker, second=second, **arguments)
    model = load_model(write(tmp_path, content), device="cpu")
    assert_same_from_the_waveform(model, theirs, (9_600, 20_001))
    assert model.description.model["name"] == (SECOND if second else FIRST)
    assert model.description.training["release"] == "b2-vox2-ft_lm"


@pytest.fixture(scope="module")
def first(wespeaker):
    return released(wespeaker, second=False)


@pytest.fixture(scope="module")
def second(wespeaker):
    return released(wespeaker, second=True, feat_type="tf", dual_agg=True)


def test_a_file_is_known_by_its_content_and_stands_in_a_folder(first, tmp_path):
    _, content = first
    file = write(tmp_path / "hub", content)
    write(tmp_path / "hub", {"weights": torch.zeros(1)}, "other.pt")
    found = find_release(tmp_path / "hub")
    assert (found.kind.name, found.weights) == ("ReDimNet", file)
    assert read_release(file)[1] == read_release(tmp_path / "hub")[1]
    write(tmp_path / "hub", content, "b3.pt")
    assert "holds several models, 'b2-vox2-ft_lm.pt', 'b3.pt'; give the file of one" in refusal(tmp_path / "hub")
    assert "a release of ReDimNet says its own; leave it out" in str(refusal_of_front_end(file))
    file.write_bytes(file.read_bytes()[:1000])
    assert f"{file}: cannot be" in refusal(file)


def refusal_of_front_end(file) -> UserError:
    with pytest.raises(UserError) as caught:
        read_release(file, front_end="fbank80")
    return caught.value


def test_the_features_are_those_of_the_config(wespeaker, tmp_path, first):
    _, description = read_release(write(tmp_path, first[1]))
    assert description.features == ReDimNetConfig(num_bins=8)
    assert description.training == {"toolkit": "IDRnD", "release": "b2-vox2-ft_lm"}
    _, content = released(wespeaker, second=True, feat_type="tf", hop_length=240, pad_right_samples=80, **NORM)
    _, description = read_release(write(tmp_path, content))
    assert description.features == ReDimNetTFConfig(num_bins=8, frame_shift_ms=15.0, norm_signal=True, pad_right=80)
    assert description.training["toolkit"] == "Palabra AI"


def test_what_the_config_leaves_out_the_weights_say(wespeaker, tmp_path):
    theirs, content = released(wespeaker, second=False, emb_bn=True, out_channels=10, global_context_att=False)
    for key in ("emb_bn", "out_channels", "global_context_att", "embed_dim"):
        content["model_config"].pop(key)
    assert_same_from_the_waveform(load_model(write(tmp_path, content), device="cpu"), theirs, (9_600,))


def test_text_that_their_code_evaluates_is_not(first, tmp_path):
    witness = tmp_path / "evaluated"
    content = copy.copy(first[1])
    content["model_config"] = {
        **content["model_config"], "num_classes": 5994, "head_activation": f"__import__('os').mkdir({str(witness)!r})",
    }  # fmt: skip
    content["state_dict"] = {**content["state_dict"], "cls_head.3.weight": torch.zeros(5, 6)}
    read_release(write(tmp_path, content))
    assert not witness.exists()
    with pytest.raises(UserError, match=r"stages_setup is \"__import__\('os'\)"):
        network_of(FIRST, {"stages_setup": content["model_config"]["head_activation"]}, "model_config")


class _Runs:
    def __init__(self, witness) -> None:
        self.witness = witness

    def __reduce__(self):
        return os.mkdir, (str(self.witness),)


def test_a_config_that_wants_to_run_code_is_refused_and_nothing_is_run(first, tmp_path):
    witness = tmp_path / "was_run"
    content = {**first[1], "model_config": {**first[1]["model_config"], "head_activation": _Runs(witness)}}
    assert "mkdir', which is no part of weights" in refusal(write(tmp_path, content))
    assert not witness.exists()


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"F": None}, "model_config: F is None, expected a whole number from 1 to 1024"),
        ({"F": "8"}, "model_config: F is '8', expected a whole number"),
        ({"F": 16}, "'spec.torchfbank.2.mel_scale.fb' (257, 8) is not the table of redim_pt"),
        ({"C": 10**9}, "model_config: C is 1000000000, expected a whole number from 1 to 1048576"),
        ({"C": 10**5}, "channels is 100000 before strides of 4, expected 1 to 4096"),
        ({"C": 4000}, "where the network has (4000, 1, 3, 3)"),
        ({"embed_dim": 10**9}, "model_config: embed_dim is 1000000000, expected a whole number from 1 to 65536"),
        ({"out_channels": 10**6}, "the weights are those of another network"),
        ({"stages_setup": "((1, 2, 1, [(3, 3)], 12),)"}, "stages_setup is '((1, 2, 1, [(3, 3)], 12),)', expected a"),
        ({"stages_setup": []}, "stages_setup is [], expected a list of stages"),
        ({"stages_setup": ["(1, 2, 1)"]}, "stages_setup[0] is '(1, 2, 1)', expected a list of stride, blocks"),
        ({"stages_setup": [(1, 10**9, 1, [], None)]}, "stages[0] has the blocks 1000000000, expected a whole number"),
        ({"stages_setup": [(1, 1, "1", [], None)]}, "stages[0] has the expansion '1', expected a number above 0"),
        ({"stages_setup": [(1, 1, 1, [], 0)]}, "stages[0] has the reduction 0, expected a whole number above 0 or"),
        ({"stages_setup": [(1, 1, 1, [], 8)] * 9}, "stages has 9 items, expected 1 to 8"),
        ({"stages_setup": [((1, 2), 1, 1, [], 8)]}, "stages_setup[0] is [[1, 2], 1, 1, [], 8], expected a list of str"),
        ({"block_2d_type": "basic_resnet_fwse-causal"}, "block_2d_type is 'basic_resnet_fwse-causal', expected one of"),
        ({"block_1d_type": "gru"}, "expected a block whose result does not depend on the other utterances of a batch"),
        ({"group_divisor": 1}, "the weights are those of another network"),
        ({"group_divisor": 64}, "group_width is 64, which makes no groups of the 4 channels of a stage"),
        ({"pooling_func": "ASP"}, "pooling_func is 'ASP', and a network is known for 'ASTP' alone"),
        ({"emb_bn": 1}, "emb_bn is 1, expected true or false"),
        ({"tf_optimized_arch": True}, "tf_optimized_arch is True, and a network is known for False alone"),
        ({"feat_type": "tf_spec"}, "feat_type is 'tf_spec', and mel spectrograms are known alone: pt, pt_mel, tf"),
        ({"feat_type": "tf"}, "'spec.torchfbank.2.spectrogram.window', 'spec.torchfbank.2.mel_scale.fb' is no table"),
        ({"hop_length": 0}, "spec_params.hop_length is 0, expected a whole number from 1"),
        ({"spec_params": {"f_min": 0}}, "'spec.torchfbank.2.mel_scale.fb' (257, 8) is not the table of redim_pt"),
        ({"spec_params": {"do_preemph": False}}, "'spec.torchfbank.1.flipped_filter' is no table of redim_pt"),
        ({"spec_params": {"spec_norm": "mvn"}}, "spec_params.spec_norm is 'mvn', and the front end is known with 'mn'"),
        ({"spec_params": {"mels": 8}}, "spec_params has 'mels', expected no other keys than f_min, f_max"),
        ({"spec_params": "none"}, "spec_params is 'none', expected a mapping"),
        ({"norm_first": True}, "model_config has 'norm_first', expected no other keys than F, C"),
    ],
)
def test_mistakes_and_hostile_values_of_a_config(first, change, found):
    assert found in refusal_of(first[1], change)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"causal": "full"}, "causal is 'full', and a network is known for 'none' alone"),
        ({"fm_weigthing_type": "N"}, "fm_weigthing_type is 'N', and a network is known for 'NC' alone"),
        ({"spec_in_channels": 2}, "spec_in_channels is 2, and a network is known for 1 alone"),
        ({"is_subnet": True}, "is_subnet is True, and a network is known for False alone"),
        ({"pad_right_samples": -1}, "pad_right_samples is -1, expected a whole number from 0 to 16000"),
        ({"before_pool_offset": "3"}, "before_pool_offset is '3', expected a whole number from 0"),
        ({"dual_agg": False}, "the weights are those of another network"),
        ({"agg_gnorm": True}, "there is no 'stem_norm.weight'"),
        ({"stages_setup": [(1, 1, 1, [], 8)]}, "expected a list of strides of bins and of frames, blocks"),
    ],
)
def test_mistakes_of_the_second_generation(second, change, found):
    assert found in refusal_of(second[1], change)


def test_weights_that_are_missing_or_unexpected(first, tmp_path):
    _, content = first
    for key in ("C", "stages_setup"):
        config = {name: value for name, value in content["model_config"].items() if name != key}
        assert f"model_config has no {key}, expected the arguments" in refusal(
            write(tmp_path, {**content, "model_config": config})
        )
    config = {**content["model_config"], "C": 1 << 100_000}
    assert "beside its weights it has a number of more than 4096 bits" in refusal(
        write(tmp_path, {**content, "model_config": config})
    )
    assert "model_config is None, expected a mapping" in refusal(write(tmp_path, {**content, "model_config": None}))
    state = content["state_dict"]
    more = {**state, "extra.weight": torch.zeros(1)}
    assert "'extra.weight' is not a weight of a IDRnD ReDimNet" in refusal(
        write(tmp_path, {**content, "state_dict": more})
    )
    less = {name: tensor for name, tensor in state.items() if not name.startswith("bn.")}
    assert "has weights 'bn.*', and there are none" in refusal(write(tmp_path, {**content, "state_dict": less}))


def test_it_is_converted_and_a_run_begins_with_it(second, tmp_path, capsys):
    theirs, content = second
    file, ours, back = write(tmp_path, content), tmp_path / "ours", tmp_path / "back"
    assert main(["convert-model", f"model={file}", f"out={ours}"]) == 0, capsys.readouterr().err
    assert main(["convert-model", f"model={ours}", f"out={back}", "format=wespeaker"]) == 0, capsys.readouterr().err
    for path in (ours, back):
        assert_same_from_the_waveform(load_model(path, device="cpu"), theirs, (9_600,))
    config = load("train", ["data.train=data/train", f"exp_dir={tmp_path / 'exp'}", f"init_from={file}"])
    assert (config.model.name, config.model.channels, config.model.dual_maps) == (SECOND, 4, True)
    assert config.model.stages[1] == [2, 1, 0.75, None, 1, [[3, 3]]]
    assert (config.features.backend, config.features.num_bins) == ("redim_tf", 8)


def test_what_idrnd_has_and_wespeaker_has_not(first, tmp_path, capsys):
    file = write(tmp_path, first[1])
    assert main(["convert-model", f"model={file}", f"out={tmp_path / 'out'}", "format=wespeaker"]) == 1
    assert "features.backend is 'redim_pt', low_freq" not in (said := capsys.readouterr().err)
    assert "features.backend is 'redim_pt'" in said


@pytest.mark.parametrize("name", ["redimnet_b0", "redimnet_b3", "redimnet2_b2", "redimnet2_b6"])
def test_arguments_of_ours_are_theirs_and_back(name):
    model = complete_model({"name": name, "num_bins": 72, "embedding_dim": 192})
    theirs = arguments_of(model)
    sized = network_of(SECOND if "2_" in name else FIRST, theirs, "here")
    with torch.device("meta"):
        named, same = build_model(**model).state_dict(), build_model(**sized).state_dict()
    assert {key: tensor.shape for key, tensor in named.items()} == {key: tensor.shape for key, tensor in same.items()}
    assert arguments_of(sized) == theirs


# WeSpeaker's releases

TFMEL = {"n_mels": 8, "f_min": 20, "f_max": 7600, "do_preemph": True, "norm_signal": True, "eps": 1e-8}
SIZES = {key: value for key, value in NARROW2.items() if key != "F"}
DATASET = {"resample_rate": 16000, "frontend": "tfmel", "tfmel_args": TFMEL, "cmvn": False}


class WithFrontEnd(nn.Module):
    """What WeSpeaker's tools make of waveforms with a network whose module ``frontend`` they added."""

    def __init__(self, network) -> None:
        super().__init__()
        self.network = network

    def forward(self, waveforms):
        return self.network(self.network.frontend(waveforms)[0])


@pytest.fixture(scope="module")
def tfmel(wespeaker):
    """A narrow ReDimNet2 as WeSpeaker's training leaves it."""
    torch.manual_seed(6)
    network = wespeaker("models.redimnet2").ReDimNet2B0(feat_dim=8, out_channels=6, **plain(SIZES))
    redimnet_files.randomise(network)
    network.add_module("frontend", wespeaker("frontend.tfmel").TFMelFrontend(**TFMEL, sample_rate=16000))
    return network.eval()


def write_wespeaker(folder, content, **changes):
    folder.mkdir()
    arguments = {"feat_dim": 8, "out_channels": 6, "pooling_func": "ASTP", **plain(SIZES)}
    config = {"model": "ReDimNet2B0", "model_args": arguments, "dataset_args": DATASET, **changes}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    torch.save(content, folder / "avg_model.pt")
    return folder


def test_tfmel_gives_wespeakers_embeddings(tfmel, tmp_path, capsys, wespeaker):
    state = {**tfmel.state_dict(), "projection.weight": torch.zeros(3, 6)}
    folder = write_wespeaker(tmp_path / "voxceleb_redimnet2", state)
    model = load_model(folder, device="cpu")
    assert_same_from_the_waveform(model, WithFrontEnd(tfmel))
    assert model.description.features == ReDimNetTFConfig(num_bins=8, norm_signal=True)
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    assert main(["convert-model", f"model={folder}", f"out={ours}"]) == 0, capsys.readouterr().err
    assert main(["convert-model", f"model={ours}", f"out={theirs}", "format=wespeaker"]) == 0, capsys.readouterr().err
    config = yaml.safe_load((theirs / "config.yaml").read_text())
    loaded = getattr(wespeaker("models.redimnet2"), config["model"])(**config["model_args"])
    dataset = config["dataset_args"]
    loaded.load_state_dict(torch.load(theirs / "avg_model.pt", weights_only=True), strict=True)
    loaded.add_module(
        "frontend",
        wespeaker("frontend.tfmel").TFMelFrontend(**dataset["tfmel_args"], sample_rate=dataset["resample_rate"]),
    )
    assert dataset["cmvn"] is False
    assert_same_from_the_waveform(model, WithFrontEnd(loaded.eval()), (9_600,))


def test_a_published_size_keeps_its_name(tmp_path):
    model = complete_model({"name": "redimnet2_b0", "num_bins": 72, "embedding_dim": 192})
    description = ModelDescription(model, ReDimNetTFConfig(norm_signal=True, high_freq=-400.0))
    wespeaker_release.write(tmp_path, of_zeros(**model).state_dict(), description)
    config = yaml.safe_load((tmp_path / "config.yaml").read_text())
    assert config["model"] == "ReDimNet2B0"
    assert config["model_args"] == {"feat_dim": 72, "embed_dim": 192, "pooling_func": "ASTP"}
    assert config["dataset_args"]["tfmel_args"]["f_max"] == 7600
    found = describe(find_release(tmp_path))
    assert (found.model, found.features) == (model, ReDimNetTFConfig(norm_signal=True))


def test_the_network_is_that_of_the_checkpoint_where_it_says_one(tfmel, tmp_path):
    config = {**NARROW2, "out_channels": 6, "feat_type": "tf", "head_activation": "1/0"}
    content = {"state_dict": tfmel.state_dict(), "model_config": config}
    folder = write_wespeaker(tmp_path / "lm", content, model="ReDimNet2B6", model_args={"feat_dim": 72})
    assert_same_from_the_waveform(load_model(folder, device="cpu"), WithFrontEnd(tfmel), (9_600,))
    content["model_config"] = {**config, "spec": "tf"}
    refused = write_wespeaker(tmp_path / "spec", content)
    with pytest.raises(UserError, match="model_config of the weights: spec is 'tf', and a network is known for"):
        read_release(refused)


def test_frames_of_zeros_behind_an_utterance(wespeaker, tmp_path):
    arguments = {**NARROW2, "pad_right_samples": 5, "before_pool_offset": 2}
    torch.manual_seed(7)
    theirs = redimnet_files.randomise(wespeaker("models.redimnet2").ReDimNet2Custom(**arguments)).eval()
    config = {"model": "ReDimNet2Custom", "model_args": plain(arguments)}
    folder = write_wespeaker(tmp_path / "padded", theirs.state_dict(), **config)
    network, description = read_release(folder)
    frames = torch.randn(2, 41, 8)
    with torch.no_grad():
        expected = theirs(frames.transpose(1, 2).clone())
        assert (network(frames) - expected).abs().max() <= 1e-5 * expected.abs().max()
    assert (description.model["pad_frames"], description.model["skip_frames"]) == (5, 2)
    with pytest.raises(UserError, match="an utterance has 6 frames, and a ReDimNet2 needs 8 or more"):
        build_model(**{**description.model, "skip_frames": 4})(frames[:, :1])


def test_a_redimnet_of_any_size_behind_the_filter_bank(wespeaker, tmp_path, capsys):
    arguments = {**plain(redimnet_files.NARROW), "feat_dim": 8, "two_emb_layer": True}
    del arguments["F"]
    theirs = redimnet_files.randomise(wespeaker("models.redimnet").ReDimNet(**arguments)).eval()
    dataset = {"fbank_args": {"num_mel_bins": 8}}
    config = {"model": "ReDimNet", "model_args": arguments, "dataset_args": dataset}
    folder = write_wespeaker(tmp_path / "sized", theirs.state_dict(), **config)
    network, description = read_release(folder)
    frames = torch.randn(3, 60, 8)
    with torch.no_grad():
        expected = theirs(frames)[-1]
        assert (network(frames) - expected).abs().max() <= 1e-5 * expected.abs().max()
    out = tmp_path / "out"
    assert main(["convert-model", f"model={folder}", f"out={out}", "format=wespeaker"]) == 0, capsys.readouterr().err
    assert yaml.safe_load((out / "config.yaml").read_text())["model"] == "ReDimNet"
    assert read_release(out)[1].model == description.model


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"cmvn": True}, "dataset_args.cmvn is not false"),
        ({"tfmel_args": None}, "dataset_args.tfmel_args is None, expected a mapping"),
        ({"tfmel_args": {**TFMEL, "n_mels": 72}}, "tfmel_args.n_mels is 72, but the network takes 8"),
        ({"tfmel_args": {**TFMEL, "eps": 1e-6}}, "tfmel_args.eps is 1e-06, and the front end is known with 1e-08"),
        ({"tfmel_args": {**TFMEL, "n_fft": 1024}}, "tfmel_args.n_fft is 1024, and the front end is known with 512"),
        ({"tfmel_args": {**TFMEL, "norm_signal": 1}}, "tfmel_args.norm_signal is 1, expected true or false"),
        ({"tfmel_args": {**TFMEL, "f_max": 4000}}, "'frontend.spec.torchfbank.2.melbanks_pt' (8, 256, 1) is not the"),
        ({"tfmel_args": {**TFMEL, "f_max": 10}}, "make a band from 20.0 to 10.0 Hz"),
        ({"resample_rate": 8000}, "resample_rate is 8000, and tfmel is known at 16000 alone"),
    ],
)
def test_mistakes_of_tfmel(tfmel, tmp_path, change, found):
    folder = write_wespeaker(tmp_path / "r", tfmel.state_dict(), dataset_args={**DATASET, **change})
    assert found in refusal(folder)


def test_tfmel_is_of_redimnet2_and_says_itself(tfmel, tmp_path):
    folder = write_wespeaker(tmp_path / "r", tfmel.state_dict())
    assert "front_end is kaldi_3d, but dataset_args.frontend is 'tfmel'; leave it out" in refusal(
        folder, front_end="kaldi_3d"
    )
    other = write_wespeaker(tmp_path / "o", tfmel.state_dict(), model="ReDimNetB2", model_args={"feat_dim": 8})
    assert "dataset_args.frontend is 'tfmel', whose (batch, bins, frames) ReDimNetB2 does not take" in refusal(other)


@pytest.mark.parametrize(
    ("features", "found"),
    [
        (ReDimNetTFConfig(num_bins=8, pad_right=80), "features.pad_right is 80, which WeSpeaker's tfmel cannot be"),
        (ReDimNetTFConfig(num_bins=8, preemphasis=0.5), "features.preemphasis is 0.5, which WeSpeaker's tfmel"),
    ],
)
def test_features_that_tfmel_cannot_be_told(tmp_path, capsys, features, found):
    model = network_of(SECOND, NARROW2, "here")
    write_released(tmp_path / "ours", build_model(**model).state_dict(), ModelDescription(model, features))
    assert main(["convert-model", f"model={tmp_path / 'ours'}", f"out={tmp_path / 'o'}", "format=wespeaker"]) == 1
    assert found in capsys.readouterr().err
