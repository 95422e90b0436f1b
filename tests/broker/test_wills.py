"""Wills and the death of the broker: who dies with it is reported gone, who comes back is not (BROKER.md 1.11)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentmqtt.broker import Broker, BrokerSettings, wills
from agentmqtt.broker.rights import Role
from agentmqtt.store.memory import MemoryStore
from tests.broker import wire
from tests.security.kit import Caller, Place

ACCEPTED = wire.packet(0x20, b"\0\0")
SETTINGS = BrokerSettings(listen=("127.0.0.1:0",))
WILL = ("gone", b"c", 1, True)


@pytest.fixture(autouse=True)
def _brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wills, "LEAST", 0.2)
    monkeypatch.setattr(wills, "MOST", 0.3)


@pytest.fixture
async def callers() -> AsyncIterator[list[Caller]]:
    made: list[Caller] = []
    yield made
    for caller in made:
        await caller.end()


async def arrive(broker: Broker, callers: list[Caller], client: str, **words: object) -> Caller:
    caller = await Caller.at(broker)
    callers.append(caller)
    assert await caller.ask(wire.connect(client, **words)) == ACCEPTED  # type: ignore[arg-type]
    return caller


async def watcher(broker: Broker, callers: list[Caller]) -> Caller:
    caller = await arrive(broker, callers, "watcher")
    assert await caller.ask(wire.subscribe(1, ("#", 0))) == wire.suback(1, 0)
    return caller


async def test_who_dies_with_the_broker_is_reported_gone(callers: list[Caller]) -> None:
    store = MemoryStore()
    async with Broker(SETTINGS, store=store) as broker:
        await arrive(broker, callers, "c", will=WILL, keepalive=1)
        store = store.crash()  # kill -9
    async with Broker(SETTINGS, store=store) as broker:
        seen = await watcher(broker, callers)
        assert await seen.packet() == wire.publish("gone", b"c")
        writer = await arrive(broker, callers, "writer")
        for n in (1, 2):  # what was decided before the first is on disk before the second is answered
            assert await writer.ask(wire.publish("x", b"", 1, n, retain=True)) == wire.puback(n)
        store = store.crash()
    async with Broker(SETTINGS, store=store) as broker:  # once
        seen = await watcher(broker, callers)
        assert await seen.packet() == wire.publish("gone", b"c", retain=True)
        await asyncio.sleep(0.5)
        assert await seen.ask(wire.packet(0xC0)) == wire.packet(0xD0)


@pytest.mark.parametrize("leaves", ["comes back", "comes back without", "said goodbye", "was published"])
async def test_who_is_accounted_for_is_not_reported_again(callers: list[Caller], leaves: str) -> None:
    store = MemoryStore()
    async with Broker(SETTINGS, store=store) as broker:
        caller = await arrive(broker, callers, "c", will=("gone", b"c", 0, False), keepalive=1)
        if leaves == "said goodbye":
            assert await caller.ask(wire.packet(0xE0)) == b""
        elif leaves == "was published":
            seen = await watcher(broker, callers)
            caller.close()
            assert await seen.packet() == wire.publish("gone", b"c")
        await arrive(broker, callers, "later", will=WILL)  # its commit is after all of that
        store = store.crash()
    async with Broker(SETTINGS, store=store) as broker:
        seen = await watcher(broker, callers)
        if leaves.startswith("comes back"):
            will = ("gone", b"again", 0, False) if leaves == "comes back" else None
            await arrive(broker, callers, "c", will=will)
        assert await seen.packet() == wire.publish("gone", b"c")  # of `later`
        await asyncio.sleep(0.3)
        assert await seen.ask(wire.packet(0xC0)) == wire.packet(0xD0)


async def test_an_orderly_restart_keeps_the_will_for_who_does_not_return(callers: list[Caller]) -> None:
    store = MemoryStore()
    broker = Broker(SETTINGS, store=store)
    await broker.start()
    await arrive(broker, callers, "c", will=WILL, keepalive=1)
    await broker.stop()
    async with Broker(SETTINGS, store=store) as broker:
        seen = await watcher(broker, callers)
        assert await seen.packet() == wire.publish("gone", b"c")


async def test_a_will_needs_its_right_also_after_the_restart(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.account("ann", role=Role.ADMIN)
    place.account("root", role=Role.ADMIN)
    async with place.running():
        ann = await place.login("ann", client="c", will=WILL, keepalive=1)
        assert await ann.packet() == ACCEPTED
    place.account("ann", role=Role.OBSERVER)
    async with place.running():
        root = await place.login("root", client="root")
        assert await root.packet() == ACCEPTED
        assert await root.ask(wire.subscribe(1, ("#", 0))) == wire.suback(1, 0)
        await asyncio.sleep(0.6)
        assert await root.ask(wire.packet(0xC0)) == wire.packet(0xD0)


async def test_a_record_that_cannot_be_read_is_dropped_and_said(
    callers: list[Caller], caplog: pytest.LogCaptureFixture
) -> None:
    from agentmqtt.store.base import Key, Put

    store = MemoryStore()
    for name, body in (("torn", b"\x9f"), ("newer", b"\x87\x02\xf6\x61t\x41x\x00\xf4\x00")):
        store.submit([Put(wills.SPACE, Key(name), body)])
    async with Broker(SETTINGS, store=store) as broker:
        seen = await watcher(broker, callers)
        assert await seen.ask(wire.packet(0xC0)) == wire.packet(0xD0)
    assert "'torn' cannot be read" in caplog.text
    assert "'newer' was written by another version" in caplog.text
