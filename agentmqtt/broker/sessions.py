"""The state of one client ID as a pure machine: what waits, what is in flight, what was received [4.1, 4.3, 4.4].

A session decides what may be sent next; who is connected sends it. Order is that of `push`.
"""

from __future__ import annotations

import enum
from typing import Final, Protocol, TypeAlias

from agentmqtt.broker.messages import Message, Outgoing
from agentmqtt.broker.queues import Queue

_IDS = 65_535


class _Place(enum.Enum):
    HERE = "this process"


HERE: Final = _Place.HERE
"""The user of every client in this process; nobody on the network can be it."""
User: TypeAlias = str | _Place | None


class Origin(Protocol):
    """A publisher that can be asked to wait."""

    def hold(self, reason: str) -> None: ...
    def release(self, reason: str) -> None: ...


class Link(Protocol):
    """Who is connected to a session."""

    def wake(self, origin: Origin | None = None) -> None:
        """There may be something to pull, later in this turn of the event loop. `origin` brought it."""

    def flush(self) -> None:
        """Pull now, as far as there is room."""

    def taken_over(self) -> None:
        """Another connection has this client ID now: end, abnormally [3.1.4-2]."""

    def evict(self, reason: str) -> None:
        """End the connection because of `reason`, abnormally."""

    def stop(self) -> None:
        """The broker ends: end the connection, without its will."""


class Bounds(Protocol):
    """The part of the limits that a session needs."""

    @property
    def queue(self) -> int: ...
    @property
    def queue_bytes(self) -> int: ...
    @property
    def window(self) -> int: ...
    @property
    def inbound(self) -> int: ...


class Session:
    """Subscriptions, queue and flights of one client ID.

    `user` is who made it; nobody else gets it. `backlog` are topics whose retained message is still
    to be sent, with the QoS of the subscription; `due` are the filters that they belong to. `dropped`
    counts what a full queue refused since the last connection. `link` is None while nobody is
    connected, `offline_since` is then the time of the engine's clock. `held` are the bytes of what is
    not acknowledged, on disk or not. `key` and `block` belong to the keeper: the session's number on
    disk or 0, and which packet IDs it noted.
    """

    __slots__ = (
        "_number",
        "backlog",
        "block",
        "bounds",
        "clean",
        "client_id",
        "dropped",
        "due",
        "held",
        "inbound",
        "inflight",
        "key",
        "last_id",
        "link",
        "offline_since",
        "queue",
        "subscriptions",
        "user",
    )

    def __init__(self, client_id: str, user: User, *, clean: bool, bounds: Bounds, spills: bool = False) -> None:
        self.client_id: str = client_id
        self.user: User = user
        self.clean: bool = clean
        self.subscriptions: dict[str, int] = {}
        self.queue: Queue = Queue(spills=spills)
        self.inflight: dict[int, Outgoing] = {}
        self.inbound: set[int] = set()
        self.backlog: dict[str, int] = {}
        self.due: frozenset[str] = frozenset()
        self.held: int = 0
        self.dropped: int = 0
        self.link: Link | None = None
        self.offline_since: float | None = None
        self.bounds: Bounds = bounds
        self.last_id: int = 0
        self.key: int = 0
        self.block: int = -1
        self._number = 0

    @property
    def unacknowledged(self) -> int:
        """Copies that wait or are in flight."""
        return len(self.queue) + len(self.inflight)

    def noted(self, copy: Outgoing) -> bool:
        """Whether the keeper knows of this copy."""
        return copy.lasting and not self.clean

    # -------------------------------------------------------------- out

    def push(self, message: Message, qos: int, *, retain: bool = False) -> Outgoing | None:
        """Take a copy for this session, or None if its bounds are reached."""
        held = self.held + message.cost
        if len(self.queue) >= self.bounds.queue or (held > self.bounds.queue_bytes and self.held):
            return None
        self.held = held
        self._number += 1
        copy = Outgoing(message, qos, retain=retain, number=self._number)
        self.queue.push(copy)
        return copy

    def peek(self) -> Outgoing | None:
        """What `pull` would give now."""
        head = self.queue.first()
        if head is None or (head.qos and len(self.inflight) >= self.bounds.window):
            return None
        return head

    def pull(self) -> Outgoing | None:
        """The next copy to send, now in flight if it is above QoS 0; None while the window is full."""
        head = self.peek()
        if head is None:
            return None
        self.queue.pop()
        if head.qos:
            head.packet_id = self._free_id()
            self.inflight[head.packet_id] = head
        else:
            self.held -= head.message.cost
        return head

    def skip(self) -> Outgoing:
        """Give up the head of the queue, which `peek` returned."""
        head = self.queue.pop()
        self.held -= head.message.cost
        return head

    def acknowledged(self, packet_id: int) -> Outgoing | None:
        """PUBACK: the copy that is done, or None if there is none at QoS 1."""
        copy = self.inflight.get(packet_id)
        return self._settle(copy) if copy is not None and copy.qos == 1 else None

    def received(self, packet_id: int) -> Outgoing | None:
        """PUBREC: the copy whose payload is not needed any more, or None if it is not known."""
        copy = self.inflight.get(packet_id)
        if copy is None or copy.qos != 2:
            return None
        copy.received = True
        return copy

    def completed(self, packet_id: int) -> Outgoing | None:
        """PUBCOMP: the copy that is done, or None if it was not expected."""
        copy = self.inflight.get(packet_id)
        return self._settle(copy) if copy is not None and copy.received else None

    def give_up(self, packet_id: int) -> Outgoing | None:
        """A copy in flight that is not sent again, or None if there is none."""
        copy = self.inflight.get(packet_id)
        return None if copy is None else self._settle(copy)

    def _settle(self, copy: Outgoing) -> Outgoing:
        del self.inflight[copy.packet_id]
        self.held -= copy.message.cost
        return copy

    def _free_id(self) -> int:
        value = self.last_id % _IDS + 1
        while value in self.inflight:
            value = value % _IDS + 1
        self.last_id = value
        return value

    # -------------------------------------------------------------- in

    def first_sight(self, packet_id: int) -> bool | None:
        """QoS 2 PUBLISH: whether it is new; None if too many wait for their PUBREL [4.3.3-2]."""
        if packet_id in self.inbound:
            return False
        if len(self.inbound) >= self.bounds.inbound:
            return None
        self.inbound.add(packet_id)
        return True

    def released(self, packet_id: int) -> bool:
        """PUBREL: whether it was known."""
        if packet_id not in self.inbound:
            return False
        self.inbound.remove(packet_id)
        return True

    # -------------------------------------------------------------- connections

    def resend(self) -> list[Outgoing]:
        """What a new connection must send again, first and in this order [4.4.0-1, 4.6.0-1]."""
        copies = list(self.inflight.values())
        for copy in copies:
            copy.dup = True
        return copies

    def suspend(self) -> list[Outgoing]:
        """The connection is gone: give up and return what is not kept for an offline session."""
        gone = self.queue.suspend()
        self.held -= sum(copy.message.cost for copy in gone)
        return gone

    def recall(self, number: int, cost: int, copy: Outgoing | None = None) -> None:
        """After a restart, in order of `number`: a copy that was in flight, or one that waits on disk."""
        self._number = max(self._number, number)
        self.held += cost
        if copy is None:
            self.queue.recall(number)
        else:
            self.inflight[copy.packet_id] = copy
            self.queue.passed(number)

    def forget_gap(self) -> None:
        """What should wait on disk is not there."""
        self.queue.take([], lost=self.queue.gap)
        self.held = sum(copy.message.cost for copy in (*self.queue, *self.inflight.values()))
