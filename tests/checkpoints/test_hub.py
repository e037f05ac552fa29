"""Models of the hub, against a stand-in of it on this machine: what is fetched, remembered, found again and said."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import huggingface_hub.constants
import pytest
import torch
import yaml
from command_material import write_model
from foreign_networks import randomise
from hub_material import TOKEN

import svtoolkit
from svtoolkit import composition
from svtoolkit.checkpoints.hub import complete, name_of, origin_of
from svtoolkit.checkpoints.kinds import KINDS
from svtoolkit.checkpoints.released import read_released
from svtoolkit.checkpoints.releases import find_release, folder_of, own_folder, pinned, read_release
from svtoolkit.checkpoints.wespeaker import release as wespeaker
from svtoolkit.errors import UserError

TINY = "hf://me/tiny"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Path:
    return write_model(tmp_path_factory.mktemp("hub") / "tiny")


def refusal(path: object) -> str:
    with pytest.raises(UserError) as caught:
        read_release(str(path))
    message = str(caught.value)
    assert "\n" not in message
    assert TOKEN not in message
    return message


def test_a_model_is_fetched_and_says_where_it_is_from(hub, tiny):
    commit = hub.add("me/tiny", tiny, **{"tiny.onnx": b"large", "train.py": b"code", "examples/a.wav": b"sound"})
    network, description = read_release(TINY)
    expected, known = read_released(tiny)
    assert all(torch.equal(network.state_dict()[name], tensor) for name, tensor in expected.state_dict().items())
    assert description == known.__class__(known.model, known.features, {"source": f"{TINY}@{commit}"})
    assert sorted(hub.fetched()) == ["model.safetensors", "model.yaml"]
    assert find_release(TINY).origin == f"{TINY}@{commit}"
    assert pinned(TINY) == f"{TINY}@{commit}"
    assert folder_of(Path(TINY)) == folder_of(TINY), "Path takes a slash of an address"
    assert len(hub.fetched()) == 2, "what is in the cache is not fetched again"
    hub.asked.clear()
    read_release(f"{TINY}@{commit}")
    assert hub.asked == [], "a commit that is in the cache is not asked for"


def test_a_tag_is_another_revision_and_a_branch_moves_on(hub, tiny, tmp_path):
    first = hub.add("me/tiny", tiny)
    hub.repositories["me/tiny"].refs["v1"] = first
    assert read_release(TINY)[1].training == {"source": f"{TINY}@{first}"}
    other = write_model(tmp_path / "other", seed=1)
    second = hub.add("me/tiny", other)
    assert read_release(TINY)[1].training == {"source": f"{TINY}@{second}"}
    assert read_release(f"{TINY}@v1")[1].training == {"source": f"{TINY}@{first}"}


def test_of_another_toolkit_its_own_files_alone_are_fetched(hub, tmp_path, wespeaker):
    torch.manual_seed(5)
    network = randomise(wespeaker("models.tdnn").XVEC(feat_dim=80, embed_dim=64)).eval()
    torch.save(network.state_dict(), tmp_path / "avg_model.pt")
    arguments = {"feat_dim": 80, "embed_dim": 64, "pooling_func": "TSTP"}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"model": "XVEC", "model_args": arguments}))
    others = {"voxceleb_xvec.onnx": b"o", "model.py": b"p", "README.md": b"r", "pytorch_model.bin": b"b"}
    hub.add("Wespeaker/wespeaker-voxceleb-xvec", tmp_path, **others)
    model = svtoolkit.load_model("hf://Wespeaker/wespeaker-voxceleb-xvec")
    assert sorted(hub.fetched()) == ["avg_model.pt", "config.yaml"]
    assert model.description.training["release"] == "wespeaker-voxceleb-xvec"
    assert model.description.training["source"].startswith("hf://Wespeaker/wespeaker-voxceleb-xvec@")


def test_the_name_of_a_repository_tells_the_features_as_that_of_a_folder_does():
    snapshot = Path("models--me--campplus-cn-common-200k", "snapshots", "0" * 40, "avg_model.pt")
    model = {"name": "campplus", "embedding_dim": 192}
    assert wespeaker._front_end(model, None, snapshot) == "kaldi_3d"
    assert wespeaker._front_end(model, None, Path("campplus_cn_common_200k", "avg_model.pt")) == "kaldi_3d"


def test_what_cannot_be_had_is_one_sentence_that_says_what_to_do(hub, tiny, monkeypatch):
    hub.add("me/tiny", tiny)
    for wrong in ("hf://tiny", "hf://me/tiny/model.yaml", "hf://me/--x", "hf://me/tiny@", "hf://"):
        assert "expected hf://org/name or hf://org/name@revision" in refusal(wrong)
    assert "no such repository" in refusal("hf://me/none")
    assert f"{TINY}@v9: has no such revision" in refusal(f"{TINY}@v9")
    hub.repositories["me/tiny"].gated = True
    assert f"is gated; accept its conditions at {hub.url}/me/tiny" in refusal(TINY)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert read_release(TINY)[1].training["source"].startswith(TINY)
    hub.failing["api"] = 403
    assert "refuses the token (status 403); log in again" in refusal(TINY)
    hub.failing["api"] = 418
    assert "failed (status 418)" in refusal(TINY)
    hub.failing["api"] = 503
    assert "answers with status 503, and" in refusal("hf://me/none")
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    assert "http://127.0.0.1:9 cannot be reached (ConnectError), and" in refusal("hf://me/none")


def test_without_the_package_it_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert "`pip install huggingface_hub`" in refusal(TINY)


@pytest.mark.parametrize("reason", ["offline", "unreachable", "busy"])
def test_out_of_reach_the_cache_stands_in(hub, tiny, monkeypatch, reason):
    commit = hub.add("me/tiny", tiny)
    read_release(TINY)
    hub.asked.clear()
    if reason == "busy":
        hub.failing["api"] = 503
    elif reason == "offline":
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    else:
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    assert read_release(TINY)[1].training == {"source": f"{TINY}@{commit}"}
    assert hub.fetched() == []
    assert "does not hold all of it" in refusal("hf://me/other")


def test_half_a_model_in_the_cache_is_none(hub, tiny, monkeypatch):
    """The weights come last, so that they are never there without what says how they are used."""
    commit = hub.add("me/tiny", tiny)
    hub.failing["model.safetensors"] = 404
    assert "me/tiny" in refusal(TINY)
    assert hub.fetched() == ["model.yaml"]
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    for address in (TINY, f"{TINY}@{commit}"):
        assert "the cache has of it 'model.yaml', and no whole release" in refusal(address)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    hub.failing.clear()
    assert read_release(f"{TINY}@{commit}")[1].training == {"source": f"{TINY}@{commit}"}


def test_a_repository_without_a_model_or_with_several(hub):
    hub.add("me/data", **{"train.csv": b"", "README.md": b""})
    message = refusal("hf://me/data")
    assert message.startswith("hf://me/data: it holds 'README.md', 'train.csv', and no whole release of svtoolkit, run")
    hub.add("me/two", **{"a.pt": b"", "a.yaml": b"", "b.pt": b"", "b.yaml": b"", "c.pt": b""})
    assert "holds several models, 'a.pt', 'b.pt'; download one of them" in refusal("hf://me/two")
    assert hub.fetched() == []


def test_sets_of_files():
    files = ("b.yaml", "a/b.pt", "b.pt", "c.pt", "config.json", "model.bin")
    assert complete("*.yaml *.pt", files) == [("b.yaml", "b.pt")]
    assert complete("config.json [other.json] model.bin", files) == [("config.json", "model.bin")]
    assert complete("[config.json] *.pt", files) == [("config.json", "b.pt"), ("config.json", "c.pt")]
    assert complete("other.json model.bin", files) == []


def test_every_kind_says_what_of_a_repository_is_fetched():
    assert [kind.name for kind in KINDS if not kind.on_hub] == []


def test_a_run_on_the_hub_is_its_model(hub, tiny, tmp_path):
    shutil.copytree(tiny, tmp_path / "exp" / "model")
    commit = hub.add("me/run", tmp_path / "exp", **{"config.yaml": b"model: {}", "checkpoints/epoch-1.pt": b"large"})
    assert read_release("hf://me/run")[1].training == {"source": f"hf://me/run@{commit}"}
    assert sorted(hub.fetched()) == ["model.safetensors", "model.yaml"]
    config = composition.load("train", ["init_from=hf://me/run", "data.train=unread", "exp_dir=unwritten"])
    assert (config.model.name, config.model.base_width, config.features.num_bins) == ("resnet10", 4, 24)


def test_no_credentials_are_said(hub, tiny, monkeypatch, caplog):
    hub.add("me/tiny", tiny)
    read_release(TINY)
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://anna:secret@127.0.0.1:9")
    read_release(TINY)
    assert "http://***@127.0.0.1:9 cannot be reached" in caplog.text
    assert "secret" not in caplog.text + refusal("hf://me/none")


def test_what_the_cache_says_of_a_path():
    commit = "0123456789" * 4
    folder = Path("/cache/hub/models--Wespeaker--a-b.c_d") / "snapshots" / commit
    assert origin_of(folder / "models" / "avg_model.pt") == f"hf://Wespeaker/a-b.c_d@{commit}"
    assert name_of(folder) == "a-b.c_d"
    assert origin_of("/data/models--x/snapshots/1") is None
    assert name_of(Path("/data/voxceleb_resnet34")) == "voxceleb_resnet34"


def test_nothing_is_written_into_the_cache(hub, tiny):
    hub.add("me/tiny", tiny)
    place = folder_of(TINY)
    for path in (TINY, place):
        with pytest.raises(UserError, match=r"nothing may be changed; make a copy with `svt convert-model model="):
            own_folder(path)
