"""Seeded worlds: links that break and stall at random. What was acknowledged arrives, once, in order."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentmqtt.broker import packets
from agentmqtt.broker.reader import PacketReader
from tests.broker import wire
from tests.broker.test_packets import BAD, GOOD
from tests.broker.wire import Peer, engine, settle


class Reader:
    """A persistent subscriber that obeys the standard and is cut off again and again."""

    def __init__(self, broker: object, qos: int, dice: random.Random) -> None:
        self.broker, self.qos, self.dice = broker, qos, dice
        self.seen: list[int] = []
        self.open: set[int] = set()
        self.due: list[bytes] = []
        self.peer: Peer | None = None
        self.reconnects = 0

    async def step(self) -> None:
        roll = self.dice.random()
        if self.peer is None or self.peer.closed or roll < 0.05:
            await self.connect(gone=self.dice.random() < 0.5)
        elif roll < 0.1:
            await self.peer.vanish()
            self.peer = None
        elif roll < 0.3:
            self.peer.pipe.keeps = True
        else:
            await self.read(answer=roll < 0.8)

    async def connect(self, *, gone: bool) -> None:
        if self.peer is not None and gone:
            await self.peer.vanish()
        self.peer = Peer(self.broker)
        self.reconnects += 1
        self.due.clear()
        self.peer.say(wire.connect("r", clean=False), wire.subscribe(1, ("t", self.qos)))
        await self.read(answer=False)

    async def read(self, *, answer: bool) -> None:
        self.peer.pipe.keeps, self.peer.pipe.stuck = False, 0
        self.peer.connection.writable()
        for packet in self.packets(await self.peer.heard()):
            self.take(packet)
        if answer and not self.peer.closed:
            self.peer.say(*self.due)
            self.due.clear()

    @staticmethod
    def packets(heard: bytes) -> list[packets.Packet]:
        reader, found = PacketReader(1 << 20), []
        reader.greeted = True
        while heard:
            size = 2 + heard[1]  # every packet here is short
            one, heard = heard[:size], heard[size:]
            if one[0] >> 4 in (3, 6):
                reader.feed(one)
                found.append(reader.next())
        return found

    def take(self, packet: packets.Packet) -> None:
        if isinstance(packet, packets.PubRel):
            self.open.discard(packet.packet_id)
            self.due.append(wire.pubcomp(packet.packet_id))
        elif packet.qos == 2:
            if packet.packet_id not in self.open:
                self.open.add(packet.packet_id)
                self.seen.append(int(packet.payload))
            self.due.append(wire.pubrec(packet.packet_id))
        else:
            self.seen.append(int(packet.payload))
            self.due.append(wire.puback(packet.packet_id))


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("qos", [1, 2])
async def test_nothing_acknowledged_is_lost_or_out_of_order(qos: int, seed: int) -> None:
    dice = random.Random(seed)
    broker = engine(window=dice.choice([1, 3, 20]), write_buffer=200)
    reader = Reader(broker, qos, dice)
    await reader.connect(gone=False)
    writer, count = await wire.arrive(broker, "w"), 0
    for _ in range(150):
        if dice.random() < 0.5:
            for _ in range(dice.randrange(8)):
                count += 1
                said = [wire.publish("t", b"%d" % count, qos, count % 65_535 + 1)] * dice.choice(
                    [1, 1, 2] if qos == 2 else [1]
                )
                await writer.ask(*said, *([wire.pubrel(count % 65_535 + 1)] if qos == 2 else []))
        await reader.step()
    for _ in range(3 * count + 10):  # QoS 2 takes two reads for a message if the window is one
        if not broker.sessions["r"].unacknowledged:
            break
        if reader.peer is None or reader.peer.closed:
            await reader.connect(gone=True)
        await reader.read(answer=True)
    assert broker.sessions["r"].unacknowledged == broker.sessions["r"].held == 0
    assert reader.reconnects > 1
    if qos == 2:
        assert reader.seen == list(range(1, count + 1))
    else:
        firsts = list(dict.fromkeys(reader.seen))
        assert firsts == list(range(1, count + 1))


PIECES = [data for data, _ in GOOD if len(data) < 1_000] + [data for data in BAD.values() if len(data) < 1_000]


@given(st.lists(st.one_of(st.sampled_from(PIECES), st.binary(max_size=20)), max_size=12), st.booleans())
@settings(max_examples=150)
def test_no_bytes_break_the_broker(pieces: list[bytes], connected: bool) -> None:
    async def talk() -> None:
        broken: list[dict[str, object]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: broken.append(context))
        broker = engine()
        peer = await wire.arrive(broker, "c") if connected else Peer(broker)
        for piece in pieces:
            if not peer.closed:
                await peer.ask(piece)
        await peer.vanish()
        await settle()
        assert not broken
        assert all(session.link is None and not session.clean for session in broker.sessions.values())
        assert peer.gone == [peer.connection]

    asyncio.run(talk())
