"""Bytes in, bytes out, closed or not: the standard clause by clause, on a connection without a socket."""

from __future__ import annotations

import pytest

from tests.broker import wire
from tests.broker.wire import BYE, PING, PONG, WELCOME, WELCOME_BACK, Door, Peer, arrive, engine

C, CLOSED, OPEN = wire.connect(), True, False

TALKS: dict[str, tuple[bytes, bytes, bool]] = {
    "3.1.0-1 first packet": (PING, b"", CLOSED),
    "3.1.0-2 second CONNECT": (C + C, WELCOME, CLOSED),
    "3.1.2-2 MQTT 5": (b"\x10\x0e\x00\x04MQTT\x05\x02\x00\x00\x00\x00\x01c", b"\x20\x03\x00\x84\x00", CLOSED),
    "3.1.2-2 MQTT 3.1": (wire.packet(0x10, wire.text("MQIsdp"), b"\3\2\0\0", wire.text("c")), b" \2\0\1", CLOSED),
    "3.1.3-6 empty client ID": (wire.connect(""), WELCOME, OPEN),
    "3.1.3-8 empty client ID and a session": (wire.connect("", clean=False), b"\x20\x02\x00\x02", CLOSED),
    "a client ID beyond the limit": (wire.connect("x" * 257), b"\x20\x02\x00\x02", CLOSED),
    "3.1.4-5 packets before CONNACK": (
        C + wire.subscribe(1, ("a", 1)) + PING,
        WELCOME + wire.suback(1, 1) + PONG,
        OPEN,
    ),
    "3.2.2-1 a new session": (wire.connect("new", clean=False), WELCOME, OPEN),
    "3.3.1-2 QoS 1 is acknowledged": (C + wire.publish("a", b"", 1, 7), WELCOME + wire.puback(7), OPEN),
    "3.3.1-2 QoS 2 is received": (C + wire.publish("a", b"", 2, 7), WELCOME + wire.pubrec(7), OPEN),
    "3.3.4 QoS 0 is not answered": (C + wire.publish("a"), WELCOME, OPEN),
    "3.3.2-2 a wildcard topic": (C + wire.publish("a/+", b"\xc0\x00"), WELCOME, CLOSED),
    "4.7.2 a $ topic": (C + wire.publish("$SYS/x", b"", 1, 1), WELCOME, CLOSED),
    "a topic of too many levels": (C + wire.publish("/" * 64, b"", 1, 1), WELCOME, CLOSED),
    "4.3.3-2 PUBREL without a PUBLISH": (C + wire.pubrel(9), WELCOME + wire.pubcomp(9), OPEN),
    "4.3.3-1 PUBREC of nothing": (C + wire.pubrec(9), WELCOME + wire.pubrel(9), OPEN),
    "PUBACK and PUBCOMP of nothing": (C + wire.puback(9) + wire.pubcomp(9) + PING, WELCOME + PONG, OPEN),
    "3.8.4-5 one code for each filter": (
        C + wire.subscribe(2, ("a", 0), ("b/#", 2), ("c", 1)),
        WELCOME + wire.suback(2, 0, 2, 1),
        OPEN,
    ),
    "shared subscriptions are not granted": (
        C + wire.subscribe(2, ("$share/g/a", 1), ("a", 1)),
        WELCOME + wire.suback(2, 0x80, 1),
        OPEN,
    ),
    "a filter of too many levels": (C + wire.subscribe(2, ("/" * 64, 1)), WELCOME + wire.suback(2, 0x80), OPEN),
    "3.8.3-4 SUBSCRIBE QoS 3": (C + wire.subscribe(1, ("a", 3)), WELCOME, CLOSED),
    "3.10.4-5 UNSUBSCRIBE of nothing": (C + wire.unsubscribe(3, "a", "b"), WELCOME + wire.unsuback(3), OPEN),
    "3.12.4-1 PING": (C + PING + PING, WELCOME + PONG + PONG, OPEN),
    "3.14.4-1 DISCONNECT": (C + BYE, WELCOME, CLOSED),
    "3.14.4-2 nothing after DISCONNECT": (C + BYE + PING, WELCOME, CLOSED),
    "what came before a broken packet counts": (
        C + wire.publish("a", b"", 1, 7) + b"\xf0\x00" + PING,
        WELCOME + wire.puback(7),
        CLOSED,
    ),
    "a packet beyond the limit": (C + b"\x30\xff\xff\xff\x7f", WELCOME, CLOSED),
    "a CONNECT beyond its limit": (b"\x10\xff\xff\xff\x7f", b"", CLOSED),
}


