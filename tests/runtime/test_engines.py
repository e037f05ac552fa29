"""The process after an engine: signals go on to be handled."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from exported_material import write_exported

from svtoolkit.runtime import engines


@pytest.mark.skipif(sys.platform == "win32", reason="signals of Unix")
@pytest.mark.parametrize("runtime", ["onnx", "openvino"])
def test_signals_are_handled_after_another_thread_has_let_it_go(tmp_path: Path, runtime: str) -> None:
    """OpenVINO has the thread that loads it handle signals on a stack of its own, and takes that away when it goes."""
    if runtime not in engines.installed():
        pytest.skip(f"{runtime} is not installed")
    code = """
        import os, signal, sys, threading
        from pathlib import Path
        from svtoolkit.runtime.engines import open_engine

        held = [open_engine(sys.argv[1], Path(sys.argv[2]).read_bytes(), threads=1)]
        thread = threading.Thread(target=held.clear)
        thread.start()
        thread.join()
        signal.signal(signal.SIGTERM, lambda *_: print("handled"))
        os.kill(os.getpid(), signal.SIGTERM)
    """
    words = [sys.executable, "-c", textwrap.dedent(code), runtime, str(write_exported(tmp_path))]
    run = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (run.stdout, run.returncode) == ("handled\n", 0), run.stderr
