"""Every command, given what it cannot use: it ends soon, without a traceback, with a sentence of what is wrong."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import soundfile
import yaml
from broken_inputs import ALIASES, RATE, RECORDINGS, a_device, nested, tone
from command_material import said, write_data, write_model

from svtoolkit.cli import main
from svtoolkit.data.kaldi_dir import KaldiDir

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return write_model(tmp_path_factory.mktemp("released") / "model")


@pytest.fixture
def released(model, tmp_path) -> Path:
    return Path(shutil.copytree(model, tmp_path / "model"))


@pytest.fixture
def data(tmp_path) -> Path:
    return write_data(tmp_path / "data", range(3), 2, trials=True)


@pytest.mark.parametrize("kind", RECORDINGS)
def test_recordings(kind, model, data, tmp_path, capsys):
    extension, build, noun = RECORDINGS[kind]
    bad, good = tmp_path / f"bad.{extension}", tmp_path / "good.wav"
    build(bad)
    soundfile.write(good, tone(), RATE)
    assert noun in said(capsys, "verify", model, good, bad, "min_voice=0")
    kaldi_dir = KaldiDir.read(data)
    kaldi_dir.wav_scp["s00-0"] = str(bad)
    kaldi_dir.utt2dur.clear()
    kaldi_dir.write(data)
    assert noun in said(capsys, "embed", f"model={model}", f"data={data}", f"out={tmp_path}/e")
    assert noun in said(capsys, "convert", f"source={data}", f"out={tmp_path}/c", "max_bad=0", f"sample_rate={RATE}")
    assert noun in said(capsys, "shard", f"data={data}", f"out={tmp_path}/s", "max_bad=0")
    assert noun in said(capsys, "validate", data)
    words = [f"data.train={data}", f"exp_dir={tmp_path}/exp", "trainer.device=cpu", f"features.sample_rate={RATE}"]
    assert noun in said(capsys, "train", *words, "validation=none", "features.num_bins=24", "data.max_bad=0")


@pytest.mark.parametrize("table", ["wav.scp", "utt2spk", "spk2utt", "utt2dur", "segments"])
def test_pipes_in_place_of_tables(table, model, data, tmp_path, capsys):
    (data / table).unlink(missing_ok=True)
    os.mkfifo(data / table)
    noun = f"{data}/{table}: is a pipe, expected a regular file"
    assert noun in said(capsys, "embed", f"model={model}", f"data={data}", f"out={tmp_path}/e")
    assert noun in said(capsys, "validate", data)
    assert noun in said(capsys, "convert", f"source={data}", f"out={tmp_path}/c")
    assert noun in said(capsys, "train", f"data.train={data}", f"exp_dir={tmp_path}/exp", "trainer.device=cpu")


@pytest.mark.parametrize(
    ("table", "line", "noun"),
    [
        ("segments", "s00-0 s00-0 0 1e300", "segments:1: found 's00-0 0 1e300', expected recording, start and end"),
        ("segments", "s00-0 s00-0 1e300 -1", "segments:1: found 's00-0 1e300 -1', expected recording, start and end"),
        ("utt2dur", "s00-0 1e300", "utt2dur:1: found '1e300', expected a duration in seconds"),
    ],
)
def test_times_beyond_all_recordings(table, line, noun, model, data, tmp_path, capsys):
    (data / table).write_text(f"{line}\n")
    assert noun in said(capsys, "validate", data)
    assert noun in said(capsys, "embed", f"model={model}", f"data={data}", f"out={tmp_path}/e")
    assert noun in said(capsys, "train", f"data.train={data}", f"exp_dir={tmp_path}/exp", "trainer.device=cpu")


def test_a_trial_list_that_is_a_pipe(data, tmp_path, capsys):
    (data / "trials").unlink()
    os.mkfifo(data / "trials")
    assert f"{data}/trials: is a pipe" in said(capsys, "validate", data)
    assert f"{data}/trials: is a pipe" in said(capsys, "convert", f"source={data}", f"out={tmp_path}/c")


def test_a_table_that_is_a_device(model, data, tmp_path, capsys):
    (data / "utt2spk").unlink()
    a_device(data / "utt2spk")
    assert "utt2spk: is a device" in said(capsys, "embed", f"model={model}", f"data={data}", f"out={tmp_path}/e")


def test_links_to_files_stay_files(model, data, tmp_path, capsys):
    for file in [*data.glob("wav/*/*.wav"), data / "utt2spk", data / "wav.scp"]:
        file.rename(file.with_name(f"{file.name}.real"))
        file.symlink_to(file.with_name(f"{file.name}.real"))
    assert main(["embed", f"model={model}", f"data={data}", f"out={tmp_path}/e"]) == 0


def test_pipes_in_place_of_what_is_scored(model, data, tmp_path, capsys):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert main(["embed", f"model={model}", f"data={data}", f"out={tmp_path}/e"]) == 0
    scored = [f"trials={data}/trials", f"embeddings={tmp_path}/e.scp", f"out={tmp_path}/scores"]
    assert main(["score", *scored]) == 0
    noun = f"{pipe}: is a pipe"
    assert noun in said(capsys, "score", *scored, f"trials={pipe}")
    assert noun in said(capsys, "score", *scored, f"embeddings={pipe}")
    assert noun in said(capsys, "evaluate", f"scores={tmp_path}/scores", f"trials={pipe}")
    assert noun in said(capsys, "evaluate", f"scores={pipe}", f"trials={data}/trials")
    assert noun in said(capsys, "evaluate", f"scores={tmp_path}/scores", f"trials={data}/trials", f"utt2spk={pipe}")
    assert noun in said(capsys, "report", f"results=[{pipe}]", f"out={tmp_path}/report")
    (tmp_path / "e.scp").write_text(f"s00-0 {pipe}:6\n")
    assert noun in said(capsys, "score", *scored)


def test_latin_1(model, data, tmp_path, capsys):
    (tmp_path / "trials").write_bytes("a b target\ncaf\xe9 b nontarget\n".encode("latin-1"))
    (tmp_path / "scores").write_bytes("a b 1.0\ncaf\xe9 b 0.5\n".encode("latin-1"))
    words = f"scores={tmp_path}/scores", f"trials={tmp_path}/trials"
    assert f"{tmp_path}/trials:2: is no UTF-8 text" in said(capsys, "evaluate", *words)
    (tmp_path / "trials").write_text("a b target\nc b nontarget\n")
    assert f"{tmp_path}/scores:2: is no UTF-8 text" in said(capsys, "evaluate", *words)


MODELS = {
    "embedding_dim: 1000000000000": "embedding_dim is 1000000000000, expected 65536 or less",
    "base_width: 100000": "base_width is 100000, expected 1024 or less",
    "base_width: 900": "describes a network of",
    "embedding_dim: 60000": "describes a network of",
    "num_bins: 1000000": "num_bins is 1000000",
    "frame_length_ms: .inf": "frame_length_ms is inf, expected a finite number",
    "frame_length_ms: 1.0e+12": "frame_length_ms is 1000000000000.0, expected 1000 or less",
    "frame_shift_ms: 1.0e-9": "expected 2 samples or more",
    "sample_rate: 100000000000": "sample_rate is 100000000000, expected 384000 or less",
    "threshold: abc": "verification.threshold is 'abc', expected a finite number",
    "threshold: .nan": "verification.threshold is nan, expected a finite number",
    "name: [resnet10]": "section 'model' does not describe a network",
    "format: 2020-13-45": "is not YAML",
    "format: !!timestamp soon": "is not YAML",
}
"""Line of a model.yaml -> what is said of it."""


@pytest.mark.parametrize("line", MODELS)
def test_models_that_promise_too_much(line, released, tmp_path, capsys):
    content = yaml.safe_load((released / "model.yaml").read_text()) | {"verification": {"threshold": 0.5}}
    key = line.partition(":")[0]
    lines = yaml.safe_dump(content, sort_keys=False).splitlines()
    changed = [f"{old.partition(key)[0]}{line}" if old.strip().startswith(f"{key}:") else old for old in lines]
    assert changed != lines
    (released / "model.yaml").write_text("\n".join(changed))
    soundfile.write(tmp_path / "a.wav", tone(), RATE)
    found = said(capsys, "verify", released, tmp_path / "a.wav", tmp_path / "a.wav")
    assert str(released) in found
    assert MODELS[line] in found


@pytest.mark.parametrize("name", ["model.yaml", "model.safetensors"])
def test_models_of_pipes(name, released, tmp_path, capsys):
    (released / name).unlink()
    os.mkfifo(released / name)
    assert f"{name}: is a pipe" in said(capsys, "verify", released, tmp_path / "a.wav", tmp_path / "a.wav")


DEEP = "a: " + nested(100000).replace("[", "[\n ")
"""A bracket a line: of what may be a key, thus stands on one line, PyYAML reads a thousand brackets ahead."""


@pytest.mark.parametrize(
    ("text", "noun"),
    [(ALIASES, "the alias *a0 on line 2"), (DEEP, "nested deeper than 32"), ("- " * 500, "nested")],
    ids=["aliases", "brackets", "lists"],
)
def test_yaml_that_unfolds(text, noun, released, speech, tmp_path, capsys):
    """As the description of a model, an experiment, a preset, the configuration of a run, what made scores."""
    exp_dir = tmp_path / "exp"
    (exp_dir / "checkpoints").mkdir(parents=True)
    (exp_dir / "checkpoints" / "state-0000000001.pt").write_bytes(b"a state")
    (tmp_path / "presets" / "model").mkdir(parents=True)
    for file in (released / "model.yaml", exp_dir / "config.yaml", tmp_path / "mine.yaml"):
        file.write_text(text)
    (tmp_path / "presets" / "model" / "mine.yaml").write_text(text)
    to_train = ["train", f"data.train={speech}", f"exp_dir={exp_dir}", "trainer.device=cpu"]
    assert noun in said(capsys, "verify", released, tmp_path / "a.wav", tmp_path / "a.wav")
    assert noun in said(capsys, *to_train)
    assert noun in said(capsys, *to_train, f"init_from={released}")
    assert noun in said(capsys, *to_train, f"experiment={tmp_path}/mine.yaml")
    assert noun in said(capsys, *to_train, "--config-dir", f"{tmp_path}/presets", "model=mine")


CONFIGURATIONS = {
    "data.speeds=[1e-9]": "data.speeds is [1e-09], expected numbers from 0.1 to 10",
    "data.speeds=[nan]": "data.speeds is [nan], expected finite numbers",
    "data.speeds=[1.0,inf]": "data.speeds is [1.0, inf], expected finite numbers",
    "data.crop_frames=1000000000": "data.crop_frames is 1000000000, expected 30000 or less",
    "data.num_workers=100000": "data.num_workers is 100000",
    "data.cache_gib=.inf": "data.cache_gib",
    "data.min_seconds=nan": "data.min_seconds is nan, expected a finite number",
    "features.frame_length_ms=1e12": "features.frame_length_ms is 1000000000000.0, expected 1000 or less",
    "features.frame_length_ms=inf": "features.frame_length_ms is inf, expected a finite number",
    "features.frame_shift_ms=1e12": "features.frame_shift_ms is 1000000000000.0, expected 1000 or less",
    "features.sample_rate=1000000000000": "features.sample_rate is 1000000000000, expected 384000 or less",
    "features.num_bins=100000000": "features.num_bins is 100000000, expected 1024 or less",
    "model.embedding_dim=1000000000000": "model.embedding_dim is 1000000000000, expected 65536 or less",
    "model.base_width=100000": "model.base_width is 100000, expected 1024 or less",
    "augment.time_masks=1000000": "augment.time_masks is 1000000, expected 100 or less",
    "augment.freq_masks=1000000": "augment.freq_masks is 1000000, expected 100 or less",
    "augment.dither=inf": "augment.dither is inf, expected a finite number",
    "trainer.threads=100000": "trainer.threads is 100000, expected",
    "trainer.devices=1000000": "trainer.devices is 1000000, expected",
    "trainer.epochs=1000000000000": "trainer.epochs is 1000000000000, expected 1000000 or less",
    "trainer.batch_size=1000000000000": "trainer.batch_size is 1000000000000, expected 1000000 or less",
    "optim.lr=nan": "optim.lr is nan, expected a finite number",
    "loss.scale=inf": "loss.scale is inf, expected a finite number",
    "seed=-1": "seed is -1, expected a number from 0 to 4294967295",
}
"""Override of `svt train` -> what is said of it."""


@pytest.mark.parametrize("override", CONFIGURATIONS)
def test_configurations(override, speech, tmp_path, capsys):
    found = said(capsys, "train", f"data.train={speech}", f"exp_dir={tmp_path}/exp", "trainer.device=cpu", override)
    assert CONFIGURATIONS[override] in found
    assert not (tmp_path / "exp").exists()


@pytest.mark.parametrize(
    ("words", "noun"),
    [
        ("evaluate scores=s trials=t seed=-1", "seed is -1, expected a number from 0"),
        ("shard data=d out=o seed=-1", "seed is -1, expected a number from 0"),
        ("prepare corpus=synthetic out=o seed=-1", "seed is -1, expected a number from 0"),
        ("evaluate scores=s trials=t resamples=1000000000000", "resamples is 1000000000000"),
        ("embed model=m data=d out=o threads=1000000", "threads is 1000000"),
        ("embed model=m data=d out=o num_workers=1000000", "num_workers is 1000000"),
        ("validate d jobs=1000000", "jobs is 1000000"),
        ("convert source=d out=o sample_rate=1000000000", "sample_rate is 1000000000"),
        ("memory model.embedding_dim=1000000000000", "model.embedding_dim is 1000000000000"),
        ("memory model.base_width=100000", "model.base_width is 100000"),
        ("memory frames=1000000000000", "frames is 1000000000000"),
        ("memory num_classes=1000000000000", "num_classes is 1000000000000"),
        ("models frames=1000000000000", "frames is 1000000000000"),
        ("verify m a.wav b.wav threshold=nan", "threshold is nan, expected a finite number"),
    ],
)
def test_settings_of_other_commands(words, noun, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert noun in said(capsys, *words.split())
    assert list(tmp_path.iterdir()) == []
