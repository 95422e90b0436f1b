"""The broker of a benchmark: bundled (with its journal) or mosquitto with a journal beside it, as processes."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.servers import free_port, mosquitto


@contextlib.contextmanager
def place(broker: str) -> Iterator[str]:
    """The URL of a running broker with a journal."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-"))
        server = stack.enter_context(mosquitto()) if broker == "mosquitto" else None
        port = server.port if server else free_port()
        kind = "journal" if server else "bundled"
        command = [sys.executable, "-m", "tests.rounds.place", kind, str(port), folder]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        stack.callback(_end, child)
        if child.stdout is None or child.stdout.readline() != "ready\n":
            raise RuntimeError("the broker did not start")
        yield f"mqtt://127.0.0.1:{port}"


def _end(child: subprocess.Popen[str]) -> None:
    child.kill()
    child.wait()
    if child.stdout is not None:
        child.stdout.close()


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder for state files."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        yield Path(folder)
