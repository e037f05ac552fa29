"""Releases of other toolkits by one word: what is read of them, and what is refused; test_release_parity.py embeds."""

from __future__ import annotations

import importlib
import json
import os
import re
import shlex
import shutil
from pathlib import Path

import pytest
import soundfile
import torch
import yaml
from foreign_networks import randomise, shallow_campplus
from paths import ROOT
from released_families import FAMILIES, kaldi_frames, narrowed, theirs_of, write_release
from speech_material import write_speech
from spoken import spoken

from svtoolkit import load_model
from svtoolkit.checkpoints.released import ModelDescription, read_released, write_released
from svtoolkit.checkpoints.releases import find_release, read_release
from svtoolkit.cli import main
from svtoolkit.config import FeaturesConfig
from svtoolkit.config.front_ends import Kaldi3DConfig
from svtoolkit.errors import UserError
from svtoolkit.models import build_model
from svtoolkit.models.registry import NETWORKS

torch.set_num_threads(1)

CONFIG = {
    "model": "XVEC",
    "model_args": {"feat_dim": 80, "embed_dim": 64, "pooling_func": "TSTP"},
    "dataset_args": {"fbank_args": {"num_mel_bins": 80, "frame_shift": 10, "frame_length": 25, "dither": 1.0}},
    "train_data": "data/vox2_dev/shard.list",
    "num_epochs": 150,
}
CAMPPLUS = {
    "framework": "pytorch",
    "task": "speaker-verification",
    "model": {
        "type": "cam++-sv",
        "model_config": {"sample_rate": 16000, "fbank_dim": 80, "emb_size": 192},
        "pretrained_model": "campplus_cn_common.bin",
        "yesOrno_thr": 0.31,
    },
}


@pytest.fixture(scope="module")
def xvector(wespeaker):
    """WeSpeaker's smallest network, as if it were trained."""
    torch.manual_seed(5)
    return randomise(wespeaker("models.tdnn").XVEC(feat_dim=80, embed_dim=64)).eval()


@pytest.fixture(scope="module")
def campplus():
    """3D-Speaker's CAM++ of few layers, as if it were trained; ours has as few as long as it is there."""
    pytest.importorskip("speakerlab", reason="3D-Speaker is not installed: scripts/setup.sh --extras dev")
    torch.manual_seed(6)
    found = importlib.import_module("speakerlab.models.campplus.DTDNN")
    with shallow_campplus(found), narrowed(FAMILIES["3D-Speaker: CAM++"]):
        yield randomise(found.CAMPPlus(feat_dim=80, embedding_size=192, memory_efficient=False)).eval()


def write_wespeaker(folder, network, config=CONFIG, *, weights="avg_model.pt", description="config.yaml"):
    folder.mkdir(parents=True, exist_ok=True)
    state = network if isinstance(network, dict) else network.state_dict()
    torch.save({**state, "projection.weight": torch.zeros(30, 64)}, folder / weights)
    (folder / description).write_text(yaml.safe_dump(config))
    return folder


@pytest.fixture
def wespeaker_release(tmp_path, xvector):
    return write_wespeaker(tmp_path / "voxceleb_xvector", xvector)


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory, campplus):
    folder = tmp_path_factory.mktemp("modelscope") / "speech_campplus_sv_zh-cn_16k-common"
    folder.mkdir()
    (folder / "configuration.json").write_text(json.dumps(CAMPPLUS))
    (folder / "config.yaml").write_text("of FunASR: true\n")
    torch.save(campplus.state_dict(), folder / "campplus_cn_common.bin")
    return folder


