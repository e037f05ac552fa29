from __future__ import annotations

import os
import re
from pathlib import Path

import kaldiio
import numpy as np
import pytest
import yaml
from command_material import BINS, RATE, TRAIN_WORDS, write_data

from svtoolkit.cli import main
from svtoolkit.data.feature_archive import write_features
from svtoolkit.scoring import embedding_parts
from svtoolkit.scoring.forward import BoundedForward

FRONT_END = (f"features.num_bins={BINS}", f"features.sample_rate={RATE}")


def features(data: Path, out: Path, *more: str) -> int:
    return main(["features", "--data", str(data), "--out", str(out), *FRONT_END, *more])


def embed(model: Path, data: Path, out: Path, *words: str) -> int:
    return main(["embed", "--model", str(model), "--data", str(data), "--out", str(out), "threads=1", *words])


@pytest.fixture(scope="session")
def stored(tmp_path_factory, eval_data) -> dict[str, Path]:
    """Format -> feature directory of the evaluation data."""
    folder = tmp_path_factory.mktemp("features")
    for form in ("float32", "float16", "compressed"):
        assert features(eval_data, folder / form, f"format={form}") == 0
    return {form: folder / form for form in ("float32", "float16", "compressed")}


@pytest.mark.usefixtures("told_at_once")
def test_what_is_said_and_recorded(tmp_path, eval_data, capsys):
    out = tmp_path / "out"
    assert features(eval_data, out, "per_archive=10") == 0
    captured = capsys.readouterr()
    assert re.fullmatch(
        rf"{out}: 16 utterances, 0\.00 h in 2 archives \(0 reused\), 3\d\.\d MB an hour, 0 left out\n", captured.out
    )
    assert re.search(r"features: 16/16 utt \(100 %\), .* utt/s", captured.err)
    assert (out / "trials").read_bytes() == (eval_data / "trials").read_bytes()
    record = yaml.safe_load((out / "made_by.yaml").read_text())
    words = f"--data {eval_data} --out {out} {' '.join(FRONT_END)} per_archive=10"
    assert (record["command"], record["source"]) == (f"svt features {words}", str(eval_data))
    assert features(eval_data, out, "per_archive=10") == 0
    assert "(2 reused)" in capsys.readouterr().out


@pytest.mark.parametrize(("form", "tolerance"), [("float32", 1e-5), ("float16", 2e-3), ("compressed", 3e-2)])
def test_embeddings_are_those_of_the_audio(tmp_path, model, eval_data, stored, form, tolerance):
    """Up to the rounding of the format, relative to the length of the embedding."""
    assert embed(model, eval_data, tmp_path / "audio") == 0
    assert embed(model, stored[form], tmp_path / "features", "num_workers=2") == 0
    audio, ours = (kaldiio.load_scp(f"{tmp_path}/{name}.scp") for name in ("audio", "features"))
    assert sorted(audio) == sorted(ours)
    assert len(audio) == 16
    for name in audio:
        assert np.linalg.norm(ours[name] - audio[name]) <= tolerance * np.linalg.norm(audio[name])
    record = yaml.safe_load((tmp_path / "features.yaml").read_text())
    assert record["audio_seconds"] == pytest.approx(8 * 0.9 + 8 * 0.95, abs=16 * 0.01)


@pytest.mark.parametrize("recomputed", [False, True])
def test_stopped_and_run_again_it_goes_on_with_features_that_are_as_they_were(
    tmp_path, model, eval_data, monkeypatch, recomputed
):
    monkeypatch.setattr(embedding_parts, "SECONDS", 0.0)
    assert features(eval_data, tmp_path / "stored") == 0
    assert embed(model, tmp_path / "stored", tmp_path / "whole", "batch_size=3") == 0
    forward, sizes = BoundedForward.__call__, []

    def stop_at_the_fourth(self, signals):
        sizes.append(len(signals))
        if len(sizes) == 4:
            raise RuntimeError("the power is gone")
        return forward(self, signals)

    monkeypatch.setattr(BoundedForward, "__call__", stop_at_the_fourth)
    with pytest.raises(RuntimeError, match="the power is gone"):
        embed(model, tmp_path / "stored", tmp_path / "e", "batch_size=3")
    if recomputed:
        for archive in (tmp_path / "stored").glob("*.ark"):
            os.utime(archive, (2**32, 2**32))
    before = sum(sizes[:3])
    sizes[:] = [0] * 4
    assert embed(model, tmp_path / "stored", tmp_path / "e", "batch_size=3") == 0
    assert sum(sizes) == (16 if recomputed else 16 - before)
    whole, ours = (kaldiio.load_scp(f"{tmp_path}/{name}.scp") for name in ("whole", "e"))
    assert sorted(ours) == sorted(whole)
    for name in ours:
        np.testing.assert_array_equal(ours[name], whole[name])
    assert not (tmp_path / "e.parts").exists()


