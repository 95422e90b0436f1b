"""A peer that speaks MQTT byte by byte, to answer as no good broker would."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Self

CONNECT, CONNACK, PUBLISH, PUBACK, SUBSCRIBE, PING, DISCONNECT = 1, 2, 3, 4, 8, 12, 14

WELCOME_5 = b"\x20\x03\x00\x00\x00"
WELCOME_4 = b"\x20\x02\x00\x00"
PONG = b"\xd0\x00"


def refusal_5(code: int) -> bytes:
    return bytes((0x20, 3, 0, code, 0))


def refusal_4(code: int) -> bytes:
    return bytes((0x20, 2, 0, code))


def welcome_5(properties: bytes) -> bytes:
    """CONNACK of MQTT 5 with properties (fewer than 120 bytes)."""
    return bytes((0x20, 3 + len(properties), 0, 0, len(properties))) + properties


def puback_5(mid: int, code: int) -> bytes:
    return bytes((0x40, 4, *mid.to_bytes(2, "big"), code, 0))


def puback_4(mid: int) -> bytes:
    return bytes((0x40, 2, *mid.to_bytes(2, "big")))


def publish_4(topic: bytes, payload: bytes, mid: int) -> bytes:
    """PUBLISH at QoS 1 of MQTT 3.1.1."""
    body = len(topic).to_bytes(2, "big") + topic + mid.to_bytes(2, "big") + payload
    size = len(body)
    return bytes((0x32, size)) + body if size < 128 else bytes((0x32, size & 127 | 128, size >> 7)) + body


class FakePeer:
    """One connection that a FakeBroker took."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def read(self) -> tuple[int, bytes]:
        """Type and body of the next packet. Raises asyncio.IncompleteReadError at the end."""
        first = (await self._reader.readexactly(1))[0]
        size = shift = 0
        while True:
            byte = (await self._reader.readexactly(1))[0]
            size |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return first >> 4, await self._reader.readexactly(size)

    async def expect(self, kind: int) -> bytes:
        got, body = await self.read()
        assert got == kind, f"packet type {got} came where {kind} was expected"
        return body

    async def publish(self) -> tuple[int, bytes]:
        """Packet ID and topic of the next packet, which must be a PUBLISH at QoS 1."""
        body = await self.expect(PUBLISH)
        size = int.from_bytes(body[:2], "big")
        return int.from_bytes(body[2 + size : 4 + size], "big"), body[2 : 2 + size]

    async def connect(self) -> int:
        """The protocol level of the CONNECT that must come now."""
        return (await self.expect(CONNECT))[6]

    async def ended(self) -> None:
        """Returns when the client has closed."""
        with contextlib.suppress(ConnectionError):
            while await self._reader.read(65536):
                pass

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    def close(self) -> None:
        self._writer.close()


Script = Callable[[FakePeer], Awaitable[None]]


class FakeBroker:
    """Listens on loopback and runs `script` for every connection, which is closed when the script ends."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._tasks: set[asyncio.Task[None]] = set()
        self.connections = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        results = await asyncio.gather(*self._tasks, return_exceptions=True)
        for error in results:
            if isinstance(error, Exception) and not isinstance(error, asyncio.IncompleteReadError | ConnectionError):
                raise error

    @property
    def url(self) -> str:
        return f"mqtt://127.0.0.1:{self.port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.ensure_future(self._play(FakePeer(reader, writer), writer))
        self._tasks.add(task)

    async def _play(self, peer: FakePeer, writer: asyncio.StreamWriter) -> None:
        try:
            await self._script(peer)
        finally:
            writer.close()
