"""The command line as real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentmqtt.cli.app import execute

LIMIT = 20.0
"""Seconds that anything may take."""


def environment(state: Path, broker: str = "", **more: str) -> dict[str, str]:
    """This process's, without what a developer has set."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("AGENTMQTT_")}
    return clean | {"AGENTMQTT_STATE_DIR": str(state), "AGENTMQTT_BROKER": broker} | more


def python(*code: str) -> list[str]:
    """A Python program as the words of a command."""
    return ["--", sys.executable, "-S", "-c", "\n".join(code)]


class Running:
    """A started command. Its stdout can be read line by line; its stderr lies in a file."""

    def __init__(self, words: list[str], env: dict[str, str], errors: Path) -> None:
        self._errors = errors
        with errors.open("wb") as file:
            self.popen = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=file, env=env)

    def line(self) -> str:
        assert self.popen.stdout is not None
        return self.popen.stdout.readline().decode()

    def lines(self) -> Iterator[str]:
        """The rest of stdout, until it ends."""
        while line := self.line():
            yield line

    def items(self) -> list[dict[str, Any]]:
        """The rest of stdout as JSON."""
        return [json.loads(line) for line in self.lines()]

    @property
    def stderr(self) -> str:
        return self._errors.read_text(errors="replace")

    def signal(self, number: signal.Signals) -> None:
        self.popen.send_signal(number)

    def kill(self) -> None:
        self.popen.kill()
        self.popen.wait()

    def wait(self) -> int:
        return self.popen.wait(LIMIT)

    def end(self) -> None:
        if self.popen.poll() is None:
            self.popen.send_signal(signal.SIGCONT)
            self.kill()
        if self.popen.stdout is not None:
            self.popen.stdout.close()


class Tool:
    """`agentmqtt` with a state directory and a broker of its own."""

    def __init__(self, folder: Path, broker: str = "") -> None:
        self.folder, self.broker = folder, broker
        self.state = folder / "state"
        self._started: list[Running] = []

    def start(self, *words: str | Path, **env: str) -> Running:
        command = [sys.executable, "-m", "agentmqtt", *map(str, words)]
        errors = self.folder / f"stderr-{len(self._started)}"
        self.folder.mkdir(parents=True, exist_ok=True)
        running = Running(command, environment(self.state, self.broker, **env), errors)
        self._started.append(running)
        return running

    def program(self, *words: str | Path) -> Running:
        """Another program of the same user."""
        errors = self.folder / f"stderr-{len(self._started)}"
        running = Running([*map(str, words)], environment(self.state, self.broker), errors)
        self._started.append(running)
        return running

    def __call__(self, *words: str | Path, **env: str) -> tuple[int, str, str]:
        """Run to the end: exit code, stdout, stderr."""
        running = self.start(*words, **env)
        out = "".join(running.lines())
        return running.wait(), out, running.stderr

    def another(self, name: str) -> Tool:
        """Another user or machine: the same broker, another state directory."""
        other = Tool(self.folder / name, self.broker)
        other._started = self._started
        return other

    def status(self, name: str) -> dict[str, Any]:
        code, out, err = self("status", name, "--json")
        assert code == 0, err
        return dict(json.loads(out))

    def read(self, name: str) -> list[dict[str, Any]]:
        """Everything of an ended run, as a newcomer sees it."""
        return self.start("watch", name, "--json", "--until-end", "--from", "start").items()

    def end(self) -> None:
        for running in self._started:
            running.end()


class Inside:
    """`agentmqtt` in this process: for what is refused before anything is connected. Exit code, stdout, stderr."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self._capfd = capfd

    def __call__(self, *words: str | Path) -> tuple[int, str, str]:
        self._capfd.readouterr()
        code = execute([str(word) for word in words])
        return code, *self._capfd.readouterr()


def text(items: list[dict[str, Any]], type_: str = "text") -> str:
    """What the events that count say together."""
    return "".join(item["data"] for item in fold(items) if item["type"] == type_)


def fold(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    kept: list[dict[str, Any]] = []
    for item in items:
        assert "gap" not in item
        if "rewound" in item:
            kept = [event for event in kept if place(event["cursor"]) <= place(item["rewound"])]
        else:
            kept.append(item)
    return kept


def place(cursor: str) -> tuple[int, ...]:
    return tuple(map(int, cursor.split(".")))


def until(true: Callable[[], object], what: str = "it") -> None:
    """Wait for something that nobody announces."""
    deadline = time.monotonic() + LIMIT
    while not true():
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
