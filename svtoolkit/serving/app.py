"""The HTTP interface: paths, their limits and their answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from fastapi import Depends, FastAPI, HTTPException, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.concurrency import run_in_threadpool

from svtoolkit import __version__
from svtoolkit.enrolment.store import LONGEST_NAME, UnknownSpeakerError
from svtoolkit.errors import UserError
from svtoolkit.serving.answers import (
    Candidate,
    Decision,
    Enrolment,
    Health,
    Identification,
    Known,
    ModelFacts,
    Problem,
)
from svtoolkit.serving.keys import Keys, is_loopback
from svtoolkit.serving.metrics import Metrics
from svtoolkit.serving.recording import TooLargeError
from svtoolkit.serving.service import Answer, BusyError, Service

PAGE = Path(__file__).with_name("page.html")

SECURITY = {
    "content-security-policy": "default-src 'none'; script-src 'unsafe-inline' blob:; style-src 'unsafe-inline'; "
    "connect-src 'self'; media-src blob:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}
"""Headers of the page: it loads nothing, and asks this service alone."""

RETRY_SECONDS = 1

AUDIO: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}
REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "description": text}
    for status, text in {
        401: "no key, or a wrong one",
        403: "asked by a page of another site",
        404: "no such speaker",
        408: "the recording was sent too slowly",
        413: "too many bytes, or seconds",
        422: "no speech, no audio, a name or number that cannot be",
        429: "too many requests wait; Retry-After says when to ask again",
    }.items()
}


def _refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: REFUSALS[status] for status in statuses}


WITH_AUDIO = _refusals(401, 403, 408, 413, 422, 429)
BEARER = HTTPBearer(auto_error=False, description="API key")
Name = Annotated[str, Query(description="of the speaker", min_length=1, max_length=LONGEST_NAME)]


def build_app(service: Service, keys: Keys) -> Metrics:
    """The application, for uvicorn.

    Args:
        service: closed when the application ends, after what was accepted is answered.
        keys: without any, requests must be addressed to this machine by a name of its own.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await run_in_threadpool(service.close)

    app = FastAPI(title="svtoolkit", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None)
    allowed = [Depends(_same_site(keys)), Depends(_with_key(keys))]

    async def computed(request: Request, work: Callable[[bytes], Answer]) -> Answer:
        """The answer to a recording, which is read once it has a place."""
        async with service.admission():
            content = await _body(request, service.limits.max_bytes, service.limits.upload_seconds)
            return await service.compute(partial(work, content))

    @app.post(
        "/enrol", status_code=201, responses=WITH_AUDIO, dependencies=allowed, openapi_extra=AUDIO, tags=["speakers"]
    )
    async def enrol(request: Request, name: Name, replace: bool = False) -> Enrolment:
        """Add a recording of a speaker; with `replace` in place of the former ones."""
        count = await computed(request, lambda content: service.enrol(name, content, replaces=replace))
        return Enrolment(name=name, recordings=count)

    @app.post(
        "/verify", responses=WITH_AUDIO | _refusals(404), dependencies=allowed, openapi_extra=AUDIO, tags=["speakers"]
    )
    async def verify(request: Request, name: Name) -> Decision:
        """Whether a recording is of a known speaker."""
        found = await computed(request, lambda content: service.verify(name, content))
        return Decision(**asdict(found))

    @app.post("/identify", responses=WITH_AUDIO, dependencies=allowed, openapi_extra=AUDIO, tags=["speakers"])
    async def identify(request: Request, n: Annotated[int, Query(ge=1, le=100)] = 5) -> Identification:
        """Who of the store is heard."""
        speaker, threshold, nearest = await computed(request, lambda content: service.identify(content, n))
        candidates = [Candidate(name=name, score=score) for name, score in nearest]
        return Identification(speaker=speaker, threshold=threshold, nearest=candidates)

    @app.get("/speakers", responses=_refusals(401, 403), dependencies=allowed, tags=["speakers"])
    def speakers() -> list[Known]:
        """All speakers of the store."""
        return [Known(**asdict(each)) for each in service.store.speakers()]

    @app.delete(
        "/speakers", status_code=204, responses=_refusals(401, 403, 404, 422), dependencies=allowed, tags=["speakers"]
    )
    def forget(name: Name) -> None:
        """Delete a speaker, so that no byte of name and embeddings stays in the store."""
        service.store.delete(name)

    @app.get("/model", responses=_refusals(401, 403), dependencies=allowed, tags=["service"])
    def model() -> ModelFacts:
        """The model, its threshold, and how its scores are distributed."""
        known = service.known_model()
        counts = service.model.verification.get("score_counts")
        return ModelFacts(
            name=known.name,
            digest=known.digest,
            threshold=known.threshold,
            operating_point=known.operating_point,
            score_counts=counts,
        )

    @app.get("/health", tags=["service"])
    def health() -> Health:
        """The service answers."""
        return Health(status="ok")

    @app.get(
        "/metrics",
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **_refusals(401, 403)},
        dependencies=allowed,
        tags=["service"],
    )
    def metrics(request: Request) -> Response:
        """For Prometheus."""
        text, content_type = counted.text(request.headers.get("accept", ""))
        return Response(text, headers={"content-type": content_type})

    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    def page() -> HTMLResponse:
        return HTMLResponse(PAGE.read_text(encoding="utf-8"), headers=SECURITY)

    _explain_refusals(app)
    counted = Metrics(app, {route.path for route in app.routes if hasattr(route, "path")}, service)
    return counted


