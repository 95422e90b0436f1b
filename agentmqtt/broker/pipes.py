"""The byte streams under a connection: a TCP (or TLS) transport, and the frames of a WebSocket."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Any, Protocol, cast

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

_CLOSING = 2.0
"""Seconds for what was written to go out before a closing connection is cut."""


class Client(Protocol):
    """What a pipe feeds."""

    def data(self, chunk: bytes) -> None: ...
    def writable(self) -> None: ...
    def ended(self) -> None: ...
    def fail(self, reason: str) -> None: ...


def _peer(name: Any) -> tuple[str, int]:
    return (str(name[0]), int(name[1])) if isinstance(name, tuple) else ("local", 0)


class StreamPipe(asyncio.Protocol):
    """The protocol of an accepted TCP or TLS connection. `accept` gives it its client, or None: no room."""

    _transport: asyncio.Transport

    def __init__(self, accept: Callable[[StreamPipe], Client | None], *, write_buffer: int) -> None:
        self._accept = accept
        self._write_buffer = write_buffer
        self._client: Client | None = None
        self._cut: asyncio.TimerHandle | None = None
        self.peer = ("?", 0)

    def info(self, name: str) -> Any:
        return self._transport.get_extra_info(name)

    # -------------------------------------------------------------- the connection asks

    def write(self, data: bytes) -> None:
        self._transport.write(data)

    def unsent(self) -> int:
        return self._transport.get_write_buffer_size()

    def pause(self) -> None:
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def close(self) -> None:
        if self._cut is None:
            self._cut = asyncio.get_running_loop().call_later(_CLOSING, self._transport.abort)
            self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    # -------------------------------------------------------------- the transport tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=self._write_buffer // 2)
        # A client without a keep-alive that lost its power is noticed by the kernel, in the end.
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.peer = _peer(transport.get_extra_info("peername"))
        self._client = self._accept(self)
        if self._client is None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._client is not None:
            self._client.data(data)

    def resume_writing(self) -> None:
        if self._client is not None:
            self._client.writable()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._cut is not None:
            self._cut.cancel()
        if self._client is not None:
            self._client.ended()


class WebSocketPipe:
    """Binary frames as a stream: a packet may span frames, and a frame may hold many packets [6.0.0-2]."""

    def __init__(self, websocket: ServerConnection) -> None:
        self._socket = websocket
        self._out: list[bytes] = []
        self._size = 0
        self._more = asyncio.Event()
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._closing = False
        self.peer = _peer(websocket.remote_address)

    async def run(self, client: Client) -> None:
        """Carry bytes until either side ends."""
        writer = asyncio.create_task(self._write_all(client), name="agentmqtt broker websocket writer")
        try:
            await self._read_all(client)
        except ConnectionClosed:
            pass  # bytes of an unfinished packet die with the connection
        finally:
            client.ended()
            writer.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await writer

    async def _read_all(self, client: Client) -> None:
        while True:
            await self._may_read.wait()
            frame = await self._socket.recv()
            if isinstance(frame, str):
                client.fail("a text frame [6.0.0-1]")
                return
            client.data(frame)

    async def _write_all(self, client: Client) -> None:
        try:
            while not (self._closing and not self._out):
                await self._more.wait()
                self._more.clear()
                if self._out:
                    data, self._out = b"".join(self._out), []
                    await self._socket.send(data)
                    self._size -= len(data)
                    client.writable()
            await self._socket.close()
        except ConnectionClosed:
            pass

    def info(self, name: str) -> Any:
        return self._socket.transport.get_extra_info(name)

    def write(self, data: bytes) -> None:
        self._out.append(data)
        self._size += len(data)
        self._more.set()

    def unsent(self) -> int:
        return self._size + self._socket.transport.get_write_buffer_size()

    def pause(self) -> None:
        self._may_read.clear()

    def resume(self) -> None:
        self._may_read.set()

    def close(self) -> None:
        self._closing = True
        self._more.set()
        self._may_read.set()
        asyncio.get_running_loop().call_later(_CLOSING, self.abort)

    def abort(self) -> None:
        self._socket.transport.abort()
