"""A session on a real broker that is killed, frozen and shared."""

from __future__ import annotations

import asyncio

import pytest

from agentmqtt.errors import LinkLost, TakenOver
from agentmqtt.session import Session
from agentmqtt.transport.mqtt import MqttTransport
from tests.servers import mosquitto
from tests.session.kit import ALIVE, Ears, Ups, presence


def real(url: str, protocol: int, client_id: str = "client", **settings: object) -> Session:
    transport = MqttTransport(url, protocol=protocol)  # type: ignore[arg-type]
    return Session(transport, client_id=client_id, backoff=(0.01, 0.1), **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("protocol", [4, 5])
async def test_a_killed_broker_is_found_again(protocol: int) -> None:
    ears = Ears()
    with mosquitto() as server:
        async with real(server.url, protocol, presence=presence("boot")) as client:
            changes = Ups(client)
            client.subscribe("a", ears)
            await changes.next()
            for i in range(3):
                published = client.publish("a", b"%d" % i)
                assert published is not None
                await published
                assert (await ears.next()).payload == b"%d" % i
                await asyncio.to_thread(server.restart)
                assert isinstance(await changes.next(), LinkLost)
                await changes.next()


@pytest.mark.parametrize("protocol", [4, 5])
async def test_one_of_two_processes_stops_and_never_both(protocol: int) -> None:
    with mosquitto() as server:
        async with real(server.url, protocol, presence=presence("one")) as one:
            await one.connected(5)
            async with real(server.url, protocol, presence=presence("two")) as two:
                error = await asyncio.wait_for(asyncio.shield(one.fatal), 20)
                assert isinstance(error, TakenOver)
                await two.connected(5)
                await asyncio.wait_for(two.subscribe("probe", Ears()).ready(), 5)
                assert not two.fatal.done()


async def test_presence_is_told_to_others() -> None:
    seen = Ears()
    with mosquitto() as server:
        async with real(server.url, 5, "observer") as observer:
            observer.subscribe(ALIVE, seen)
            await observer.connected(5)
            async with real(server.url, 5, presence=presence("boot")) as client:
                await client.connected(5)
                assert (await seen.next()).payload == b"boot:1:online"
            assert (await seen.next()).payload == b"boot:1:offline"


async def test_a_frozen_broker_is_left_and_found_again() -> None:
    with mosquitto() as server:
        async with real(server.url, 5, keepalive=1) as client:
            changes = Ups(client)
            await changes.next()
            server.freeze()
            assert "silent" in str(await changes.next())
            server.thaw()
            await changes.next()
