"""Releases and trainings of SpeechBrain by one word: its own networks and features against ours, from the waveform."""

from __future__ import annotations

import os
import shutil

import pytest
import torch
from foreign_networks import randomise
from hostile_files import HOSTILE_YAML
from speechbrain_original import as_published, original

from svtoolkit import load_model
from svtoolkit.checkpoints.releases import find_release, read_release
from svtoolkit.checkpoints.speechbrain.hyperparams import read_hyperparams
from svtoolkit.cli import main
from svtoolkit.config.front_ends import SpeechBrain24Config, SpeechBrain80Config
from svtoolkit.errors import UserError
from svtoolkit.system.plain_data import parse_tagged_yaml

torch.set_num_threads(1)

LENGTHS = (9_600, 50_720)
"""0.6 s and 3.17 s."""

FEATURES = """
compute_features: !new:speechbrain.lobes.features.Fbank
    n_mels: !ref <n_mels>
mean_var_norm: !new:speechbrain.processing.features.InputNormalization
    norm_type: sentence
    std_norm: False
"""
REST = """
mean_var_norm_emb: !new:speechbrain.processing.features.InputNormalization
    norm_type: global
    std_norm: False
classifier: !new:speechbrain.lobes.models.ECAPA_TDNN.Classifier
    input_size: 192
    out_neurons: !ref <out_n_neurons>
modules:
    compute_features: !ref <compute_features>
    embedding_model: !ref <embedding_model>
label_encoder: !new:speechbrain.dataio.encoder.CategoricalEncoder
pretrainer: !new:speechbrain.utils.parameter_transfer.Pretrainer
    loadables:
        embedding_model: !ref <embedding_model>
    paths:
        embedding_model: !ref <pretrained_path>/embedding_model.ckpt
"""
ECAPA = (
    """
n_mels: 80
pretrained_path: speechbrain/spkrec-ecapa-voxceleb
out_n_neurons: 7205
"""
    + FEATURES
    + """
embedding_model: !new:speechbrain.lobes.models.ECAPA_TDNN.ECAPA_TDNN
    input_size: !ref <n_mels>
    channels: [16, 16, 16, 16, 48]
    kernel_sizes: [5, 3, 3, 3, 1]
    dilations: [1, 2, 3, 4, 1]
    attention_channels: 128
    lin_neurons: 32
"""
    + REST
)
XVECTOR = (
    """
n_mels: 24
emb_dim: 24
pretrained_path: speechbrain/spkrec-xvect-voxceleb
out_n_neurons: 7205
"""
    + FEATURES
    + """
embedding_model: !new:speechbrain.lobes.models.Xvector.Xvector
    in_channels: !ref <n_mels>
    activation: !name:torch.nn.LeakyReLU
    tdnn_blocks: 5
    tdnn_channels: [16, 16, 16, 16, 1500]
    tdnn_kernel_sizes: [5, 3, 3, 1, 1]
    tdnn_dilations: [1, 2, 3, 1, 1]
    lin_neurons: !ref <emb_dim>
"""
    + REST
)
RESNET = (
    """
n_mels: 80
pretrained_path: speechbrain/spkrec-resnet-voxceleb
out_n_neurons: 7205
"""
    + FEATURES
    + """
embedding_model: !new:speechbrain.lobes.models.ResNet.ResNet
    input_size: !ref <n_mels>
    channels: [8, 8, 16, 16]
    strides: [1, 2, 2, 2]
    block_sizes: [3, 4, 6, 3]
    lin_neurons: 16
"""
    + REST
)
TRAINING = """
# Generated 2026-03-01 from:
seed: 1986
__set_seed: !apply:speechbrain.utils.seed_everything [1986]
sample_rate: 16000
n_mels: 80
left_frames: 0
right_frames: 0
deltas: false
channels: &id001 [16, 16, 16, 16, 48]
compute_features: &id002 !new:speechbrain.lobes.features.Fbank
  n_mels: 80
  left_frames: 0
  right_frames: 0
  deltas: false
embedding_model: &id003 !new:speechbrain.lobes.models.ECAPA_TDNN.ECAPA_TDNN
  input_size: 80
  channels: *id001
  lin_neurons: 32
  dropout: 0.2
mean_var_norm: &id004 !new:speechbrain.processing.features.InputNormalization
  norm_type: sentence
  std_norm: false
modules:
  compute_features: *id002
  embedding_model: *id003
  mean_var_norm: *id004
"""
"""As hyperpyyaml.resolve_references writes it into the folder of a training."""


