"""The client's side of MQTT 3.1.1 in bytes, and a pipe that is no socket."""

from __future__ import annotations

import asyncio
from typing import Any

from agentmqtt.broker import packets
from agentmqtt.broker.connection import Connection
from agentmqtt.broker.conversation import Action
from agentmqtt.broker.engine import Engine
from agentmqtt.broker.limits import Limits
from agentmqtt.broker.reader import PacketReader

PING = b"\xc0\x00"
PONG = b"\xd0\x00"
BYE = b"\xe0\x00"
WELCOME = b"\x20\x02\x00\x00"
WELCOME_BACK = b"\x20\x02\x01\x00"


def packet(first: int, *parts: bytes) -> bytes:
    """A fixed header with the right length before `parts`."""
    body = b"".join(parts)
    size, rest = bytearray(), len(body)
    while True:
        size.append(rest & 127 | (128 if rest > 127 else 0))
        rest >>= 7
        if not rest:
            return bytes([first]) + bytes(size) + body


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return len(raw).to_bytes(2) + raw


def number(value: int) -> bytes:
    return value.to_bytes(2)


def connect(
    client_id: str = "c",
    *,
    clean: bool = True,
    keepalive: int = 0,
    will: tuple[str, bytes, int, bool] | None = None,
    user: str | None = None,
    password: bytes | None = None,
) -> bytes:
    bits, tail = 2 * clean, text(client_id)
    if will is not None:
        bits |= 4 | will[2] << 3 | will[3] << 5
        tail += text(will[0]) + text(will[1])
    if user is not None:
        bits |= 128
        tail += text(user)
    if password is not None:
        bits |= 64
        tail += text(password)
    return packet(0x10, text("MQTT"), bytes([4, bits]), number(keepalive), tail)


def publish(
    topic: str, payload: bytes = b"x", qos: int = 0, pid: int = 0, *, retain: bool = False, dup: bool = False
) -> bytes:
    return packet(0x30 | dup << 3 | qos << 1 | retain, text(topic), number(pid) if qos else b"", payload)


def subscribe(pid: int, *filters: tuple[str, int]) -> bytes:
    return packet(0x82, number(pid), *(text(pattern) + bytes([qos]) for pattern, qos in filters))


def unsubscribe(pid: int, *filters: str) -> bytes:
    return packet(0xA2, number(pid), *map(text, filters))


def puback(pid: int) -> bytes:
    return packet(0x40, number(pid))


def pubrec(pid: int) -> bytes:
    return packet(0x50, number(pid))


def pubrel(pid: int) -> bytes:
    return packet(0x62, number(pid))


def pubcomp(pid: int) -> bytes:
    return packet(0x70, number(pid))


def suback(pid: int, *codes: int) -> bytes:
    return packet(0x90, number(pid), bytes(codes))


def unsuback(pid: int) -> bytes:
    return packet(0xB0, number(pid))


def published(stream: bytes) -> list[tuple[str, bytes, int]]:
    """The PUBLISH packets at QoS 1 and 2 in what the broker sent: topic, payload, packet ID."""
    reader = PacketReader(1 << 24)
    reader.greeted = True
    reader.feed(stream)
    found = [packet for packet in iter(reader.next, None) if isinstance(packet, packets.Publish)]
    return [(packet.topic, packet.payload, packet.packet_id) for packet in found]


class Anybody:
    """An identity that may do what `rules` do not deny; `unknown` questions are answered on `ask` only."""

    def __init__(self, user: str | None = None, denied: set[tuple[str, str]] | None = None, *, slow: bool = False):
        self.user = user
        self.denied = denied or set()
        self.known: set[tuple[str, str]] = set()
        self.slow = slow

    def verdict(self, action: Action, topic: str) -> bool | None:
        if self.slow and (action, topic) not in self.known:
            return None
        return (action, topic) not in self.denied

    def flaw(self) -> str:
        return ""

    async def ask(self, action: Action, topics: list[str]) -> list[bool]:
        await asyncio.sleep(0)
        self.known.update((action, topic) for topic in topics)
        return [(action, topic) not in self.denied for topic in topics]


class Door:
    """A gate: `users` have passwords, anybody else gets in without a name if `open`."""

    def __init__(self, users: dict[str, bytes] | None = None, *, denied: set[tuple[str, str]] | None = None, **how):
        self.users = users or {}
        self.denied = denied or set()
        self.how = how
        self.wait: asyncio.Event | None = None

    async def admit(self, connect: packets.Connect, pipe: Any) -> Anybody | None:
        if self.wait is not None:
            await self.wait.wait()
        if connect.username is None:
            return Anybody(None, self.denied, **self.how)
        if connect.username not in self.users or self.users[connect.username] != connect.password:
            return None
        return Anybody(connect.username, self.denied, **self.how)


class FakePipe:
    """Collects what the broker writes. `room` is what it takes before it says that it is full."""

    def __init__(self) -> None:
        self.out = bytearray()
        self.stuck = 0
        self.keeps = False
        self.paused = self.closed = self.aborted = False
        self.peer = ("test", 1)

    def info(self, name: str) -> None:
        return None

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.out += data
        if self.keeps:
            self.stuck += len(data)

    def unsent(self) -> int:
        return self.stuck

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True


class Peer:
    """A client on a fake pipe: `say` bytes, `await heard()` what came back since the last time."""

    def __init__(self, engine: Engine, door: Door | None = None) -> None:
        self.pipe = FakePipe()
        self.gone: list[Connection] = []
        self.connection = Connection(engine, door or Door(), self.pipe, self.gone.append)

    def say(self, *data: bytes) -> None:
        self.connection.data(b"".join(data))

    async def heard(self) -> bytes:
        await settle()
        out = bytes(self.pipe.out)
        self.pipe.out.clear()
        return out

    async def ask(self, *data: bytes) -> bytes:
        self.say(*data)
        return await self.heard()

    async def vanish(self) -> None:
        """The network is gone, without a word."""
        self.connection.ended()
        await settle()

    @property
    def closed(self) -> bool:
        return self.pipe.closed


async def settle() -> None:
    """Let everything that is due happen."""
    for _ in range(20):
        await asyncio.sleep(0)


async def arrive(engine: Engine, client_id: str = "c", *, door: Door | None = None, **how: Any) -> Peer:
    """A peer that is connected."""
    peer = Peer(engine, door)
    answer = await peer.ask(connect(client_id, **how))
    assert (answer[:1], answer[3]) == (b"\x20", 0)
    peer.welcome = answer
    return peer


def engine(**limits: Any) -> Engine:
    return Engine(Limits(**limits))
