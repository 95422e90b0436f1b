"""The worlds in which the contract of `transport.base` is tried."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from agentmqtt.broker import Broker, BrokerSettings
from agentmqtt.transport.base import Connection, Delivery, Hello, Transport, Will
from agentmqtt.transport.memory import MemoryBus, MemoryTransport
from agentmqtt.transport.mqtt import MqttTransport
from tests.servers import Certificates, mosquitto

WORLDS = (
    "bundled",
    "local",
    "memory",
    "mosquitto-5",
    "mosquitto-3.1.1",
    "mosquitto-ws",
    "mosquitto-tls",
    "mosquitto-unix",
)


class Peer:
    """One client of the world: its connection and everything it was handed."""

    def __init__(self) -> None:
        self.got: asyncio.Queue[Delivery] = asyncio.Queue()
        self.connection: Connection

    async def next(self) -> Delivery:
        return await asyncio.wait_for(self.got.get(), 10)

    async def lost(self) -> Exception:
        return await asyncio.wait_for(asyncio.shield(self.connection.lost), 10)


class World:
    """A broker, and clients that are gone when the test is."""

    def __init__(
        self, transport: Callable[[], Transport], restart: Callable[[], Awaitable[None]], *, remote: bool = True
    ) -> None:
        self.transport, self._restart = transport, restart
        self.remote = remote
        self._peers: list[Peer] = []

    async def join(
        self,
        client_id: str,
        *filters: str,
        will: Will | None = None,
        session_expiry: int = 3600,
        on_message: Callable[[Delivery], None] | None = None,
    ) -> Peer:
        """A connected client, subscribed to `filters`."""
        peer = Peer()
        hello = Hello(client_id, 20, on_message or peer.got.put_nowait, will, session_expiry)
        peer.connection = await self.transport().connect(hello)
        self._peers.append(peer)
        if filters:
            await peer.connection.subscribe(filters)
        return peer

    async def restart(self) -> None:
        """The broker dies and comes back."""
        await self._restart()

    async def close(self) -> None:
        for peer in self._peers:
            await peer.connection.close()


@contextlib.asynccontextmanager
async def memory() -> AsyncIterator[World]:
    bus = MemoryBus(queue_limit=5000)

    async def restart() -> None:
        bus.restart()

    yield World(lambda: MemoryTransport(bus), restart)


@contextlib.asynccontextmanager
async def bundled(*, local: bool) -> AsyncIterator[World]:
    async with Broker(BrokerSettings(listen=("127.0.0.1:0",))) as broker:

        async def restart() -> None:
            nonlocal url
            await broker.stop()
            await broker.start()
            url = f"mqtt://127.0.0.1:{broker.addresses[0].port}"

        url = f"mqtt://127.0.0.1:{broker.addresses[0].port}"
        yield World(broker.transport if local else lambda: MqttTransport(url), restart, remote=not local)


@contextlib.asynccontextmanager
async def real(kind: str, folder: Path) -> AsyncIterator[World]:
    certificates = Certificates(folder) if kind == "tls" else None
    with mosquitto(ws=kind == "ws", unix=kind == "unix", tls=certificates) as server:
        transports: dict[str, Callable[[], Transport]] = {
            "5": lambda: MqttTransport(server.url, protocol=5),
            "3.1.1": lambda: MqttTransport(server.url, protocol=4),
            "ws": lambda: MqttTransport(server.ws_url),
            "unix": lambda: MqttTransport(server.unix_url),
            "tls": lambda: MqttTransport(server.tls_url, tls_ca=str(folder / "ca.pem")),
        }
        yield World(transports[kind], lambda: asyncio.to_thread(server.restart))


@pytest.fixture(params=WORLDS)
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    name, _, kind = str(request.param).partition("-")
    worlds = {"memory": memory, "bundled": lambda: bundled(local=False), "local": lambda: bundled(local=True)}
    async with worlds.get(name, lambda: real(kind, tmp_path))() as world:
        yield world
        await world.close()
