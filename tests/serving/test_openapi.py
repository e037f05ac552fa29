"""Requests that schemathesis makes of the interface's own description: no answer is one that it does not announce.

`SVT_FUZZ_EXAMPLES=2000 python -m pytest tests/serving/test_openapi.py` asks longer.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator

import pytest
import schemathesis
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings, strategies
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode, checks
from serving_material import LOCAL

from svtoolkit.enrolment.store import SpeakerStore
from svtoolkit.serving.app import build_app
from svtoolkit.serving.keys import Keys
from svtoolkit.serving.service import Limits, Service

KEY = "0123456789abcdef"
EXAMPLES = int(os.environ.get("SVT_FUZZ_EXAMPLES", "3"))


@pytest.fixture(scope="module")
def application(model, tmp_path_factory) -> Iterator[object]:
    store = SpeakerStore(tmp_path_factory.mktemp("fuzz") / "speakers.db")
    counted = build_app(Service(model, "exp/tiny", store, Limits()), Keys([KEY]))
    with TestClient(counted, base_url=LOCAL):
        yield counted


EXCLUDED = [
    checks.positive_data_acceptance,  # bytes of any kind are an allowed body, and hardly ever a recording
    checks.ignored_auth,  # asks with the header that is given here; test_app.py asks without
]


def probe(operation, asked):
    """Requests to one operation, of data that the description allows and of data that it does not."""

    @settings(
        max_examples=EXAMPLES, derandomize=EXAMPLES < 100, deadline=None, suppress_health_check=list(HealthCheck),
        database=None,
    )  # fmt: skip
    @given(data=strategies.data())
    def ask(data):
        mode = data.draw(strategies.sampled_from([GenerationMode.POSITIVE, GenerationMode.NEGATIVE]))
        try:
            case = data.draw(operation.as_strategy(generation_mode=mode))
        except Unsatisfiable:  # nothing is forbidden
            return
        asked[operation.label] += 1
        case.call_and_validate(headers={"authorization": f"Bearer {KEY}"}, excluded_checks=EXCLUDED)

    ask()


def test_every_answer_is_one_that_is_announced(application):
    described = schemathesis.openapi.from_asgi("/openapi.json", application)
    asked = Counter()
    for found in described.get_all_operations():
        probe(found.ok(), asked)
    assert len(asked) == 8
    assert min(asked.values()) >= 1
