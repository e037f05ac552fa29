from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import kaldiio
import numpy as np
import pytest
import soundfile
import yaml
from command_material import RATE, voice, write_data, write_model

from svtoolkit import load_model
from svtoolkit.checkpoints.released import read_released, write_released
from svtoolkit.cli import main
from svtoolkit.scoring import crop_extraction, embedding_parts
from svtoolkit.scoring.forward import BoundedForward


def embed(model: Path, data: Path, out: Path, *words: str) -> int:
    return main(["embed", "--model", str(model), "--data", str(data), "--out", str(out), "threads=1", *words])


@pytest.mark.usefixtures("told_at_once")
def test_every_utterance_gets_the_embedding_of_its_file(tmp_path, model, eval_data, eval_dir, capsys):
    out = tmp_path / "new" / "eval.v1"
    assert embed(model, eval_data, out) == 0
    vectors = kaldiio.load_scp(f"{out}.scp")
    assert sorted(vectors) == sorted(eval_dir.utt2spk)
    one = load_model(model).embed(eval_dir.wav_scp["s21-3"])
    np.testing.assert_allclose(vectors["s21-3"], one, rtol=1e-4, atol=1e-6)
    assert vectors["s21-3"].dtype == np.float32
    captured = capsys.readouterr()
    assert re.search(r"^16 embeddings -> \S+/new/eval.v1.scp; 15 s of audio in .* real-time factor", captured.out)
    assert "16/16" in captured.err


def test_what_it_did_stands_beside_the_embeddings(tmp_path, model, eval_data):
    out = tmp_path / "e"
    assert embed(model, eval_data, out, "batch_size=3") == 0
    record = yaml.safe_load(Path(f"{out}.yaml").read_text())
    assert record["command"] == (f"svt embed --model {model} --data {eval_data} --out {out} threads=1 batch_size=3")
    assert (record["model"], record["data"], record["batch_size"]) == (str(model), str(eval_data), 3)
    assert (record["utterances"], record["failures"]) == (16, {})
    assert record["audio_seconds"] == pytest.approx(8 * 0.9 + 8 * 0.95, abs=0.01)


def test_one_unreadable_file_costs_its_own_embedding_alone(tmp_path, model, capsys):
    data = write_data(tmp_path / "data", range(2), 3)
    broken = data / "wav" / "s01" / "s01-1.wav"
    broken.write_bytes(b"no audio")
    assert embed(model, data, tmp_path / "e") == 1
    assert sorted(kaldiio.load_scp(f"{tmp_path}/e.scp")) == ["s00-0", "s00-1", "s00-2", "s01-0", "s01-2"]
    captured = capsys.readouterr()
    assert "5 embeddings ->" in captured.out
    errors = captured.err.splitlines()[-2:]
    assert errors[0].startswith(f"failed: s01-1: {broken}")
    assert errors[1] == "error: 1 of 6 utterances have no embedding"
    assert list(yaml.safe_load((tmp_path / "e.yaml").read_text())["failures"]) == ["s01-1"]


def test_some_may_have_none_where_that_is_said(tmp_path, model, capsys):
    data = write_data(tmp_path / "data", range(2), 3)
    for name in ("s01-1", "s01-2"):
        (data / "wav" / "s01" / f"{name}.wav").write_bytes(b"no audio")
    assert embed(model, data, tmp_path / "e", "max_bad=0.1") == 1
    expected = "error: 2 of 6 utterances have no embedding; with max_bad=0.1 1 may have none"
    assert capsys.readouterr().err.splitlines()[-1] == expected
    assert embed(model, data, tmp_path / "e", "max_bad=0.4") == 0
    errors = capsys.readouterr().err
    assert "failed: s01-2: " in errors
    assert "error" not in errors
    assert len(kaldiio.load_scp(f"{tmp_path}/e.scp")) == 4


def test_nothing_is_written_where_nothing_can_be_read(tmp_path, model, capsys):
    data = write_data(tmp_path / "data", range(1), 2)
    for path in (data / "wav").rglob("*.wav"):
        path.unlink()
    assert embed(model, data, tmp_path / "e") == 1
    assert f"error: {data}: no utterance could be embedded; the first reason: " in capsys.readouterr().err
    assert not list(tmp_path.glob("e.*"))