def refusal(path, **options) -> str:
    with pytest.raises(UserError) as caught:
        read_release(path, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_what_is_read_of_a_release_of_wespeaker(wespeaker_release):
    model = load_model(wespeaker_release, device="cpu")
    assert model.threshold is None
    assert model.description.model == {"name": "xvector", "num_bins": 80, "embedding_dim": 64}
    assert model.description.features == FeaturesConfig()
    assert model.description.training == {
        "toolkit": "WeSpeaker", "release": "voxceleb_xvector", "model": "XVEC", "num_epochs": 150,
        "data": "data/vox2_dev/shard.list",
    }  # fmt: skip


def test_what_is_read_of_a_snapshot_of_3d_speaker(snapshot):
    model = load_model(snapshot, device="cpu")
    assert model.description.model["pooling_eps"] == 0
    assert isinstance(model.description.features, Kaldi3DConfig)
    assert (model.threshold, model.stored.operating_point, model.stored.p_fa) == (0.31, "as published", None)


def test_the_other_layouts_of_wespeaker(tmp_path, xvector):
    old = {key: value for key, value in CONFIG.items() if key != "dataset_args"}
    old["feature_args"] = {"raw_wav": True, "num_mel_bins": 80, "frame_shift": 10, "frame_length": 25, "cmvn": True}
    names = {"weights": "voxceleb_xvector.pt", "description": "voxceleb_xvector.yaml"}
    zipped = write_wespeaker(tmp_path / "zip", xvector, old, **names)
    run = write_wespeaker(tmp_path / "exp", {"state_dict": xvector.state_dict()} | {}, CONFIG)
    (run / "models").mkdir()
    torch.save({"state_dict": xvector.state_dict(), "epoch": 150}, run / "models" / "avg_model.pt")
    (run / "avg_model.pt").unlink()
    network, _ = read_release(write_wespeaker(tmp_path / "new", xvector))
    for path in (zipped, zipped / "voxceleb_xvector.pt", run):
        other, description = read_release(path)
        assert all(torch.equal(tensor, network.state_dict()[name]) for name, tensor in other.state_dict().items())
        assert description.features == FeaturesConfig()


@pytest.fixture(scope="module")
def converted(campplus):
    """WeSpeaker's names for CAM++ are 3D-Speaker's."""
    return campplus.state_dict()


def test_converted_assets_have_the_front_end_of_3d_speaker(tmp_path, converted):
    config = {"model": "CAMPPlus", "model_args": {"feat_dim": 80, "embed_dim": 192, "pooling_func": "TSTP"}}
    named = write_wespeaker(tmp_path / "campplus_cn_common_200k", converted, config)
    assert isinstance(read_release(named)[1].features, Kaldi3DConfig)
    renamed = named.rename(tmp_path / "mine")
    assert "say which with front_end=kaldi_3d or front_end=fbank80" in refusal(renamed)
    assert isinstance(load_model(renamed, device="cpu", front_end="kaldi_3d").description.features, Kaldi3DConfig)
    assert read_release(renamed, front_end="fbank80")[1].features == FeaturesConfig()
    assert "avg_model.pt: front_end is 'mel', expected one of fbank80, kaldi_3d" in refusal(renamed, front_end="mel")


@pytest.fixture
def unsaid(tmp_path, converted):
    """A release whose features its files do not say."""
    config = {"model": "CAMPPlus", "model_args": {"feat_dim": 80, "embed_dim": 192, "pooling_func": "TSTP"}}
    return write_wespeaker(tmp_path / "mine", converted, config)


def test_a_renamed_eres2net_of_that_size_is_asked_about(tmp_path):
    for size, found in ((192, "as eres2net_cn_commom_200k, whose features are 3D-Speaker's"), (512, "there are no")):
        config = {"model": "ERes2Net34_aug", "model_args": {"feat_dim": 80, "embed_dim": size}}
        folder = write_wespeaker(tmp_path / str(size), {"projection.bias": torch.zeros(1)}, config)
        assert found in refusal(folder)


def test_every_command_that_takes_a_release_takes_its_front_end(unsaid, wespeaker_release, speech, tmp_path, capsys):
    wav = (speech / "wav.scp").read_text().split()[1]
    results = tmp_path / "results.json"
    scores = tmp_path / "scores"
    scores.write_text("a b 0.5\na c 0.1\n")
    (tmp_path / "trials").write_text("a b target\na c nontarget\n")
    assert main(["evaluate", f"scores={scores}", f"trials={tmp_path / 'trials'}", f"out={results}"]) == 0
    calls = {
        "embed": [f"data={speech}", f"out={tmp_path / 'embeddings'}", "device=cpu"],
        "verify": [f"enrol={wav}", f"test={wav}", "threshold=0.5", "device=cpu", "min_voice=0"],
        "calibrate": [f"data={speech}", "store=false", "device=cpu", "min_voice=0"],
        "report": [f"results=[{results}]", f"out={tmp_path / 'report'}"],
    }
    for command, words in calls.items():
        assert main([command, f"model={unsaid}", *words]) == 1
        assert "say which with front_end=kaldi_3d or front_end=fbank80" in capsys.readouterr().err
        words = [command, f"model={wespeaker_release}", *words, "front_end=kaldi_3d"]
        assert main(words) == 0, capsys.readouterr().err
    made = yaml.safe_load((tmp_path / "embeddings.yaml").read_text())
    assert made["front_end"] == "kaldi_3d"
    assert main(["report", f"results=[{results}]", f"out={tmp_path / 'other'}", "front_end=kaldi_3d"]) == 1
    assert "front_end is 'kaldi_3d', but model is null" in capsys.readouterr().err


def test_a_run_that_is_initialised_from_such_a_release_is_told_its_front_end(unsaid, tmp_path):
    from svtoolkit.composition import load
    from svtoolkit.training.initialisation import read_start

    words = ["data.train=data/train", f"exp_dir={tmp_path / 'exp'}", f"init_from={unsaid}"]
    with pytest.raises(UserError, match="say which with front_end=kaldi_3d or front_end=fbank80"):
        load("train", words)
    config = load("train", [*words, "front_end=kaldi_3d"])
    assert config.features == Kaldi3DConfig()
    assert read_start(config).head is None
    with pytest.raises(UserError, match="front_end is 'kaldi_3d', but init_from is null"):
        read_start(load("train", [*words[:2], "front_end=kaldi_3d"]))


def test_a_front_end_is_not_stated_of_what_says_its_own(snapshot):
    assert "a release of 3D-Speaker says its own; leave it out" in refusal(snapshot, front_end="fbank80")


def test_ours_to_wespeaker_and_back(tmp_path, xvector, wespeaker_release, capsys):
    ours, theirs, back = tmp_path / "ours", tmp_path / "theirs", tmp_path / "back"
    for words in (
        [f"model={wespeaker_release}", f"out={ours}"],
        [f"model={ours}", f"out={theirs}", "format=wespeaker"],
        [f"model={theirs}", f"out={back}"],
    ):
        assert main(["convert-model", *words]) == 0, capsys.readouterr().err
    config = yaml.safe_load((theirs / "config.yaml").read_text())
    assert config["model"] == "XVEC"
    loaded = type(xvector)(**config["model_args"])
    loaded.load_state_dict(torch.load(theirs / "avg_model.pt", weights_only=True), strict=True)
    frames = torch.randn(2, 60, 80)
    with torch.no_grad():
        torch.testing.assert_close(loaded.eval()(frames)[-1], xvector(frames)[-1], rtol=0, atol=0)
    first, last = read_released(ours), read_released(back)
    assert first[1].model == last[1].model
    assert first[1].features == last[1].features
    assert all(torch.equal(tensor, last[0].state_dict()[name]) for name, tensor in first[0].state_dict().items())
    assert main(["convert-model", f"model={ours}", f"out={theirs}"]) == 1
    assert "is there already; choose another folder with out=DIR" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("model", "features", "found"),
    [
        ({"name": "revnet_tiny"}, FeaturesConfig(num_bins=8), "model.name is 'revnet_tiny', and WeSpeaker has no such"),
        (
            {"name": "resnet18", "base_width": 2, "num_bins": 8},
            FeaturesConfig(num_bins=8),
            "model.base_width is 2, and WeSpeaker's ResNet18 has no such setting",
        ),
        (
            {"name": "resnet18", "base_width": 2, "num_bins": 8},
            FeaturesConfig(num_bins=8, window="povey"),
            "features.window is 'povey', which WeSpeaker's config.yaml cannot say",
        ),
    ],
)
def test_what_wespeaker_cannot_say(tmp_path, capsys, model, features, found):
    model = {"num_bins": 8, "embedding_dim": 4, **model}
    write_released(tmp_path / "ours", build_model(**model).state_dict(), ModelDescription(model, features))
    out = tmp_path / "out"
    assert main(["convert-model", f"model={tmp_path / 'ours'}", f"out={out}", "format=wespeaker"]) == 1
    assert found in capsys.readouterr().err
    assert not out.exists()