@pytest.mark.parametrize(("said", "heard", "closed"), TALKS.values(), ids=TALKS.keys())
async def test_talk(said: bytes, heard: bytes, closed: bool) -> None:
    peer = Peer(engine())
    assert await peer.ask(said) == heard
    assert peer.closed is closed


@pytest.mark.parametrize(("said", "heard", "closed"), TALKS.values(), ids=TALKS.keys())
async def test_talk_a_byte_at_a_time(said: bytes, heard: bytes, closed: bool) -> None:
    peer, got = Peer(engine()), b""
    for byte in said:
        if not peer.closed:
            got += await peer.ask(bytes([byte]))
    assert got == heard
    assert peer.closed is closed


@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("subscribed", [0, 1, 2])
async def test_delivery_has_the_lower_qos_and_no_retain_flag(published: int, subscribed: int) -> None:
    """[3.3.1-9, 3.8.4-6]"""
    broker = engine()
    reader, writer = await arrive(broker, "r"), await arrive(broker, "w")
    await reader.ask(wire.subscribe(1, ("a/+", subscribed)))
    writer.say(wire.publish("a/b", b"p", published, 3, retain=True))
    qos = min(published, subscribed)
    assert await reader.heard() == wire.publish("a/b", b"p", qos, 1 if qos else 0)


async def test_qos_2_is_routed_once_however_often_it_is_sent() -> None:
    """[4.3.3-2]"""
    broker = engine()
    reader, writer = await arrive(broker, "r"), await arrive(broker, "w")
    await reader.ask(wire.subscribe(1, ("a", 0)))
    one, again = wire.publish("a", b"1", 2, 5), wire.publish("a", b"1", 2, 5, dup=True)
    assert await writer.ask(one, again) == wire.pubrec(5) * 2
    assert await writer.ask(wire.pubrel(5), wire.pubrel(5)) == wire.pubcomp(5) * 2
    writer.say(wire.publish("a", b"2", 2, 5))
    assert await reader.heard() == wire.publish("a", b"1") + wire.publish("a", b"2")


async def test_qos_2_is_still_known_after_a_reconnect() -> None:
    broker = engine()
    reader = await arrive(broker, "r")
    await reader.ask(wire.subscribe(1, ("a", 0)))
    writer = await arrive(broker, "w", clean=False)
    await writer.ask(wire.publish("a", b"1", 2, 5))
    await writer.vanish()
    writer = await arrive(broker, "w", clean=False)
    assert await writer.ask(wire.publish("a", b"1", 2, 5, dup=True)) == wire.pubrec(5)
    assert await reader.heard() == wire.publish("a", b"1")


async def test_qos_2_to_a_reader_is_repeated_where_it_stopped() -> None:
    """[4.3.3-1, 4.4.0-1]"""
    broker = engine()
    reader, writer = await arrive(broker, "r", clean=False), await arrive(broker, "w")
    await reader.ask(wire.subscribe(1, ("a", 2)))
    writer.say(wire.publish("a", b"1", 2, 1), wire.publish("a", b"2", 2, 2))
    assert await reader.heard() == wire.publish("a", b"1", 2, 1) + wire.publish("a", b"2", 2, 2)
    assert await reader.ask(wire.pubrec(1)) == wire.pubrel(1)
    await reader.vanish()
    reader = Peer(broker)
    again = wire.pubrel(1) + wire.publish("a", b"2", 2, 2, dup=True)
    assert await reader.ask(wire.connect("r", clean=False)) == WELCOME_BACK + again
    assert await reader.ask(wire.pubcomp(1), wire.pubrec(2), wire.pubcomp(2)) == wire.pubrel(2)
    await reader.vanish()
    reader = Peer(broker)
    assert await reader.ask(wire.connect("r", clean=False)) == WELCOME_BACK


