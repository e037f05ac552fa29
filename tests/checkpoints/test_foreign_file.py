"""Files of other toolkits: what good ones hold, and that bad ones are refused with nothing run and nothing written."""

from __future__ import annotations

import io
from pathlib import Path

import hostile_files
import pytest
import torch
from audit_watch import watching
from omegaconf import OmegaConf
from pyannote_names import stand_in_for_pyannote

from svtoolkit.checkpoints import foreign_file
from svtoolkit.checkpoints.foreign_file import read_foreign_settings, read_weights
from svtoolkit.errors import UserError
from svtoolkit.system.plain_data import Tagged


@pytest.fixture(scope="module", autouse=True)
def everything_is_imported(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Modules of our own that are imported late: by good files, before any bad one."""
    folder = tmp_path_factory.mktemp("good")
    for name, content in hostile_files.valid_files().items():
        (folder / name).write_bytes(content)
        read_weights(folder / name)
    (folder / "settings.yaml").write_text("a: 2020-01-01\nb: !new:c {d: 1}\n")
    read_foreign_settings(folder / "settings.yaml")
    with pytest.raises(UserError):
        read_weights(folder / "settings.yaml")


def assert_sentence(error: UserError, path: Path) -> None:
    text = str(error)
    assert text.startswith(f"{path}: cannot be ")
    assert text.endswith(foreign_file.REMEDY)
    assert "\n" not in text
    assert len(text) < len(str(path)) + 420


@pytest.mark.parametrize("form", hostile_files.valid_files())
def test_the_weights_of_every_format(form, tmp_path):
    path = tmp_path / "any_name"
    path.write_bytes(hostile_files.valid_files()[form])
    read = read_weights(path)
    expected = hostile_files.state()
    assert list(read.weights) == list(expected) or form == "safetensors"
    assert read.weights.keys() == expected.keys()
    assert all(torch.equal(read.weights[name], value) for name, value in expected.items())
    assert read.beside == ({"step": 3} if form == "legacy.pt" else {})
    settings = {"nemo": {"_target_": "os.system", "sample_rate": 16000}}
    settings["nemo.gz"] = settings["nemo"]
    settings["wespeaker.zip"] = {"model": "ResNet34", "model_args": {"feat_dim": 80}}
    assert read.settings == settings.get(form)


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("key", [None, *foreign_file.STATE_KEYS])
def test_tensors_of_every_kind(tmp_path, key, legacy):
    whole = torch.arange(24.0)
    state = {
        "view": whole[4:16].view(3, 4).t(),
        "shared": whole[:6],
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "half": torch.tensor([1.5]).half(),
        "bfloat16": torch.tensor([1.5, 2.5]).bfloat16(),
        "count": torch.tensor(7),
        "flags": torch.tensor([True, False]),
        "empty": torch.empty(0, 3),
        "double": torch.tensor([1e300], dtype=torch.float64),
    }
    content = state if key is None else {key: state, "epoch": 3, "lr": 0.5, "shape": (1, [2, None])}
    path = tmp_path / "model.pt"
    torch.save(content, path, _use_new_zipfile_serialization=not legacy)
    read = read_weights(path)
    assert list(read.weights) == list(state)
    for name, value in state.items():
        assert read.weights[name].dtype == value.dtype
        assert torch.equal(read.weights[name], value)
    assert read.weights["view"].untyped_storage().data_ptr() == read.weights["shared"].untyped_storage().data_ptr()
    assert read.beside == ({} if key is None else {"epoch": 3, "lr": 0.5, "shape": [1, [2, None]]})


def test_numbers_beside_a_plain_state_dict(tmp_path):
    """As SpeechBrain's statistics of embeddings."""
    torch.save({"count": 12, "glob_mean": torch.ones(3), "spk_dict_mean": {}}, tmp_path / "a.ckpt")
    read = read_weights(tmp_path / "a.ckpt")
    assert (list(read.weights), read.beside) == (["glob_mean"], {"count": 12, "spk_dict_mean": {}})


def test_classes_of_pyannote_and_omegaconf_are_words(tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        stand_in_for_pyannote(patched)
        content = {**hostile_files.pyannote_checkpoint(), "list": OmegaConf.create([1, {"a": 2}])}
        torch.save(content, tmp_path / "pytorch_model.bin")
    read_weights(tmp_path / "pytorch_model.bin")
    with watching() as seen:
        read = read_weights(tmp_path / "pytorch_model.bin")
    assert seen == []
    assert [name.partition(".")[0] for name in read.weights] == ["resnet"] * len(hostile_files.state())
    assert read.beside["hyper_parameters"] == {"sample_rate": 16000, "num_channels": 1}
    assert read.beside["pyannote.audio"]["architecture"]["class"] == "WeSpeakerResNet34"
    assert read.beside["pyannote.audio"]["specifications"] is None
    assert read.beside["list"] is None


@pytest.mark.parametrize("name", hostile_files.HOSTILE_YAML)
def test_hostile_yaml_is_refused(name, tmp_path):
    path = tmp_path / "hyperparams.yaml"
    path.write_bytes(hostile_files.HOSTILE_YAML[name])
    with watching() as seen, pytest.raises(UserError) as refusal:
        read_foreign_settings(path)
    assert seen == []
    assert_sentence(refusal.value, path)


def test_tags_are_words(tmp_path):
    path = tmp_path / "hyperparams.yaml"
    path.write_text(
        "pretrained_path: speechbrain/spkrec-ecapa-voxceleb\n"
        "n_mels: 80\n"
        "harm: !apply:os.system ['touch HARM']\n"
        "python: !!python/object/apply:os.system ['touch HARM']\n"
        "embedding_model: !new:speechbrain.lobes.models.ECAPA_TDNN.ECAPA_TDNN\n"
        "    input_size: !ref <n_mels>\n"
        "    channels: [1024, 1024]\n"
    )
    with watching() as seen:
        read = read_foreign_settings(path)
    assert seen == []
    assert read == {
        "pretrained_path": "speechbrain/spkrec-ecapa-voxceleb",
        "n_mels": 80,
        "harm": Tagged("!apply:os.system", ["touch HARM"]),
        "python": Tagged("tag:yaml.org,2002:python/object/apply:os.system", ["touch HARM"]),
        "embedding_model": Tagged(
            "!new:speechbrain.lobes.models.ECAPA_TDNN.ECAPA_TDNN",
            {"input_size": Tagged("!ref", "<n_mels>"), "channels": [1024, 1024]},
        ),
    }


def test_a_file_that_is_not_there(tmp_path):
    for read in (read_weights, read_foreign_settings):
        with pytest.raises(UserError, match="nowhere: there is no such file; expected the"):
            read(tmp_path / "nowhere")


def test_only_the_state_dict_is_read(tmp_path, monkeypatch):
    """The tensors of an optimizer stay where they are."""
    torch.save({"state_dict": {"w": torch.ones(2)}, "optimizer": {"m": torch.ones(1000)}}, tmp_path / "a.pt")
    taken: list[int] = []
    plain = torch.frombuffer
    monkeypatch.setattr(
        torch, "frombuffer", lambda content, **options: taken.append(len(content)) or plain(content, **options)
    )
    assert read_weights(tmp_path / "a.pt").beside == {"optimizer": {"m": None}}
    assert taken == [8]


def test_the_watch_sees(tmp_path):
    with watching() as seen:
        exec("1")
        (tmp_path / "a").write_text("")
        io.BytesIO(b"")
    assert len(seen) >= 2
