"""The client under test: a program that takes orders as JSON lines and tells what it sees (docs/CONFORMANCE.md)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from agentmqtt.conformance.plain import from_json
from agentmqtt.errors import AgentMQTTError
from agentmqtt.waiting import Signal

LINE = 8 << 20
"""Bytes of one line at most."""
KEPT = 100_000
"""Lines that the client told and nobody asked for yet."""


class Failed(AgentMQTTError):
    """The client did not do what the case asks for."""


class Speaker:
    """One process of the client under test."""

    def __init__(self, command: Sequence[str], errors: Callable[[str], None]) -> None:
        self._command, self._errors = command, errors
        self._process: asyncio.subprocess.Process | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._answers: dict[int, dict[str, Any]] = {}
        self._changed = Signal()
        self._next = 1
        self.shown: dict[str, list[dict[str, Any]]] = {}
        self.outcomes: dict[str, dict[str, Any]] = {}
        self.closed: deque[str] = deque(maxlen=KEPT)
        self.gone = False

    async def start(self) -> None:
        """Raises Failed if the program cannot be started."""
        pipe = asyncio.subprocess.PIPE
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command, stdin=pipe, stdout=pipe, stderr=pipe, limit=LINE
            )
        except OSError as error:
            raise Failed(f"{self._command[0]} cannot be started: {error.strerror}") from error
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._tasks = [
            asyncio.create_task(self._listen(self._process.stdout), name="agentmqtt conformance stdout"),
            asyncio.create_task(self._complain(self._process.stderr), name="agentmqtt conformance stderr"),
        ]

    async def _listen(self, stdout: asyncio.StreamReader) -> None:
        while line := await stdout.readline():
            try:
                self._heard(json.loads(line))
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                self._errors(f"not a line of this protocol: {line[:200]!r} ({error})")
        self.gone = True
        self._changed.fire()

    async def _complain(self, stderr: asyncio.StreamReader) -> None:
        while line := await stderr.readline():
            self._errors(line.decode(errors="replace").rstrip())

    def _heard(self, told: dict[str, Any]) -> None:
        if "id" in told:
            self._answers[told["id"]] = told
        elif "show" in told:
            show = told["show"]
            if "data" in show:
                show["data"] = from_json(show["data"])
            self.shown.setdefault(show["name"], []).append(show)
        elif "command" in told:
            self.outcomes[told["command"]["id"]] = told["command"]
        elif "closed" in told:
            self.closed.append(str(told["closed"]))
        self._changed.fire()

    async def ask(self, do: str, **words: Any) -> dict[str, Any]:
        """Give an order and wait for its answer.

        Raises:
            Failed: the client answers with an error, or is gone.
        """
        number, self._next = self._next, self._next + 1
        await self._write({"id": number, "do": do, **words})
        await self.until(lambda: number in self._answers, f"an answer to {do}")
        answer = self._answers.pop(number)
        if "error" in answer:
            raise Failed(f"{do}: the client says: {answer['error']}")
        found = answer.get("ok")
        return found if isinstance(found, dict) else {}

    async def refuses(self, do: str, **words: Any) -> str:
        """Give an order that must fail. Returns what the client says. Raises Failed if it does not fail."""
        try:
            await self.ask(do, **words)
        except Failed as error:
            if self.gone:
                raise
            return str(error)
        raise Failed(f"{do} {words} was taken, and must be refused")

    async def _write(self, order: dict[str, Any]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            await self._process.stdin.drain()
        except OSError as error:
            raise Failed("the client is gone") from error

    async def until(self, done: Callable[[], bool], what: str) -> None:
        """Wait. The case's own limit ends it. Raises Failed if the client is gone."""
        while not done():
            if self.gone:
                raise Failed(f"the client is gone while {what} is waited for")
            await self._changed.wait()

    async def kill(self) -> None:
        """kill -9."""
        if self._process is None:
            return
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGKILL)
            await self._process.wait()
        await self._end(self._process)

    async def stop(self) -> None:
        """Ask it to leave. Raises Failed if it ends with another code than 0."""
        await self._write({"id": 0, "do": "stop"})
        assert self._process is not None
        code = await self._process.wait()
        await self._end(self._process)
        if code:
            raise Failed(f"the client ended with code {code} after stop")

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if process.stdin is not None:
            process.stdin.close()
