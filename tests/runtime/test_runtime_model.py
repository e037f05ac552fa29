"""Exported files without torch: embeddings, decisions, refusals, and that torch is not needed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import onnx
import pytest
import soundfile
import torch
from command_material import RATE, voice
from exported_material import BLOCKED, change, cosine_of, write_exported
from paths import ROOT

from svtoolkit import load_model
from svtoolkit.checkpoints.exported import KEY, is_exported
from svtoolkit.cli import main
from svtoolkit.errors import UserError
from svtoolkit.runtime import engines
from svtoolkit.runtime.model import RuntimeModel

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

torch.set_num_threads(1)

STORED = {"threshold": 0.5, "operating_point": "fa_rate=0.01", "p_miss": 0.03, "p_fa": 0.01}


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_exported(tmp_path_factory.mktemp("exported"), **STORED)


@pytest.fixture(scope="module")
def audio(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("audio")
    for speaker in (0, 1):
        soundfile.write(folder / f"{speaker}.wav", voice(speaker, 0, 2.0), RATE)
    return str(folder / "0.wav"), str(folder / "1.wav")


def python(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *words], cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("runtime", ["onnx", "openvino", "ncnn"])
def test_embeddings_are_those_of_torch(exported, audio, runtime):
    if runtime not in engines.installed():
        pytest.skip(f"{runtime} is not installed")
    model = RuntimeModel.load(exported, runtime=runtime, threads=1)
    for file in audio:
        assert cosine_of(model.embed(file), load_model(exported.parent / "model").embed(file)) > 0.99999


@pytest.mark.skipif(os.name != "posix", reason="signals of Unix")
@pytest.mark.parametrize("runtime", ["onnx", "openvino", "ncnn"])
def test_signals_are_handled_after_another_thread_has_let_it_go(exported, runtime):
    """OpenVINO has the thread that loads it handle signals on a stack of its own, and takes that away when it goes."""
    if runtime not in engines.installed():
        pytest.skip(f"{runtime} is not installed")
    code = """
        import os, signal, sys, threading
        from pathlib import Path
        from svtoolkit.runtime.engines import open_engine

        held = [open_engine(sys.argv[1], Path(sys.argv[2]).read_bytes(), threads=1)]
        thread = threading.Thread(target=held.clear)
        thread.start()
        thread.join()
        signal.signal(signal.SIGTERM, lambda *_: print("handled"))
        os.kill(os.getpid(), signal.SIGTERM)
    """
    run = python(textwrap.dedent(code), runtime, str(exported))
    assert (run.stdout, run.returncode) == ("handled\n", 0), run.stderr


def test_samples_of_an_array_and_a_stretch_of_a_file(exported, audio):
    model = RuntimeModel.load(exported, threads=1)
    samples, _ = soundfile.read(audio[0], dtype="float32")
    np.testing.assert_array_equal(model.embed(samples), model.embed(audio[0]))
    np.testing.assert_array_equal(model.read(audio[0], start=0.5, duration=0.5), samples[RATE // 2 : RATE])


def test_verify_says_the_same_with_and_without_torch(exported, audio, capsys):
    assert main(["verify", str(exported.parent / "model"), *audio]) in (0, 2)
    expected = capsys.readouterr().out
    assert "fa_rate=0.01" in expected
    found = python(
        BLOCKED.format(blocked={"torch"})
        + "from svtoolkit.cli import main\nstatus = main(sys.argv[1:])\n"
        + "assert not [name for name in sys.modules if name.partition('.')[0] == 'torch']\nsys.exit(status)",
        "verify", str(exported), *audio,
    )  # fmt: skip
    assert (found.stdout, found.stderr) == (expected, "")
    assert found.returncode in (0, 2)


def test_what_takes_long_is_not_imported(exported, audio):
    code = (
        "import sys; from svtoolkit.cli import main; main(sys.argv[1:]); "
        "print(*[name for name in ('torch', 'hydra', 'omegaconf', 'yaml', 'numpy.ma', 'scipy') if name in sys.modules])"
    )
    assert python(code, "verify", str(exported), *audio, "threshold=0.5").stdout.splitlines()[-1] == ""
    assert "torch" in python(code, "verify", str(exported.parent / "model"), *audio).stdout.splitlines()[-1]


def test_a_model_that_needs_torch_says_so_where_there_is_none(exported, audio):
    code = BLOCKED.format(blocked={"torch"}) + "from svtoolkit.cli import main\nsys.exit(main(sys.argv[1:]))"
    found = python(code, "verify", str(exported.parent / "model"), *audio)
    assert (found.returncode, found.stdout) == (1, "")
    assert found.stderr == (
        "error: svt verify needs torch here, which is not installed; `pip install torch`, or give `svt verify` or "
        "`svt embed` a file of `svt export`\n"
    )


def test_what_is_no_speech_is_refused(exported, audio, tmp_path, capsys):
    soundfile.write(tmp_path / "noise.wav", np.random.default_rng(0).standard_normal(2 * RATE) * 0.01, RATE)
    assert main(["verify", str(exported), audio[0], str(tmp_path / "noise.wav")]) == 1
    assert "noise.wav: 0.00 s of voice in 2.00 s, expected 0.3 s or more" in capsys.readouterr().err


def test_other_rates_are_refused_or_converted(exported, audio, tmp_path, capsys):
    soundfile.write(tmp_path / "double.wav", np.repeat(voice(0, 0, 2.0), 2), 2 * RATE)
    words = ["verify", str(exported), audio[0], str(tmp_path / "double.wav")]
    assert main(words) == 1
    assert "sample rate is 16000 Hz, expected 8000 Hz" in capsys.readouterr().err
    assert main([*words, "--resample", "true"]) == 0


def test_too_short_and_not_finite(exported):
    model = RuntimeModel.load(exported, threads=1)
    with pytest.raises(UserError, match="100 samples are shorter than one window of 200"):
        model.embed(np.zeros(100, dtype=np.float32))
    with pytest.raises(UserError, match="the embedding is not finite; check the audio for NaN"):
        model.embed(np.full(RATE, np.nan, dtype=np.float32))


@pytest.mark.parametrize(("key", "value"), [("device", "cuda"), ("front_end", "fbank80")])
def test_settings_that_an_exported_file_has_no_use_for(exported, audio, key, value, capsys):
    assert main(["verify", str(exported), *audio, f"{key}={value}"]) == 1
    assert f"{key} is '{value}', but {exported} is an exported file" in capsys.readouterr().err


def test_a_file_that_is_cut_off_or_of_another_version(exported, audio, tmp_path, capsys):
    whole = exported.read_bytes()
    (tmp_path / "cut.onnx").write_bytes(whole[: len(whole) // 2])
    assert not is_exported(tmp_path / "cut.onnx")
    newer = change(
        exported, tmp_path / "newer.onnx", lambda graph: onnx.helper.set_model_props(graph, {KEY: '{"format": 2}'})
    )
    assert main(["verify", str(newer), *audio]) == 1
    assert f"{newer}: its metadata hold no description that this version of svtoolkit reads" in capsys.readouterr().err


def test_auto_takes_the_fastest(exported, monkeypatch):
    seconds = {"onnx": 0.2, "openvino": 0.1, "ncnn": 0.08}
    monkeypatch.setattr(engines, "installed", lambda: list(seconds))
    monkeypatch.setattr(engines, "_seconds_of", lambda run: seconds[type(run()).__name__])

    def opened(name, content, threads, streams):
        class Standing:
            def run(self, _name, _values):
                return type(name, (), {})()

        return Standing()

    monkeypatch.setattr(engines, "open_engine", opened)
    assert engines.fastest(b"", 1, "feats", np.zeros((1, 2, 3))) == ("ncnn", seconds)


def test_an_unknown_runtime(exported):
    with pytest.raises(UserError, match="runtime is 'tensorrt', expected onnx, openvino, ncnn or auto"):
        RuntimeModel.load(exported, runtime="tensorrt")


def test_torch_reads_an_exported_file_too(exported, audio, tmp_path):
    model = load_model(exported)
    assert model.threshold == STORED["threshold"]
    assert cosine_of(model.embed(audio[0]), RuntimeModel.load(exported).embed(audio[0])) > 0.99999
    with pytest.raises(UserError, match="a file of `svt export` says its own; leave it out"):
        load_model(exported, front_end="fbank80")
    waveform = write_exported(tmp_path, "input=waveform")
    with pytest.raises(UserError, match="takes waveforms, and torch has nothing to do for it"):
        load_model(waveform)


def test_the_packages_that_the_page_names_are_enough(exported, audio):
    needed = {"onnxruntime", "numpy", "soundfile", "soxr", "hydra-core"}
    page = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    assert f"pip install {' '.join(sorted(needed))}\n" in page
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    names = {re.split(r"[<>=!\[]", each)[0] for each in wanted} - needed - {"pyyaml"}  # which hydra-core brings
    assert "torch" in names
    code = BLOCKED.format(blocked=names | {"onnx", "av", "openvino"})
    found = python(
        code + "from svtoolkit.cli import main\nsys.exit(main(sys.argv[1:]))", "verify", str(exported), *audio
    )
    assert found.returncode in (0, 2), found.stderr