def network_of(name: str, **arguments) -> torch.nn.Module:
    torch.manual_seed(4)
    return as_published(randomise(getattr(original(), name)(**arguments))).eval()


RELEASES = {
    "ecapa": (ECAPA, "ECAPA_TDNN", {"input_size": 80, "channels": [16] * 4 + [48], "lin_neurons": 32}),
    "xvect": (XVECTOR, "Xvector", {"in_channels": 24, "tdnn_channels": [16] * 4 + [1500], "lin_neurons": 24}),
    "resnet": (RESNET, "ResNet", {"input_size": 80, "channels": [8, 8, 16, 16], "lin_neurons": 16}),
}
"""hyperparams.yaml, their class and its arguments."""


@pytest.fixture(scope="module")
def networks() -> dict[str, torch.nn.Module]:
    """Originals, as if they were trained."""
    return {name: network_of(theirs, **arguments) for name, (_, theirs, arguments) in RELEASES.items()}


def write(folder, network, hyperparams):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "hyperparams.yaml").write_text(hyperparams)
    torch.save(network.state_dict(), folder / "embedding_model.ckpt")
    torch.save({"weight": torch.zeros(3, 32)}, folder / "classifier.ckpt")
    torch.save(
        {"count": 3, "glob_mean": torch.zeros(32), "glob_std": torch.ones(32)}, folder / "mean_var_norm_emb.ckpt"
    )
    (folder / "label_encoder.txt").write_text("'id10001' => 0\n================\n'starting_index' => 0\n")
    return folder


@pytest.fixture
def ecapa(tmp_path, networks):
    return write(tmp_path / "spkrec-ecapa-voxceleb", networks["ecapa"], ECAPA)


def refusal(path) -> str:
    with pytest.raises(UserError) as caught:
        read_release(path)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("name", RELEASES)
def test_its_features_and_its_embeddings(name, tmp_path, networks):
    folder = write(tmp_path / f"spkrec-{name}-voxceleb", networks[name], RELEASES[name][0])
    model = load_model(folder, device="cpu")
    tolerance = 2e-4 if name == "resnet" else 1e-5  # that much becomes of what float32 rounds in the features
    bins = 24 if name == "xvect" else 80
    features, centred = (
        original().Fbank(n_mels=bins),
        original().InputNormalization(norm_type="sentence", std_norm=False),
    )
    generator = torch.Generator().manual_seed(0)
    for samples in LENGTHS:
        waveforms = 0.1 * torch.randn(3, samples, generator=generator)
        waveforms *= torch.linspace(0.01, 1.0, samples)
        with torch.no_grad():
            frames = centred(features(waveforms), torch.ones(3))
            found = model.extractor.front_end(waveforms)
            torch.testing.assert_close(found, frames, rtol=0, atol=1e-3)  # decibels, of 80 and more
            expected = networks[name](frames)
            embeddings, same = map(model.extractor.network, (found, frames))
        largest = float(expected.abs().max())
        assert float((same - expected).abs().max()) <= 1e-5 * largest
        assert float((embeddings - expected).abs().max()) <= tolerance * largest
        assert abs(model.embed(waveforms[2].numpy()) - expected[2].numpy()).max() <= tolerance * largest


def test_what_is_said_of_it(ecapa, tmp_path, networks):
    assert find_release(ecapa).kind.name == "SpeechBrain"
    model = load_model(ecapa, device="cpu")
    assert model.description.model == {
        "name": "sb_ecapa_tdnn", "num_bins": 80, "embedding_dim": 32, "base_width": 16,
    }  # fmt: skip
    assert model.description.features == SpeechBrain80Config()
    assert model.description.training == {
        "toolkit": "SpeechBrain", "release": "spkrec-ecapa-voxceleb", "model": "ECAPA_TDNN",
        "pretrained_path": "speechbrain/spkrec-ecapa-voxceleb",
    }  # fmt: skip
    assert model.threshold is None  # 0.25 is a default of SpeechBrain's code, whatever the model
    _, description = read_release(write(tmp_path / "xvect", networks["xvect"], XVECTOR))
    assert description.features == SpeechBrain24Config()


