"""docs/serve.md: its commands run in their order, its table is the interface's, its figures are the defaults."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import soundfile
from command_material import RATE, voice
from paths import ROOT

from svtoolkit.cli import main, parse_words
from svtoolkit.composition import load
from svtoolkit.config import ServeConfig
from svtoolkit.enrolment.store import SpeakerStore

PAGE = (ROOT / "docs" / "serve.md").read_text(encoding="utf-8")
OF_STORE, OF_SERVICE = (block.splitlines() for block in re.findall(r"```bash\n(.*?)```", PAGE, flags=re.DOTALL))


def test_the_commands_of_the_store_run(model_folder, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(model_folder, "exp/r34/model")
    for number, name in enumerate(("monday", "tuesday", "bo", "test")):
        soundfile.write(f"{name}.wav", voice(2 if name != "bo" else 6, number, 1.5), RATE)
    for command in OF_STORE:
        assert main(shlex.split(command)[1:]) in ((0, 2) if "test.wav" in command else (0,)), command
    assert [each.name for each in SpeakerStore("speakers.db").speakers()] == ["anna"]


def test_the_commands_of_the_service_are_understood() -> None:
    install, keys, serve = OF_SERVICE
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (extra,) = re.findall(r"\nserve = \[(.*?)\]", project, flags=re.DOTALL)
    assert install.split() == ["pip", "install", *re.findall(r'"([a-z-]+)>=', extra)]
    assert keys.startswith("openssl rand -hex 24")
    name, *words = shlex.split(serve)[1:]
    config = load(name, parse_words(name, words)[0])
    assert (config.model, config.store, config.keys, config.host) == (
        "exp/r34/model", "speakers.db", "keys.txt", "0.0.0.0",
    )  # fmt: skip


def test_the_call_of_curl_is_answered(client, voices) -> None:
    (address,) = re.findall(r'curl .*"http://localhost:8000(/.*)"', PAGE)
    assert client.post("/enrol?name=anna", content=voices["a0"]).status_code == 201
    assert client.post(address, content=voices["a1"], headers={"authorization": "Bearer anything"}).status_code == 200


def test_the_table_has_every_path_and_the_limits_are_the_defaults(client) -> None:
    described = {
        f"{method.upper()} {path}"
        for path, found in client.get("/openapi.json").json()["paths"].items()
        for method in found
    }
    listed = set(re.findall(r"`((?:GET|POST|DELETE) /[a-z.]*)`", PAGE))
    assert listed == described | {"GET /openapi.json"}
    for key, value in re.findall(r"`(upload_seconds|max_mb|max_seconds|queue)=(\d+)`", PAGE):
        assert getattr(ServeConfig, key) == float(value)
    statuses = {status for path in client.get("/openapi.json").json()["paths"].values() for each in path.values()
                for status in each["responses"]}  # fmt: skip
    for status in statuses - {"200", "201", "204"}:
        assert re.search(rf"\| (\d+, )?{status}(, \d+)? \|", PAGE), status
