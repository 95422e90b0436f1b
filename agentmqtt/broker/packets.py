"""MQTT 3.1.1 packets as values: strict, synchronous, pure. Numbers in brackets are clauses of the standard.

Everything that the standard calls malformed ends in MalformedPacket: the connection that sent it is
closed, no other.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from agentmqtt.broker.topics import valid_filter, valid_topic
from agentmqtt.errors import WireError


class MalformedPacket(WireError):
    """Bytes that are not MQTT 3.1.1; the connection has to be closed [4.8.0-1]."""


class UnsupportedVersion(MalformedPacket):
    """A CONNECT of another protocol version; `answer` is the CONNACK that its sender understands."""

    def __init__(self, message: str, answer: bytes) -> None:
        super().__init__(message)
        self.answer = answer


class LastWill(NamedTuple):
    """What is published when the connection ends without DISCONNECT."""

    topic: str
    payload: bytes
    qos: int
    retain: bool


class Connect(NamedTuple):
    client_id: str
    clean: bool
    keepalive: int
    will: LastWill | None
    username: str | None
    password: bytes | None


class Publish(NamedTuple):
    """`packet_id` is 0 at QoS 0."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    dup: bool
    packet_id: int


class PubAck(NamedTuple):
    packet_id: int


class PubRec(NamedTuple):
    packet_id: int


class PubRel(NamedTuple):
    packet_id: int


class PubComp(NamedTuple):
    packet_id: int


class Subscribe(NamedTuple):
    packet_id: int
    filters: tuple[tuple[str, int], ...]


class Unsubscribe(NamedTuple):
    packet_id: int
    filters: tuple[str, ...]


class PingReq(NamedTuple):
    pass


class Disconnect(NamedTuple):
    pass


Packet: TypeAlias = (
    Connect | Publish | PubAck | PubRec | PubRel | PubComp | Subscribe | Unsubscribe | PingReq | Disconnect
)

ACCEPTED, BAD_VERSION, BAD_CLIENT_ID, UNAVAILABLE, BAD_LOGIN, NOT_AUTHORISED = range(6)
"""Return codes of CONNACK [3.2.2.3]."""
FAILURE = 0x80
"""Return code of SUBACK for a filter that is not granted [3.9.3]."""
PINGRESP = b"\xd0\x00"

MAX_FILTERS = 1_000
"""Filters of one SUBSCRIBE or UNSUBSCRIBE: the others must have their turn."""

_V5_REFUSAL = b"\x20\x03\x00\x84\x00"


# ------------------------------------------------------------------ fields


def _packet_id(data: bytes, at: int, end: int) -> int:
    if at + 2 > end:
        raise MalformedPacket("packet ends before its packet identifier")
    value = data[at] << 8 | data[at + 1]
    if not value:
        raise MalformedPacket("packet identifier 0 [2.3.1-1]")
    return value


def _binary(data: bytes, at: int, end: int) -> tuple[bytes, int]:
    if at + 2 > end:
        raise MalformedPacket("packet ends inside a length")
    stop = at + 2 + (data[at] << 8 | data[at + 1])
    if stop > end:
        raise MalformedPacket("packet ends inside a field")
    return data[at + 2 : stop], stop


def _text(data: bytes, at: int, end: int) -> tuple[str, int]:
    raw, at = _binary(data, at, end)
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise MalformedPacket(f"text is not UTF-8: {error.reason} [1.5.3-1]") from error
    if "\0" in text:
        raise MalformedPacket("text with U+0000 [1.5.3-2]")
    return text, at


def _no_flags(flags: int, expected: int, name: str) -> None:
    if flags != expected:
        raise MalformedPacket(f"{name} with flags {flags:04b} [2.2.2-2]")


# ------------------------------------------------------------------ bodies


