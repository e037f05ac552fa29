"""svt serve: enrol, verify and identify over HTTP."""

from __future__ import annotations

import logging
import socket

from svtoolkit.config import ServeConfig
from svtoolkit.deploy.any_model import open_model
from svtoolkit.enrolment.store import SpeakerStore
from svtoolkit.errors import UserError
from svtoolkit.serving.keys import is_loopback, read_keys, require_keys
from svtoolkit.serving.service import Limits, Service

log = logging.getLogger(__name__)


def run(config: ServeConfig, _command_line: str) -> int:
    """Serve until SIGTERM or Ctrl-C; what was accepted by then is answered."""
    _check(config)
    keys = read_keys(config.keys)
    require_keys(config.host, keys)
    try:
        import uvicorn

        from svtoolkit.serving.app import build_app
    except ImportError as error:
        raise UserError(
            f"svt serve needs three packages more ({error}); run `pip install fastapi uvicorn prometheus-client`"
        ) from error
    listener = _listen(config.host, config.port)
    model = open_model(config, threads=config.threads, runtime=config.runtime)
    limits = Limits(
        round(config.max_mb * 1e6),
        config.max_seconds,
        config.upload_seconds,
        config.queue,
        config.min_voice,
        config.channel,
        config.resample,
    )
    service = Service(model, config.model, SpeakerStore(config.store), limits)
    listener.listen(128)  # from here on nobody is turned away while the server starts
    shown = f"[{config.host}]" if ":" in config.host else config.host
    log.info(
        "http://%s:%d serves %s with %s%s", shown, listener.getsockname()[1], config.model, config.store,
        "" if keys else ", without keys: to this machine alone",
    )  # fmt: skip
    server = uvicorn.Server(
        uvicorn.Config(build_app(service, keys), log_level="warning", access_log=False, server_header=False)
    )
    server.run([listener])
    return 0


def _check(config: ServeConfig) -> None:
    for key in ("max_mb", "max_seconds", "upload_seconds"):
        if not getattr(config, key) > 0:
            raise UserError(f"{key} is {getattr(config, key):g}, expected more than 0")
    if config.queue < 0:
        raise UserError(f"queue is {config.queue}, expected 0 or more")
    if not 0 <= config.port < 65536:
        raise UserError(f"port is {config.port}, expected 0 to 65535")
    if config.threads is not None and config.threads < 1:
        raise UserError(f"threads is {config.threads}, expected 1 or more, or null")


def _listen(host: str, port: int) -> socket.socket:
    """A socket that is bound before the model is loaded: a taken port is said at once."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        where = "this machine" if is_loopback(host) else host
        raise UserError(
            f"{host}:{port} cannot be listened on ({error.strerror or error}); end the program that has the port of "
            f"{where}, or choose another port"
        ) from error
    return listener
