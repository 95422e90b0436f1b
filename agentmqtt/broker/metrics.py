"""A small HTTP server for Prometheus and for health checks; it belongs on loopback."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from agentmqtt.broker.holder import holder_of
from agentmqtt.errors import BadURL, ListenError

_PATIENCE = 5.0
"""Seconds for a request."""
_MOST = 8_192


class Metrics:
    """Answers `GET /metrics` and `GET /healthz` on HOST:PORT.

    Args:
        text: the metrics.
        flaw: why the broker does not work; empty while it does.
    """

    def __init__(self, where: str, text: Callable[[], str], flaw: Callable[[], str]) -> None:
        self._where, self._text, self._flaw = where, text, flaw
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """The port that was bound."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def start(self) -> None:
        """Raises ListenError: the address is taken; BadURL: it is none."""
        host, _, port = self._where.rpartition(":")
        if not host or not port.isdecimal():
            raise BadURL(f"metrics = {self._where!r} is no HOST:PORT")
        try:
            self._server = await asyncio.start_server(self._serve, host.strip("[]"), int(port), limit=_MOST)
        except OSError as error:
            holder = holder_of(int(port))
            why = f"{holder} listens there" if holder else error.strerror
            raise ListenError(f"the metrics cannot be served on {self._where}: {why}; choose another port") from error

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(_PATIENCE):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._answer(head.split(b"\r\n", 1)[0]))
                await writer.drain()
        writer.close()

    def _answer(self, line: bytes) -> bytes:
        match line.split(b" "):
            case [b"GET", b"/metrics", _]:
                return _response("200 OK", self._text(), "text/plain; version=0.0.4")
            case [b"GET", b"/healthz", _]:
                flaw = self._flaw()
                return _response("503 Service Unavailable" if flaw else "200 OK", f"{flaw or 'ok'}\n")
            case _:
                return _response("404 Not Found", "there are /metrics and /healthz\n")


def _response(status: str, body: str, kind: str = "text/plain") -> bytes:
    data = body.encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}; charset=utf-8\r\nContent-Length: {len(data)}\r\n"
    return f"{head}Connection: close\r\n\r\n".encode() + data
