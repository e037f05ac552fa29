"""The record of a run: JSON lines for the report, TensorBoard for the eye."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter

from svtoolkit.atomic import atomic_write


class History:
    """logs/history.jsonl and logs/tensorboard of a run.

    Records are dicts with ``kind`` (step or epoch) and ``step``. A resumed run drops what lies after the step that it
    resumes at, so that no step stands twice.
    """

    def __init__(self, folder: str | Path, *, resume_step: int) -> None:
        self.path = Path(folder) / "history.jsonl"
        self.records = [record for record in _read_records(self.path) if record["step"] <= resume_step]
        with atomic_write(self.path) as stream:
            stream.writelines(json.dumps(record) + "\n" for record in self.records)
        self._stream = self.path.open("a", encoding="utf-8")
        self._tensorboard = SummaryWriter(str(Path(folder) / "tensorboard"), purge_step=resume_step + 1)

    def add(self, record: dict[str, Any]) -> None:
        """Append a record; numbers other than step and epoch become TensorBoard scalars ``kind/name``."""
        self.records.append(record)
        self._stream.write(json.dumps(record) + "\n")
        self._stream.flush()
        for name, value in record.items():
            if name not in ("kind", "step", "epoch") and isinstance(value, int | float) and math.isfinite(value):
                self._tensorboard.add_scalar(f"{record['kind']}/{name}", value, record["step"])

    def epochs(self) -> list[dict[str, Any]]:
        return [record for record in self.records if record["kind"] == "epoch"]

    def close(self) -> None:
        self._stream.close()
        self._tensorboard.close()


def _read_records(path: Path) -> list[dict[str, Any]]:
    """Whole records; the line that a killed run left torn is dropped."""
    records = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else []:
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return records
