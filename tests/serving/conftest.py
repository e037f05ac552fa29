"""A service of a narrow network of random weights, asked in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from command_material import voice, write_model
from fastapi.testclient import TestClient
from serving_material import LOCAL, recording

from svtoolkit.enrolment.store import SpeakerStore
from svtoolkit.scoring.speaker_model import SpeakerModel
from svtoolkit.serving.app import build_app
from svtoolkit.serving.keys import Keys
from svtoolkit.serving.service import Limits, Service


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return write_model(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="session")
def model(model_folder: Path) -> SpeakerModel:
    return SpeakerModel.load(model_folder, device="cpu", resample=True)


@pytest.fixture(scope="session")
def voices() -> dict[str, bytes]:
    """Recordings of two speakers."""
    return {
        f"{name}{take}": recording(voice(2 + 4 * number, take, 1.5))
        for number, name in enumerate("ab")
        for take in (0, 1)
    }


@pytest.fixture
def service(model: SpeakerModel, tmp_path: Path) -> Service:
    limits = Limits(max_bytes=200_000, max_seconds=5.0, upload_seconds=5.0, queue=2)
    return Service(model, "exp/tiny", SpeakerStore(tmp_path / "speakers.db"), limits)


@pytest.fixture
def client(service: Service) -> Iterator[TestClient]:
    with TestClient(build_app(service, Keys([])), base_url=LOCAL) as asking:
        yield asking
