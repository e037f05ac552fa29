"""svt serve as a process: overload, keys, and a graceful stop."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from svtoolkit.cli import main
from svtoolkit.enrolment.store import SpeakerStore

KEY = "0123456789abcdef"


class Running:
    """A process of `svt serve` on a free port, with room for one request beside the one that is computed."""

    def __init__(self, model: Path, store: Path, *further: str) -> None:
        words = [f"model={model}", f"store={store}", "port=0", "queue=1", "threads=1", *further]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "svtoolkit", "serve", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "SVT_KEYS": KEY, "PYTHONUNBUFFERED": "1"},
        )
        assert self.process.stdout is not None
        self.output = ""
        while not (found := re.search(r"http://127\.0\.0\.1:\d+", self.output)):
            line = self.process.stdout.readline()
            assert line, self.output
            self.output += line
        self.client = httpx.Client(base_url=found[0], headers={"authorization": f"Bearer {KEY}"}, timeout=60)

    def stop(self) -> None:
        self.client.close()
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def running(model_folder: Path, tmp_path: Path) -> Iterator[Running]:
    started = Running(model_folder, tmp_path / "speakers.db")
    yield started
    started.stop()


def test_nothing_accepted_is_lost_under_overload_and_at_the_end(running, voices, tmp_path):
    def ask(number: int) -> httpx.Response | None:
        try:
            return running.client.post("/enrol", params={"name": f"s{number}"}, content=voices["a0"])
        except httpx.TransportError:  # after the stop nobody listens
            return None

    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(ask, range(60)))
        assert {answer.status_code for answer in answers if answer} == {201, 429}
        assert len([answer for answer in answers if answer]) == 60
        assert all(answer.headers["retry-after"] == "1" for answer in answers if answer.status_code == 429)
        late = [pool.submit(ask, number) for number in range(100, 120)]
        running.process.send_signal(signal.SIGTERM)
        answers += [answer.result() for answer in late]
    assert running.process.wait(30) == -signal.SIGTERM
    accepted = {answer.json()["name"] for answer in answers if answer is not None and answer.status_code == 201}
    assert accepted == {each.name for each in SpeakerStore(tmp_path / "speakers.db").speakers()}
    assert running.process.stdout.read() == ""  # no trace of an error


def test_a_runtime_is_of_an_exported_file(model_folder, tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("SVT_KEYS", raising=False)
    words = ["serve", f"model={model_folder}", f"store={tmp_path / 's.db'}", "port=0", "runtime=ncnn"]
    assert main(words) == 1
    assert f"runtime is 'ncnn', but {model_folder} is no file of `svt export`" in capsys.readouterr().err


@pytest.mark.parametrize("runtime", ["onnx", "ncnn"])
def test_an_exported_file_by_the_runtime_that_is_asked_for(model_folder, voices, tmp_path, runtime):
    pytest.importorskip(runtime)
    exported = tmp_path / "model.onnx"
    assert main(["export", str(model_folder), str(exported)]) == 0
    served = Running(exported, tmp_path / "speakers.db", f"runtime={runtime}")
    try:
        assert served.client.post("/enrol", params={"name": "a"}, content=voices["a0"]).status_code == 201
        answer = served.client.post("/verify", params={"name": "a"}, content=voices["a0"])
        assert answer.json()["score"] == pytest.approx(1, abs=1e-5)
    finally:
        served.stop()


def test_a_port_that_is_taken_and_an_open_address_are_sentences(model_folder, tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("SVT_KEYS", raising=False)
    words = ["serve", f"model={model_folder}", f"store={tmp_path / 's.db'}"]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main([*words, f"port={port}"]) == 1
    assert f"error: 127.0.0.1:{port} cannot be listened on (Address already in use)" in capsys.readouterr().err
    for word, message in (
        ("host=0.0.0.0", "host is 0.0.0.0, which other machines reach, and there are no API keys"),
        ("queue=-1", "queue is -1"),
        ("max_mb=0", "max_mb is 0"),
        ("port=70000", "port is 70000"),
        ("threads=0", "threads is 0"),
    ):
        assert main([*words, word]) == 1
        assert message in capsys.readouterr().err
