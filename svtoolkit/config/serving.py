"""Settings of the service."""

from __future__ import annotations

from dataclasses import dataclass

from svtoolkit.config.scoring import DEVICE, FRONT_END, MIN_VOICE, RUNTIME
from svtoolkit.config.setting import REQUIRED, setting


@dataclass
class ServeConfig:
    """`svt serve`: enrol, verify and identify over HTTP, and a page that records from the microphone."""

    model: str = setting(REQUIRED, "released model, hf://org/name, or a file of svt export")
    store: str = setting(REQUIRED, "file of known speakers, made where it is missing; it holds embeddings of one model")
    host: str = setting("127.0.0.1", "address that is listened on; another one than this machine's own needs keys")
    port: int = setting(8000, "TCP port; 0: a free one, which is logged")
    keys: str | None = setting(
        None, "file of API keys, one a line, 16 characters or more each; null: those of the variable SVT_KEYS, if any"
    )
    max_mb: float = setting(10.0, "megabytes of a recording, above which it is refused with 413")
    max_seconds: float = setting(60.0, "seconds of audio, above which it is refused with 413")
    upload_seconds: float = setting(15.0, "seconds that sending a recording may take, above which it is refused: 408")
    queue: int = setting(16, "requests that wait for the one that is computed; further ones are refused with 429")
    threads: int | None = setting(None, "CPU threads of the arithmetic; null: torch's choice, or one for each core")
    runtime: str | None = setting(None, RUNTIME)
    min_voice: float = setting(0.3, MIN_VOICE)
    channel: int | None = setting(None, "channel of multi-channel audio, counted from 0; null: such audio is refused")
    resample: bool = setting(True, "convert audio of another rate, as browsers record it, instead of refusing it")
    device: str = setting("auto", DEVICE)
    front_end: str | None = setting(None, FRONT_END)
