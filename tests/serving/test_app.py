"""The HTTP interface: the same decisions and sentences as the command line's, within its limits."""

from __future__ import annotations

import io
import re
import threading
from pathlib import Path

import numpy as np
import pytest
from command_material import RATE, voice
from fastapi.testclient import TestClient
from serving_material import LOCAL, recording

from svtoolkit.cli import main
from svtoolkit.enrolment.store import SpeakerStore, StoreModel
from svtoolkit.errors import UserError
from svtoolkit.runtime.model import RuntimeModel
from svtoolkit.scoring.verification import StoredThreshold
from svtoolkit.serving.app import build_app
from svtoolkit.serving.keys import Keys, read_keys, require_keys
from svtoolkit.serving.service import Limits, Service

KEY = "0123456789abcdef"


def test_enrol_verify_identify_forget(client, service, model, voices):
    assert client.post("/enrol", params={"name": "a/ä b"}, content=voices["a0"]).json() == {
        "name": "a/ä b", "recordings": 1,
    }  # fmt: skip
    answer = client.post("/enrol", params={"name": "a/ä b"}, content=voices["a1"])
    assert (answer.status_code, answer.json()["recordings"]) == (201, 2)
    assert client.post("/enrol", params={"name": "bo"}, content=voices["b0"]).status_code == 201
    expected = model.verify([io.BytesIO(voices["a0"]), io.BytesIO(voices["a1"])], io.BytesIO(voices["b1"]))
    found = client.post("/verify", params={"name": "a/ä b"}, content=voices["b1"])
    assert found.status_code == 200
    assert found.json()["score"] == pytest.approx(expected.score)
    assert found.json()["same_speaker"] is None  # the model has no threshold
    nearest = client.post("/identify", params={"n": 1}, content=voices["b0"]).json()
    assert nearest == {"speaker": None, "threshold": None, "nearest": [{"name": "bo", "score": pytest.approx(1.0)}]}
    assert [each["name"] for each in client.get("/speakers").json()] == ["a/ä b", "bo"]
    assert client.delete("/speakers", params={"name": "bo"}).status_code == 204
    gone = client.post("/verify", params={"name": "bo"}, content=voices["b0"])
    assert gone.status_code == 404
    assert "knows nobody called 'bo'" in gone.json()["detail"]
    assert client.delete("/speakers", params={"name": "bo"}).status_code == 404
    assert (
        client.post("/enrol", params={"name": "a/ä b", "replace": True}, content=voices["a1"]).json()["recordings"] == 1
    )


def test_an_exported_file_is_served_as_its_model(model_folder, service, voices, tmp_path):
    file = tmp_path / "model.onnx"
    assert main(["export", str(model_folder), str(file)]) == 0
    exported = Service(RuntimeModel.load(file), str(file), service.store, service.limits)
    assert exported.identity.digest == service.identity.digest
    with TestClient(build_app(exported, Keys([])), base_url=LOCAL) as asking:
        assert asking.post("/enrol", params={"name": "anna"}, content=voices["a0"]).status_code == 201
        score = asking.post("/verify", params={"name": "anna"}, content=voices["a1"]).json()["score"]
        assert asking.get("/model").json()["threshold"] is None
    assert service.verify("anna", voices["a1"]).score == pytest.approx(score, abs=1e-4)