async def test_a_resumed_session_gets_what_was_in_flight_before_what_waited() -> None:
    """[4.6.0-1, 4.6.0-6]"""
    broker = engine(window=2)
    reader, writer = await arrive(broker, "r", clean=False), await arrive(broker, "w")
    await reader.ask(wire.subscribe(1, ("a", 1)))
    await writer.ask(*(wire.publish("a", b"%d" % n, 1, n) for n in range(1, 4)))
    assert await reader.heard() == wire.publish("a", b"1", 1, 1) + wire.publish("a", b"2", 1, 2)
    await reader.vanish()
    await writer.ask(wire.publish("a", b"4", 1, 4), wire.publish("a", b"0", 0))
    reader = Peer(broker)
    assert await reader.ask(wire.connect("r", clean=False)) == WELCOME_BACK + wire.publish(
        "a", b"1", 1, 1, dup=True
    ) + wire.publish("a", b"2", 1, 2, dup=True)
    assert await reader.ask(wire.puback(1)) == wire.publish("a", b"3", 1, 3)
    assert await reader.ask(wire.puback(2), wire.puback(3)) == wire.publish("a", b"4", 1, 4)


async def test_a_clean_session_ends_with_its_connection() -> None:
    """[3.1.2-6]"""
    broker = engine()
    for goodbye in (b"", BYE):
        reader = await arrive(broker, "r")
        await reader.ask(wire.subscribe(1, ("a", 1)), goodbye)
        await reader.vanish()
        assert not broker.sessions
        assert not broker._subscriptions._trie.root.children


async def test_clean_session_discards_the_one_before() -> None:
    """[3.1.2-6] and it does not become persistent by a later connection."""
    broker = engine()
    reader = await arrive(broker, "r", clean=False)
    await reader.ask(wire.subscribe(1, ("a", 1)), BYE)
    writer = await arrive(broker, "w")
    await writer.ask(wire.publish("a", b"", 1, 1))
    for clean in (True, False):
        peer = Peer(broker)
        assert await peer.ask(wire.connect("r", clean=clean)) == WELCOME
        await peer.ask(BYE)


async def test_an_anonymous_client_keeps_its_session() -> None:
    broker = engine()
    reader = await arrive(broker, "r", clean=False)
    await reader.ask(wire.subscribe(1, ("a", 1)), BYE)
    writer = await arrive(broker, "w")
    await writer.ask(wire.publish("a", b"later", 1, 1))
    reader = Peer(broker)
    assert await reader.ask(wire.connect("r", clean=False)) == WELCOME_BACK + wire.publish("a", b"later", 1, 1)


async def test_subscribing_again_changes_the_qos() -> None:
    """[3.8.4-3]"""
    broker = engine()
    reader, writer = await arrive(broker, "r"), await arrive(broker, "w")
    for qos in (0, 1, 0):
        await reader.ask(wire.subscribe(1, ("a", qos)))
        writer.say(wire.publish("a", b"", 1, 1))
        heard = await reader.heard()
        assert heard[0] >> 1 & 3 == qos


async def test_unsubscribing_ends_it() -> None:
    broker = engine()
    reader, writer = await arrive(broker, "r"), await arrive(broker, "w")
    await reader.ask(wire.subscribe(1, ("a", 1), ("b", 1)))
    assert await reader.ask(wire.unsubscribe(2, "a")) == wire.unsuback(2)
    writer.say(wire.publish("a", b"", 1, 1), wire.publish("b", b"", 1, 2))
    assert await reader.heard() == wire.publish("b", b"", 1, 1)


async def test_overlapping_filters_give_one_copy_at_the_highest_qos() -> None:
    """[3.3.5-1]"""
    broker = engine()
    reader, writer = await arrive(broker, "r"), await arrive(broker, "w")
    await reader.ask(wire.subscribe(1, ("#", 0), ("a/+", 1), ("a/b", 0)))
    writer.say(wire.publish("a/b", b"p", 1, 1))
    assert await reader.heard() == wire.publish("a/b", b"p", 1, 1)


async def test_a_login_that_is_refused_says_why() -> None:
    door = Door({"ann": b"secret"})
    for said, heard in [
        (wire.connect("c", user="ann", password=b"secret"), WELCOME),
        (wire.connect("d", user="ann", password=b"wrong"), b"\x20\x02\x00\x04"),
        (wire.connect("d", user="bob"), b"\x20\x02\x00\x04"),
    ]:
        peer = Peer(engine(), door)
        assert await peer.ask(said) == heard
        assert peer.closed is (heard != WELCOME)
