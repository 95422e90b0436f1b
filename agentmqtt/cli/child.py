"""The program under `agentmqtt run`: its pipes, its process group, its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import IO, Self

from agentmqtt.cli import guard

CHUNK = 65536
SILENCE = 1.0
"""Seconds after which pipes that outlive the program count as at their end."""

PIPES = 2 * 1024 * 1024
"""Bytes that may wait in pipes and buffers when the program exits."""


class Child:
    """A running program in a process group of its own. It is killed when the block is left, or this process dies.

    `exited` is done with the return code, negative for a signal.
    """

    def __init__(self, command: Sequence[str], environment: dict[str, str]) -> None:
        self._command, self._environment = command, environment
        self._process: subprocess.Popen[bytes]
        self._guard = -1
        self._rest = PIPES
        self._stdin: asyncio.StreamWriter
        self._transports: list[asyncio.BaseTransport] = []
        self.stdout: asyncio.StreamReader
        self.stderr: asyncio.StreamReader
        self.exited: asyncio.Task[int]

    async def __aenter__(self) -> Self:
        self._start()
        self.exited = asyncio.create_task(asyncio.to_thread(self._process.wait), name="agentmqtt-child")
        self.stdout, self.stderr = await self._reader(self._process.stdout), await self._reader(self._process.stderr)
        self._stdin = await self._writer(self._process.stdin)
        return self

    def _start(self) -> None:
        watched, self._guard = os.pipe()
        try:
            self._process = subprocess.Popen(  # noqa: S603 - to run a program is what it is for
                [sys.executable, "-I", "-S", guard.__file__, str(watched), *self._command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self._environment,
                pass_fds=(watched,),
                process_group=0,
                bufsize=0,
            )
        finally:
            os.close(watched)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.exited.done():
            self.signal(signal.SIGKILL)
        with contextlib.suppress(OSError):
            os.write(self._guard, b"\n")
        os.close(self._guard)
        for transport in (self._stdin.transport, *self._transports):
            transport.close()
        await self.exited

    async def _reader(self, pipe: IO[bytes] | None) -> asyncio.StreamReader:
        reader = asyncio.StreamReader(CHUNK)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        self._transports.append(transport)
        return reader

    async def _writer(self, pipe: IO[bytes] | None) -> asyncio.StreamWriter:
        loop = asyncio.get_running_loop()
        protocol = asyncio.StreamReaderProtocol(asyncio.StreamReader())
        transport, _ = await loop.connect_write_pipe(lambda: protocol, pipe)
        return asyncio.StreamWriter(transport, protocol, None, loop)

    async def write(self, text: str) -> bool:
        """Give the program a line; waits while it reads slowly. False if it does not read any more."""
        try:
            self._stdin.write(text.encode() if text.endswith("\n") else f"{text}\n".encode())
            await self._stdin.drain()
        except OSError:
            return False
        return not self._stdin.transport.is_closing()

    def signal(self, number: signal.Signals) -> None:
        """To the program and what it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    async def read(self, pipe: asyncio.StreamReader) -> bytes:
        """What comes next on `stdout` or `stderr`; nothing at the end.

        What the program left in the background may hold its pipes for ever: after its exit a silence is
        the end too, and so is more than a pipe can hold.
        """
        reading = asyncio.create_task(pipe.read(CHUNK))
        try:
            await asyncio.wait((reading, self.exited), return_when=asyncio.FIRST_COMPLETED)
            if not reading.done() and self._rest > 0:
                await asyncio.wait((reading,), timeout=SILENCE)
            data = reading.result() if reading.done() else b""
        finally:
            reading.cancel()
        if self.exited.done():
            self._rest -= len(data)
        return data
