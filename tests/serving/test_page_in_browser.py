"""The page in headless Chromium, whose microphone plays a file."""

from __future__ import annotations

import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import soundfile
import uvicorn
from spoken import spoken

from svtoolkit.enrolment.store import SpeakerStore
from svtoolkit.scoring.verification import StoredThreshold
from svtoolkit.serving.app import build_app
from svtoolkit.serving.keys import Keys
from svtoolkit.serving.service import Limits, Service

CHROMIUM, DRIVER = (shutil.which(name) for name in ("chromium", "chromedriver"))
pytestmark = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None, reason="chromium and chromedriver are not installed: Debian's chromium-driver"
)
KEY = "a key of the browser".replace(" ", "-")
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-component-update",
    "--disable-background-networking", "--disable-sync", "--disable-dev-shm-usage",
    "--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream",
]  # fmt: skip


def wait_for(what: Callable[[], Any], seconds: float = 30.0) -> Any:
    end = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < end, "nothing came"
        time.sleep(0.05)
    return found


class Browser:
    """A session of chromedriver, by its own protocol (W3C WebDriver)."""

    def __init__(self, profile: Path, sound: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self._driver = subprocess.Popen([str(DRIVER), f"--port={port}"], stdout=subprocess.DEVNULL)
        self._client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60)
        flags = [*FLAGS, f"--user-data-dir={profile}", f"--use-file-for-fake-audio-capture={sound}"]
        options = {"binary": CHROMIUM, "args": flags}
        try:
            wait_for(self._is_ready)
            session = self._ask("/session", {"capabilities": {"alwaysMatch": {"goog:chromeOptions": options}}})
        except BaseException:
            self.close()
            raise
        self._session = f"/session/{session['sessionId']}"

    def open(self, address: str) -> None:
        self._ask(f"{self._session}/url", {"url": address})

    def run(self, script: str, *arguments: Any) -> Any:
        return self._ask(f"{self._session}/execute/sync", {"script": script, "args": list(arguments)})

    def click(self, name: str) -> None:
        self.run("document.getElementById(arguments[0]).click()", name)

    def text(self, name: str) -> str:
        return str(self.run("return document.getElementById(arguments[0]).textContent", name))

    def answer(self, action: str) -> str:
        """What the page says after a button."""
        self.run("document.getElementById('answer').textContent = ''")
        self.click(action)
        return str(wait_for(lambda: (said := self.text("answer")) not in ("", "...") and said))

    def close(self) -> None:
        if hasattr(self, "_session"):
            self._client.delete(self._session)
        self._client.close()
        self._driver.terminate()
        self._driver.wait()

    def _is_ready(self) -> bool:
        try:
            return bool(self._client.get("/status").json()["value"]["ready"])
        except httpx.TransportError:
            return False

    def _ask(self, path: str, body: dict[str, Any]) -> Any:
        answer = self._client.post(path, json=body).json()["value"]
        assert not isinstance(answer, dict) or "error" not in answer, answer
        return answer


@pytest.fixture
def address(model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A service with a threshold and score distributions."""
    monkeypatch.setattr(model, "stored", StoredThreshold(0.5, "fa_rate=0.01", 0.2, 0.01))
    counts = {"low": -0.5, "high": 1.0, "targets": [0, 1, 5], "nontargets": [5, 2, 0]}
    monkeypatch.setitem(model.description.verification, "score_counts", counts)
    service = Service(model, "exp/tiny", SpeakerStore(tmp_path / "speakers.db"), Limits())
    server = uvicorn.Server(uvicorn.Config(build_app(service, Keys([KEY])), port=0, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    wait_for(lambda: server.started)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    sound = tmp_path / "microphone.wav"
    soundfile.write(sound, spoken(3, 0, 8.0, 48000), 48000)
    opened = Browser(tmp_path / "profile", sound)
    yield opened
    opened.close()


def test_a_voice_is_recorded_enrolled_verified_and_forgotten(browser, address, tmp_path):
    browser.open(address)
    wait_for(lambda: browser.text("answer") == "Give an API key.")
    browser.run("document.getElementById('key').value = arguments[0]", KEY)
    assert browser.answer("identify") == "Record something, or choose a file."
    browser.click("record")
    wait_for(lambda: (heard := browser.text("length")) and float(heard.split()[0]) > 2)
    browser.click("record")
    wait_for(lambda: browser.text("length").endswith("s recorded"))
    assert browser.answer("enrol") == "Give a name first."
    browser.run("document.getElementById('name').value = 'Anna <b>'")
    assert browser.answer("enrol") == "Anna <b>: 1 recording"
    store = SpeakerStore(tmp_path / "speakers.db")
    assert [(each.name, each.recordings) for each in store.speakers()] == [("Anna <b>", 1)]
    assert browser.answer("verify") == "same speaker: score 1.0000, threshold 0.5000 (fa_rate=0.01)"
    drawn = wait_for(lambda: browser.run("return [...document.querySelectorAll('svg *')].map(each => each.outerHTML)"))
    assert sum('class="targets"' in each for each in drawn) == 3
    marks = browser.run("return [...document.querySelectorAll('svg text')].map(each => each.textContent)")
    assert marks == ["different speakers", "same speaker", "threshold 0.5000", "score 1.0000"]
    assert browser.answer("identify") == "Anna <b>, threshold 0.5000"
    assert browser.text("nearest") == "1.0000Anna <b>"
    assert browser.answer("forget") == "Anna <b> is deleted"
    assert store.speakers() == []
    # Another voice from a file: the recording is the one of the page's own encoder, heard as it was played.
    silent = "take(wav(new Float32Array(48000), 48000), 'silence')"
    browser.run(silent)
    assert "0.00 s of voice in 1.00 s, expected 0.3 s or more (it is silent)" in browser.answer("identify")
    loaded = browser.run("return performance.getEntriesByType('resource').map(each => each.name)")
    assert {name for name in loaded if not name.startswith((address, "blob:", "data:"))} == set()