def _read_connect(data: bytes, at: int, end: int, flags: int) -> Packet:
    _no_flags(flags, 0, "CONNECT")
    at = _read_version(data, at, end)
    if at + 3 > end:
        raise MalformedPacket("CONNECT ends inside its header")
    bits, keepalive = data[at], data[at + 1] << 8 | data[at + 2]
    _check_connect_bits(bits)
    client_id, at = _text(data, at + 3, end)
    will = None
    if bits & 0x04:
        will, at = _read_will(data, at, end, bits)
    username = password = None
    if bits & 0x80:
        username, at = _text(data, at, end)
    if bits & 0x40:
        password, at = _binary(data, at, end)
    if at != end:
        raise MalformedPacket("CONNECT is longer than its fields")
    return Connect(client_id, bool(bits & 0x02), keepalive, will, username, password)


def _read_version(data: bytes, at: int, end: int) -> int:
    name, at = _binary(data, at, end)
    if at >= end:
        raise MalformedPacket("CONNECT ends before its protocol level")
    level = data[at]
    if name == b"MQTT" and level == 4:
        return at + 1
    if name not in (b"MQTT", b"MQIsdp"):
        raise MalformedPacket("not MQTT [3.1.2-1]")
    answer = _V5_REFUSAL if level == 5 else connack(BAD_VERSION)
    raise UnsupportedVersion(f"protocol level {level}; this broker speaks MQTT 3.1.1 [3.1.2-2]", answer)


def _check_connect_bits(bits: int) -> None:
    will_bits = bits & 0x38
    if bits & 0x01:
        raise MalformedPacket("CONNECT with its reserved bit set [3.1.2-3]")
    if (will_bits and not bits & 0x04) or will_bits & 0x18 == 0x18:
        raise MalformedPacket("CONNECT with will flags that do not fit [3.1.2-11]")
    if bits & 0x40 and not bits & 0x80:
        raise MalformedPacket("CONNECT with a password and no user name [3.1.2-22]")


def _read_will(data: bytes, at: int, end: int, bits: int) -> tuple[LastWill, int]:
    topic, at = _text(data, at, end)
    payload, at = _binary(data, at, end)
    if not valid_topic(topic):
        raise MalformedPacket("will topic that no message can have")
    return LastWill(topic, payload, bits >> 3 & 3, bool(bits & 0x20)), at


def _read_publish(data: bytes, at: int, end: int, flags: int) -> Packet:
    qos = flags >> 1 & 3
    if qos == 3 or (flags & 8 and not qos):
        raise MalformedPacket(f"PUBLISH with flags {flags:04b} [3.3.1-2, 3.3.1-4]")
    topic, at = _text(data, at, end)
    if not topic or "+" in topic or "#" in topic:
        raise MalformedPacket("PUBLISH to a topic that no message can have [3.3.2-2]")
    packet_id = 0
    if qos:
        packet_id = _packet_id(data, at, end)
        at += 2
    return Publish(topic, data[at:end], qos, bool(flags & 1), bool(flags & 8), packet_id)


def _acknowledgement(
    make: Callable[[int], Packet], expected: int, name: str
) -> Callable[[bytes, int, int, int], Packet]:
    def read(data: bytes, at: int, end: int, flags: int) -> Packet:
        _no_flags(flags, expected, name)
        if end - at != 2:
            raise MalformedPacket(f"{name} of {end - at} bytes")
        return make(_packet_id(data, at, end))

    return read


def _read_subscribe(data: bytes, at: int, end: int, flags: int) -> Packet:
    _no_flags(flags, 2, "SUBSCRIBE")
    packet_id = _packet_id(data, at, end)
    filters: list[tuple[str, int]] = []
    at += 2
    while at < end and len(filters) <= MAX_FILTERS:
        pattern, at = _filter(data, at, end)
        if at >= end or data[at] > 2:
            raise MalformedPacket("SUBSCRIBE with a bad QoS byte [3.8.3-4]")
        filters.append((pattern, data[at]))
        at += 1
    _check_count(len(filters), "SUBSCRIBE")
    return Subscribe(packet_id, tuple(filters))


