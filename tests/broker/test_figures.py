"""What a broker tells about itself: `$SYS`, metrics, health."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from agentmqtt.broker import Broker, BrokerSettings
from agentmqtt.broker.figures import Lag
from agentmqtt.broker.rights import Role
from agentmqtt.errors import ListenError, UsageError
from tests.broker import wire
from tests.security.kit import Caller, Place

SETTINGS = BrokerSettings(listen=("127.0.0.1:0",), metrics="127.0.0.1:0", sys_interval=0.1)
ACCEPTED = wire.packet(0x20, b"\0\0")


async def get(broker: Broker, path: str) -> tuple[int, str]:
    def fetch() -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{broker.metrics_port}{path}", timeout=20) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    return await asyncio.to_thread(fetch)


async def test_metrics_and_health() -> None:
    async with Broker(SETTINGS) as broker:
        caller = await Caller.at(broker)
        assert await caller.ask(wire.connect("c")) == ACCEPTED
        assert await caller.ask(wire.publish("kept", b"12345", 1, 1, retain=True)) == wire.puback(1)
        code, text = await get(broker, "/metrics")
        found = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        assert code == 200
        assert found["agentmqtt_broker_connections"] == "1"
        assert found["agentmqtt_broker_retained_messages"] == "1"
        assert float(found["agentmqtt_broker_published_total"]) >= 1
        assert found["agentmqtt_broker_store_works"] == "1"
        assert await get(broker, "/healthz") == (200, "ok\n")
        assert (await get(broker, "/else"))[0] == 404
        broker._engine.keeper.trouble = OSError("no room")  # type: ignore[misc]
        assert await get(broker, "/healthz") == (503, "the store fails: no room\n")
        await caller.end()


async def test_a_port_for_metrics_that_is_taken_is_named() -> None:
    async with Broker(SETTINGS) as first:
        taken = BrokerSettings(listen=("127.0.0.1:0",), metrics=f"127.0.0.1:{first.metrics_port}")
        with pytest.raises(ListenError, match="listens there"):
            await Broker(taken).start()
    with pytest.raises(UsageError, match="no HOST:PORT"):
        await Broker(BrokerSettings(listen=("127.0.0.1:0",), metrics="here")).start()


async def test_sys_is_for_those_who_may_read_it(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.account("ann")
    place.account("root", role=Role.ADMIN)
    async with place.running(sys_interval=0.1):
        ann, root = await place.login("ann", client="a"), await place.login("root", client="r")
        assert await ann.packet() == await root.packet() == ACCEPTED
        asked = wire.subscribe(1, ("$SYS/broker/clients/connected", 0))
        assert await ann.ask(asked) == wire.suback(1, 0x80)
        assert await root.ask(asked) == wire.suback(1, 0)
        assert await root.packet() == wire.publish("$SYS/broker/clients/connected", b"2")
        assert await ann.ask(wire.packet(0xC0)) == wire.packet(0xD0)


async def test_a_loop_that_is_held_up_shows() -> None:
    lag = Lag(every=0.01)
    lag.start()
    await asyncio.sleep(0.05)
    import time

    time.sleep(0.2)
    await asyncio.sleep(0.05)
    lag.stop()
    assert lag.seconds >= 0.15
