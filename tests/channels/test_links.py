"""A run over every kind of link: TCP, WebSocket, TLS, secure WebSocket, Unix socket, with a password."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import agentmqtt
from agentmqtt.broker import Broker, BrokerSettings
from agentmqtt.journal import Journal
from agentmqtt.store.memory import MemoryStore
from agentmqtt.transport.mqtt import MqttTransport
from tests.channels.site import BRISK, ended, text, until
from tests.servers import Certificates, mosquitto


@asynccontextmanager
async def by_mosquitto(kind: str, folder: Path) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    tls = Certificates(folder) if kind == "tls" else None
    users = {"edge": "s3cret/@%"} if kind == "password" else None
    with mosquitto(ws=kind == "ws", unix=kind == "unix", tls=tls, users=users) as server:
        plain: dict[str, Any] = {"username": "edge", "password": "s3cret/@%"} if users else {}
        urls = {"ws": "ws_url", "unix": "unix_url", "tls": "tls_url"}
        url = getattr(server, urls.get(kind, "url"))
        async with Journal(MqttTransport(server.url, **plain), MemoryStore(), options=BRISK):
            yield url, plain | ({"tls_ca": tls.ca} if tls else {})


@asynccontextmanager
async def by_bundled(kind: str, folder: Path) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    tls = Certificates(folder) if kind in ("mqtts", "wss") else None
    settings = BrokerSettings(
        listen=(f"{kind}://127.0.0.1:0",),
        certfile=tls.server if tls else None,
        keyfile=tls.server_key if tls else None,
    )
    async with Broker(settings) as broker, Journal(broker.transport(), MemoryStore(), options=BRISK):
        yield str(broker.addresses[0]), {"tls_ca": tls.ca} if tls else {}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broker", "kind"),
    [
        *[("mosquitto", kind) for kind in ("tcp", "ws", "unix", "tls", "password")],
        *[("bundled", kind) for kind in ("mqtt", "ws", "mqtts", "wss")],
    ],
)
async def test_a_run_over_every_kind_of_link(broker: str, kind: str, tmp_path: Path) -> None:
    make = by_mosquitto if broker == "mosquitto" else by_bundled
    async with (
        make(kind, tmp_path) as (url, how),
        agentmqtt.connect(url, state=":memory:", **how) as agent,
        agentmqtt.connect(url, state=":memory:", **how) as phone,
        phone.watch("over it") as watched,
        agent.own("over it") as run,
    ):
        reading = asyncio.create_task(until(watched, ended))
        for n in range(100):
            await run.emit("text", f"{n} ")
        receipt = await phone.send("over it", "hello")
        async for command in run.commands():
            command.applied()
            break
        assert await receipt.outcome(5) == "applied"
        await run.end()
        assert text(await reading) == "".join(f"{n} " for n in range(100))