def test_what_it_does_not_need_may_be_missing_or_otherwise(ecapa, tmp_path, capsys):
    whole = read_release(ecapa)[0].state_dict()
    (ecapa / "label_encoder.txt").rename(ecapa / "label_encoder.ckpt")
    for name in ("classifier.ckpt", "mean_var_norm_emb.ckpt"):
        (ecapa / name).write_bytes(b"not read")
    for path in (ecapa, ecapa / "embedding_model.ckpt"):
        assert all(torch.equal(tensor, whole[name]) for name, tensor in read_release(path)[0].state_dict().items())
    assert main(["convert-model", f"model={ecapa}", f"out={tmp_path / 'ours'}"]) == 0, capsys.readouterr().err
    ours = read_release(tmp_path / "ours")
    assert all(torch.equal(tensor, whole[name]) for name, tensor in ours[0].state_dict().items())
    assert ours[1].features == SpeechBrain80Config()


@pytest.mark.parametrize(
    ("name", "small", "published", "found"),
    [
        ("ecapa", "[16, 16, 16, 16, 48]", "[1024, 1024, 1024, 1024, 3072]", ("sb_ecapa_tdnn", 80, 32)),
        ("xvect", "[16, 16, 16, 16, 1500]", "[512, 512, 512, 512, 1500]", ("sb_xvector", 24, 24)),
        ("resnet", "[8, 8, 16, 16]", "[128, 128, 256, 256]", ("sb_resnet", 80, 16)),
    ],
)
def test_the_published_widths_are_ours(name, small, published, found):
    assert small in RELEASES[name][0]
    words = RELEASES[name][0].replace(small, published)
    model, _, _ = read_hyperparams(parse_tagged_yaml(words, aliases=True))
    assert model == {**dict(zip(("name", "num_bins", "embedding_dim"), found, strict=True)), "base_width": None}


def test_other_sizes_and_other_bins(tmp_path):
    network = network_of("ECAPA_TDNN", input_size=60)
    words = ECAPA.replace("n_mels: 80", "n_mels: 60").replace("    channels: [16, 16, 16, 16, 48]\n", "")
    read, description = read_release(write(tmp_path, network, words.replace("    lin_neurons: 32\n", "")))
    assert description.model == {"name": "sb_ecapa_tdnn", "num_bins": 60, "embedding_dim": 192, "base_width": 512}
    assert description.features == SpeechBrain80Config(num_bins=60)
    frames = torch.randn(1, 40, 60)
    with torch.no_grad():
        torch.testing.assert_close(read(frames), network(frames), rtol=1e-4, atol=1e-5)


def training_of(folder, network, *checkpoints):
    for name in checkpoints:
        write(folder / "save" / name, network, "")
        (folder / "save" / name / "hyperparams.yaml").unlink()
    (folder / "hyperparams.yaml").write_text(TRAINING)
    return folder


def test_a_training_of_a_user(tmp_path, networks, monkeypatch):
    folder = training_of(tmp_path / "ecapa" / "1986", networks["ecapa"], "CKPT+2026-03-01+10-00-00+00")
    network, description = read_release(folder)
    assert description.training == {"toolkit": "SpeechBrain", "release": "1986", "model": "ECAPA_TDNN"}
    frames = torch.randn(1, 40, 80)
    with torch.no_grad():
        torch.testing.assert_close(network(frames), networks["ecapa"](frames), rtol=1e-4, atol=1e-5)
    second = "CKPT+2026-03-02+10-00-00+00"
    training_of(folder, networks["ecapa"], second)
    assert f"several checkpoints, 'CKPT+2026-03-01+10-00-00+00', '{second}'; give the folder of one of them" in refusal(
        folder
    )
    assert find_release(folder / "save" / second).kind.name == "SpeechBrain"
    monkeypatch.chdir(folder / "save" / second)
    assert find_release(".").kind.name == "SpeechBrain"
    (folder / "hyperparams.yaml").write_text(TRAINING.replace("std_norm: false", "std_norm: true"))
    assert refusal(folder / "save" / second) == (
        f"{folder / 'hyperparams.yaml'}: mean_var_norm.std_norm is True, but SpeechBrain's front end here has False "
        "alone"
    )


