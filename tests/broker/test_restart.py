"""What a broker over a store has after kill -9, point by point."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from agentmqtt.broker.engine import NotYours
from agentmqtt.broker.local import LocalTransport
from agentmqtt.broker.queues import COPIES
from agentmqtt.errors import StoreFull
from agentmqtt.store.base import Key, Put
from agentmqtt.transport.base import Delivery, Hello
from tests.broker import wire
from tests.broker.stored import DAY, Place, state
from tests.broker.wire import BYE, PING, PONG, WELCOME_BACK, Door, Peer, arrive, settle


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    made = Place(unqueued=("live/#",))
    await made.start()
    yield made
    made.store.resume()
    await made.keeper.end()


async def say(peer: Peer, *data: bytes) -> bytes:
    """Ask, and wait long enough for commits."""
    peer.say(*data)
    for _ in range(10):
        await settle()
    return await peer.heard()


async def back(place: Place, client_id: str = "r", **how) -> tuple[Peer, bytes]:
    """A persistent client comes again; what it hears after CONNACK."""
    peer = Peer(place.engine, how.pop("door", None))
    heard = await say(peer, wire.connect(client_id, clean=False, **how))
    assert heard[:4] == WELCOME_BACK
    return peer, heard[4:]


async def test_subscriptions_queues_and_retained_messages_come_back_in_order(place: Place) -> None:
    reader, writer = await arrive(place.engine, "r", clean=False), await arrive(place.engine, "w")
    await say(reader, wire.subscribe(1, ("t/#", 1), ("gone", 1), ("u", 2)), wire.unsubscribe(2, "gone"), BYE)
    await say(writer, *(wire.publish(f"t/{n % 2}", b"%d" % n, 2 - n % 2, n, retain=n > 7) for n in range(1, 10)))
    before = state(place.engine)
    await place.again()
    assert state(place.engine) == before
    assert before["sessions"]["r"]["subscriptions"] == {"t/#": 1, "u": 2}
    _, heard = await back(place)
    assert [payload for _, payload, _ in wire.published(heard)] == [b"%d" % n for n in range(1, 10)]
    fresh = await arrive(place.engine, "f")
    kept = wire.published((await say(fresh, wire.subscribe(1, ("#", 1))))[5:])
    assert {(topic, payload) for topic, payload, _ in kept} == {("t/0", b"8"), ("t/1", b"9")}


async def test_what_was_in_flight_comes_first_with_dup_and_its_packet_id(place: Place) -> None:
    place.limits = place.engine.limits = type(place.limits)(window=2)
    reader, writer = await arrive(place.engine, "r", clean=False), await arrive(place.engine, "w")
    await say(reader, wire.subscribe(1, ("t", 1)))
    await say(writer, *(wire.publish("t", b"%d" % n, 1, n) for n in range(1, 6)))
    await say(reader, wire.puback(1))
    await place.again()
    reader, heard = await back(place)
    two, three = (wire.publish("t", b"%d" % n, 1, n, dup=True) for n in (2, 3))
    assert heard == two + three
    heard = await say(reader, wire.puback(2), wire.puback(3))
    assert [payload for _, payload, _ in wire.published(heard)] == [b"4", b"5"]
    assert not {1, 2, 3} & {pid for _, _, pid in wire.published(heard)}


async def test_what_comes_after_a_restart_does_not_bring_the_flights_before_it_twice(place: Place) -> None:
    """With nothing waiting, the part on disk was taken to begin at the first copy, which was in flight."""
    reader, writer = await arrive(place.engine, "r", clean=False), await arrive(place.engine, "w")
    await say(reader, wire.subscribe(1, ("t", 2)))
    await say(writer, wire.publish("t", b"1", 2, 1), wire.publish("t", b"2", 2, 2))
    await place.again()
    await say(await arrive(place.engine, "w"), wire.publish("t", b"3", 2, 3))
    _, heard = await back(place)
    assert [payload for _, payload, _ in wire.published(heard)] == [b"1", b"2", b"3"]


async def test_qos_2_goes_on_where_it_was(place: Place) -> None:
    reader, writer = await arrive(place.engine, "r", clean=False), await arrive(place.engine, "w", clean=False)
    await say(reader, wire.subscribe(1, ("t", 2)))
    await say(writer, wire.publish("t", b"a", 2, 7), wire.publish("t", b"b", 2, 8))
    assert await say(reader, wire.pubrec(1)) != b""
    await place.again()
    _, heard = await back(place)
    assert heard == wire.pubrel(1) + wire.publish("t", b"b", 2, 2, dup=True)
    writer, _ = await back(place, "w")
    assert await say(writer, wire.publish("t", b"b", 2, 8, dup=True)) == wire.pubrec(8)
    assert await say(writer, wire.pubrel(8), wire.publish("t", b"c", 2, 8)) == wire.pubcomp(8) + wire.pubrec(8)
    assert place.engine.sessions["r"].unacknowledged == 3


async def test_a_qos_2_message_is_not_sent_before_its_packet_id_is_safe(place: Place) -> None:
    reader, writer = await arrive(place.engine, "r", clean=False), await arrive(place.engine, "w")
    await say(reader, wire.subscribe(1, ("t", 2)))
    place.store.pause()
    await say(writer, wire.publish("t", b"a", 2, 1), wire.publish("t", b"b", 1, 2), wire.publish("t", b"c", 0))
    assert await reader.heard() == b""
    place.store.resume()
    heard = await say(reader)
    assert wire.published(heard) == [("t", b"a", 1), ("t", b"b", 2), ("t", b"c", 0)]
    assert heard.index(b"a") < heard.index(b"b") < heard.index(b"c")


async def test_retained_messages_that_a_subscriber_did_not_get_yet_come_after_the_restart(place: Place) -> None:
    writer = await arrive(place.engine, "w")
    await say(writer, *(wire.publish(f"s/{n}", b"x", 1, n, retain=True) for n in range(1, 101)))
    reader = await arrive(place.engine, "r", clean=False)
    place.engine.limits = type(place.limits)(write_buffer=1)
    reader.pipe.keeps = True
    await say(reader, wire.subscribe(1, ("s/+", 1), ("none", 1)))
    assert place.engine.sessions["r"].due == {"s/+"}
    await place.again()
    reader, heard = await back(place)
    assert {topic for topic, _, _ in wire.published(heard)} == {f"s/{n}" for n in range(1, 101)}
    assert place.engine.sessions["r"].due == set()
    await place.again()
    assert not place.engine.sessions["r"].backlog


async def test_nothing_is_acknowledged_before_its_commit(place: Place) -> None:
    reader = await arrive(place.engine, "r", clean=False)
    await say(reader, wire.subscribe(1, ("t", 1)), BYE)
    writer = await arrive(place.engine, "w", clean=False)
    place.store.pause()
    assert await say(writer, wire.publish("t", b"", 1, 1)) == b""
    assert await say(writer, wire.publish("t", b"", 2, 2)) == b""
    assert await say(writer, wire.subscribe(3, ("x", 1)), wire.unsubscribe(4, "x")) == b""
    other = Peer(place.engine)
    assert await say(other, wire.connect("o", clean=False)) == b""
    place.store.resume()
    assert await say(other) == wire.WELCOME
    assert await writer.heard() == wire.puback(1) + wire.pubrec(2) + wire.suback(3, 1) + wire.unsuback(4)


async def test_an_acknowledgement_waits_for_its_own_commit_and_not_for_the_one_before(place: Place) -> None:
    reader = await arrive(place.engine, "r", clean=False)
    await say(reader, wire.subscribe(1, ("t", 1)), BYE)
    writer = await arrive(place.engine, "w")
    place.store.pause()
    assert await say(writer, wire.publish("t", b"", 1, 1)) == b""
    assert await say(writer, wire.publish("t", b"", 1, 2)) == b""
    place.store.resume()
    await asyncio.sleep(0)
    place.store.pause()
    assert await say(writer) == wire.puback(1)
    place.store.resume()
    assert await say(writer) == wire.puback(2)


async def test_what_is_not_kept_costs_no_disk(place: Place) -> None:
    """Clean sessions, QoS 0, and what a journal serves."""
    stored: list[object] = []
    submit = place.store.submit
    place.store.submit = lambda writes, done: (stored.extend(writes), submit(writes, done))
    clean, writer = await arrive(place.engine, "c"), await arrive(place.engine, "w")
    await say(clean, wire.subscribe(1, ("#", 2)))
    await say(writer, wire.publish("t", b"", 1, 1), wire.publish("t", b"", 2, 2), wire.pubrel(2))
    assert not stored
    lasting = await arrive(place.engine, "r", clean=False)
    await say(lasting, wire.subscribe(1, ("#", 1)))
    stored.clear()
    heard = await say(writer, wire.publish("live/x", b"", 1, 3), wire.publish("t", b"", 0))
    assert heard == wire.puback(3)
    assert not stored


async def test_a_message_that_is_acknowledged_before_its_commit_is_never_written(place: Place) -> None:
    got: list[Delivery] = []
    here = await LocalTransport(place.engine).connect(Hello("h", 20, lambda one: (got.append(one), one.ack())))
    await here.subscribe(["t"])
    stored: list[Put] = []
    submit = place.store.submit
    place.store.submit = lambda writes, done: (stored.extend(writes), submit(writes, done))
    await here.publish("t", b"p")
    assert got
    assert not [write for write in stored if write.space in ("queue", "message")]


async def test_one_body_serves_every_queue_and_goes_with_the_last(place: Place) -> None:
    readers = [await arrive(place.engine, name, clean=False) for name in "abc"]
    for reader in readers:
        await say(reader, wire.subscribe(1, ("t", 1)))
    await say(readers[0], BYE)
    await say(readers[1], BYE)
    await say(await arrive(place.engine, "w"), wire.publish("t", b"body", 1, 1))
    assert await place.rows("message", "queue", "share") == {"message": 1, "queue": 3, "share": 1}
    await say(readers[2], wire.puback(1))
    assert await place.rows("message", "queue", "share") == {"message": 1, "queue": 2, "share": 1}
    await place.again()
    reader, _ = await back(place, "a")
    await say(reader, wire.puback(1))
    assert await place.rows("message", "queue", "share") == {"message": 1, "queue": 1}
    await say(await arrive(place.engine, "b", clean=True), PING)
    assert await place.rows("message", "queue", "share") == {}


async def test_the_clean_up_of_a_long_queue_goes_on_after_a_crash(place: Place) -> None:
    for name in ("r", "other"):
        reader = await arrive(place.engine, name, clean=False)
        await say(reader, wire.subscribe(1, ("t", 1)), BYE)
    count = COPIES * 5
    writer = await arrive(place.engine, "w")
    await say(writer, *(wire.publish("t", b"%d" % n, 1, n) for n in range(1, count + 1)))
    place.engine.drop(place.engine.sessions["r"])
    while (await place.rows("queue"))["queue"] > 2 * count - COPIES:
        await asyncio.sleep(0)
    await place.again()
    for _ in range(2_000):
        if await place.rows("queue", "share") == {"queue": count}:
            break
    assert await place.rows() == {"session": 1, "subscription": 1, "queue": count, "message": count}
    place.engine.drop(place.engine.sessions["other"])
    for _ in range(2_000):
        if not await place.rows():
            break
    assert await place.rows() == {}


async def test_sessions_belong_to_their_user_after_a_restart(place: Place) -> None:
    door = Door({"anna": b"1", "bert": b"2"})
    await arrive(place.engine, "r", door=door, clean=False, user="anna", password=b"1")
    await LocalTransport(place.engine).connect(Hello("here", 20, print))
    await place.safe()
    await place.again()
    thief = Peer(place.engine, door)
    assert (await say(thief, wire.connect("r", clean=False, user="bert", password=b"2")))[3] == 5
    await back(place, door=door, user="anna", password=b"1")
    with pytest.raises(NotYours):
        place.engine.attach(thief.connection, "here", "bert", clean=False)
    await LocalTransport(place.engine).connect(Hello("here", 20, print))


@pytest.mark.parametrize(
    ("wall", "away", "lives"),
    [
        (1_800_000_000.0, 3 * DAY, True),
        (1_800_000_000.0, 5 * DAY, False),
        (1_800_000_000.0, -30 * 365 * DAY, True),  # it boots in the past, without a battery
        (1_000_000.0, 50 * 365 * DAY, True),  # it left in the past and comes back with the right time
    ],
)
async def test_expiry_goes_on_after_a_restart(place: Place, wall: float, away: float, lives: bool) -> None:
    """7 days in all: 3 while it ran, the rest while it did not, as far as the wall clock can be believed."""
    place.time.wall = wall
    await say(await arrive(place.engine, "r", clean=False), BYE)
    place.time.passes(3 * DAY)
    await say(await arrive(place.engine, "other", clean=False), BYE)
    place.time.wall += away
    await place.again()
    place.time.passes(601)
    place.engine.sweep()
    assert ("r" in place.engine.sessions) is lives
    assert "other" in place.engine.sessions
    place.time.passes(4 * DAY)
    place.engine.sweep()
    assert "r" not in place.engine.sessions


async def test_everybody_has_time_to_come_back_after_a_restart(place: Place) -> None:
    """The time between is an estimate; a clock that was set wrong must not cost a session at once."""
    await say(await arrive(place.engine, "r", clean=False), BYE)
    place.time.wall += 400 * DAY
    await place.again()
    place.engine.sweep()
    await back(place)


async def test_who_was_connected_at_the_crash_is_offline_since_the_restart(place: Place) -> None:
    await say(await arrive(place.engine, "r", clean=False), PING)
    await place.again()
    assert place.engine.sessions["r"].offline_since == place.time.now


async def test_records_that_cannot_be_read_are_dropped_and_said(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("r", "q"):
        reader = await arrive(place.engine, name, clean=False)
        await say(reader, wire.subscribe(1, ("t", 1)), BYE)
    await say(
        await arrive(place.engine, "w"),
        *(wire.publish("t", b"%d" % n, 1, n) for n in range(1, 5)),
        wire.publish("a", b"1", retain=True),
        wire.publish("b", b"2", retain=True),
    )
    key = place.engine.sessions["q"].key
    mine = place.engine.sessions["r"].key
    bad = [
        Put("session", Key("q"), b"\x07later version"),
        Put("session", Key("torn"), b""),
        Put("retained", Key("a"), b"\x01\x00\xff\xff"),
        Put("retained", Key("elsewhere"), b"\x01\x00\x00\x01bx"),
        Put("queue", Key("", mine, 2), b"\x09" * 16),
        Put("inbound", Key("", 999, 1), b"\x01\x00"),
        Put("subscription", Key("x", mine), b"\x01\x09"),
        Put("broker", Key("clock"), b"\xff"),
        Put("message", Key("", 10**9), b"\x01\x01\x00\x01tnobody"),
        Put("share", Key("", 10**9 + 1), b"\x01\x00\x00\x00\x07"),
    ]
    place.store.submit(bad)
    await settle()
    with caplog.at_level(logging.ERROR):
        await place.again()
        _, heard = await back(place)
    assert caplog.text.count("is dropped") >= 8
    assert "'torn'" in caplog.text
    assert [payload for _, payload, _ in wire.published(heard)] == [b"1", b"3", b"4"]
    assert list(place.engine.sessions) == ["r"]
    assert place.engine._retained.match("#") == ["b"]
    for _ in range(200):
        await settle()
    assert await place.rows() == {"session": 1, "subscription": 1, "queue": 3, "message": 3, "retained": 1}
    assert not [item for item, _ in await place.store.scan("queue", Key("", key), Key("", key, 2**60))]
    caplog.clear()
    await place.again()
    assert not caplog.text


async def test_a_message_that_is_missing_costs_only_itself(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    reader = await arrive(place.engine, "r", clean=False)
    await say(reader, wire.subscribe(1, ("t", 1)), BYE)
    await say(await arrive(place.engine, "w"), *(wire.publish("t", b"%d" % n, 1, n) for n in range(1, 5)))
    numbers = [key for key, _ in await place.store.scan("message", Key("", 0), Key("", 2**60))]
    place.store.submit([Put("message", numbers[1], b"\x01")])
    await settle()
    reader, heard = await back(place)
    assert [payload for _, payload, _ in wire.published(heard)] == [b"1", b"3", b"4"]
    await say(reader, *(wire.puback(pid) for _, _, pid in wire.published(heard)))
    assert place.engine.sessions["r"].held == place.engine.sessions["r"].unacknowledged == 0
    assert await place.rows() == {"session": 1, "subscription": 1}


async def test_a_full_disk_stops_acknowledgements_and_reading_until_there_is_room(
    place: Place, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentmqtt.broker.behind._FIRST_RETRY", 0.02)
    reader = await arrive(place.engine, "r", clean=False)
    await say(reader, wire.subscribe(1, ("t", 1)), BYE)
    writer, calm = await arrive(place.engine, "w"), await arrive(place.engine, "calm")
    place.keeper._behind._delay = 0.02
    place.store.fail_next(StoreFull("no room"))
    assert await say(writer, wire.publish("t", b"1", 1, 1)) == b""
    assert place.keeper.trouble is not None
    assert await say(writer, wire.publish("t", b"2", 1, 2), wire.publish("t", b"3", 1, 3)) == b""
    assert writer.pipe.paused
    assert await say(calm, PING, wire.publish("t", b"live", 0)) == PONG
    assert (await say(Peer(place.engine), wire.connect("new", clean=False)))[3] == 3
    assert (await say(Peer(place.engine), wire.connect("fresh")))[3] == 0
    async with asyncio.timeout(5):
        while place.keeper.trouble is not None:
            await asyncio.sleep(0.01)
    assert await say(writer) == wire.puback(1) + wire.puback(2) + wire.puback(3)
    assert caplog.text.count("nothing is acknowledged") == caplog.text.count("publishers go on") == 1
    await place.again()
    _, heard = await back(place)
    assert [payload for _, payload, _ in wire.published(heard)] == [b"1", b"2", b"3"]


async def test_a_slow_disk_slows_publishers(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentmqtt.broker.behind._UNSAFE", 10_000)
    reader = await arrive(place.engine, "r", clean=False)
    await say(reader, wire.subscribe(1, ("t", 1)), BYE)
    writer = await arrive(place.engine, "w")
    place.store.pause()
    assert await say(writer, *(wire.publish("t", b"x" * 1_000, 1, n) for n in range(1, 101))) == b""
    assert writer.pipe.paused
    assert place.engine.counters["published"] < 20
    place.store.resume()
    heard = b"".join([await say(writer) for _ in range(20)])
    assert heard == b"".join(wire.puback(n) for n in range(1, 101))
    assert not writer.pipe.paused


async def test_a_long_queue_is_read_from_disk_in_order_while_more_comes(place: Place) -> None:
    reader = await arrive(place.engine, "r", clean=False)
    await say(reader, wire.subscribe(1, ("t", 1)), BYE)
    writer = await arrive(place.engine, "w")
    count = COPIES * 6
    for n in range(1, count + 1):
        await writer.ask(wire.publish("t", b"%d" % n, 1, n))
    session = place.engine.sessions["r"]
    assert not list(session.queue)
    assert len(session.queue) == count
    reader, heard = await back(place)
    seen: list[int] = []
    for _ in range(3 * count):
        got = wire.published(heard)
        seen += [int(payload) for _, payload, _ in got]
        assert len(list(session.queue)) <= 2 * COPIES
        if len(seen) >= 2 * count:
            break
        if count < 4 * COPIES * 6 and writer is not None and len(seen) < count:
            await writer.ask(wire.publish("t", b"%d" % (count + 1), 1, 1))
            count += 1
        heard = await reader.ask(*(wire.puback(pid) for _, _, pid in got))
        if not session.unacknowledged:
            break
    assert seen == list(range(1, count + 1))
    assert session.held == 0
    await say(reader, PING)
    assert await place.rows("queue", "message") == {}