def changed(**values):
    return {**CONFIG, **values}


@pytest.mark.parametrize(
    ("config", "found"),
    [
        (changed(model="XVECTOR"), "config.yaml: model is 'XVECTOR', did you mean 'XVEC'?"),
        (changed(model=None), "has no key model"),
        ({"model_args": {}}, "has no key model"),
        (changed(model_args={"feat_dim": 40, "embed_dim": 64}), "num_mel_bins is 80, but the network takes 40"),
        (changed(model_args=[80]), "model_args is [80], expected a mapping"),
        (changed(dataset_args={"frontend": "s3prl"}), "dataset_args.frontend is 's3prl'"),
        (changed(dataset_args={"cmvn": False}), "cmvn removes no mean"),
        (changed(dataset_args={"cmvn_args": {"norm_var": True}}), "cmvn_args.norm_var is true"),
        (changed(dataset_args={"resample_rate": "16k"}), "resample_rate is '16k', expected a whole number above 0"),
        (changed(dataset_args={"fbank_args": 80}), "fbank_args is 80, expected a mapping"),
        (changed(model_args={"feat_dim": 80, "embed_dim": 32}), "is (64, 3000) where the network has (32, 3000)"),
        (changed(model="ResNet18"), "the weights are those of another network"),
    ],
)
def test_mistakes_in_a_config(tmp_path, xvector, config, found):
    folder = write_wespeaker(tmp_path / "release", xvector, config)
    message = refusal(folder)
    assert found in message
    assert str(folder) in message


