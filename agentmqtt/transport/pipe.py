"""One byte stream to a broker, shaped like the non-blocking socket that paho reads and writes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import cast

from agentmqtt.transport.websocket import WebSocket, WebSocketError

SLICE = 0.003
"""Seconds of parsing and handling after which other callbacks of the loop get their turn."""

HIGH_WATER = 256 * 1024
"""Bytes that may wait for a slow peer before `writable` turns false."""

_QUICKACK: int | None = getattr(socket, "TCP_QUICKACK", None)


def _nothing(*_: object) -> None:
    """What an owner that is not interested does."""


class Pipe(asyncio.Protocol):
    """`recv` and `send` never block: `recv` raises BlockingIOError when there is nothing, `send` takes all.

    `parse` is called while there is something to `recv`; what was sent goes out at `flush`.
    `received_at` and `sent_at` are the loop's time of the last byte in each direction.
    """

    def __init__(self, websocket: WebSocket | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._websocket = websocket
        self._transport: asyncio.Transport | None = None
        self._tcp: socket.socket | None = None
        self._in = b""
        self._at = 0
        self._out: list[bytes | bytearray] = []
        self._deadline = 0.0
        self._scheduled = self._paused = False
        self.received_at = self.sent_at = self._loop.time()
        self.writable = True
        self.ready: asyncio.Future[None] = self._loop.create_future()
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self.parse: Callable[[], None] = _nothing
        self.on_writable: Callable[[], None] = _nothing
        self.on_lost: Callable[[Exception | None], None] = _nothing

    # -- the network's side --------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = stream = cast("asyncio.Transport", transport)  # other loops have classes of their own
        stream.set_write_buffer_limits(high=HIGH_WATER)
        if self._websocket is None:
            self.ready.set_result(None)
        else:
            stream.write(self._websocket.request())

    def tune(self, sock: socket.socket) -> None:
        """Turn off the waiting of both ends: Nagle's here, and delayed acknowledgement for a peer that has its on."""
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._tcp = sock

    def data_received(self, data: bytes) -> None:
        self.received_at = self._loop.time()
        if self._tcp is not None and _QUICKACK is not None:
            with contextlib.suppress(OSError):  # the kernel forgets it, so it is said once per burst
                self._tcp.setsockopt(socket.IPPROTO_TCP, _QUICKACK, 1)
        if self._websocket is not None:
            data = self._unwrap(self._websocket, data)
        self._in = self._in[self._at :] + data if self._at < len(self._in) else data
        self._at = 0
        if not self._scheduled:
            self._drain()

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        self.on_writable()

    def connection_lost(self, exc: Exception | None) -> None:
        self._tcp = None
        if not self.closed.done():
            self.closed.set_result(None)
        self._fail_ready(exc or ConnectionResetError("it closed the connection"))
        self.on_lost(exc)

    def _unwrap(self, websocket: WebSocket, data: bytes) -> bytes:
        try:
            payload = websocket.feed(data)
        except WebSocketError as exc:
            self._refuse(exc)
            return b""
        if websocket.upgraded and not self.ready.done():
            self.ready.set_result(None)
        if websocket.replies and self._transport is not None:
            self._transport.write(bytes(websocket.replies))
            websocket.replies.clear()
        return payload

    def _refuse(self, exc: WebSocketError) -> None:
        self._fail_ready(exc)
        self.on_lost(exc)
        self.close()

    def _fail_ready(self, exc: Exception) -> None:
        if not self.ready.done():
            self.ready.set_exception(exc)
            self.ready.exception()  # whoever gave up waiting does not ask for it

    def _drain(self) -> None:
        """Parse for one slice; if more is left, hold the network back and go on in the next turn of the loop."""
        self._scheduled = False
        self._deadline = self._loop.time() + SLICE
        while self._at < len(self._in) and self._loop.time() < self._deadline:
            self.parse()
        if self._transport is None or self._transport.is_closing():
            return
        if self._at < len(self._in):
            self._scheduled = True
            self._loop.call_soon(self._drain)
        if self._scheduled != self._paused:
            self._paused = self._scheduled
            self._transport.pause_reading() if self._paused else self._transport.resume_reading()

    # -- paho's side: the part of a socket that it uses -----------------------------------------------

    def recv(self, buffer_size: int) -> bytes:
        at = self._at
        if at >= len(self._in) or self._loop.time() >= self._deadline:
            raise BlockingIOError
        chunk = self._in[at : at + buffer_size]
        self._at = at + len(chunk)
        return chunk

    def discard(self) -> None:
        """As `parse`: let everything go that came."""
        self._in, self._at = b"", 0

    def send(self, buffer: bytes | bytearray) -> int:
        self._out.append(buffer)
        return len(buffer)

    def flush(self) -> None:
        """Hand over everything that was sent since the last flush, in one piece."""
        if not self._out or self._transport is None or self._transport.is_closing():
            return
        data = b"".join(self._out)
        self._out.clear()
        self.sent_at = self._loop.time()
        self._transport.write(data if self._websocket is None else self._websocket.frame(data))

    def finish(self) -> None:
        """Say after the last `flush` that nothing follows, so that a peer that waits for it closes too."""
        if self._transport is None or self._transport.is_closing():
            return
        if self._websocket is not None:
            self._transport.write(self._websocket.goodbye())
        elif self._transport.can_write_eof():
            self._transport.write_eof()

    def close(self) -> None:
        """Drop the connection at once; nothing more is read or written."""
        self._in, self._at = b"", 0
        self._out.clear()
        if self._transport is not None:
            self._transport.abort()

    def fileno(self) -> int:
        return -1

    def pending(self) -> int:
        return len(self._in) - self._at

    def setblocking(self, flag: bool) -> None:
        """It never blocks."""
