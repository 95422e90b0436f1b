"""What every transport promises (transport.base), in every world."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from agentmqtt.errors import LinkLost, TakenOver
from agentmqtt.transport.base import Will
from tests.transport.contract.conftest import World


async def test_a_message_arrives_and_its_future_is_done(world: World) -> None:
    reader, writer = await world.join("reader", "a/b"), await world.join("writer")
    await writer.connection.publish("a/b", b"hello")
    delivery = await reader.next()
    assert (delivery.topic, delivery.payload, delivery.retain, delivery.dup) == ("a/b", b"hello", False, False)


async def test_pipelined_messages_keep_their_order(world: World) -> None:
    reader, writer = await world.join("reader", "a"), await world.join("writer")
    sent = [b"%d" % i for i in range(1500)]
    done = [writer.connection.publish("a", payload) for payload in sent]
    got = []
    for _ in sent:
        delivery = await reader.next()
        delivery.ack()
        got.append(delivery.payload)
    await asyncio.wait_for(asyncio.gather(*done), 10)
    assert got == sent


async def test_payloads_and_topics_arrive_as_they_were_sent(world: World) -> None:
    peer = await world.join("peer", "+/x")
    for topic, payload in (("a/x", b""), ("%C3%A9/x", bytes(range(256))), ("ü/x", b"z" * 48 * 1024)):
        await peer.connection.publish(topic, payload)
        delivery = await peer.next()
        assert (delivery.topic, delivery.payload) == (topic, payload)


async def test_wildcards_take_what_mqtt_says(world: World) -> None:
    peer = await world.join("peer", "one/+/x", "many/#")
    for topic in ("one/a/y", "one/a/x", "one/a/b/x", "other", "many", "many/a/b", "end"):
        await peer.connection.publish(topic, b"")
    await peer.connection.subscribe(["end"])
    await peer.connection.publish("end", b"")
    got = []
    while not got or got[-1] != "end":
        got.append((await peer.next()).topic)
    assert got == ["one/a/x", "many", "many/a/b", "end"]


async def test_retained_messages_come_with_each_subscription_and_are_marked(world: World) -> None:
    writer = await world.join("writer")
    await writer.connection.publish("status", b"old", retain=True)
    await writer.connection.publish("status", b"new", retain=True)
    reader = await world.join("reader", "status")
    assert (await reader.next()).payload == b"new"
    await reader.connection.subscribe(["status"])
    again = await reader.next()
    assert (again.payload, again.retain) == (b"new", True)
    await writer.connection.publish("status", b"live", retain=True)
    live = await reader.next()
    assert (live.payload, live.retain) == (b"live", False)


async def test_an_empty_retained_message_deletes(world: World) -> None:
    writer = await world.join("writer")
    await writer.connection.publish("status", b"x", retain=True)
    await writer.connection.publish("status", b"", retain=True)
    reader = await world.join("reader", "status")
    await writer.connection.publish("status", b"live")
    assert (await reader.next()).payload == b"live"


async def test_unsubscribed_means_quiet(world: World) -> None:
    peer = await world.join("peer", "a", "b")
    await peer.connection.unsubscribe(["a"])
    await peer.connection.publish("a", b"no")
    await peer.connection.publish("b", b"yes")
    assert (await peer.next()).payload == b"yes"


async def test_a_hundred_filters_in_one_call(world: World) -> None:
    peer = await world.join("peer", *(f"many/{i}" for i in range(100)))
    for i in (0, 57, 99):
        await peer.connection.publish(f"many/{i}", b"")
        assert (await peer.next()).topic == f"many/{i}"


async def test_a_session_keeps_what_came_while_the_client_was_away(world: World) -> None:
    writer, reader = await world.join("writer"), await world.join("reader", "a")
    await reader.connection.close()
    for payload in (b"1", b"2"):
        await writer.connection.publish("a", payload)
    reader = await world.join("reader")
    assert [(await reader.next()).payload for _ in range(2)] == [b"1", b"2"]


async def test_expiry_zero_keeps_nothing(world: World) -> None:
    writer, reader = await world.join("writer"), await world.join("reader", "a", session_expiry=0)
    await reader.connection.close()
    await writer.connection.publish("a", b"missed")
    reader = await world.join("reader", "b", session_expiry=0)
    await writer.connection.publish("a", b"not wanted")
    await writer.connection.publish("b", b"wanted")
    assert (await reader.next()).payload == b"wanted"


async def test_expiry_zero_forgets_an_older_session(world: World) -> None:
    writer, reader = await world.join("writer"), await world.join("reader", "a")
    await reader.connection.close()
    reader = await world.join("reader", "b", session_expiry=0)
    await writer.connection.publish("a", b"not wanted")
    await writer.connection.publish("b", b"wanted")
    assert (await reader.next()).payload == b"wanted"


async def test_only_what_was_not_acknowledged_comes_again(world: World) -> None:
    writer, reader = await world.join("writer"), await world.join("reader", "a")
    for payload in (b"1", b"2", b"3"):
        await writer.connection.publish("a", payload)
    for delivery in [await reader.next() for _ in range(3)][:2]:
        delivery.ack()
        delivery.ack()  # again does nothing
    await reader.connection.close()
    reader = await world.join("reader")
    again = await reader.next()
    assert (again.payload, again.dup) == (b"3", True)
    again.ack()
    await writer.connection.publish("a", b"4")
    assert (await reader.next()).payload == b"4"


async def test_a_late_ack_touches_nothing_of_the_next_connection(world: World) -> None:
    writer, reader = await world.join("writer"), await world.join("reader", "a")
    await writer.connection.publish("a", b"1")
    stale = await reader.next()
    await reader.connection.close(goodbye=False)
    reader = await world.join("reader")
    assert (await reader.next()).payload == b"1"
    stale.ack()
    await reader.connection.close()
    reader = await world.join("reader")
    assert (await reader.next()).payload == b"1"


async def test_the_will_comes_without_a_goodbye_and_only_then(world: World) -> None:
    watcher = await world.join("watcher", "will/+")
    polite = await world.join("polite", will=Will("will/polite", b"gone"))
    rude = await world.join("rude", will=Will("will/rude", b"gone"))
    await polite.connection.close()
    await rude.connection.close(goodbye=False)
    assert (await watcher.next()).topic == "will/rude"
    late = await world.join("late", "will/+")
    will = await late.next()
    assert (will.topic, will.payload, will.retain) == ("will/rude", b"gone", True)


async def test_what_was_sent_before_goodbye_arrives(world: World) -> None:
    watcher, leaver = await world.join("watcher", "a"), await world.join("leaver", will=Will("a", b"will"))
    for i in range(50):
        leaver.connection.publish("a", b"%d" % i)
    await leaver.connection.close()
    for i in range(50):
        delivery = await watcher.next()
        delivery.ack()
        assert delivery.payload == b"%d" % i


async def test_the_second_with_an_id_takes_over(world: World) -> None:
    first = await world.join("same", "a")
    second = await world.join("same")
    assert isinstance(await first.lost(), LinkLost | TakenOver)
    await second.connection.publish("a", b"for the session")
    assert (await second.next()).payload == b"for the session"
    assert first.got.empty()


async def test_what_is_under_way_fails_when_the_link_goes(world: World) -> None:
    peer = await world.join("peer", "a")
    doomed = [peer.connection.publish("a", b"x") for _ in range(3000)]
    await peer.connection.close(goodbye=False)
    results = await asyncio.wait_for(asyncio.gather(*doomed, return_exceptions=True), 5)
    assert {type(result) for result in results} <= {LinkLost, type(None)}
    if world.remote:
        assert isinstance(results[-1], LinkLost)


async def test_a_lost_connection_refuses_work(world: World) -> None:
    peer = await world.join("peer")
    await peer.connection.close()
    with pytest.raises(LinkLost):
        await peer.connection.publish("a", b"")
    with pytest.raises(LinkLost):
        await peer.connection.subscribe(["a"])
    with pytest.raises(LinkLost):
        await peer.connection.unsubscribe(["a"])
    await peer.connection.close()
    await peer.connection.close(goodbye=False)
    assert isinstance(await peer.lost(), LinkLost)


async def test_a_subscribe_under_way_fails_when_the_link_goes(world: World) -> None:
    peer = await world.join("peer")
    asked = asyncio.ensure_future(peer.connection.subscribe(["a"]))
    await asyncio.sleep(0)
    await peer.connection.close(goodbye=False)
    with pytest.raises(LinkLost) if world.remote else contextlib.nullcontext():
        await asyncio.wait_for(asked, 5)


async def test_a_broker_that_dies_is_noticed_and_found_again(world: World) -> None:
    peer = await world.join("peer", "a")
    await world.restart()
    assert isinstance(await peer.lost(), LinkLost)
    peer = await world.join("peer", "a")
    await peer.connection.publish("a", b"again")
    assert (await peer.next()).payload == b"again"


async def test_a_handler_that_fails_is_reported_and_ends_nothing(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    seen: asyncio.Queue[bytes] = asyncio.Queue()

    def handler(delivery: object) -> None:
        seen.put_nowait(delivery.payload)
        raise ZeroDivisionError

    peer = await world.join("peer", "a", on_message=handler)
    for payload in (b"1", b"2"):
        await peer.connection.publish("a", payload)
        assert await asyncio.wait_for(seen.get(), 5) == payload
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [ZeroDivisionError] * 2


async def test_a_handler_may_publish_and_acknowledge(world: World) -> None:
    peer = await world.join("peer", "answer")

    def handler(delivery: object) -> None:
        delivery.ack()
        peer.connection.publish("answer", delivery.payload)

    other = await world.join("other", "question", on_message=handler)
    await other.connection.publish("question", b"?")
    assert (await peer.next()).payload == b"?"