def test_files_that_are_missing_damaged_or_too_many(wespeaker_release, xvector, tmp_path):
    weights = wespeaker_release / "avg_model.pt"
    whole = weights.read_bytes()
    for damaged in (b"", whole[: len(whole) // 2], b"no weights"):
        weights.write_bytes(damaged)
        assert str(weights) in refusal(wespeaker_release)
    torch.save([torch.zeros(1)], weights)
    assert f"{weights}: cannot be used: it holds" in refusal(wespeaker_release)
    torch.save({"conv": 3}, weights)
    assert f"{weights}: cannot be used: it holds" in refusal(wespeaker_release)
    weights.write_bytes(whole)
    (wespeaker_release / "config.yaml").write_text("model: !!python/name:os.system\n")
    assert "is not plain YAML" in refusal(wespeaker_release)
    (wespeaker_release / "config.yaml").unlink()
    assert "has no config.yaml beside it" in refusal(wespeaker_release)
    assert "model.yaml: there is no such file; expected a released model (svtoolkit: " in refusal(tmp_path)
    for name in ("a", "b"):
        write_wespeaker(tmp_path / "two", xvector, weights=f"{name}.pt", description=f"{name}.yaml")
    assert "holds several models, 'a.pt', 'b.pt'" in refusal(tmp_path / "two")
    shutil.copy(whole_of_ours(tmp_path), tmp_path / "two" / "model.yaml")
    (tmp_path / "two" / "b.yaml").unlink()
    assert "releases of several kinds, model.safetensors of svtoolkit and a.pt of WeSpeaker" in refusal(
        tmp_path / "two"
    )


def whole_of_ours(folder):
    model = {"name": "resnet18", "base_width": 2, "num_bins": 80, "embedding_dim": 4}
    write_released(folder / "ours", build_model(**model).state_dict(), ModelDescription(model, FeaturesConfig()))
    return folder / "ours" / "model.yaml"


class _Runs:
    def __init__(self, witness) -> None:
        self.witness = witness

    def __reduce__(self):
        return os.mkdir, (str(self.witness),)


@pytest.mark.parametrize("legacy", [False, True])
def test_a_pickle_that_wants_to_run_code_is_refused_and_nothing_is_run(wespeaker_release, tmp_path, legacy):
    witness = tmp_path / "was_run"
    content = {"conv1.weight": torch.zeros(1), "more": _Runs(witness)}
    torch.save(content, wespeaker_release / "avg_model.pt", _use_new_zipfile_serialization=not legacy)
    message = refusal(wespeaker_release)
    assert "mkdir', which is no part of weights and would be run by another reader" in message
    assert not witness.exists()


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (
            {"pretrained_model": "../secret.bin"},
            "model.pretrained_model is '../secret.bin', expected the name of a file",
        ),
        ({"pretrained_model": "other.bin"}, "model.pretrained_model is 'other.bin', expected the name of a file"),
        ({"yesOrno_thr": "0.31"}, "model.yesOrno_thr is '0.31', expected a cosine"),
        (
            {"model_config": {"emb_size": 512}},
            "emb_size is 512, but the weights of campplus_cn_common.bin make embeddings of 192",
        ),
        ({"model_config": {"fbank_dim": 40}}, "not of the sizes of campplus with 40 mel bins"),
        ({"model_config": {"sample_rate": True}}, "sample_rate is True, expected a whole number"),
    ],
)
def test_mistakes_in_a_snapshot(tmp_path, snapshot, change, found):
    (tmp_path / "campplus_cn_common.bin").symlink_to(snapshot / "campplus_cn_common.bin")
    configuration = {**CAMPPLUS, "model": {**CAMPPLUS["model"], **change}}
    (tmp_path / "configuration.json").write_text(json.dumps(configuration))
    assert found in refusal(tmp_path)


