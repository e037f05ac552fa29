"""`svt` in processes that start at once and come to grief where told to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forked import Forked
from tiny_runs import command_words

from svtoolkit.config import TrainConfig

NO_SIGNAL = 0
MOMENTS = (
    "after the step",
    "in the middle of a history line",
    "in the middle of a state",
    "before a state is renamed",
    "before old states are dropped",
    "between epoch weights and state",
)


@dataclass(frozen=True)
class Signal:
    """A signal to the process and its loader workers, from within: what Ctrl-C and a batch system send.

    Attributes:
        number: SIGKILL goes to the process alone, as the out-of-memory killer sends it; NO_SIGNAL is an error that
            nobody foresaw.
        step: optimizer step (counted from 1) that it comes in; for states and epoch weights the first at it or later.
        moment: one of MOMENTS.
    """

    number: int
    step: int
    moment: str = MOMENTS[0]

    def send(self) -> None:
        if self.number == NO_SIGNAL:
            raise RuntimeError("nobody foresaw this")
        if self.number == signal.SIGKILL:
            os.kill(os.getpid(), signal.SIGKILL)
        # From a process of its own: a worker obeys what its parent sends.
        subprocess.run(["kill", f"-{int(self.number)}", "--", f"-{os.getpgrp()}"], check=True, start_new_session=True)

    def install(self) -> None:
        from svtoolkit.runs import full_state
        from svtoolkit.runs.history import History
        from svtoolkit.system import atomic
        from svtoolkit.training import loop

        add, rename, save = History.add, os.replace, full_state.torch.save
        keep_weights, list_states = loop.save_epoch_weights, full_state.list_states
        state_at_or_after = f"state-{self.step:010d}.pt"

        def add_and_send(history: History, record: dict[str, Any]) -> None:
            add(history, record)
            if record["kind"] == "step" and record["step"] == self.step:
                if self.moment == MOMENTS[1]:
                    with history.path.open("ab") as stream:
                        stream.write(b'{"kind": "step", "note": "\xc3')
                self.send()

        def half_a_state(state: dict[str, Any], stream: Any) -> None:
            if state["facts"]["finished_steps"] >= self.step:
                stream.write(b"PK\x03\x04" + bytes(1000))
                stream.flush()
                self.send()
            save(state, stream)

        def no_rename(source: Any, target: Any) -> None:
            if Path(target).name >= state_at_or_after and Path(target).name.startswith("state-"):
                self.send()
            rename(source, target)

        def no_dropping(folder: Any) -> list[Path]:
            states = list_states(folder)
            if states and states[-1].name >= state_at_or_after:
                self.send()
            return states

        def weights_alone(folder: Any, epoch: int, weights: Any) -> Path:
            path = keep_weights(folder, epoch, weights)
            self.send()
            return path

        sabotage: dict[str, tuple[Any, str, Callable[..., Any]]] = {
            MOMENTS[0]: (History, "add", add_and_send),
            MOMENTS[1]: (History, "add", add_and_send),
            MOMENTS[2]: (full_state.torch, "save", half_a_state),
            MOMENTS[3]: (atomic.os, "replace", no_rename),
            MOMENTS[4]: (full_state, "list_states", no_dropping),
            MOMENTS[5]: (loop, "save_epoch_weights", weights_alone),
        }
        setattr(*sabotage[self.moment])


def svt_train(config: TrainConfig, output: Path, signal_: Signal | None = None) -> int:
    """Run `svt train` in a process group of its own; returns its exit status, -9 where it was killed.

    Args:
        output: file that gets what it prints, appended.
    """
    process = start_svt_train(config, output, signal_)
    process.join()
    assert process.exitcode is not None
    return process.exitcode


def start_svt_train(config: TrainConfig, output: Path, signal_: Signal | None = None) -> Forked:
    """As ``svt_train``, which goes on."""
    return Forked(_run, ["train", *command_words(config)], str(output), signal_)


def _run(words: list[str], output: str, signal_: Signal | None) -> None:
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for standard in (1, 2):
        os.dup2(descriptor, standard)
    if signal_ is not None:
        signal_.install()
    from svtoolkit.cli import main

    sys.exit(main(words))
