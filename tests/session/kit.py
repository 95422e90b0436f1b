"""What the session's tests share: a transport that records, and a presence in plain text."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from agentmqtt.session import Presence, Session
from agentmqtt.transport.base import Connection, Delivery, Hello, Transport
from agentmqtt.transport.memory import MemoryBus, MemoryTransport

ALIVE = "alive/client"


def presence(boot: str, topic: str = ALIVE) -> Presence:
    """`BOOT:CONN:online` or `BOOT:CONN:offline`."""
    return Presence(
        topic,
        lambda conn, online: f"{boot}:{conn}:{'online' if online else 'offline'}".encode(),
        lambda payload: payload.startswith(f"{boot}:".encode()),
    )


class Recorder:
    """A transport that notes every SUBSCRIBE and UNSUBSCRIBE, and fails as told."""

    def __init__(self, inner: Transport) -> None:
        self.inner = inner
        self.failures: list[Exception] = []
        self.attempts = 0
        self.calls: list[tuple[str, list[str]]] = []
        self.hellos: list[Hello] = []

    def describe(self) -> str:
        return self.inner.describe()

    async def connect(self, hello: Hello) -> Connection:
        self.attempts += 1
        self.hellos.append(hello)
        await asyncio.sleep(0)
        if self.failures:
            raise self.failures.pop(0)
        connection = await self.inner.connect(hello)
        subscribe, unsubscribe = connection.subscribe, connection.unsubscribe

        async def noted_subscribe(filters: Sequence[str]) -> None:
            self.calls.append(("subscribe", list(filters)))
            await subscribe(filters)

        async def noted_unsubscribe(filters: Sequence[str]) -> None:
            self.calls.append(("unsubscribe", list(filters)))
            await unsubscribe(filters)

        connection.subscribe, connection.unsubscribe = noted_subscribe, noted_unsubscribe  # type: ignore[method-assign]
        return connection

    def asked(self, kind: str) -> list[list[str]]:
        return [filters for name, filters in self.calls if name == kind]


class Ears:
    """A handler that keeps what it hears."""

    def __init__(self, answer: object = None) -> None:
        self.answer = answer
        self.heard: asyncio.Queue[Delivery] = asyncio.Queue()

    def __call__(self, delivery: Delivery) -> object:
        self.heard.put_nowait(delivery)
        return self.answer

    async def next(self) -> Delivery:
        return await asyncio.wait_for(self.heard.get(), 5)

    async def payloads(self, count: int) -> list[bytes]:
        return [(await self.next()).payload for _ in range(count)]


def session(bus: MemoryBus | Recorder, client_id: str = "client", **settings: object) -> Session:
    """A session that retries at once."""
    transport = bus if isinstance(bus, Recorder) else MemoryTransport(bus)
    return Session(transport, client_id=client_id, **{"backoff": (0.001, 0.01), **settings})  # type: ignore[arg-type]


class Ups:
    """Waits for the ups and downs of a session."""

    def __init__(self, watched: Session) -> None:
        self._changes: asyncio.Queue[object] = asyncio.Queue()
        watched.on_up.append(self._changes.put_nowait)
        watched.on_down.append(self._changes.put_nowait)

    async def next(self) -> object:
        """The connection counter of an up, or the reason of a down."""
        return await asyncio.wait_for(self._changes.get(), 5)