def test_a_snapshot_that_names_no_file_has_one(tmp_path, snapshot):
    (tmp_path / "configuration.json").write_text("{}")
    assert "found none" in refusal(tmp_path)
    (tmp_path / "campplus.bin").symlink_to(snapshot / "campplus_cn_common.bin")
    assert find_release(tmp_path).weights == tmp_path / "campplus.bin"
    (tmp_path / "configuration.json").write_text('{"task": "speaker-diarization"}')
    assert find_release(tmp_path) is None
    (tmp_path / "configuration.json").write_text("{")
    assert "is not JSON" in refusal(tmp_path)


def test_a_threshold_is_stored_in_our_form_alone(wespeaker_release, capsys):
    assert main(["calibrate", str(wespeaker_release), "data/mine"]) == 1
    assert "has no place for a threshold; write it in our form with `svt convert-model`" in capsys.readouterr().err


def test_a_run_is_initialised_from_one(wespeaker_release, snapshot, tmp_path):
    from svtoolkit.composition import load
    from svtoolkit.training.initialisation import read_start

    words = ["data.train=data/train", f"exp_dir={tmp_path / 'exp'}", f"init_from={wespeaker_release}"]
    config = load("train", words)
    assert (config.model.name, config.model.embedding_dim) == ("xvector", 64)
    start = read_start(config)
    released, _ = read_release(wespeaker_release)
    assert all(torch.equal(start.network[name], tensor) for name, tensor in released.state_dict().items())
    with pytest.raises(UserError, match=r"avg_model\.pt: model\.embedding_dim is 64 there and 256 here"):
        read_start(load("train", [*words, "model=xvector"]))
    of_3d_speaker = load("train", [*words[:2], f"init_from={snapshot}"])
    assert (of_3d_speaker.model.pooling_eps, of_3d_speaker.features.backend) == (0, "kaldi_3d")
    assert read_start(of_3d_speaker).head is None