def test_files_that_are_missing(ecapa, tmp_path):
    (ecapa / "hyperparams.yaml").rename(tmp_path / "hyperparams.yaml")
    assert f"{ecapa / 'embedding_model.ckpt'}: has no hyperparams.yaml beside it, which says" in refusal(ecapa)
    message = refusal(tmp_path)
    assert message.startswith(
        f"{tmp_path / 'hyperparams.yaml'}: has no embedding_model.ckpt beside it, nor save/CKPT+*"
    )
    assert message.endswith("the pretrained_path in it is not followed, and nothing is downloaded")
    of_3d_speaker = ecapa.rename(tmp_path / "CKPT-EPOCH-70-00")
    assert find_release(of_3d_speaker) is None


def test_weights_of_another_class_or_of_no_network(ecapa, networks):
    for name, network in networks.items():
        if name != "ecapa":
            torch.save(network.state_dict(), ecapa / "embedding_model.ckpt")
            message = refusal(ecapa)
            assert message.startswith(f"{ecapa / 'embedding_model.ckpt'}: the weights are those of another network")
    torch.save({"w": torch.zeros(1)}, ecapa / "embedding_model.ckpt")
    assert "embedding_model.ckpt: 'w' is not a weight of a SpeechBrain" in refusal(ecapa)
    state = networks["ecapa"].state_dict()
    state.pop("fc.conv.bias")
    torch.save(state, ecapa / "embedding_model.ckpt")
    assert "there is no 'embedding.1.bias'" in refusal(ecapa)
    (ecapa / "embedding_model.ckpt").write_bytes(b"")
    assert str(ecapa / "embedding_model.ckpt") in refusal(ecapa)


CLASS = "!new:speechbrain.lobes.models.ECAPA_TDNN.ECAPA_TDNN"


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        (CLASS, "!new:custom.Network", "embedding_model is !new:custom.Network {"),
        (CLASS, "!apply:os.system", "embedding_model is !apply:os.system {"),
        (CLASS, "", "embedding_model is {'input_size'"),
        ("embedding_model: !new", "embedding: !new", "embedding_model is missing, expected !new:speech"),
        ("lin_neurons: 32", "lin_neurons: !apply:os.getpid []", "lin_neurons is !apply:os.getpid, expected a whole"),
        ("lin_neurons: 32", "lin_neurons: !ref <n_mels> // 2", "lin_neurons is !ref <n_mels> // 2, which is not comp"),
        ("lin_neurons: 32", "lin_neurons: !ref <other>", "lin_neurons is !ref <other>, but other is not in the file"),
        ("lin_neurons: 32", "lin_neurons: -1", "embedding_model.lin_neurons is -1, expected a whole number"),
        ("lin_neurons: 32", "lin_neurons: 33", "'embedding.1.weight' is (32, 96) where the network has (33, 96)"),
        ("lin_neurons: 32", "neurons: 32", "embedding_model has an argument 'neurons', which is not known"),
        ("n_mels: 80", "n_mels: !ref <n_mels>", "is !ref <n_mels>, but n_mels refers to itself; write its value"),
        ("n_mels: 80", "n_mels: !PLACEHOLDER", "embedding_model.input_size is !PLACEHOLDER, expected a whole number"),
        ("    n_mels: !ref <n_mels>", "    n_mels: 24", "compute_features.n_mels is 24, but the network takes 80"),
        ("kernel_sizes: [5, 3, 3, 3, 1]", "kernel_sizes: [5, 5, 3, 3, 1]", "has [5, 3, 3, 3, 1] alone"),
        ("channels: [16, 16, 16, 16, 48]", "channels: [16, 16, 16, 16, 32]", "has [16, 16, 16, 16, 48] at that width"),
        ("channels: [16, 16, 16, 16, 48]", "channels: [true]", "channels is [True], but our sb_ecapa_tdnn has [1024"),
        ("attention_channels: 128", "activation: !name:torch.nn.GELU", "activation is !name:torch.nn.GELU, but"),
        ("attention_channels: 128", "attention_channels: 64", "attention_channels is 64, but our sb_ecapa_tdnn"),
        ("    n_mels: !ref <n_mels>", "    n_mels: 80\n    f_max: 7600", "compute_features.f_max is 7600, but Spe"),
        ("    n_mels: !ref <n_mels>", "    n_mels: 80\n    deltas: True", "compute_features.deltas is True, but"),
        ("speechbrain.lobes.features.Fbank", "speechbrain.lobes.features.MFCC", "compute_features is !new:speech"),
        ("    norm_type: sentence\n", "", "mean_var_norm.norm_type is 'global', but SpeechBrain's front end here has"),
        ("out_n_neurons: 7205", "sample_rate: 8000", "sample_rate is 8000, but SpeechBrain's front end here has 16000"),
        ("lin_neurons: 32", "lin_neurons: *id001", "embedding_model.lin_neurons is * id001, expected a whole number"),
        ("n_mels: 80", "n_mels: [", "hyperparams.yaml: cannot be used: "),
    ],
)  # fmt: skip
def test_mistakes_in_hyperparams(ecapa, before, after, found):
    file = ecapa / "hyperparams.yaml"
    assert before in ECAPA
    file.write_text(ECAPA.replace(before, after, 1))
    message = refusal(ecapa)
    assert found in message
    assert str(ecapa) in message


