"""A machine with a real systemd: this one's root under an overlay, in a container of its own."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.servers import need

BOOT = 60.0
"""Seconds that it may take to start."""


class Machine:
    """A booted container. What is changed in it vanishes with it."""

    def __init__(self, root: Path, leader: int) -> None:
        self.root, self._leader = root, leader

    def run(self, *words: str, check: bool = True) -> str:
        """A command inside; its stdout."""
        command = [need("nsenter"), "-t", str(self._leader), "-a", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        log = [] if done.returncode == 0 or not check else [*command[:4], "journalctl", "-n", "40", "--no-pager"]
        told = subprocess.run(log, capture_output=True, text=True, check=False).stdout if log else ""
        assert not log, done.stdout + done.stderr + told
        return done.stdout.strip()

    def write(self, path: str, text: str) -> None:
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def show(self, unit: str, name: str) -> str:
        """A property of a unit."""
        return self.run("systemctl", "show", "-p", name, "--value", unit)

    def until(self, unit: str, name: str, *values: str, seconds: float = 40.0) -> str:
        """Wait until a property has one of these values."""
        deadline = time.monotonic() + seconds
        while (found := self.show(unit, name)) not in values:
            log = self.run("journalctl", "-u", unit, "-n", "30", "--no-pager", check=False)
            assert time.monotonic() < deadline, f"{unit}: {name} is {found}, not {values}\n{log}"
            time.sleep(0.1)
        return found


@contextlib.contextmanager
def booted(folder: Path, *shared: Path) -> Iterator[Machine]:
    """A machine whose systemd runs; it sees `shared` folders also where it has a file system of its own."""
    nspawn = need("systemd-nspawn")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512m", "agentmqtt-test", folder], check=True)
    parts = {name: folder / name for name in ("up", "work", "root")}
    for part in parts.values():
        part.mkdir()
    options = f"lowerdir=/,upperdir={parts['up']},workdir={parts['work']}"
    try:
        subprocess.run(["mount", "-t", "overlay", "-o", options, "overlay", parts["root"]], check=True)
        yield from _boot(nspawn, parts["root"], folder, shared)
    finally:
        subprocess.run(["umount", "-l", parts["root"]], check=False)
        subprocess.run(["umount", "-l", folder], check=False)


def _boot(nspawn: str, root: Path, folder: Path, shared: Sequence[Path]) -> Iterator[Machine]:
    words = [nspawn, f"--directory={root}", "--private-network", "--register=no", "--keep-unit", "--console=pipe"]
    words += [f"--bind-ro={path}" for path in shared]
    with (folder / "console").open("wb") as console:
        container = subprocess.Popen([*words, "--boot"], stdin=subprocess.DEVNULL, stdout=console, stderr=console)
    try:
        machine = Machine(root, _leader(container, folder))
        _wait(machine)
        yield machine
    finally:
        container.terminate()
        try:
            container.wait(20)
        except subprocess.TimeoutExpired:
            container.kill()
            container.wait()


def _leader(container: subprocess.Popen[bytes], folder: Path) -> int:
    """The process that is PID 1 inside."""
    deadline = time.monotonic() + BOOT
    while time.monotonic() < deadline and container.poll() is None:
        for process in _below(container.pid):
            with contextlib.suppress(OSError):
                if Path(f"/proc/{process}/comm").read_text().strip() == "systemd":
                    return process
        time.sleep(0.1)
    raise AssertionError(f"no systemd came up: {(folder / 'console').read_text(errors='replace')[-2000:]}")


def _below(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, task.read_text().split()):
                yield child
                yield from _below(child)


def _wait(machine: Machine) -> None:
    deadline = time.monotonic() + BOOT
    while (state := machine.run("systemctl", "is-system-running", check=False)) not in ("running", "degraded"):
        assert time.monotonic() < deadline, f"systemd is {state}"
        time.sleep(0.2)


def needs_root() -> None:
    assert os.geteuid() == 0, "a container needs root"
