"""docs/extending.md: what it adds, file by file and row by row, is there and trains a step."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from paths import ROOT
from plugin_package import examples
from sklearn.decomposition import PCA
from tiny_runs import read_records, tiny_config

from svtoolkit import cli, composition
from svtoolkit.commands import prepare
from svtoolkit.config import FeaturesConfig, LossConfig, ModelConfig, PrepareConfig
from svtoolkit.crops.training_data import TrainingData
from svtoolkit.data.kaldi_dir import KaldiDir
from svtoolkit.errors import UserError
from svtoolkit.features import FrontEnd
from svtoolkit.loggers.chosen import check_loggers
from svtoolkit.losses.registry import LOSSES
from svtoolkit.models import build_model
from svtoolkit.models.front_ends import front_end_of
from svtoolkit.models.registry import NETWORKS
from svtoolkit.optim import build_optimizer, settings_of
from svtoolkit.registry import Registry, Row
from svtoolkit.scoring.backends.training import train_backend
from svtoolkit.scoring.cosine import EmbeddingTable
from svtoolkit.scoring.quality.table import read_quality
from svtoolkit.scoring.systems import systems_of
from svtoolkit.training.experiment import train
from svtoolkit.training.run_record import open_record

FILES = [name for name in examples() if name.startswith("svtoolkit/") and ", " not in name]
ROWS = [name for name in examples() if ", in " in name]
REGISTRIES = {
    "augmentation": "AUGMENTATIONS", "commands": "COMMANDS", "corpora": "CORPORA", "features": "FRONT_ENDS",
    "loggers": "LOGGERS", "losses": "LOSSES", "models": "NETWORKS", "optim": "OPTIMIZERS",
    "scoring/backends": "BACKENDS", "scoring/quality": "MEASURES",
}  # fmt: skip
"""Folder of svtoolkit -> where its rows stand."""
ONE_EPOCH = {"trainer__epochs": 1, "data__speeds": [1.0], "validation__speakers": 0}


@pytest.fixture
def added(tmp_path, monkeypatch) -> Iterator[Callable[[str], object]]:
    """added(kind): the files and the row of a folder of svtoolkit, such as losses, as docs/extending.md has them."""
    before = set(sys.modules)

    def add(folder: str) -> object:
        for name in FILES:
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(examples()[name], encoding="utf-8")
            if path.parent == tmp_path / "svtoolkit" / folder:
                package = importlib.import_module(f"svtoolkit.{folder.replace('/', '.')}")
                monkeypatch.setattr(package, "__path__", [*package.__path__, str(path.parent)])
        registry: Any = None
        for name in (name for name in examples() if folder == "commands" and name.endswith(", settings")):
            module = importlib.import_module(name.partition(".py")[0].replace("/", "."))
            scope = dict(vars(module))
            exec(compile("from __future__ import annotations\n" + examples()[name], name, "exec"), scope)
            for key in scope.keys() - vars(module).keys():
                monkeypatch.setattr(module, key, scope[key], raising=False)
        for name in (name for name in ROWS if name.endswith(f", in {REGISTRIES[folder]}")):
            file, _, attribute = name.partition(", in ")
            module = importlib.import_module(file.removesuffix(".py").replace("/", "."))
            registry = getattr(module, attribute)
            rows = eval(f"{{{examples()[name]}}}", {**vars(module), **_settings(folder)})
            for key, row in rows.items():
                assert key not in registry
                monkeypatch.setitem(registry.rows if isinstance(registry, Registry) else registry, key, row)
        return registry

    yield add
    for name in set(sys.modules) - before:
        if any(name == file.removesuffix(".py").replace("/", ".") for file in FILES):
            del sys.modules[name]


def _settings(folder: str) -> dict[str, Any]:
    """Dataclasses that a row names, from the file that defines them."""
    modules = {"augmentation": "polarity", "loggers": "messages"}
    return vars(importlib.import_module(f"svtoolkit.{folder}.{modules[folder]}")) if folder in modules else {}


def learns(exp_dir: Path) -> bool:
    losses = [record["loss"] for record in read_records(exp_dir) if record["kind"] == "step"]
    return len(losses) > 3 and bool(np.isfinite(losses).all())


def test_every_file_and_row_of_the_table_has_an_example():
    assert sorted({name.split("/")[1] for name in FILES}) == [
        "augmentation", "commands", "corpora", "features", "loggers", "losses", "models", "scoring"
    ]  # fmt: skip
    assert {name.rpartition(" ")[2] for name in ROWS} == set(REGISTRIES.values())
    there = {name.partition(",")[0] for name in ROWS if "augmentation" not in name}
    assert all((ROOT / name).is_file() for name in there)
    assert not any((ROOT / name).exists() for name in FILES)


def test_a_network_of_a_known_family_is_a_row(added):
    added("models")
    with torch.device("meta"):
        network = build_model("resnet26", base_width=4, num_bins=24)
    assert network.layers == 26
    assert network(torch.zeros(2, 20, 24, device="meta")).shape == (2, 256)


def test_a_new_family_a_loss_a_front_end_and_an_optimizer_train_together(added, speech, tmp_path):
    for folder in ("models", "losses", "features"):
        added(folder)
    config = tiny_config(
        speech,
        tmp_path / "exp",
        model=ModelConfig("frame_network", 8),
        loss=LossConfig("squared", margin=0.3, scale=16.0),
        features=FeaturesConfig(backend="cepstrum", num_bins=24),
        **ONE_EPOCH,
    )
    config.optim = settings_of("torch.optim.NAdam")(lr=0.005, momentum_decay=0.01)
    assert train(config) is None
    assert learns(tmp_path / "exp")
    assert train(config) is None  # finds its state again


def test_a_back_end_is_trained_and_scores_with_normalisation(added):
    added("scoring/backends")
    rng = np.random.default_rng(0)
    utt2spk = {f"s{row // 3}-{row}": f"s{row // 3}" for row in range(30)}
    table = EmbeddingTable(list(utt2spk), rng.normal(size=(30, 6)) * np.arange(1, 7))
    found = train_backend("principal", table, utt2spk, {"dim": 4, "shrinkage": 0.0}).apply(table).matrix
    centred = table.matrix - table.matrix.mean(axis=0)
    first = PCA(4, whiten=True).fit_transform(centred / np.linalg.norm(centred, axis=1, keepdims=True))
    first /= np.linalg.norm(first, axis=1, keepdims=True)
    np.testing.assert_allclose(found @ found.T, first @ first.T, atol=1e-9)
    assert systems_of(["principal-as-norm"], key="backends") == {"principal-as-norm": ("principal", "as-norm")}


def test_a_new_family_says_what_makes_no_network(added):
    added("models")
    with pytest.raises(UserError, match="network frame_network has no option 'base_with'"):
        build_model("frame_network", base_with=3)
    assert build_model("frame_network", embedding_dim=4)(torch.zeros(2, 9, 80)).shape == (2, 4)
    assert "frame_network" in NETWORKS


def test_a_loss_has_its_limit(added):
    assert added("losses") is LOSSES
    from svtoolkit.losses import build_head

    head = build_head("squared", embedding_dim=8, num_classes=3, margin=0.5, scale=8.0)
    head.margin = 0.5
    torch.testing.assert_close(head.with_margin(torch.tensor([1.0, -1.0])), torch.tensor([0.5, -1.0]))
    with pytest.raises(UserError, match=r"loss=squared: margin is 1\.5"):
        build_head("squared", embedding_dim=8, num_classes=3, margin=1.5, scale=8.0)


def test_an_optimizer_under_a_name_of_its_own(added):
    added("optim")
    weight = torch.nn.Parameter(torch.zeros(3))
    assert type(build_optimizer([weight], "rmsprop", lr=0.1, weight_decay=0.0)) is torch.optim.RMSprop


def test_a_corpus(added, tmp_path):
    added("corpora")
    (tmp_path / "audio").mkdir()
    for name in ("ann_1", "ann_2", "bob_1"):
        soundfile.write(tmp_path / "audio" / f"{name}.wav", np.zeros(8000), 16000)
    config = PrepareConfig(corpus="flat_files", source=[f"{tmp_path}/audio"], out=f"{tmp_path}/data")
    assert prepare.run(config, "svt prepare") == 0
    assert KaldiDir.read(tmp_path / "data").utt2spk == {"ann_1": "ann", "ann_2": "ann", "bob_1": "bob"}
    with pytest.raises(UserError, match=r"part: for corpus=.*voxceleb1.* only"):
        prepare.run(PrepareConfig(**{**asdict(config), "part": "dev"}), "svt prepare")


def test_a_front_end(added):
    added("features")
    front_end = front_end_of(FeaturesConfig(backend="cepstrum", num_bins=24))
    waveforms = torch.randn(2, 1600, generator=torch.Generator().manual_seed(0))
    features = front_end(waveforms)
    assert features.shape == (2, front_end.num_frames(1600), 24)
    assert features.mean(1).abs().max() < 1e-4
    assert front_end.framewise
    assert torch.allclose(front_end.frames(waveforms[:, 320:])[:, :3], front_end.frames(waveforms)[:, 2:5], atol=1e-4)


def test_features_of_a_front_end_are_stored_and_trained_on(added, speech, tmp_path, monkeypatch, capsys):
    added("features")
    words = ["features", "--data", str(speech), "--out", str(tmp_path / "features"), "features.backend=cepstrum"]
    words += ["features.num_bins=24"]
    assert cli.main(words) == 0
    config = tiny_config(tmp_path / "features", tmp_path / "exp", **{**ONE_EPOCH, "augment__dither": 0.0})
    with pytest.raises(UserError, match=r"features\.backend is torch, but the features of .* computed with cepstrum"):
        train(config)
    config.features.backend = "cepstrum"
    assert train(config) is None
    assert learns(tmp_path / "exp")
    front_end = importlib.import_module("svtoolkit.features.cepstrum")
    monkeypatch.setattr(front_end, "FrontEnd", lambda *parts, framewise, **options: FrontEnd(*parts, **options))
    words[4] = str(tmp_path / "other")
    assert cli.main(words) == 1
    assert "error: features.backend=cepstrum does not say that each of its frames" in capsys.readouterr().err


def test_an_augmentation(added):
    registry: Any = added("augmentation")
    polarity = registry.load("polarity")(probability=1.0, sample_rate=16000)
    parameters = polarity.draw(np.random.default_rng(0))
    waveforms = torch.randn(2, 8)
    signs = {key: torch.full((2,), value) for key, value in parameters.items()}
    assert torch.equal(polarity.apply(waveforms, signs), -waveforms)
    assert isinstance(registry["polarity"], Row)


def test_an_augmentation_is_switched_on_by_name(added, speech, tmp_path):
    added("augmentation")
    words = ["exp_dir=x", f"data.train={speech}", "validation=none", "augment.probability=1"]
    config = composition.load("train", [*words, "augment.added={polarity:{probability:0.25}}"])
    (polarity,) = TrainingData(config).augmenter.changes.values()
    assert polarity.probability == 0.25
    config.augment.added = {"polarity": {"probabilty": 0.25}}
    with pytest.raises(UserError, match=r"polarity.*'probabilty'.*probability"):
        TrainingData(config)


def test_a_logger_is_chosen_by_name(added, speech, tmp_path):
    added("loggers")
    config = tiny_config(speech, tmp_path, trainer__loggers=["messages"])
    config.trainer.logger_settings = {"messages": {"every": 2}}
    history = open_record(config, resume_step=0)
    for epoch in (1, 2):
        history.add({"kind": "epoch", "step": epoch, "epoch": epoch, "validation_eer": 0.25})
    history.close()
    assert (tmp_path / "logs" / "messages.txt").read_text() == "epoch 2: EER 0.25\n"
    config.trainer.logger_settings = {"messages": {"evry": 2}}
    with pytest.raises(UserError, match="logger messages has no option 'evry'; did you mean 'every'"):
        check_loggers(config.trainer)


def test_a_quality_measure(added, speech, tmp_path, capsys):
    added("scoring/quality")
    words = ["quality", f"data={speech}", f"out={tmp_path / 'quality'}", "measures=[log_duration,loudness]"]
    assert cli.main(words) == 0
    table = read_quality(tmp_path / "quality")
    assert table.measures == ["log_duration", "loudness"]
    assert table.values.shape == (48, 2)
    assert (table.values[:, 1] < 0).all()


def test_a_command(added, speech, capsys):
    added("commands")
    assert cli.main(["count", str(speech)]) == 0
    assert capsys.readouterr().out == "8 speakers, 48 utterances\n"
    assert cli.main(["count", "--help"]) == 0
    assert "data (required)  data directory" in capsys.readouterr().out
    assert cli.main(["count"]) == 1
    assert "required and not given: data" in capsys.readouterr().err
