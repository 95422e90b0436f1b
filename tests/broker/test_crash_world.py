"""Seeded worlds: the broker itself is killed again and again, its disk stalls and fills up.

What was acknowledged arrives, in order of each publisher, at QoS 2 once; at the end nothing is left on disk.
"""

from __future__ import annotations

import random

import pytest

from agentmqtt.broker import behind, packets, queues, recall
from agentmqtt.errors import StoreFull
from tests.broker import wire
from tests.broker.stored import Place, state
from tests.broker.test_world import Reader
from tests.broker.wire import Peer, settle

READERS = {"one": 1, "two": 2}


class Collector(Reader):
    """A reader of `t/#` that notes whose messages it saw."""

    def __init__(self, name: str, place: Place, qos: int, dice: random.Random) -> None:
        super().__init__(place.engine, qos, dice)
        self.name = name

    async def connect(self, *, gone: bool) -> None:
        if self.peer is not None and gone:
            await self.peer.vanish()
        self.peer = Peer(self.broker)
        self.due.clear()
        self.peer.say(wire.connect(self.name, clean=False), wire.subscribe(1, ("t/#", self.qos)))
        await self.read(answer=False)

    def of(self, writer: int) -> list[int]:
        return [number // 10 for number in self.seen if number % 10 == writer]


class Writer:
    """A publisher that numbers its messages and sends again what was not acknowledged."""

    def __init__(self, place: Place, digit: int, qos: int, *, clean: bool) -> None:
        self.place, self.digit, self.qos, self.clean = place, digit, qos, clean
        self.count = 0
        self.open: dict[int, int] = {}
        self.received: set[int] = set()
        self.acknowledged: set[int] = set()
        self.peer: Peer | None = None

    async def connect(self) -> None:
        peer = Peer(self.place.engine)
        heard = await peer.ask(wire.connect(f"w{self.digit}", clean=self.clean))
        if heard[:1] == b"\x20" and not heard[3]:
            self.peer = peer
            for pid in self.open:
                peer.say(wire.pubrel(pid) if pid in self.received else self.packet(pid, dup=True))
            self.take(heard[4:])

    def packet(self, pid: int, *, dup: bool = False) -> bytes:
        body = b"%d" % (10 * self.open[pid] + self.digit)
        return wire.publish(f"t/{self.digit}", body, self.qos, pid, dup=dup)

    async def step(self, more: int) -> None:
        if self.peer is None or self.peer.closed:
            await self.connect()
        if self.peer is None or self.peer.closed:
            return
        for _ in range(more if len(self.open) < 20 else 0):
            self.count += 1
            pid = self.count % 60_000 + 1
            self.open[pid] = self.count
            self.peer.say(self.packet(pid))
        self.take(await self.peer.heard())

    def take(self, heard: bytes) -> None:
        for at in range(0, len(heard), 4):
            kind, pid = heard[at] >> 4, int.from_bytes(heard[at + 2 : at + 4])
            if kind == 5:
                self.received.add(pid)
                self.peer.say(wire.pubrel(pid))
            elif pid in self.open:
                assert kind == (4 if self.qos == 1 else 7)
                self.received.discard(pid)
                self.acknowledged.add(self.open.pop(pid))


class World:
    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.place = Place(window=self.dice.choice([1, 3, 20]), write_buffer=300)
        self.crashes = 0

    async def build(self) -> None:
        await self.place.start()
        self.readers = [Collector(name, self.place, qos, self.dice) for name, qos in READERS.items()]
        self.writers = [
            Writer(self.place, 1, 1, clean=True),
            Writer(self.place, 2, 1, clean=False),
            Writer(self.place, 3, 2, clean=False),
        ]
        for reader in self.readers:
            await reader.connect(gone=False)

    async def crash(self) -> None:
        """Sometimes at rest, and then everything must be the same afterwards."""
        same = self.dice.random() < 0.3
        before = None
        if same:
            await self.rest()
            before = state(self.place.engine)
        await self.place.again()
        self.crashes += 1
        if before is not None:
            assert state(self.place.engine) == before
        for client in (*self.readers, *self.writers):
            client.peer = None
        for reader in self.readers:
            reader.broker = self.place.engine
            reader.due.clear()

    async def rest(self) -> None:
        self.place.store.resume()
        for _ in range(200):
            await settle()
            if self.place.keeper._behind.clean:
                return
        raise AssertionError("the disk never comes to rest")

    async def step(self) -> None:
        roll = self.dice.random()
        if roll < 0.04:
            await self.crash()
        elif roll < 0.08:
            self.place.store.pause()
        elif roll < 0.2:
            self.place.store.resume()
        elif roll < 0.23:
            self.place.store.fail_next(StoreFull("no room"))
        for writer in self.writers:
            await writer.step(self.dice.choice([0, 0, 1, 6]))
        for reader in self.readers:
            await reader.step()

    async def finish(self) -> None:
        self.place.store.resume()
        for _ in range(6_000):
            for writer in self.writers:
                await writer.step(0)
            for reader in self.readers:
                if reader.peer is None or reader.peer.closed:
                    await reader.connect(gone=True)
                await reader.read(answer=True)
            if not any(writer.open for writer in self.writers) and not any(map(self.waits, READERS)):
                return
        raise AssertionError("it never ends")

    def waits(self, name: str) -> int:
        return self.place.engine.sessions[name].unacknowledged


@pytest.fixture
def tight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short heads, so that everything spills; a disk that is tried again at once."""
    for module in (queues, recall):
        monkeypatch.setattr(module, "COPIES", 4)
    monkeypatch.setattr(behind, "_FIRST_RETRY", 0)
    monkeypatch.setattr(behind, "_LAST_RETRY", 0)


@pytest.mark.usefixtures("tight")
@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(6, 60))])
async def test_a_broker_that_is_killed_loses_nothing_acknowledged(seed: int) -> None:
    world = World(seed)
    await world.build()
    for _ in range(120):
        await world.step()
    await world.finish()
    for reader in world.readers:
        assert reader.of(3) == list(range(1, world.writers[2].count + 1)) or reader.qos == 1
        for writer in world.writers:
            firsts = list(dict.fromkeys(reader.of(writer.digit)))
            assert firsts == list(range(1, writer.count + 1))
            assert writer.acknowledged == set(firsts)
    await world.rest()
    await clean_up(world)
    await world.place.keeper.end()


async def clean_up(world: World) -> None:
    """Everything is acknowledged: only the sessions are on disk, and without them nothing."""
    engine = world.place.engine
    assert set(await world.place.rows()) <= {"session", "subscription"}
    assert all(session.held == 0 for session in engine.sessions.values())
    for session in list(engine.sessions.values()):
        engine.drop(session)
    await world.rest()
    assert await world.place.rows() == {}


def test_the_packets_of_a_publisher_are_what_the_model_thinks() -> None:
    assert all(answer(1)[1] == 2 for answer in (packets.puback, packets.pubrec, packets.pubcomp))