def test_features_that_are_not_finite_have_no_embedding(tmp_path, model, eval_data, capsys):
    assert features(eval_data, tmp_path / "stored") == 0
    location = dict(line.split() for line in (tmp_path / "stored" / "feats.scp").read_text().splitlines())["s21-3"]
    archive, _, offset = location.rpartition(":")
    with Path(archive).open("r+b") as stream:
        stream.seek(int(offset) + 15)
        stream.write(np.full(4, np.nan, "<f4").tobytes())
    assert embed(model, tmp_path / "stored", tmp_path / "e") == 1
    said = capsys.readouterr().err
    assert f"failed: s21-3: {location}: holds features that are NaN or infinite; compute the features again" in said
    assert "error: 1 of 16 utterances have no embedding" in said
    assert len(kaldiio.load_scp(f"{tmp_path}/e.scp")) == 15
    assert embed(model, tmp_path / "stored", tmp_path / "e", "max_bad=0.1") == 0


def test_long_recordings_go_in_stretches_to_the_same_embedding(tmp_path, model, stored):
    """Fifteen seconds by two at a time."""
    data = tmp_path / "long"
    data.mkdir()
    content = kaldiio.load_scp(str(stored["float32"] / "feats.scp"))
    with (data / "feats.ark").open("wb") as stream:
        offset = write_features(stream, "a-1", np.concatenate(list(content.values())), "float32")
    for name, text in {"feats.scp": f"{data}/feats.ark:{offset}", "utt2spk": "a", "utt2dur": "14.8"}.items():
        (data / name).write_text(f"a-1 {text}\n")
    (data / "features.yaml").write_bytes((stored["float32"] / "features.yaml").read_bytes())
    assert embed(model, data, tmp_path / "whole") == 0
    assert embed(model, data, tmp_path / "stretches", "batch_seconds=2") == 0
    whole, ours = (kaldiio.load_scp(f"{tmp_path}/{name}.scp")["a-1"] for name in ("whole", "stretches"))
    np.testing.assert_allclose(ours, whole, rtol=1e-4, atol=1e-5)


def test_of_a_directory_with_both_the_key_chooses(tmp_path, model, eval_data, stored, capsys):
    both = tmp_path / "both"
    both.mkdir()
    for path in (*stored["float32"].iterdir(), eval_data / "wav.scp"):
        if path.is_file():
            (both / path.name).write_bytes(path.read_bytes())
    (both / "wav.scp").write_text((both / "wav.scp").read_text().replace(".wav\n", ".gone\n"))
    assert embed(model, both, tmp_path / "e", "source=features") == 0
    assert embed(model, both, tmp_path / "f") == 1
    assert "no such file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["source=feats"], "source is 'feats', expected files, shards or features, or null for what is there"),
        (["channel=0"], "channel is 0, but {data} holds features, no audio; leave it out"),
        (["crops=3"], "crops is 3, but {data} holds features, no audio; leave it out"),
        (["resample=true"], "resample is true, but {data} holds features, no audio; leave it out"),
    ],
)
def test_embedding_says_what_features_cannot_do(tmp_path, model, stored, words, message, capsys):
    assert embed(model, stored["float32"], tmp_path / "e", *words) == 1
    assert f"error: {message.format(data=stored['float32'])}" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_features_of_another_front_end_are_not_embedded(tmp_path, model, eval_data, capsys):
    assert features(eval_data, tmp_path / "out", "features.window=povey") == 0
    capsys.readouterr()
    assert embed(model, tmp_path / "out", tmp_path / "e") == 1
    error = capsys.readouterr().err
    assert f"error: {model}: features.window of the model is hamming, but the features of {tmp_path}/out were " in error
    assert "computed with povey" in error
    assert "`svt features features.window=hamming`" in error


def test_training_on_features_by_command(tmp_path, train_data, capsys):
    assert features(train_data, tmp_path / "features") == 0
    words = ["--exp-dir", str(tmp_path / "exp"), "--data.train", str(tmp_path / "features"), *TRAIN_WORDS]
    assert main(["train", *words]) == 1
    assert "augment.dither is 1.0; set augment.dither=0, or train on the audio" in capsys.readouterr().err
    assert main(["train", *words, "augment.dither=0", "trainer.epochs=1"]) == 0
    assert "crops are stretches of stored features (float32)" in capsys.readouterr().out


def test_other_commands_say_that_there_is_no_audio(stored, tmp_path, capsys):
    assert main(["shard", f"data={stored['float32']}", f"out={tmp_path}/shards"]) == 1
    assert (
        "wav.scp: the file is missing, and of the features of feats.scp no audio can be had" in capsys.readouterr().err
    )


def test_a_bad_file_is_listed(tmp_path, capsys):
    data = write_data(tmp_path / "data", range(2), 3)
    broken = data / "wav" / "s01" / "s01-1.wav"
    broken.write_bytes(b"no audio")
    assert features(data, tmp_path / "out", "max_bad=0") == 1
    assert f"1 of 6 files cannot be used, with max_bad=0 0 may be: {broken}" in capsys.readouterr().err
    assert features(data, tmp_path / "out") == 0
    assert f"{tmp_path}/out/bad_files.tsv: what was left out, and why" in capsys.readouterr().out
