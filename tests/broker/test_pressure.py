"""Floods, slow readers, full queues: memory is bounded and nobody starves."""

from __future__ import annotations

import asyncio
import logging

import pytest

from agentmqtt.broker.engine import Engine
from agentmqtt.broker.limits import Limits
from tests.broker import wire
from tests.broker.test_connection import WILL
from tests.broker.wire import BYE, PING, PONG, Peer, arrive, engine, settle


async def test_it_is_read_again_when_the_last_reason_to_wait_is_gone() -> None:
    peer = await arrive(engine())
    for reason in ("one", "two"):
        peer.connection.hold(reason)
    peer.say(PING)
    peer.connection.release("one")
    peer.connection.release("never held")
    assert peer.pipe.paused
    assert await peer.heard() == b""
    peer.connection.release("two")
    assert not peer.pipe.paused
    assert await peer.heard() == PONG


async def test_a_flood_gives_the_others_their_turn() -> None:
    broker = engine()
    flood, other = await arrive(broker, "flood"), await arrive(broker, "other")
    flood.say(PING * 10_000)
    assert flood.pipe.paused
    other.say(PING)
    for _ in range(3):
        await asyncio.sleep(0)
    assert other.pipe.out == PONG
    assert len(flood.pipe.out) < 10_000
    for _ in range(50):
        await settle()
    assert flood.pipe.out == PONG * 10_000
    assert not flood.pipe.paused


async def test_what_a_full_pipe_cannot_take_waits_in_the_queue_and_the_client_is_not_read() -> None:
    broker = engine(write_buffer=4_096)
    reader, writer = await arrive(broker, "r"), await arrive(broker, "w")
    await reader.ask(wire.subscribe(1, ("t", 1)))
    reader.pipe.keeps = True
    await writer.ask(*(wire.publish("t", b"x" * 1_000, 1, n) for n in range(1, 21)))
    assert 4_096 <= reader.pipe.stuck < 6_000
    assert reader.pipe.paused
    assert broker.sessions["r"].unacknowledged == 20
    for _ in range(10):
        reader.pipe.stuck = 0
        reader.connection.writable()
        await settle()
    assert [pid for _, _, pid in wire.published(await reader.heard())] == list(range(1, 21))
    assert not reader.pipe.paused


@pytest.mark.parametrize("clean", [True, False])
async def test_a_reader_that_does_not_read_is_cut_off_and_nobody_else_notices(
    clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    broker = engine(queue=50, window=10)
    slow, good = await arrive(broker, "slow", clean=clean, will=WILL), await arrive(broker, "good")
    await slow.ask(wire.subscribe(1, ("t", 1)))
    await good.ask(wire.subscribe(1, ("t", 0)))
    writer = await arrive(broker, "w")
    with caplog.at_level(logging.WARNING):
        await writer.ask(*(wire.publish("t", b"%d" % n, 1, n) for n in range(1, 101)))
    assert slow.pipe.aborted
    assert "'slow' at test:1 is cut off: it does not read: 50 messages" in caplog.text
    assert broker.counters["evicted"] == 1
    assert (await good.heard()).count(b"\x00\x01t") == 100
    assert broker._retained.get("w") is not None
    assert ("slow" in broker.sessions) is not clean
    if not clean:
        assert broker.counters["dropped"] == 100 - 60
        assert "queue of offline client 'slow' is full" in caplog.text
        again = Peer(broker)
        heard = await again.ask(wire.connect("slow", clean=False))
        assert [pid for _, _, pid in wire.published(heard[4:])] == list(range(1, 11))


async def test_a_reader_of_qos_0_that_does_not_read_is_cut_off_too() -> None:
    broker = engine(write_buffer=4_096, queue=50)
    slow, writer = await arrive(broker, "slow"), await arrive(broker, "w")
    await slow.ask(wire.subscribe(1, ("t", 0)))
    slow.pipe.keeps = True
    await writer.ask(wire.publish("t", b"x" * 500) * 100)
    assert slow.pipe.aborted
    assert "slow" not in broker.sessions


async def test_what_an_evicted_session_gives_up_makes_room_for_what_it_keeps() -> None:
    broker = engine(queue=5, write_buffer=200)
    slow, writer = await arrive(broker, "slow", clean=False), await arrive(broker, "w")
    await slow.ask(wire.subscribe(1, ("t", 1)))
    slow.pipe.keeps = True
    await writer.ask(wire.publish("t", b"x" * 100) * 7, wire.publish("t", b"keep", 1, 1))
    assert slow.pipe.aborted
    assert broker.counters["dropped"] == 0
    assert [copy.message.payload for copy in broker.sessions["slow"].queue] == [b"keep"]


async def test_offline_sessions_drop_beyond_their_bounds_and_say_so(caplog: pytest.LogCaptureFixture) -> None:
    broker = engine(queue=3)
    reader, writer = await arrive(broker, "r", clean=False), await arrive(broker, "w")
    await reader.ask(wire.subscribe(1, ("t", 1)), BYE)
    await writer.ask(*(wire.publish("t", b"%d" % n, 1, n) for n in range(1, 8)))
    assert broker.counters["dropped"] == 4
    assert caplog.text.count("queue of offline client 'r' is full") == 1
    again = Peer(broker)
    heard = await again.ask(wire.connect("r", clean=False))
    assert [payload for _, payload, _ in wire.published(heard[4:])] == [b"1", b"2", b"3"]


async def test_too_many_qos_2_messages_without_their_end_close_the_connection() -> None:
    peer = await arrive(engine(inbound=2), "p")
    heard = await peer.ask(*(wire.publish("t", b"", 2, n) for n in (1, 2, 3)))
    assert heard == wire.pubrec(1) + wire.pubrec(2)
    assert peer.closed


async def test_subscriptions_are_bounded() -> None:
    peer = await arrive(engine(subscriptions=2), "p")
    heard = await peer.ask(wire.subscribe(1, ("a", 0), ("b", 0), ("c", 0), ("a", 1)))
    assert heard == wire.suback(1, 0, 0, 0x80, 1)


async def test_messages_that_a_journal_serves_are_not_queued_for_offline_sessions() -> None:
    broker = Engine(Limits(), unqueued=["root/+/out"])
    reader, writer = await arrive(broker, "r", clean=False), await arrive(broker, "w")
    await reader.ask(wire.subscribe(1, ("root/#", 1)))
    await writer.ask(wire.publish("root/x/out", b"live", 1, 1))
    assert await reader.heard() == wire.publish("root/x/out", b"live", 1, 1)
    await reader.ask(wire.puback(1), BYE)
    await writer.ask(wire.publish("root/x/out", b"missed", 1, 2), wire.publish("root/x/ack", b"kept", 1, 3))
    again = Peer(broker)
    heard = await again.ask(wire.connect("r", clean=False))
    assert wire.published(heard[4:]) == [("root/x/ack", b"kept", 2)]