def test_another_rate_is_a_failure_unless_it_is_to_be_converted(tmp_path, model, capsys):
    data = write_data(tmp_path / "data", range(1), 2)
    soundfile.write(data / "wav" / "s00" / "s00-1.wav", np.repeat(voice(0, 1, 0.9), 2), 2 * RATE)
    assert embed(model, data, tmp_path / "e") == 1
    assert "1 of 2 utterances have no embedding" in capsys.readouterr().err
    assert embed(model, data, tmp_path / "e", "resample=true") == 0
    assert len(kaldiio.load_scp(f"{tmp_path}/e.scp")) == 2


def test_a_model_whose_embeddings_are_not_finite_embeds_nothing(tmp_path, model, eval_data, capsys):
    copy = shutil.copytree(model, tmp_path / "model")
    network, description = read_released(copy)
    network.stem[0].weight.data[0] = 3e38  # finite, but what it makes is not
    write_released(copy, network.state_dict(), description)
    assert embed(copy, eval_data, tmp_path / "e") == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith(f"error: {eval_data}: no utterance could be embedded; the first reason: ")
    assert "the embedding is not finite; check the audio for NaN" in error
    assert not list(tmp_path.glob("e.*"))


def test_relative_paths_are_taken_from_root(tmp_path, model, monkeypatch):
    data = write_data(tmp_path / "corpus", range(1), 2)
    (data / "wav.scp").write_text("s00-0 wav/s00/s00-0.wav\ns00-1 wav/s00/s00-1.wav\n")
    monkeypatch.chdir("/")
    assert embed(model, data, tmp_path / "e") == 1
    assert embed(model, data, tmp_path / "e", "--root", str(data)) == 0


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("threads=0", "threads is 0, expected 1 or more, or null"),
        ("device=tpu", "device is 'tpu', expected auto, cpu, cuda, cuda:N or mps"),
        ("precision=int8", "precision is 'int8', expected one of fp32, bf16, fp16"),
        ("max_bad=2", "max_bad is 2.0, expected a share of the utterances from 0 to 1"),
        ("batch_seconds=0.5", "batch_seconds is 0.5, expected 1 second of audio or more"),
        ("memory_gib=-1", "memory_gib is -1, expected a number of GiB above 0, or null"),
        ("memory_gib=0.01", "memory_gib=0.01 is too little for this model, which is predicted to need 130 MiB"),
        ("batch_size=0", "found batch_size=0 num_workers=1, expected at least 1 and 0"),
        ("model=/nowhere", "/nowhere/model.yaml: there is no such file; expected a released model"),
        ("data=/nowhere", "/nowhere"),
    ],
)
def test_options_that_cannot_be(tmp_path, model, eval_data, capsys, word, message):
    assert embed(model, eval_data, tmp_path / "e", word) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith(f"error: {message}")
    assert not list(tmp_path.iterdir())


@pytest.fixture
def calls(monkeypatch):
    """Sizes of the batches, every one of which is recorded by itself."""
    monkeypatch.setattr(embedding_parts, "SECONDS", 0.0)
    sizes = []
    forward = BoundedForward.__call__

    def count(self, waveforms):
        sizes.append(len(waveforms))
        return forward(self, waveforms)

    monkeypatch.setattr(BoundedForward, "__call__", count)
    return sizes


def embed_until_killed(at: int, *arguments) -> None:
    """In a process of its own that is gone in the middle of its batch of that number."""
    child = os.fork()
    if child == 0:
        forward, done = BoundedForward.__call__, []

        def die(self, waveforms):
            done.append(waveforms)
            if len(done) == at:
                os._exit(9)
            return forward(self, waveforms)

        BoundedForward.__call__ = die
        try:
            embed(*arguments)
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


def results(out: Path) -> dict[str, bytes]:
    return {end: Path(f"{out}.{end}").read_bytes().replace(os.fsencode(out.parent), b"") for end in ("ark", "scp")}


