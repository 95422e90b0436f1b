"""Retained messages: kept, replaced, cleared; sent with RETAIN to new subscriptions and nobody else."""

from __future__ import annotations

import logging

import pytest

from tests.broker import wire
from tests.broker.wire import WELCOME_BACK, Peer, arrive, engine


async def test_a_subscription_gets_it_with_the_flag_and_a_live_reader_without() -> None:
    """[3.3.1-6, 3.3.1-8, 3.3.1-9]"""
    broker = engine()
    live, writer = await arrive(broker, "live"), await arrive(broker, "w")
    await live.ask(wire.subscribe(1, ("s/#", 1)))
    writer.say(wire.publish("s/a", b"old", 1, 1, retain=True), wire.publish("s/a", b"new", 1, 2, retain=True))
    assert await live.heard() == wire.publish("s/a", b"old", 1, 1) + wire.publish("s/a", b"new", 1, 2)
    late = await arrive(broker, "late")
    assert await late.ask(wire.subscribe(1, ("s/+", 1))) == wire.suback(1, 1) + wire.publish(
        "s/a", b"new", 1, 1, retain=True
    )


async def test_its_qos_is_the_lower_one() -> None:
    broker = engine()
    writer = await arrive(broker, "w")
    await writer.ask(wire.publish("s/0", b"p", 0, retain=True), wire.publish("s/2", b"p", 2, 1, retain=True))
    late = await arrive(broker, "late")
    assert await late.ask(wire.subscribe(1, ("s/0", 2))) == wire.suback(1, 2) + wire.publish("s/0", b"p", retain=True)
    assert await late.ask(wire.subscribe(2, ("s/2", 1))) == wire.suback(2, 1) + wire.publish(
        "s/2", b"p", 1, 1, retain=True
    )


async def test_an_empty_payload_clears_it_and_is_delivered() -> None:
    """[3.3.1-10, 3.3.1-11]"""
    broker = engine()
    live, writer = await arrive(broker, "live"), await arrive(broker, "w")
    await live.ask(wire.subscribe(1, ("s", 0)))
    await writer.ask(wire.publish("s", b"p", retain=True), wire.publish("s", b"", retain=True))
    assert await live.heard() == wire.publish("s", b"p") + wire.publish("s", b"")
    late = await arrive(broker, "late")
    assert await late.ask(wire.subscribe(1, ("s", 0))) == wire.suback(1, 0)
    assert broker._retained_bytes == len(broker._retained) == 0


async def test_subscribing_again_sends_it_again_but_resuming_does_not() -> None:
    """[3.8.4-3]"""
    broker = engine()
    writer, reader = await arrive(broker, "w"), await arrive(broker, "r", clean=False)
    await writer.ask(wire.publish("s", b"p", retain=True))
    for pid in (1, 2):
        assert wire.publish("s", b"p", retain=True) in await reader.ask(wire.subscribe(pid, ("s", 1)))
    await reader.ask(wire.BYE)
    again = Peer(broker)
    assert await again.ask(wire.connect("r", clean=False)) == WELCOME_BACK


async def test_a_queued_message_is_not_flagged_as_retained() -> None:
    broker = engine()
    writer, reader = await arrive(broker, "w"), await arrive(broker, "r", clean=False)
    await reader.ask(wire.subscribe(1, ("s", 1)), wire.BYE)
    await writer.ask(wire.publish("s", b"p", 1, 1, retain=True))
    again = Peer(broker)
    assert await again.ask(wire.connect("r", clean=False)) == WELCOME_BACK + wire.publish("s", b"p", 1, 1)


async def test_many_retained_messages_do_not_fill_the_queue_of_a_slow_reader() -> None:
    broker = engine(queue=100, window=10)
    writer = await arrive(broker, "w")
    await writer.ask(*(wire.publish(f"s/{n}", b"p", 1, n + 1, retain=True) for n in range(1_000)))
    late, got = await arrive(broker, "late"), set()
    fresh = wire.published((await late.ask(wire.subscribe(1, ("s/+", 1))))[5:])
    while fresh:
        got.update(topic for topic, _, _ in fresh)
        fresh = wire.published(await late.ask(*(wire.puback(pid) for _, _, pid in fresh)))
    assert len(got) == 1_000
    assert not late.closed


async def test_a_retained_message_that_changes_while_it_waits_is_sent_as_it_is_then() -> None:
    broker = engine(window=1)
    writer = await arrive(broker, "w")
    await writer.ask(*(wire.publish(f"s/{n}", b"old", 1, n + 1, retain=True) for n in range(200)))
    late = await arrive(broker, "late")
    await late.ask(wire.subscribe(1, ("s/+", 1)), wire.unsubscribe(2, "s/+"))
    waiting = next(iter(broker.sessions["late"].backlog))
    await writer.ask(wire.publish(waiting, b"", 1, 1, retain=True))
    heard, pid = b"", 1
    while chunk := await late.ask(wire.puback(pid)):
        heard, pid = heard + chunk, pid + 1
    assert waiting.encode() not in heard
    assert pid == 199


async def test_bounds_refuse_to_retain_aloud_but_deliver(caplog: pytest.LogCaptureFixture) -> None:
    broker = engine(retained=1)
    reader, writer = await arrive(broker, "r"), await arrive(broker, "w")
    await reader.ask(wire.subscribe(1, ("#", 0)))
    with caplog.at_level(logging.WARNING):
        await writer.ask(wire.publish("a", b"1", retain=True), wire.publish("b", b"2", retain=True))
    assert await reader.heard() == wire.publish("a", b"1") + wire.publish("b", b"2")
    assert broker.counters["not_retained"] == 1
    assert "no room to retain 'b'" in caplog.text
    await writer.ask(wire.publish("a", b"3", retain=True))
    assert broker._retained.get("a").payload == b"3"


async def test_a_value_that_outgrows_the_bounds_leaves_no_old_one_behind() -> None:
    broker = engine(retained_bytes=1_000)
    writer = await arrive(broker, "w")
    await writer.ask(wire.publish("a", b"1", retain=True), wire.publish("a", b"x" * 900, retain=True))
    assert broker._retained.get("a") is None
    assert broker._retained_bytes == 0


async def test_a_retained_message_that_finds_no_room_waits() -> None:
    broker = engine(queue_bytes=3_000)
    writer = await arrive(broker, "w")
    await writer.ask(*(wire.publish(f"s/{n}", b"x" * 1_000, 1, n + 1, retain=True) for n in range(5)))
    late, got = await arrive(broker, "late"), []
    fresh = wire.published((await late.ask(wire.subscribe(1, ("s/+", 1))))[5:])
    assert len(fresh) == 2
    while fresh:
        got += [topic for topic, _, _ in fresh]
        fresh = wire.published(await late.ask(*(wire.puback(pid) for _, _, pid in fresh)))
    assert sorted(got) == [f"s/{n}" for n in range(5)]