def test_the_threshold_of_the_model_decides_and_its_rates_are_said(model, tmp_path, voices, monkeypatch):
    monkeypatch.setattr(model, "stored", StoredThreshold(0.5, "fa_rate=0.01", 0.2, 0.01))
    counts = {"low": -1.0, "high": 1.0, "targets": [0, 3], "nontargets": [5, 1]}
    monkeypatch.setitem(model.description.verification, "score_counts", counts)
    service = Service(model, "exp/tiny", SpeakerStore(tmp_path / "s.db"), Limits())
    with TestClient(build_app(service, Keys([])), base_url=LOCAL) as client:
        client.post("/enrol", params={"name": "anna"}, content=voices["a0"])
        found = client.post("/verify", params={"name": "anna"}, content=voices["a0"]).json()
        assert found == {
            "score": pytest.approx(1.0), "threshold": 0.5, "same_speaker": True, "llr": None,
            "operating_point": "fa_rate=0.01", "p_miss": 0.2, "p_fa": 0.01,
        }  # fmt: skip
        assert client.post("/identify", content=voices["a0"]).json()["speaker"] == "anna"
        facts = client.get("/model").json()
        assert (facts["threshold"], facts["operating_point"], facts["score_counts"]) == (0.5, "fa_rate=0.01", counts)


def test_what_is_no_speech_is_refused_with_the_reason(client, service):
    silence = recording(np.zeros(2 * RATE))
    for path in ("/enrol?name=anna", "/identify"):
        answer = client.post(path, content=silence)
        assert answer.status_code == 422
        assert "0.00 s of voice in 2.00 s, expected 0.3 s or more (it is silent)" in answer.json()["detail"]
    assert service.store.speakers() == []


@pytest.mark.parametrize(
    ("content", "status", "detail"),
    [
        (b"", 422, "is empty, expected an audio file"),
        (b"RIFF no audio at all", 422, "cannot be read as audio"),
        (recording(voice(1, 0, 1.5))[:-9000], 422, "the file is cut off"),
        (recording(np.stack([voice(1, 0, 1.5)] * 2, axis=1)), 422, "the recording: 2 channels, expected one"),
        (recording(np.zeros(300 * RATE), "FLAC"), 413, "300.0 s of 1 channels at 8000 Hz, expected 5 s or less"),
        (recording(np.zeros((200_000, 8)), "FLAC", 655350), 413, "192000 samples a second or less"),
        (bytes(200_001), 413, "more than 0.2 MB"),
        (iter([bytes(150_000)] * 2), 413, "more than 0.2 MB"),
    ],
    ids=["empty", "no audio", "cut off", "stereo", "long", "many channels", "large", "large in parts"],
)
def test_what_cannot_be_taken_is_a_sentence(client, content, status, detail):
    answer = client.post("/identify", content=content)
    assert (answer.status_code, detail in answer.json()["detail"]) == (status, True), answer.text
    assert client.post("/enrol", params={"name": " "}, content=b"").json()["detail"].startswith("name is ' '")


def test_other_rates_and_formats_are_the_same_voice(client, voices):
    from svtoolkit.audio.files import convert_rate

    client.post("/enrol", params={"name": "anna"}, content=voices["a0"])
    samples = convert_rate(voice(2, 0, 1.5), RATE, 44100)
    for form in ("WAV", "FLAC", "OGG"):
        found = client.post("/identify", content=recording(samples, form, 44100)).json()
        assert found["nearest"][0]["score"] > 0.9


def test_keys(service, voices):
    with TestClient(build_app(service, Keys([KEY, "another key that is long".replace(" ", "-")]))) as client:
        for method, path in (
            ("POST", "/identify"),
            ("GET", "/speakers"),
            ("DELETE", "/speakers?name=x"),
            ("GET", "/metrics"),
        ):
            for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": f"Basic {KEY}"}):
                answer = client.request(method, path, headers=headers)
                assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        given = {"authorization": f"Bearer {KEY}"}
        assert client.post("/enrol?name=anna", content=voices["a0"], headers=given).status_code == 201
        assert client.get("/health").status_code == 200
        other_site = client.post(
            "/enrol?name=bo", content=voices["a0"], headers={**given, "origin": "http://evil.example"}
        )
        assert other_site.status_code == 403


def test_without_keys_only_this_machine_asks(client, voices):
    assert client.get("/speakers", headers={"host": "rebound.example"}).status_code == 403
    assert client.get("/speakers", headers={"origin": "http://evil.example"}).status_code == 403
    assert (
        client.get("/speakers", headers={"host": "localhost:8000", "origin": "http://localhost:8000"}).status_code
        == 200
    )


