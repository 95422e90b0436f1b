"""Bytes of a client against the packets they are, or against the clause that they break."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmqtt.broker import packets
from agentmqtt.broker.packets import MalformedPacket, UnsupportedVersion
from agentmqtt.broker.reader import PacketReader
from tests.broker import wire

LIMIT = 1 << 20


def read(data: bytes, *, greeted: bool = True) -> list[packets.Packet]:
    reader = PacketReader(LIMIT)
    reader.greeted = greeted
    reader.feed(data)
    return list(iter(reader.next, None))


GOOD = [
    (wire.connect("abc"), packets.Connect("abc", True, 0, None, None, None)),
    (wire.connect("", keepalive=65535), packets.Connect("", True, 65535, None, None, None)),
    (
        wire.connect("a", clean=False, will=("w", b"\0", 2, True), user="u", password=b"\xff"),
        packets.Connect("a", False, 0, packets.LastWill("w", b"\0", 2, True), "u", b"\xff"),
    ),
    (wire.publish("a/b", b""), packets.Publish("a/b", b"", 0, False, False, 0)),
    (wire.publish("/", b"\0", 1, 7), packets.Publish("/", b"\0", 1, False, False, 7)),
    (wire.publish("ä", b"p", 2, 65535, retain=True, dup=True), packets.Publish("ä", b"p", 2, True, True, 65535)),
    (wire.publish("t", b"x" * 200_000), packets.Publish("t", b"x" * 200_000, 0, False, False, 0)),
    (wire.puback(1), packets.PubAck(1)),
    (wire.pubrec(2), packets.PubRec(2)),
    (wire.pubrel(3), packets.PubRel(3)),
    (wire.pubcomp(4), packets.PubComp(4)),
    (wire.subscribe(5, ("#", 0), ("+/a", 2)), packets.Subscribe(5, (("#", 0), ("+/a", 2)))),
    (wire.unsubscribe(6, "a/#", "b"), packets.Unsubscribe(6, ("a/#", "b"))),
    (wire.PING, packets.PingReq()),
    (wire.BYE, packets.Disconnect()),
    (b"\xc0\x80\x00", packets.PingReq()),  # a length that is longer than it needs to be is still a length
]


@pytest.mark.parametrize(("data", "expected"), GOOD)
def test_reads(data: bytes, expected: packets.Packet) -> None:
    assert read(data) == [expected]


BAD = {
    "1.5.3-1 not UTF-8": wire.packet(0x30, wire.text(b"\xff")),
    "1.5.3-1 a surrogate": wire.packet(0x30, wire.text(b"\xed\xa0\x80")),
    "1.5.3-1 overlong": wire.packet(0x30, wire.text(b"\xc0\xaf")),
    "1.5.3-2 U+0000": wire.packet(0x30, wire.text(b"a\0")),
    "1.5.3-2 U+0000 in a filter": wire.subscribe(1, ("a\0", 0)),
    "1.5.3-2 U+0000 in a client ID": wire.connect("a\0"),
    "2.2.2-2 PINGREQ flags": b"\xc1\x00",
    "2.2.2-2 DISCONNECT flags": b"\xe2\x00",
    "2.2.2-2 PUBACK flags": b"\x42\x02\x00\x01",
    "2.2.2-2 CONNECT flags": b"\x11" + wire.connect()[1:],
    "2.2.3 five length bytes": b"\x30\xff\xff\xff\xff\x01",
    "2.3.1-1 PUBLISH 0": wire.publish("a", b"", 1, 0),
    "2.3.1-1 SUBSCRIBE 0": wire.subscribe(0, ("a", 0)),
    "2.3.1-1 PUBACK 0": wire.puback(0),
    "3.1.2-1 another protocol": wire.packet(0x10, wire.text("HTTP"), b"\x04\x02\x00\x00", wire.text("c")),
    "3.1.2-3 reserved bit": wire.packet(0x10, wire.text("MQTT"), b"\x04\x03\x00\x00", wire.text("c")),
    "3.1.2-11 will QoS without a will": wire.packet(0x10, wire.text("MQTT"), b"\x04\x0a\x00\x00", wire.text("c")),
    "3.1.2-14 will QoS 3": wire.packet(0x10, wire.text("MQTT"), b"\x04\x1e\0\0", wire.text("c"), wire.text("w") * 2),
    "3.1.2-15 will retain without a will": wire.packet(0x10, wire.text("MQTT"), b"\x04\x22\x00\x00", wire.text("c")),
    "3.1.2-22 password without a user": wire.connect(password=b"p"),
    "3.1.3 CONNECT that ends early": wire.packet(0x10, wire.text("MQTT"), b"\x04\xc2\x00\x00", wire.text("c")),
    "3.1.3 CONNECT that is too long": wire.packet(0x10, wire.text("MQTT"), b"\x04\x02\x00\x00", wire.text("c"), b"!"),
    "3.1.3 CONNECT of nothing": b"\x10\x00",
    "3.1.3 CONNECT without a level": wire.packet(0x10, wire.text("MQTT")),
    "3.1.3 CONNECT without a keep-alive": wire.packet(0x10, wire.text("MQTT"), b"\x04\x02"),
    "3.3.2-2 will topic with a wildcard": wire.connect(will=("a/#", b"", 0, False)),
    "3.3.1-2 DUP at QoS 0": wire.publish("a", dup=True),
    "3.3.1-4 QoS 3": wire.packet(0x36, wire.text("a"), wire.number(1)),
    "3.3.2-2 topic with +": wire.publish("a/+"),
    "3.3.2-2 topic with #": wire.publish("#"),
    "4.7.3-1 no topic": wire.publish(""),
    "3.3 PUBLISH without a packet ID": wire.packet(0x32, wire.text("a")),
    "3.3 PUBLISH with half a topic": wire.packet(0x30, b"\x00\x05ab"),
    "3.3 PUBLISH of one byte": wire.packet(0x30, b"\x00"),
    "3.4 PUBACK with a tail": wire.packet(0x40, b"\x00\x01\x00"),
    "3.4 PUBACK of one byte": wire.packet(0x40, b"\x01"),
    "3.6.1-1 PUBREL flags": wire.packet(0x60, b"\x00\x01"),
    "3.8.1-1 SUBSCRIBE flags": wire.packet(0x80, wire.number(1), wire.text("a"), b"\x00"),
    "3.8.3-3 SUBSCRIBE of nothing": wire.subscribe(1),
    "3.8.3-4 SUBSCRIBE QoS 3": wire.subscribe(1, ("a", 3)),
    "3.8.3-4 SUBSCRIBE reserved bits": wire.subscribe(1, ("a", 0x11)),
    "3.8 SUBSCRIBE without QoS": wire.packet(0x82, wire.number(1), wire.text("a")),
    "3.10.1-1 UNSUBSCRIBE flags": wire.packet(0xA0, wire.number(1), wire.text("a")),
    "3.10.3-2 UNSUBSCRIBE of nothing": wire.unsubscribe(1),
    "3.12 PINGREQ with a body": b"\xc0\x01\x00",
    "4.7.1-2 # in the middle": wire.subscribe(1, ("a/#/b", 0)),
    "4.7.1-2 # beside text": wire.subscribe(1, ("a#", 0)),
    "4.7.1-3 + beside text": wire.subscribe(1, ("a/b+", 0)),
    "4.7.1-3 + beside text in the middle": wire.subscribe(1, ("+a/b", 0)),
    "4.7.3-1 empty filter": wire.subscribe(1, ("", 0)),
    "4.7 bad filter in UNSUBSCRIBE": wire.unsubscribe(1, "a#"),
    "more filters than one packet may have": wire.subscribe(1, *[("a", 0)] * 1_001),
    "more filters than one UNSUBSCRIBE may have": wire.unsubscribe(1, *["a"] * 1_001),
    "type 0": b"\x00\x00",
    "type 15": b"\xf0\x00",
    "CONNACK from a client": b"\x20\x02\x00\x00",
    "SUBACK from a client": wire.suback(1, 0),
    "UNSUBACK from a client": wire.unsuback(1),
    "PINGRESP from a client": wire.PONG,
}


@pytest.mark.parametrize("data", BAD.values(), ids=BAD.keys())
def test_refuses(data: bytes) -> None:
    with pytest.raises(MalformedPacket):
        read(data)


@pytest.mark.parametrize(
    ("level", "answer"),
    [(5, b"\x20\x03\x00\x84\x00"), (3, b"\x20\x02\x00\x01"), (6, b"\x20\x02\x00\x01"), (0x84, b"\x20\x02\x00\x01")],
)
def test_another_version_is_answered(level: int, answer: bytes) -> None:
    with pytest.raises(UnsupportedVersion) as caught:
        read(wire.packet(0x10, wire.text("MQIsdp" if level == 3 else "MQTT"), bytes([level, 2, 0, 0]), wire.text("c")))
    assert caught.value.answer == answer


def test_nothing_but_connect_comes_first() -> None:
    with pytest.raises(MalformedPacket, match=r"3\.1\.0-1"):
        read(b"GET / HTTP/1.1\r\n", greeted=False)
    assert read(wire.connect(), greeted=False)


def test_a_size_is_refused_before_it_is_buffered() -> None:
    reader = PacketReader(1000)
    reader.greeted = True
    reader.feed(b"\x30\xe9\x07")  # 1001 bytes are announced, none is sent
    with pytest.raises(MalformedPacket, match="1001 bytes; the limit is 1000"):
        reader.next()


@given(st.lists(st.sampled_from([data for data, _ in GOOD]), max_size=6), st.data())
def test_packets_may_be_split_anywhere(parts: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    reader, out = PacketReader(LIMIT), []
    reader.greeted = True
    for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        reader.feed(stream[start:stop])
        out += iter(reader.next, None)
    assert out == read(stream)


def test_a_byte_at_a_time() -> None:
    stream = b"".join(data for data, _ in GOOD if len(data) < 1000)
    reader, out = PacketReader(LIMIT), []
    reader.greeted = True
    for byte in stream:
        reader.feed(bytes([byte]))
        out += iter(reader.next, None)
    assert out == read(stream)


@given(st.binary(max_size=200))
def test_any_bytes_are_packets_or_malformed(data: bytes) -> None:
    try:
        read(data)
    except MalformedPacket:
        return


ANSWERS = [
    (packets.connack(packets.ACCEPTED, present=True), wire.WELCOME_BACK),
    (packets.connack(packets.BAD_LOGIN), b"\x20\x02\x00\x04"),
    (packets.publish(b"a", b"p", 0, 0, dup=False, retain=True), wire.publish("a", b"p", retain=True)),
    (packets.publish(b"a", b"", 1, 9, dup=True, retain=False), wire.publish("a", b"", 1, 9, dup=True)),
    (packets.publish(b"a", b"x" * 300, 2, 1, dup=False, retain=False), wire.publish("a", b"x" * 300, 2, 1)),
    (packets.puback(258), wire.puback(258)),
    (packets.pubrec(1), wire.pubrec(1)),
    (packets.pubrel(1), wire.pubrel(1)),
    (packets.pubcomp(1), wire.pubcomp(1)),
    (packets.suback(1, [0, 1, 2, 0x80]), wire.suback(1, 0, 1, 2, 0x80)),
    (packets.suback(1, [0] * 200), wire.suback(1, *[0] * 200)),
    (packets.unsuback(1), wire.unsuback(1)),
]


@pytest.mark.parametrize(("made", "expected"), ANSWERS)
def test_writes(made: bytes, expected: bytes) -> None:
    assert made == expected
