"""The whole broker over a store on disk: restarts, a full disk, long queues, one file with the journal."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import subprocess
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from agentmqtt.broker import Broker, BrokerSettings, queues
from agentmqtt.broker.local import LocalTransport
from agentmqtt.store.base import Key, Put
from agentmqtt.store.memory import MemoryStore
from agentmqtt.store.sqlite import SQLiteStore
from agentmqtt.transport.base import Delivery, Hello
from tests.broker import wire
from tests.broker.stored import Place, scan
from tests.broker.wire import BYE, arrive, settle

SETTINGS = BrokerSettings(listen=("127.0.0.1:0",))


class Caller:
    """A client over TCP that sends bytes and waits for as many as it names."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def hears(self, expected: bytes) -> None:
        async with asyncio.timeout(10):
            assert await self.reader.readexactly(len(expected)) == expected


@contextlib.asynccontextmanager
async def call(broker: Broker, client_id: str, *, clean: bool = False, present: bool = False) -> AsyncIterator[Caller]:
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.addresses[0].port)
    caller = Caller(reader, writer)
    try:
        writer.write(wire.connect(client_id, clean=clean))
        await caller.hears(wire.WELCOME_BACK if present else wire.WELCOME)
        yield caller
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def test_a_broker_over_a_store_goes_on_after_its_end(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "b.db")
    async with Broker(SETTINGS, store=store) as broker:
        async with call(broker, "r") as reader:
            reader.writer.write(wire.subscribe(1, ("t", 1)))
            await reader.hears(wire.suback(1, 1))
        async with call(broker, "w", clean=True) as writer:
            writer.writer.write(wire.publish("t", b"1", 1, 1) + wire.publish("s", b"kept", retain=True))
            await writer.hears(wire.puback(1))
        await broker.stop()
        await broker.start()
        assert broker.counters["sessions"] == 1
    await store.close()
    store = SQLiteStore(tmp_path / "b.db")
    async with Broker(SETTINGS, store=store) as broker, call(broker, "r", present=True) as reader:
        # Sent before, or not: the broker cannot know what the first connection still got.
        (first,) = [packet async for packet in _packets(reader, 1)]
        assert first[1:] == wire.publish("t", b"1", 1, 1)[1:] or first[-1:] == b"1"
        reader.writer.write(wire.subscribe(2, ("s", 0)))
        await reader.hears(wire.suback(2, 0) + wire.publish("s", b"kept", retain=True))
    await store.close()


async def _packets(caller: Caller, count: int) -> AsyncIterator[bytes]:
    for _ in range(count):
        head = await caller.reader.readexactly(2)
        yield head + await caller.reader.readexactly(head[1])


async def test_a_client_in_this_process_finds_its_session_before_the_broker_listens(tmp_path: Path) -> None:
    store = MemoryStore()
    broker = Broker(SETTINGS, store=store)
    got: list[Delivery] = []
    here = await broker.transport().connect(Hello("j", 20, got.append))
    await here.subscribe(["t"])
    await here.publish("t", b"p")
    await settle()
    assert got
    store = store.crash()
    again = Broker(SETTINGS, store=store)
    got.clear()
    here = await again.transport().connect(Hello("j", 20, got.append))
    for _ in range(5):
        await settle()
    assert [(one.payload, one.dup) for one in got] == [(b"p", True)]
    await again.stop()
    await broker.stop()


async def test_the_journal_and_the_broker_share_commits() -> None:
    """What both have to write waits for the disk together, and a frame costs only the journal a commit."""
    store = Counting()
    place = Place(store=store, unqueued=("out",))
    await place.start()

    def journal(delivery: Delivery) -> None:
        store.submit([Put("log", Key(delivery.topic), b"")], lambda _: delivery.ack())

    sleeper = await arrive(place.engine, "s", clean=False)
    await sleeper.ask(wire.subscribe(1, ("#", 1)), BYE)
    here = await LocalTransport(place.engine).connect(Hello("j", 20, journal, session_expiry=0))
    await here.subscribe(["#"])
    await place.safe()
    store.commits = 0
    writer = await arrive(place.engine, "w")
    assert await writer.ask(wire.publish("out", b"", 1, 1)) == wire.puback(1)
    assert store.commits == 1
    store.pause()
    await writer.ask(*(wire.publish("in", b"", 1, n) for n in range(2, 100)))
    store.resume()
    assert len(await writer.heard()) == 4 * 98
    assert store.commits <= 4  # of 196 writes; one may have been on its way