@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.usefixtures("told_at_once")
def test_killed_and_run_again_it_goes_on_to_the_same_bytes(tmp_path, model, eval_data, calls, capsys, torn):
    assert embed(model, eval_data, tmp_path / "whole" / "e", "batch_size=3") == 0
    assert calls == [3, 3, 3, 3, 2, 2]
    out = tmp_path / "e"
    embed_until_killed(4, model, eval_data, out, "batch_size=3")
    assert not list(tmp_path.glob("e.[asy]*"))
    [journal] = tmp_path.glob("e.parts/journal.jsonl")
    if torn:
        with journal.open("ab") as stream, (journal.parent / "vectors.f32").open("ab") as vectors:
            stream.write(b'{"rows": [5, 6')
            vectors.write(b"\0\1\2" * 31)
    calls.clear()
    capsys.readouterr()
    assert embed(model, eval_data, out, "batch_size=3") == 0
    assert calls == [3, 2, 2]
    assert results(out) == results(tmp_path / "whole" / "e")
    captured = capsys.readouterr()
    assert "resuming: 9 of 16 utterances are embedded already" in captured.out
    assert "16/16" in captured.err
    assert not (tmp_path / "e.parts").exists()


@pytest.mark.usefixtures("told_at_once")
def test_crops_are_averaged_and_resumed(tmp_path, model, eval_data, eval_dir, monkeypatch):
    """0.9 s or 0.95 s each: three crops of 0.5 s begin at 0, 0.2 or 0.225, and 0.4 or 0.45 s."""
    monkeypatch.setattr(crop_extraction, "TOGETHER", 4)
    words = ("crops=3", "crop_seconds=0.5", "batch_size=3")
    assert embed(model, eval_data, tmp_path / "whole" / "e", *words) == 0
    vectors = kaldiio.load_scp(f"{tmp_path}/whole/e.scp")
    samples, _ = soundfile.read(eval_dir.wav_scp["s21-3"], dtype="float32")
    loaded = load_model(model)
    crops = [loaded.embed(samples[round(start * RATE) :][: RATE // 2]) for start in (0.0, 0.225, 0.45)]
    expected = np.mean([crop / np.linalg.norm(crop) for crop in crops], axis=0)
    np.testing.assert_allclose(vectors["s21-3"], expected, rtol=1e-4, atol=1e-6)
    record = yaml.safe_load((tmp_path / "whole" / "e.yaml").read_text())
    assert (record["crops"], record["crop_seconds"], record["utterances"]) == (3, 0.5, 16)
    assert record["audio_seconds"] == pytest.approx(8 * 0.9 + 8 * 0.95, abs=0.01)
    embed_until_killed(6, model, eval_data, tmp_path / "e", *words)
    assert embed(model, eval_data, tmp_path / "e", *words) == 0
    assert results(tmp_path / "e") == results(tmp_path / "whole" / "e")


def test_crops_of_no_length(tmp_path, model, eval_data, capsys):
    assert embed(model, eval_data, tmp_path / "e", "crops=3", "crop_seconds=0") == 1
    assert "error: crop_seconds is 0, expected more than 0 seconds" in capsys.readouterr().err
    assert embed(model, eval_data, tmp_path / "e", "crops=0") == 1
    assert "error: crops is 0, expected 1 or more, or null: the whole utterance" in capsys.readouterr().err
    assert not list(tmp_path.glob("e*"))


def test_parts_that_lost_their_vectors_are_made_again(tmp_path, model, eval_data, calls, caplog):
    assert embed(model, eval_data, tmp_path / "whole" / "e", "batch_size=3") == 0
    embed_until_killed(4, model, eval_data, tmp_path / "e", "batch_size=3")
    [vectors] = tmp_path.glob("e.parts/vectors.f32")
    os.truncate(vectors, vectors.stat().st_size - 4)
    calls.clear()
    assert embed(model, eval_data, tmp_path / "e", "batch_size=3") == 0
    assert sum(calls) == 16
    assert results(tmp_path / "e") == results(tmp_path / "whole" / "e")
    assert any("holds fewer vectors than" in message for message in caplog.messages)


CHANGES = {
    "model": "another model",
    "data": "other utterances",
    "batch_size=2": "batch_size=3, not 2",
    "resample=true": "resample=false, not true",
    "crops=3": "crops=null, not 3",
}


@pytest.mark.parametrize("change", CHANGES)
def test_parts_of_something_else_are_refused_and_kept(tmp_path, model, eval_data, calls, capsys, change):
    out = tmp_path / "e"
    embed_until_killed(4, model, eval_data, out, "batch_size=3")
    other, data, words = model, eval_data, ["batch_size=3"]
    if change == "model":
        other = write_model(tmp_path / "other", seed=5)
    elif change == "data":
        data = write_data(tmp_path / "data", range(20, 24))
    elif change.startswith("batch_size"):
        words = [change]
    else:
        words.append(change)
    capsys.readouterr()
    assert embed(other, data, out, *words) == 1
    assert not calls
    assert capsys.readouterr().err == (
        f"error: {out}.parts: holds embeddings made with {CHANGES[change]}; repeat the command that made them to "
        "resume it, delete the folder to begin again, or choose another out\n"
    )
    assert embed(model, eval_data, out, "batch_size=3", "num_workers=2", "memory_gib=4") == 0
    assert sum(calls) == 16 - 9


def test_audio_that_was_changed_since_is_embedded_again_and_what_failed_is_tried_again(tmp_path, model, calls):
    data = write_data(tmp_path / "data", range(2), 4)
    changed, broken = data / "wav" / "s00" / "s00-1.wav", data / "wav" / "s01" / "s01-3.wav"
    whole = broken.read_bytes()
    broken.write_bytes(b"no audio")
    out = tmp_path / "e"
    embed_until_killed(4, model, data, out, "batch_size=1")
    broken.write_bytes(whole)
    soundfile.write(changed, voice(7, 7, 0.95), RATE)
    os.utime(changed, (2**32, 2**32))
    calls.clear()
    assert embed(model, data, out, "batch_size=1") == 0
    assert sum(calls) == 8 - 3 + 1
    assert embed(model, data, tmp_path / "alone" / "e", "batch_size=1") == 0
    assert results(out) == results(tmp_path / "alone" / "e")


def test_the_files_do_not_depend_on_the_batches_but_for_rounding(tmp_path, model, eval_data):
    for name, words in {"a": ["batch_size=1"], "b": ["batch_seconds=2"], "c": []}.items():
        assert embed(model, eval_data, tmp_path / name, *words) == 0
    one, *others = (
        [kaldiio.load_scp(f"{tmp_path}/{name}.scp"), (tmp_path / f"{name}.scp").read_text()] for name in "abc"
    )
    for vectors, text in others:
        assert re.sub(r"/[bc]\.ark", "/a.ark", text) == one[1]
        for name in one[0]:
            np.testing.assert_allclose(vectors[name], one[0][name], rtol=1e-4, atol=1e-6)


# ---- exported files ----


def test_an_exported_file_gives_the_embeddings_of_its_model(tmp_path, eval_data):
    from exported_material import cosine_of, write_exported

    path = write_exported(tmp_path)
    for name, words in (("torch", [str(tmp_path / "model")]), ("onnx", [str(path), "num_workers=2"])):
        model, *more = words
        out = str(tmp_path / name)
        assert main(["embed", f"model={model}", f"data={eval_data}", f"out={out}", "threads=1", *more]) == 0
    found, expected = (kaldiio.load_scp(str(tmp_path / f"{name}.scp")) for name in ("onnx", "torch"))
    assert len(found) == len(expected) == 16
    for utterance, vector in expected.items():
        assert cosine_of(found[utterance], vector) > 0.99999


def test_settings_of_exported_files_and_of_others(tmp_path, model, eval_data, capsys):
    from exported_material import write_exported

    path = write_exported(tmp_path)
    words = ["embed", f"data={eval_data}", f"out={tmp_path / 'out'}"]
    assert main([*words, f"model={path}", "precision=bf16"]) == 1
    assert "precision is 'bf16', but" in capsys.readouterr().err
    assert main([*words, f"model={path}", "runtime=tensorrt"]) == 1
    assert "runtime is 'tensorrt', expected onnx, openvino, ncnn or auto" in capsys.readouterr().err
    assert main([*words, f"model={model}", "runtime=onnx"]) == 1
    assert "is no file of `svt export`" in capsys.readouterr().err
