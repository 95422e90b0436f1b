"""How the broker's state looks on disk. Each record begins with the version of its form.

| space | key | record |
|---|---|---|
| `session` | client ID | its number, user, when it went offline, packet IDs used |
| `subscription` | filter, number of the session | QoS, whether retained messages are due |
| `queue` | "", number of the session, number of the copy | a copy: QoS, flight, number of the message |
| `inbound` | "", number of the session, packet ID | a QoS 2 message that awaits its PUBREL |
| `message` | "", number of the message | topic and payload, once for all copies |
| `share` | "", number of the message | how many copies there are, if more than one |
| `retained` | topic | topic and payload |
| `broker` | `clock`, `numbers` | how long the broker has lived; which numbers were given out |
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from agentmqtt import wire
from agentmqtt.broker.messages import Message, Outgoing
from agentmqtt.broker.sessions import HERE, User
from agentmqtt.errors import WireError

SESSION, SUBSCRIPTION, QUEUE, INBOUND = "session", "subscription", "queue", "inbound"
MESSAGE, SHARE, RETAINED, OWN = "message", "share", "retained", "broker"

_VERSION = 1
_MESSAGE = struct.Struct(">BBH")
_COPY = struct.Struct(">BBHIQ")
_SHORT = struct.Struct(">BB")
_COUNT = struct.Struct(">BI")
_RETAIN, _RECEIVED = 4, 8
_DUE = 4


class BadRecord(ValueError):
    """It was written by another version, or is damaged."""


class Copy(NamedTuple):
    """A queued copy. `cost` is that of its message, which `message` numbers."""

    qos: int
    retain: bool
    received: bool
    packet_id: int
    cost: int
    message: int


class SavedSession(NamedTuple):
    """`since` is the broker's age in seconds when the client left, None while it is there."""

    key: int
    user: User
    since: float | None
    last_id: int


def _checked(form: struct.Struct, body: bytes) -> tuple[Any, ...]:
    if len(body) < form.size or body[0] != _VERSION:
        raise BadRecord(f"{len(body)} bytes that begin with {body[:1].hex() or 'nothing'}")
    return form.unpack_from(body)[1:]


def pack_message(message: Message) -> bytes:
    return _MESSAGE.pack(_VERSION, message.qos, len(message.name)) + message.name + message.payload


def unpack_message(body: bytes) -> Message:
    """Raises BadRecord."""
    qos, size = _checked(_MESSAGE, body)
    start = _MESSAGE.size + size
    if len(body) < start or qos > 2:
        raise BadRecord(f"a message of {len(body)} bytes with a topic of {size}")
    try:
        return Message(body[_MESSAGE.size : start].decode(), body[start:], qos)
    except UnicodeDecodeError as error:
        raise BadRecord(str(error)) from error


def pack_copy(copy: Outgoing) -> bytes:
    flags = copy.qos | copy.retain * _RETAIN | copy.received * _RECEIVED
    return _COPY.pack(_VERSION, flags, copy.packet_id, copy.message.cost, copy.message.key)


def unpack_copy(body: bytes) -> Copy:
    """Raises BadRecord."""
    flags, packet_id, cost, message = _checked(_COPY, body)
    if flags & 3 not in (1, 2):
        raise BadRecord(f"a queued copy with flags {flags}")
    return Copy(flags & 3, bool(flags & _RETAIN), bool(flags & _RECEIVED), packet_id, cost, message)


def pack_filter(qos: int, *, due: bool) -> bytes:
    return _SHORT.pack(_VERSION, qos | due * _DUE)


def unpack_filter(body: bytes) -> tuple[int, bool]:
    """QoS, and whether retained messages are due. Raises BadRecord."""
    (flags,) = _checked(_SHORT, body)
    if flags & ~_DUE > 2:
        raise BadRecord(f"a subscription with flags {flags}")
    return flags & ~_DUE, bool(flags & _DUE)


def pack_mark() -> bytes:
    """For what needs no more than to be there."""
    return _SHORT.pack(_VERSION, 0)


def unpack_mark(body: bytes) -> None:
    """Raises BadRecord."""
    _checked(_SHORT, body)


def pack_count(count: int) -> bytes:
    return _COUNT.pack(_VERSION, count)


def unpack_count(body: bytes) -> int:
    """Raises BadRecord."""
    (count,) = _checked(_COUNT, body)
    return int(count)


def pack_session(session: SavedSession) -> bytes:
    user = True if session.user is HERE else session.user
    return wire.pack([_VERSION, session.key, user, session.since, session.last_id])


def unpack_session(body: bytes) -> SavedSession:
    """Raises BadRecord."""
    key, user, since, last_id = _fields(body, 4)
    user = HERE if user is True else user
    known = isinstance(key, int) and isinstance(last_id, int) and isinstance(since, (float, int, type(None)))
    if not known or not (user is HERE or isinstance(user, (str, type(None)))):
        raise BadRecord(f"a session with {key!r}, {user!r}, {since!r}, {last_id!r}")
    return SavedSession(key, user, since, last_id)


def pack_numbers(*numbers: int) -> bytes:
    return wire.pack([_VERSION, *numbers])


def unpack_numbers(body: bytes, count: int) -> list[int]:
    """Raises BadRecord."""
    numbers = _fields(body, count)
    if not all(isinstance(number, int) for number in numbers):
        raise BadRecord(f"{numbers!r} instead of numbers")
    return numbers


def _fields(body: bytes, count: int) -> list[Any]:
    try:
        fields = wire.unpack(body)
    except WireError as error:
        raise BadRecord(str(error)) from error
    if not isinstance(fields, list) or len(fields) != count + 1 or fields[0] != _VERSION:
        raise BadRecord(f"{fields!r:.80}")
    return fields[1:]
