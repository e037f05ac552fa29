"""What Prometheus reads: requests, how long they took, and how many wait."""

from __future__ import annotations

import time
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import choose_encoder

from svtoolkit.serving.service import Service


class Metrics:
    """ASGI around an application: counts requests and their seconds by path and status.

    Args:
        application: that is counted.
        paths: those with a count of their own; any other is `other`.
        service: whose waiting requests are shown.
    """

    def __init__(self, application: Any, paths: set[str], service: Service) -> None:
        self.application, self.paths = application, paths
        self.registry = CollectorRegistry()
        labels = ["method", "path", "status"]
        self.requests = Counter("svt_requests", "requests that were answered", labels, registry=self.registry)
        buckets = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30)
        self.seconds = Histogram(
            "svt_request_seconds", "seconds until the answer", ["path"], buckets=buckets, registry=self.registry
        )
        waiting = Gauge("svt_admitted", "requests that are computed or wait", registry=self.registry)
        waiting.set_function(lambda: service.admitted)

    def text(self, accepted: str) -> tuple[bytes, str]:
        """All of them, and their content type, in the format that a header `Accept` asks for."""
        encode, content_type = choose_encoder(accepted)
        return encode(self.registry), content_type

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.application(scope, receive, send)
            return
        begin, status = time.perf_counter(), 500
        path = scope["path"] if scope["path"] in self.paths else "other"
        method = scope["method"] if scope["method"] in ("GET", "POST", "DELETE") else "other"

        async def watched(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.application(scope, receive, watched)
        finally:
            self.requests.labels(method, path, str(status)).inc()
            self.seconds.labels(path).observe(time.perf_counter() - begin)
