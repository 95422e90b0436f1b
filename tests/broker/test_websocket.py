"""MQTT in WebSocket frames: a stream of bytes, whatever the frames are."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import aiomqtt
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from agentmqtt.broker import Broker, BrokerSettings, Limits
from tests.broker import wire
from tests.broker.test_server import until


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    settings = BrokerSettings(listen=("ws://127.0.0.1:0",), limits=Limits(max_packet=10_000, write_buffer=8_192))
    async with Broker(settings) as running:
        yield running


@contextlib.asynccontextmanager
async def web(broker: Broker, **how: object) -> AsyncIterator[ClientConnection]:
    url = f"ws://127.0.0.1:{broker.addresses[0].port}/mqtt"
    async with connect(url, subprotocols=["mqtt"], compression=None, **how) as socket, asyncio.timeout(10):
        yield socket


async def read(socket: ClientConnection, size: int) -> bytes:
    got = b""
    while len(got) < size:
        frame = await socket.recv()
        assert isinstance(frame, bytes)
        got += frame
    return got


async def test_a_client_over_websocket(broker: Broker) -> None:
    async with aiomqtt.Client("127.0.0.1", broker.addresses[0].port, transport="websockets") as one:
        await one.subscribe("t/#", qos=1)
        for n in range(10):
            await one.publish("t/x", b"%d" % n, qos=1)
        got = []
        async with asyncio.timeout(10):
            async for message in one.messages:
                got.append(int(message.payload))
                if len(got) == 10:
                    break
        assert got == list(range(10))


async def test_frames_are_not_packets(broker: Broker) -> None:
    """[6.0.0-2]"""
    async with web(broker) as socket:
        assert socket.subprotocol == "mqtt"
        said = wire.connect("p") + wire.subscribe(1, ("t", 1)) + wire.publish("t", b"hello", 1, 7)
        for at in range(0, len(said), 3):
            await socket.send(said[at : at + 3])
        expected = wire.WELCOME + wire.suback(1, 1) + wire.puback(7) + wire.publish("t", b"hello", 1, 1)
        assert sorted(await read(socket, len(expected))) == sorted(expected)
        await socket.send(wire.puback(1) + wire.PING + wire.PING)
        assert await read(socket, 4) == wire.PONG * 2


async def test_a_message_that_was_cut_off_is_never_published(broker: Broker) -> None:
    async with web(broker) as watcher, web(broker) as socket:
        await watcher.send(wire.connect("watcher") + wire.subscribe(1, ("#", 0)))
        await read(watcher, 9)
        whole = wire.publish("t", b"x" * 5_000)
        await socket.send(wire.connect("p", will=("w", b"gone", 0, False)))
        await read(socket, 4)
        await socket.send(whole[:20])
        await socket.send(whole[20:40])
        await socket.close()
        assert await watcher.recv() == wire.publish("w", b"gone")
    assert broker.counters["published"] == 1


async def test_a_text_frame_closes(broker: Broker) -> None:
    """[6.0.0-1]"""
    async with web(broker) as socket:
        await socket.send(wire.connect("p").decode())
        with pytest.raises(ConnectionClosed):
            await socket.recv()


async def test_a_broken_packet_closes_after_the_answers(broker: Broker) -> None:
    async with web(broker) as socket:
        await socket.send(wire.connect("p") + wire.publish("t", b"", 1, 7) + b"\xf0\x00")
        assert await read(socket, 8) == wire.WELCOME + wire.puback(7)
        with pytest.raises(ConnectionClosed):
            await socket.recv()
    await until(lambda: not broker._shell.connections)


async def test_a_frame_beyond_the_limit_closes(broker: Broker) -> None:
    async with web(broker) as socket:
        await socket.send(wire.connect("p") + wire.publish("t", b"x" * 100_000))
        with pytest.raises(ConnectionClosed):
            await socket.recv()


async def test_pages_of_other_sites_cannot_reach_a_broker_without_passwords(broker: Broker) -> None:
    async with web(broker, origin="http://localhost:3000") as socket:
        await socket.send(wire.connect("p"))
        assert await socket.recv() == wire.WELCOME
    with pytest.raises(InvalidStatus):
        async with web(broker, origin="https://evil.example"):
            pass


async def test_more_than_the_write_buffer_flows(broker: Broker) -> None:
    async with web(broker) as socket:
        await socket.send(wire.connect("p") + wire.subscribe(1, ("t", 0)))
        await read(socket, 9)
        for _ in range(10):
            await socket.send(wire.publish("t", b"x" * 4_000))
            await read(socket, 4_006)


async def test_a_reader_that_does_not_read_is_cut_off(broker: Broker) -> None:
    async with web(broker) as stuck, web(broker) as writer:
        stuck.transport.pause_reading()
        await stuck.send(wire.connect("stuck") + wire.subscribe(1, ("t", 0)))
        await until(lambda: broker._engine._subscriptions.match("t"))
        await writer.send(wire.connect("w"))
        await read(writer, 4)
        for n in range(1, 20_000):
            await writer.send(wire.publish("t", b"x" * 9_000, 1, n % 65_535 + 1))
            await read(writer, 4)
            if broker.counters.get("evicted"):
                break
        assert broker.counters["evicted"] == 1
        stuck.transport.abort()
