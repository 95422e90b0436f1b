"""One connection of the in-memory bus, and what the bus keeps for one client."""

from __future__ import annotations

import asyncio
import collections
import itertools
from collections.abc import Callable, Sequence
from typing import Protocol

from agentmqtt.errors import Congested, LinkError, LinkLost, Refused
from agentmqtt.transport.base import Delivery, Hello
from agentmqtt.transport.faults import Message
from agentmqtt.transport.topics import matches, strip_share

IN_FLIGHT = 256
"""Deliveries without acknowledgement that one client may hold."""

MAX_UPLINK = 4096
"""Packets that a client may have on the way to the bus."""

GOODBYE = 1.0
"""Seconds that a clean close waits for what was sent before."""


class _Lane:
    """One direction of a connection: actions run in order, later in the loop, and not while it is blocked."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: collections.deque[Callable[[], None]] = collections.deque()
        self._scheduled = self._blocked = self._closed = False

    def __len__(self) -> int:
        return len(self._queue)

    def put(self, action: Callable[[], None]) -> None:
        if not self._closed:
            self._queue.append(action)
            self._schedule()

    def block(self, blocked: bool) -> None:
        self._blocked = blocked
        self._schedule()

    def close(self) -> None:
        self._closed = True
        self._queue.clear()

    def _schedule(self) -> None:
        if self._queue and not (self._scheduled or self._blocked):
            self._scheduled = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        self._scheduled = False
        for _ in range(min(100, len(self._queue))):
            if self._blocked or not self._queue:
                break
            self._queue.popleft()()
        self._schedule()


class Account:
    """What the bus keeps for one client ID."""

    def __init__(self, client_id: str, limit: int) -> None:
        self.client_id, self._limit = client_id, limit
        self.filters: dict[str, None] = {}
        self.queue: collections.deque[Message] = collections.deque()
        self.in_flight: dict[int, Message] = {}
        self.connection: MemoryConnection | None = None
        self.ends = 0.0
        self.overflowed = 0
        self._ids = itertools.count(1)

    def wants(self, topic: str) -> bool:
        gone = self.connection is None and asyncio.get_running_loop().time() >= self.ends
        return not gone and any(matches(strip_share(item), topic) for item in self.filters)

    def deliver(self, message: Message) -> None:
        if len(self.queue) >= self._limit:
            self.overflowed += 1
            return
        self.queue.append(message)
        self.pump()

    def pump(self) -> None:
        while self.connection is not None and self.queue and len(self.in_flight) < IN_FLIGHT:
            number = next(self._ids)
            self.in_flight[number] = message = self.queue.popleft()
            self.connection.down(number, message, again=False)

    def resume(self, connection: MemoryConnection) -> None:
        """Everything unacknowledged goes out again, then what waited."""
        self.connection = connection
        for number, message in self.in_flight.items():
            connection.down(number, message, again=True)
        self.pump()

    def acknowledge(self, number: int) -> None:
        self.in_flight.pop(number, None)
        self.pump()


class Bus(Protocol):
    """What a connection asks of the bus."""

    refused_filters: set[str]

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None: ...
    def subscribe(self, account: Account, granted: Sequence[str]) -> None: ...
    def unsubscribe(self, account: Account, filters: Sequence[str]) -> None: ...


class MemoryConnection:
    """One connection to a MemoryBus (see transport.base.Connection)."""

    def __init__(self, bus: Bus, account: Account, hello: Hello) -> None:
        self._bus, self._account, self.hello = bus, account, hello
        self._loop = asyncio.get_running_loop()
        self.uplink, self._downlink = _Lane(), _Lane()
        self._pending: set[asyncio.Future[None]] = set()
        self._timers: list[asyncio.TimerHandle] = []
        self._silent = self._parted = False
        self.lost: asyncio.Future[Exception] = self._loop.create_future()

    # -- transport.base.Connection ------------------------------------------------------------------

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> asyncio.Future[None]:
        if len(self.uplink) >= MAX_UPLINK:
            full: asyncio.Future[None] = self._loop.create_future()
            full.set_exception(Congested(f"{MAX_UPLINK} packets wait for the bus already; wait for some of them first"))
            return full
        return self._ask(lambda: self._bus.publish(topic, payload, retain=retain))

    async def subscribe(self, filters: Sequence[str]) -> None:
        refused = tuple(item for item in filters if item in self._bus.refused_filters)
        granted = tuple(item for item in filters if item not in refused)
        await self._ask(lambda: None, then=lambda: self._bus.subscribe(self._account, granted))
        if refused:
            names = ", ".join(refused)
            raise Refused(f"the bus does not let {self.hello.client_id!r} read {names}", filters=refused)

    async def unsubscribe(self, filters: Sequence[str]) -> None:
        wanted = tuple(filters)
        await self._ask(lambda: self._bus.unsubscribe(self._account, wanted))

    async def close(self, *, goodbye: bool = True) -> None:
        if goodbye and not (self.lost.done() or self._silent):
            await asyncio.wait((self._ask(lambda: None),), timeout=GOODBYE)  # what was sent before has arrived
        self.end(LinkLost("this side closed the connection"))
        if not self._silent:
            self.part(will=not goodbye)

    # -- the bus's side -----------------------------------------------------------------------------

    def down(self, number: int, message: Message, *, again: bool) -> None:
        """Send one message towards the client."""
        done = False

        def ack() -> None:
            nonlocal done
            if not done and not self.lost.done():
                done = True
                self.uplink.put(lambda: self._account.acknowledge(number))

        delivery = Delivery(message.topic, message.payload, message.retain, again, ack)
        self._downlink.put(lambda: self._hand(delivery))

    def end(self, error: LinkError) -> None:
        """The client's end of the connection is gone."""
        if self.lost.done():
            return
        self.lost.set_result(error)
        self._downlink.close()
        pending, self._pending = self._pending, set()
        for future in pending:
            if not future.done():
                future.set_exception(error)
                future.exception()

    def part(self, *, will: bool) -> None:
        """The bus's end of the connection is gone."""
        if self._parted:
            return
        self._parted = True
        self.uplink.close()
        self._account.connection = None
        self._account.ends = self._loop.time() + self.hello.session_expiry
        if will and self.hello.will is not None:
            self._bus.publish(self.hello.will.topic, self.hello.will.payload, retain=True)

    def kick(self, error: LinkError, *, will: bool) -> None:
        """The bus ends the connection; in a partition the client does not learn it."""
        if not self._silent:
            self.end(error)
        self.part(will=will)

    def silence(self) -> None:
        """A partition begins. Each end gives up in its own time, as with MQTT's keep-alive."""
        self._silent = True
        self.uplink.block(True)
        self._downlink.block(True)
        if keepalive := self.hello.keepalive:
            mute = LinkLost(f"the bus has been silent for {1.25 * keepalive:g} s")
            self._timers = [
                self._loop.call_later(1.25 * keepalive, self.end, mute),
                self._loop.call_later(1.5 * keepalive, lambda: self.part(will=True)),
            ]

    def heal(self) -> None:
        """The partition ends: what was under way goes on, and each end learns that the other has gone."""
        self._silent = False
        for timer in self._timers:
            timer.cancel()
        if self._parted:
            self.end(LinkLost("the bus ended the connection"))
        elif self.lost.done():
            self.part(will=True)
        self.uplink.block(False)
        self._downlink.block(False)

    # -- inside -----------------------------------------------------------------------------------------

    def _hand(self, delivery: Delivery) -> None:
        if self.lost.done():
            return
        try:
            self.hello.on_message(delivery)
        except Exception as exc:
            context = {"message": f"the handler of {delivery.topic} failed", "exception": exc}
            self._loop.call_exception_handler(context)

    def _ask(self, action: Callable[[], None], *, then: Callable[[], None] | None = None) -> asyncio.Future[None]:
        """Run `action` at the bus and come back; `then` runs at the bus after its answer is on the way."""
        future: asyncio.Future[None] = self._loop.create_future()
        if self.lost.done():
            future.set_exception(self.lost.result())
            future.exception()
            return future
        self._pending.add(future)

        def arrive() -> None:
            action()
            self._downlink.put(lambda: self._answer(future))
            if then is not None:
                then()

        self.uplink.put(arrive)
        return future

    def _answer(self, future: asyncio.Future[None]) -> None:
        self._pending.discard(future)
        if not future.done():
            future.set_result(None)
