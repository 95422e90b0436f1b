"""The in-memory bus does wrong exactly what it is told to."""

from __future__ import annotations

import asyncio

import pytest

from agentmqtt.errors import Congested, LinkLost, TakenOver, Unreachable
from agentmqtt.transport import memory_link
from agentmqtt.transport.base import Connection, Delivery, Hello, Will
from agentmqtt.transport.memory import MemoryBus, MemoryTransport


class Client:
    def __init__(self, bus: MemoryBus, client_id: str = "client", *, keepalive: float = 0, expiry: int = 60) -> None:
        self._bus, self.client_id = bus, client_id
        self.got: asyncio.Queue[Delivery] = asyncio.Queue()
        will = Will(f"will/{client_id}", b"gone")
        self.hello = Hello(client_id, keepalive, self.got.put_nowait, will, expiry)  # type: ignore[arg-type]
        self.connection: Connection

    async def join(self, *filters: str) -> Client:
        self.connection = await MemoryTransport(self._bus, connect_timeout=0.02).connect(self.hello)
        await self.connection.subscribe(filters)
        return self

    async def payloads(self, count: int) -> list[bytes]:
        got = []
        for _ in range(count):
            delivery = await asyncio.wait_for(self.got.get(), 5)
            delivery.ack()
            got.append(delivery.payload)
        return got

    async def settled(self) -> None:
        """Everything that was under way has arrived."""
        await asyncio.wait_for(self.connection.subscribe([]), 5)


async def test_drop_takes_acknowledged_messages_of_one_client() -> None:
    bus = MemoryBus()
    one, two = await Client(bus, "one").join("a"), await Client(bus, "two").join("a")
    with bus.drop("a", client="one", count=2) as fault:
        for i in range(3):
            await two.connection.publish("a", b"%d" % i)
    assert await one.payloads(1) == [b"2"]
    assert await two.payloads(3) == [b"0", b"1", b"2"]
    assert fault.struck == 2


async def test_a_fault_ends_with_its_block_and_keeps_to_its_filter() -> None:
    bus = MemoryBus()
    client = await Client(bus).join("#")
    with bus.drop("a/+"):
        bus.publish("a/x", b"1")
        bus.publish("b", b"2")
    bus.publish("a/x", b"3")
    assert await client.payloads(2) == [b"2", b"3"]


async def test_duplicate_and_delay() -> None:
    bus = MemoryBus()
    client = await Client(bus).join("a")
    with bus.duplicate("a", count=1):
        bus.publish("a", b"1")
        bus.publish("a", b"2")
    assert await client.payloads(3) == [b"1", b"1", b"2"]
    with bus.delay("a", 0.01, count=1):
        bus.publish("a", b"late")
        bus.publish("a", b"soon")
    assert await client.payloads(2) == [b"soon", b"late"]


async def test_reorder_loses_nothing_and_depends_on_the_seed_alone() -> None:
    async def shuffled(seed: int) -> list[bytes]:
        bus = MemoryBus(seed=seed)
        client = await Client(bus).join("a")
        with bus.reorder("a", window=8):
            for i in range(20):
                bus.publish("a", b"%d" % i)
        return await client.payloads(20)

    first, again, other = await shuffled(1), await shuffled(1), await shuffled(2)
    assert first == again != other
    assert sorted(first, key=int) == [b"%d" % i for i in range(20)] != first


async def test_reorder_lets_go_when_nothing_follows() -> None:
    bus = MemoryBus()
    client = await Client(bus).join("a")
    with bus.reorder("a", window=8):
        bus.publish("a", b"alone")
        assert await client.payloads(1) == [b"alone"]


async def test_chance_strikes_some() -> None:
    bus = MemoryBus(seed=3)
    client = await Client(bus).join("a")
    with bus.drop("a", chance=0.5) as fault:
        for i in range(100):
            bus.publish("a", b"%d" % i)
    assert 30 < fault.struck < 70
    assert len(await client.payloads(100 - fault.struck)) == 100 - fault.struck


async def test_faults_add_up() -> None:
    bus = MemoryBus()
    client = await Client(bus).join("a")
    with bus.duplicate("a"), bus.drop("a", count=1):
        bus.publish("a", b"1")
    assert await client.payloads(1) == [b"1"]