def _read_unsubscribe(data: bytes, at: int, end: int, flags: int) -> Packet:
    _no_flags(flags, 2, "UNSUBSCRIBE")
    packet_id = _packet_id(data, at, end)
    filters: list[str] = []
    at += 2
    while at < end and len(filters) <= MAX_FILTERS:
        pattern, at = _filter(data, at, end)
        filters.append(pattern)
    _check_count(len(filters), "UNSUBSCRIBE")
    return Unsubscribe(packet_id, tuple(filters))


def _check_count(filters: int, name: str) -> None:
    if not filters:
        raise MalformedPacket(f"{name} without a filter [3.8.3-3, 3.10.3-2]")
    if filters > MAX_FILTERS:
        raise MalformedPacket(f"{name} with more than {MAX_FILTERS} filters")


def _filter(data: bytes, at: int, end: int) -> tuple[str, int]:
    pattern, at = _text(data, at, end)
    if not valid_filter(pattern):
        raise MalformedPacket(f"{pattern!r} is not a topic filter [4.7.1-2]")
    return pattern, at


def _empty(packet: Packet, name: str) -> Callable[[bytes, int, int, int], Packet]:
    def read(data: bytes, at: int, end: int, flags: int) -> Packet:
        _no_flags(flags, 0, name)
        if at != end:
            raise MalformedPacket(f"{name} with a body")
        return packet

    return read


READERS: dict[int, Callable[[bytes, int, int, int], Packet]] = {
    1: _read_connect,
    3: _read_publish,
    4: _acknowledgement(PubAck, 0, "PUBACK"),
    5: _acknowledgement(PubRec, 0, "PUBREC"),
    6: _acknowledgement(PubRel, 2, "PUBREL"),
    7: _acknowledgement(PubComp, 0, "PUBCOMP"),
    8: _read_subscribe,
    10: _read_unsubscribe,
    12: _empty(PingReq(), "PINGREQ"),
    14: _empty(Disconnect(), "DISCONNECT"),
}
"""For each packet type: reads the body `data[at:end]` of a packet with these flags."""


# ------------------------------------------------------------------ to the client

_ACK = struct.Struct("!BBH")


def _size(value: int) -> bytes:
    if value < 128:
        return bytes((value,))
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def connack(code: int, *, present: bool = False) -> bytes:
    """[3.2] `present` tells whether a session was resumed; only a success may say so [3.2.2-4]."""
    return bytes((0x20, 2, present, code))


def publish(topic: bytes, payload: bytes, qos: int, packet_id: int, *, dup: bool, retain: bool) -> bytes:
    """[3.3] `packet_id` counts above QoS 0 only."""
    first = 0x30 | dup << 3 | qos << 1 | retain
    size = _size(2 + len(topic) + (2 if qos else 0) + len(payload))
    name = len(topic).to_bytes(2)
    if qos:
        return b"".join((bytes((first,)), size, name, topic, packet_id.to_bytes(2), payload))
    return b"".join((bytes((first,)), size, name, topic, payload))


def puback(packet_id: int) -> bytes:
    return _ACK.pack(0x40, 2, packet_id)


def pubrec(packet_id: int) -> bytes:
    return _ACK.pack(0x50, 2, packet_id)


def pubrel(packet_id: int) -> bytes:
    return _ACK.pack(0x62, 2, packet_id)


def pubcomp(packet_id: int) -> bytes:
    return _ACK.pack(0x70, 2, packet_id)


def suback(packet_id: int, codes: Sequence[int]) -> bytes:
    """[3.9] One code for each filter, in order: the granted QoS or FAILURE."""
    return b"".join((b"\x90", _size(2 + len(codes)), packet_id.to_bytes(2), bytes(codes)))


def unsuback(packet_id: int) -> bytes:
    return _ACK.pack(0xB0, 2, packet_id)