async def _body(request: Request, most: int, seconds: float) -> bytes:
    """The body of a request, in memory.

    Raises:
        HTTPException: 413 or 408.
    """
    excess = HTTPException(
        413, f"the recording: more than {most / 1e6:g} MB, the most that is taken; send a part of it, or flac"
    )
    if (
        request.headers.get("content-length", "0").isdecimal()
        and int(request.headers.get("content-length", "0")) > most
    ):
        raise excess
    content = bytearray()

    async def receive() -> None:
        async for part in request.stream():
            content.extend(part)
            if len(content) > most:
                raise excess

    try:
        await asyncio.wait_for(receive(), seconds)
    except (TimeoutError, asyncio.TimeoutError) as error:
        raise HTTPException(408, f"the recording: was not sent within {seconds:g} s; send it faster") from error
    return bytes(content)


def _with_key(keys: Keys) -> Callable[..., None]:
    if not keys:
        return lambda: None

    def check(given: Annotated[HTTPAuthorizationCredentials | None, Depends(BEARER)]) -> None:
        if not keys.accept(given.credentials if given else None):
            raise HTTPException(
                401,
                "found no valid API key, expected the header `Authorization: Bearer KEY`",
                {"www-authenticate": "Bearer"},
            )

    return check


def _same_site(keys: Keys) -> Callable[[Request], None]:
    """Refuses what pages of other sites make a browser ask; without keys a name of another machine, too."""

    def check(request: Request) -> None:
        host, origin = request.headers.get("host", ""), request.headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != host:
            raise HTTPException(403, "asked by a page of another site, expected one of this service")
        if not keys and not is_loopback(urlsplit(f"//{host}").hostname or ""):
            raise HTTPException(
                403, "found a Host that is not this machine's, expected localhost or 127.0.0.1 where no keys are set"
            )

    return check


def _explain_refusals(app: FastAPI) -> None:
    """Every refusal is a sentence under `detail`, the same as that of the command line where it has one."""

    def problem(status: int, detail: str, headers: dict[str, str] | None = None) -> JSONResponse:
        return JSONResponse({"detail": detail}, status, headers)

    @app.exception_handler(UserError)
    def refused(request: Request, error: UserError) -> JSONResponse:
        status = 404 if isinstance(error, UnknownSpeakerError) else 413 if isinstance(error, TooLargeError) else 422
        return problem(status, str(error))

    @app.exception_handler(BusyError)
    def busy(request: Request, error: BusyError) -> JSONResponse:
        detail = f"as many requests wait as may; ask again in {RETRY_SECONDS} s"
        return problem(429, detail, {"retry-after": str(RETRY_SECONDS)})

    @app.exception_handler(RequestValidationError)
    def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        faults = [f"{'.'.join(map(str, each['loc'][1:]))}: {each['msg']}" for each in error.errors()]
        return problem(422, "; ".join(faults))