class Counting(MemoryStore):
    """Counts commits that write."""

    commits = 0

    def _commit(self) -> None:
        self.commits += bool(self._waiting) and not self._paused
        super()._commit()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = shutil.which("mount")
    if (
        not mount
        or subprocess.run([mount, "-t", "tmpfs", "-o", "size=2m", "tmpfs", place], capture_output=True).returncode
    ):
        pytest.skip("no right to mount a small file system")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


async def test_a_full_disk_stops_the_broker_from_acknowledging_until_there_is_room(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(1024 * 1024))
    store = SQLiteStore(small_disk / "b.db")
    body, count = bytes(10_000), 150
    async with Broker(SETTINGS, store=store) as broker:
        async with call(broker, "r") as reader:
            reader.writer.write(wire.subscribe(1, ("t", 1)))
            await reader.hears(wire.suback(1, 1))
        async with call(broker, "w", clean=True) as writer:
            for n in range(1, count + 1):
                writer.writer.write(wire.publish("t", b"%04d" % n + body, 1, n))
            async with asyncio.timeout(10):
                while broker._engine.keeper.trouble is None:
                    await asyncio.sleep(0.01)
            stored = len(await scan(store, "queue"))
            assert stored < count
            ballast.unlink()
            await writer.hears(b"".join(wire.puback(n) for n in range(1, count + 1)))
        assert broker._engine.keeper.trouble is None
    await store.close()
    store = SQLiteStore(small_disk / "b.db")
    assert store.replaced is None
    assert len(await scan(store, "queue")) == len(await scan(store, "message")) == count
    await store.close()


@pytest.mark.parametrize("count", [4_000, pytest.param(100_000, marks=[pytest.mark.slow, pytest.mark.timeout(300)])])
async def test_a_long_queue_is_on_disk_and_not_in_memory(count: int, tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "b.db")
    place = Place(store=store, queue=count, queue_bytes=1 << 30)
    await place.start()
    here = await LocalTransport(place.engine).connect(Hello("r", 20, print))
    await here.subscribe(["t"])
    await here.close()
    place.engine.sessions["r"].bounds = place.limits
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for n in range(count):
        place.engine.publish("t", b"%d" % n, 1)
        if n % 1_000 == 0:
            await place.safe()
    await place.safe()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    session = place.engine.sessions["r"]
    assert len(session.queue) == count
    assert not list(session.queue)
    assert grown < 1 << 20
    seen = await _read_all(place, count)
    assert seen == count
    assert session.held == session.unacknowledged == 0
    await place.safe()
    assert await place.rows() == {"session": 1, "subscription": 1}
    await place.keeper.end()
    await store.close()


async def _read_all(place: Place, count: int) -> int:
    """A client that acknowledges all it gets; what it got must be numbered from 0."""
    done = asyncio.Event()
    got = most = 0
    session = place.engine.sessions["r"]

    def take(delivery: Delivery) -> None:
        nonlocal got, most
        assert int(delivery.payload) == got
        got += 1
        most = max(most, len(list(session.queue)))
        delivery.ack()
        if got == count:
            done.set()

    await LocalTransport(place.engine).connect(Hello("r", 20, take))
    async with asyncio.timeout(250):
        await done.wait()
    assert most <= 2 * queues.COPIES
    return got


async def test_a_broker_that_ends_on_a_full_disk_ends(caplog: pytest.LogCaptureFixture, monkeypatch) -> None:
    monkeypatch.setattr("agentmqtt.broker.store_keeper._FAREWELL", 0.1)
    store = MemoryStore()
    place = Place(store=store)
    await place.start()
    await arrive(place.engine, "r", clean=False)
    store.pause()
    place.engine.subscribe(place.engine.sessions["r"], "t", 1)
    await place.keeper.end()
    assert "could not be stored before the end" in caplog.text