def documented_commands(beginning: str) -> list[str]:
    """Those of the block behind a sentence of docs/released_models.md."""
    page = (ROOT / "docs" / "released_models.md").read_text(encoding="utf-8")
    _, found, behind = page.partition(beginning)
    assert found
    block = re.search(r"\n\n((?: {4}.*\n)+)", behind)
    return [line.strip() for line in block[1].splitlines()]


def test_the_documented_commands_score_what_the_original_code_made(wespeaker, speech, tmp_path, monkeypatch, capsys):
    family = FAMILIES["ResNet"]
    theirs = theirs_of(family, wespeaker)
    write_release(tmp_path / "voxceleb_resnet34_LM", family, theirs)
    monkeypatch.chdir(tmp_path)
    shutil.copytree(speech, tmp_path / "data" / "eval")
    write_speech(tmp_path / "own", voice=spoken)
    shutil.copytree(tmp_path / "own" / "data", tmp_path / "data" / "mine")
    names = sorted(line.split()[0] for line in (speech / "utt2spk").read_text().splitlines())
    pairs = [(names[0], names[1], "target"), (names[0], names[-1], "nontarget"), (names[2], names[-2], "nontarget")]
    Path("data/eval/trials").write_text("".join(f"{' '.join(pair)}\n" for pair in pairs))
    scoring = documented_commands("Three commands score a list of trials")
    assert [command.split()[:2] for command in scoring] == [["svt", "embed"], ["svt", "score"], ["svt", "evaluate"]]
    with narrowed(family):
        for command in [*scoring, *documented_commands("And one makes it ours")]:
            assert main(shlex.split(command)[1:]) == 0, capsys.readouterr().err
    embedded = {}
    for line in (speech / "wav.scp").read_text().splitlines():
        name, path = line.split()
        frames = kaldi_frames(soundfile.read(path, dtype="float32")[0], "wespeaker", family.bins)
        with torch.no_grad():
            embedded[name] = theirs(torch.from_numpy(frames)[None])[-1][0].double()
    for line, (enrol, test, _) in zip(Path("scores/eval").read_text().splitlines(), pairs, strict=True):
        cosine = torch.cosine_similarity(embedded[enrol], embedded[test], dim=0)
        assert line.split()[:2] == [enrol, test]
        assert float(line.split()[2]) == pytest.approx(float(cosine), abs=1e-5)
    result = json.loads(Path("scores/eval.json").read_text())
    assert (result["trials"], result["missing"]) == (3, 0)
    assert load_threshold(Path("exp/voxceleb_resnet34_LM")) is not None


def load_threshold(folder: Path) -> float | None:
    return yaml.safe_load((folder / "model.yaml").read_text())["verification"].get("threshold")


def test_a_threshold_is_not_stored_in_a_release_of_another_toolkit(wespeaker_release, tmp_path, capsys):
    (tmp_path / "trials").write_text("a b target\na c nontarget\n")
    (tmp_path / "scores").write_text("a b 0.9\na c 0.1\n")
    (tmp_path / "scores.yaml").write_text("normalisation: none\nsubtract_mean: false\n")
    words = [f"scores={tmp_path / 'scores'}", f"trials={tmp_path / 'trials'}"]
    assert main(["evaluate", *words, f"store_threshold={wespeaker_release}"]) == 1
    assert "has no place for a threshold" in capsys.readouterr().err
    assert not (tmp_path / "scores.json").exists()


def test_a_description_is_checked_without_the_compiler_of_torch(monkeypatch):
    """Torch imports it to draw normal weights of a network without memory, which takes two seconds."""
    drawn = []
    for name in ("normal_", "kaiming_normal_", "xavier_normal_", "trunc_normal_"):
        monkeypatch.setattr(torch.nn.init, name, lambda tensor, *_, **__: drawn.append(tensor.device.type))
    with torch.device("meta"):
        for name in {row.target: name for name, row in NETWORKS.rows.items()}.values():
            build_model(name)
    assert drawn == []
    build_model("campplus")
    assert set(drawn) == {"cpu"}
