"""Names, addresses and who waits for whom."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any

import pytest

from agentmqtt.errors import Unreachable
from agentmqtt.transport import dial
from agentmqtt.transport.base import Hello
from agentmqtt.transport.mqtt import MqttTransport
from tests import fakes
from tests.fakes import FakeBroker, FakePeer

HELLO = Hello("client", 20, lambda delivery: None)
_real = socket.getaddrinfo


class Resolver:
    """Stands in for the system's: answers `name.test` with `hosts`, once `go` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *hosts: str) -> None:
        self.hosts, self.asked = hosts, 0
        self.go, self.entered = threading.Event(), threading.Event()
        monkeypatch.setattr(dial.socket, "getaddrinfo", self._ask)

    def _ask(self, host: str, port: int, *args: Any, **kwargs: Any) -> list[Any]:
        if host != "name.test" or kwargs.get("flags") == socket.AI_NUMERICHOST:
            return _real(host, port, *args, **kwargs)
        self.asked += 1
        self.entered.set()
        assert self.go.wait(10)
        return [info for item in self.hosts for info in _real(item, port, type=socket.SOCK_STREAM)]


async def welcome(peer: FakePeer) -> None:
    await peer.connect()
    peer.write(fakes.WELCOME_5)
    await peer.ended()


async def test_a_look_up_that_hangs_holds_up_nobody_else_and_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    resolver = Resolver(monkeypatch, "127.0.0.1")
    async with FakeBroker(welcome) as broker:
        transport = MqttTransport(f"mqtt://name.test:{broker.port}", connect_timeout=0.05)
        for _ in range(3):
            with pytest.raises(Unreachable, match="did not answer"):
                await transport.connect(HELLO)
        assert resolver.asked == 1
        assert await asyncio.wait_for(asyncio.to_thread(lambda: "the default executor is free"), 5)
        await (await MqttTransport(broker.url).connect(HELLO)).close()
        assert resolver.entered.is_set()
        resolver.go.set()
        patient = transport.connect(HELLO)
        transport._timeout = 10.0
        await (await patient).close()
        assert resolver.asked <= 2  # the first look-up may have ended before the last attempt asked


async def test_a_name_that_does_not_resolve(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(host: str, port: int, *args: Any, **kwargs: Any) -> list[Any]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(dial.socket, "getaddrinfo", unknown)
    with pytest.raises(Unreachable, match=r"'name\.test' does not resolve"):
        await MqttTransport("mqtt://name.test").connect(HELLO)


async def test_a_name_that_is_too_long_for_the_resolver() -> None:
    with pytest.raises(Unreachable, match="does not resolve"):
        await MqttTransport(f"mqtt://{'x' * 70}.test").connect(HELLO)


async def test_the_next_address_is_tried_when_one_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    Resolver(monkeypatch, "127.0.0.2", "127.0.0.1").go.set()
    async with FakeBroker(welcome) as broker:
        await (await MqttTransport(f"mqtt://name.test:{broker.port}").connect(HELLO)).close()


async def test_the_next_address_does_not_wait_for_one_that_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dial, "HEAD_START", 0.01)
    Resolver(monkeypatch, "127.0.0.2", "127.0.0.1").go.set()
    loop, attempted = asyncio.get_running_loop(), []
    connect = loop.sock_connect

    async def sock_connect(sock: socket.socket, address: Any) -> None:
        attempted.append(address[0])
        if address[0] == "127.0.0.2":
            await loop.create_future()
        await connect(sock, address)

    monkeypatch.setattr(loop, "sock_connect", sock_connect)
    async with FakeBroker(welcome) as broker:
        await (await MqttTransport(f"mqtt://name.test:{broker.port}").connect(HELLO)).close()
    assert attempted == ["127.0.0.2", "127.0.0.1"]


async def test_when_every_address_fails_the_first_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    Resolver(monkeypatch, "127.0.0.2", "127.0.0.3").go.set()
    async with FakeBroker(welcome) as broker:
        with pytest.raises(Unreachable, match=rf"no broker listens at name\.test:{broker.port}"):
            await MqttTransport(f"mqtt://name.test:{broker.port}").connect(HELLO)


async def test_a_cancelled_race_closes_every_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    Resolver(monkeypatch, "127.0.0.2", "127.0.0.3").go.set()
    monkeypatch.setattr(dial, "HEAD_START", 0.001)
    loop, sockets = asyncio.get_running_loop(), []
    both = asyncio.Event()

    async def sock_connect(sock: socket.socket, address: Any) -> None:
        sockets.append(sock)
        if len(sockets) == 2:
            both.set()
        await loop.create_future()

    monkeypatch.setattr(loop, "sock_connect", sock_connect)
    task = asyncio.ensure_future(MqttTransport("mqtt://name.test:9").connect(HELLO))
    await asyncio.wait_for(both.wait(), 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0)
    assert [sock.fileno() for sock in sockets] == [-1, -1]


async def test_ipv6_literals() -> None:
    try:
        server = await asyncio.start_server(lambda r, w: w.close(), "::1", 0)
    except OSError:
        pytest.skip("no IPv6 on this machine")
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(Unreachable, match=rf"\[::1\]:{port} closed the connection"):
            await MqttTransport(f"mqtt://[::1]:{port}").connect(HELLO)