@pytest.mark.parametrize("content", ["- 80\n", "80\n", ""])
def test_hyperparams_that_are_no_mapping(ecapa, content):
    (ecapa / "hyperparams.yaml").write_text(content)
    assert "hyperparams.yaml: holds no mapping, expected the hyperparams.yaml of a speaker" in refusal(ecapa)


def test_a_link_that_was_copied_as_text(ecapa):
    link = f"C:/Users/me/.cache/huggingface/hub/models--speechbrain--x/snapshots/{'0f99f2d0' * 5}/hyperparams.yaml"
    (ecapa / "hyperparams.yaml").write_text(link)
    assert f"{link}, as a link that was copied as text; copy that file in its place" in refusal(ecapa)


@pytest.mark.parametrize("name", HOSTILE_YAML)
def test_hostile_hyperparams_are_refused(ecapa, name):
    (ecapa / "hyperparams.yaml").write_bytes(HOSTILE_YAML[name])
    assert refusal(ecapa).startswith(f"{ecapa / 'hyperparams.yaml'}: ")


class _Runs:
    def __init__(self, witness) -> None:
        self.witness = witness

    def __reduce__(self):
        return os.mkdir, (str(self.witness),)


def test_nothing_in_one_is_run(ecapa, tmp_path):
    witness, file = tmp_path / "was_run", ecapa / "hyperparams.yaml"
    file.write_text(
        f"{ECAPA}\nfirst: !apply:os.mkdir ['{witness}']\nsecond: !!python/object/apply:os.mkdir ['{witness}']\n"
        f"third: !include:{witness}\n"
    )
    read_release(ecapa)
    torch.save({"blocks.0.conv.conv.weight": torch.zeros(1), "more": _Runs(witness)}, ecapa / "embedding_model.ckpt")
    assert "mkdir', which is no part of weights and would be run by another reader" in refusal(ecapa)
    assert not witness.exists()


def test_a_run_is_initialised_from_one(ecapa, tmp_path):
    from svtoolkit.composition import load
    from svtoolkit.training.initialisation import read_start

    config = load("train", ["data.train=data/train", f"exp_dir={tmp_path / 'exp'}", f"init_from={ecapa}"])
    assert (config.model.name, config.model.base_width, config.features.backend) == ("sb_ecapa_tdnn", 16, "sb80")
    start = read_start(config)
    assert all(torch.equal(start.network[name], tensor) for name, tensor in read_release(ecapa)[0].state_dict().items())


def test_a_copy_in_a_folder_of_links_is_one(ecapa, tmp_path):
    """As the cache of the Hugging Face hub has it."""
    snapshot, blobs = tmp_path / "snapshots" / "0f99f2d0", tmp_path / "blobs"
    snapshot.mkdir(parents=True)
    shutil.move(ecapa, blobs)
    for file in blobs.iterdir():
        (snapshot / file.name).symlink_to(file)
    assert read_release(snapshot)[1].training["release"] == "0f99f2d0"