def test_keys_come_from_a_file_or_the_environment(tmp_path, monkeypatch):
    path = tmp_path / "keys.txt"
    path.write_text(f"# of the door\n{KEY}\n\n")
    assert read_keys(str(path)).accept(KEY)
    assert not read_keys(str(path)).accept(KEY + "x")
    assert not read_keys(str(path)).accept(None)
    monkeypatch.setenv("SVT_KEYS", f"{KEY} {KEY[::-1]}")
    assert read_keys(None).accept(KEY[::-1])
    monkeypatch.setenv("SVT_KEYS", "short")
    with pytest.raises(UserError, match="SVT_KEYS: key 1 is too short"):
        read_keys(None)
    path.write_text("# none\n")
    with pytest.raises(UserError, match=r"keys\.txt: holds no key"):
        read_keys(str(path))
    for host in ("127.0.0.1", "localhost", "::1"):
        require_keys(host, Keys([]))
    for host in ("0.0.0.0", "::", "example.org", "192.168.1.7"):
        require_keys(host, Keys([KEY]))
        with pytest.raises(UserError, match=f"host is {host}, which other machines reach, and there are no API keys"):
            require_keys(host, Keys([]))


def test_too_many_are_told_when_to_come_again_and_the_others_are_answered(client, service, voices, monkeypatch):
    release, answers = threading.Event(), []
    enrol = service.enrol
    monkeypatch.setattr(service, "enrol", lambda *given, **options: (release.wait(10), enrol(*given, **options))[1])

    def ask(number: int) -> None:
        answers.append(client.post("/enrol", params={"name": f"s{number}"}, content=voices["a0"]))

    askers = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
    for asker in askers:
        asker.start()
    while len(answers) < 3:  # one is computed, two wait
        threading.Event().wait(0.01)
    assert "svt_admitted 3.0" in client.get("/metrics").text
    release.set()
    for asker in askers:
        asker.join()
    refused = [answer for answer in answers if answer.status_code == 429]
    assert len(refused) == 3
    assert {answer.headers["retry-after"] for answer in refused} == {"1"}
    accepted = {answer.json()["name"] for answer in answers if answer.status_code == 201}
    assert accepted == {each.name for each in service.store.speakers()}
    assert len(accepted) == 3
    text = client.get("/metrics").text
    assert 'svt_requests_total{method="POST",path="/enrol",status="429"} 3.0' in text
    assert 'svt_requests_total{method="POST",path="/enrol",status="201"} 3.0' in text


def test_a_slow_upload_gives_its_place_back(service):
    import asyncio

    from fastapi import HTTPException, Request

    from svtoolkit.serving.app import _body

    async def never() -> dict[str, object]:
        await asyncio.sleep(60)
        return {}

    with pytest.raises(HTTPException) as caught:
        asyncio.run(_body(Request({"type": "http", "headers": []}, never), 100, 0.05))
    assert (caught.value.status_code, caught.value.detail) == (
        408,
        "the recording: was not sent within 0.05 s; send it faster",
    )


def test_the_page_loads_nothing_from_elsewhere(client):
    page = client.get("/")
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    assert set(re.findall(r"\w+://[^\"]*", page.text)) == {"http://www.w3.org/2000/svg"}  # a name, which nobody loads
    assert client.get("/docs").status_code == 404
    assert client.get("/openapi.json").json()["info"]["title"] == "svtoolkit"


def test_a_store_of_another_model_is_refused_at_the_start(model, tmp_path: Path):
    store = SpeakerStore(tmp_path / "s.db")
    store.add(StoreModel("f" * 64, "exp/other", 16), "anna", np.ones((1, 16)))
    with pytest.raises(UserError, match=r"holds embeddings of exp/other \(ffffffffffff\), found the model exp/tiny"):
        Service(model, "exp/tiny", store, Limits())