async def test_cut_publishes_the_will_and_stop_does_not() -> None:
    bus = MemoryBus()
    watcher, client = await Client(bus, "watcher").join("will/#"), await Client(bus).join()
    bus.cut("client")
    assert isinstance(client.connection.lost.result(), LinkLost)
    assert await watcher.payloads(1) == [b"gone"]
    bus.cut("client")
    bus.cut("nobody")
    await client.join()
    bus.restart()
    assert bus.clients == frozenset()
    await watcher.join()
    await watcher.settled()
    assert watcher.got.empty()


async def test_a_stopped_bus_answers_nobody() -> None:
    bus = MemoryBus()
    bus.stop()
    with pytest.raises(Unreachable, match="stopped"):
        await Client(bus).join()


async def test_restart_keeps_what_it_is_told() -> None:
    bus = MemoryBus()
    await Client(bus).join("a")
    bus.publish("r", b"x", retain=True)
    bus.restart(keep_retained=False)
    assert (bus.filters("client"), bus.retained) == ({"a"}, {})
    bus.restart(keep_sessions=False)
    assert bus.filters("client") == frozenset()


async def test_in_a_partition_nothing_passes_and_afterwards_it_goes_on() -> None:
    bus = MemoryBus()
    client = await Client(bus).join("a")
    with bus.partition("client"):
        published = client.connection.publish("a", b"1")
        bus.publish("a", b"0")
        for _ in range(10):
            await asyncio.sleep(0)
        assert not published.done()
        assert client.got.empty()
    assert await client.payloads(2) == [b"0", b"1"]
    await published


async def test_each_end_of_a_partition_gives_up_in_its_own_time() -> None:
    bus = MemoryBus()
    watcher = await Client(bus, "watcher").join("will/#")
    client = await Client(bus, keepalive=0.02).join()
    with bus.partition("client"):
        await asyncio.wait_for(asyncio.shield(client.connection.lost), 5)
        assert bus.clients == {"watcher", "client"}
        await client.connection.close()
        assert await watcher.payloads(1) == [b"gone"]
        assert bus.clients == {"watcher"}
        with pytest.raises(Unreachable):
            await client.join()
    await client.join()


async def test_a_healed_partition_tells_each_end_that_the_other_has_gone() -> None:
    bus = MemoryBus()
    watcher, client = await Client(bus, "watcher").join("will/#"), await Client(bus).join()
    with bus.partition("client"):
        bus.restart()
        assert not client.connection.lost.done()
    assert isinstance(client.connection.lost.result(), LinkLost)
    await watcher.join()
    await client.join()
    with bus.partition("client"):
        await client.connection.close()
    assert await watcher.payloads(1) == [b"gone"]


async def test_takeover_with_and_without_a_word() -> None:
    for announce, error in ((True, TakenOver), (False, LinkLost)):
        bus = MemoryBus(announce_takeover=announce)
        first = await Client(bus).join()
        await Client(bus).join()
        assert type(first.connection.lost.result()) is error


async def test_a_full_queue_drops_the_newest_and_counts() -> None:
    bus = MemoryBus(queue_limit=3)
    client = await Client(bus).join("a")
    await client.connection.close()
    for i in range(5):
        bus.publish("a", b"%d" % i)
    assert bus.overflowed == 2
    await client.join()
    assert await client.payloads(3) == [b"0", b"1", b"2"]


async def test_a_client_that_does_not_acknowledge_holds_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_link, "IN_FLIGHT", 2)
    bus = MemoryBus()
    client = await Client(bus).join("a")
    for i in range(5):
        bus.publish("a", b"%d" % i)
    await client.settled()
    assert client.got.qsize() == 2
    assert await client.payloads(5) == [b"%d" % i for i in range(5)]


async def test_a_session_ends_in_time() -> None:
    bus = MemoryBus()
    client = await Client(bus, expiry=0).join("a")
    await client.connection.close()
    bus.publish("a", b"missed")
    await client.join("a")
    await client.settled()
    assert client.got.empty()


async def test_what_waits_to_be_sent_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_link, "MAX_UPLINK", 2)
    bus = MemoryBus()
    client = await Client(bus).join()
    with bus.partition("client"):
        sent = [client.connection.publish("a", b"") for _ in range(3)]
        with pytest.raises(Congested):
            await sent[2]
    await asyncio.gather(*sent[:2])
