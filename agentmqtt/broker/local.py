"""A client in the broker's own process: the same transport seam, no socket, no bytes."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from agentmqtt.broker.engine import Engine, NotYours, TooManySessions
from agentmqtt.broker.messages import Outgoing
from agentmqtt.broker.sessions import HERE, Origin
from agentmqtt.broker.topics import valid_filter, valid_topic
from agentmqtt.errors import LinkLost, Refused, TakenOver, TooLarge, Unreachable
from agentmqtt.transport.base import Delivery, Hello

log = logging.getLogger("agentmqtt.broker")

_SLICE = 128
"""Deliveries before the others have their turn."""


class LocalTransport:
    """Connects clients of this process to an engine. They are trusted: no login, no access rules."""

    def __init__(self, engine: Engine, ready: Callable[[], Awaitable[None]] | None = None) -> None:
        self._engine = engine
        self._ready = ready

    async def connect(self, hello: Hello) -> LocalConnection:
        """Connect as soon as the engine has its sessions back.

        Raises:
            Refused: a client on the network has this client ID.
            Unreachable: there is no room for one more session.
            StoreError: the sessions cannot be read.
        """
        if self._ready is not None:
            await self._ready()
        try:
            return LocalConnection(self._engine, hello)
        except NotYours as error:
            raise Refused(f"{error}; it is connected from outside this process") from error
        except TooManySessions as error:
            raise Unreachable(str(error)) from error

    def describe(self) -> str:
        return "the broker in this process"


class LocalConnection:
    """One connection of a client in this process.

    Deliveries are handed over on the event loop, in order. While more than the local window are
    not acknowledged, connections that publish more for this client are not read.
    """

    def __init__(self, engine: Engine, hello: Hello) -> None:
        self._engine = engine
        self._hello = hello
        self._loop = asyncio.get_running_loop()
        self._will = hello.will
        self._limit = engine.limits.local_window
        self._woken = False
        self._waiting: set[Origin] = set()
        self._holds: set[str] = set()
        self._unsafe: set[asyncio.Future[None]] = set()
        self._held_back: list[asyncio.Future[None]] = []
        self._reason = f"local {hello.client_id}"
        self.lost: asyncio.Future[Exception] = self._loop.create_future()
        bounds = dataclasses.replace(
            engine.limits, window=self._limit, queue=sys.maxsize, queue_bytes=sys.maxsize
        )  # held publishers are the bound
        self._session, _ = engine.attach(self, hello.client_id, HERE, clean=hello.session_expiry <= 0, bounds=bounds)
        self._again = deque(self._session.resend())
        self.wake()

    # -------------------------------------------------------------- what the client asks

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> asyncio.Future[None]:
        """Publish at QoS 1. Done once it is safe, and while this client has not to wait for a slow one."""
        done: asyncio.Future[None] = self._loop.create_future()
        if self.lost.done():
            done.set_exception(LinkLost("the connection inside this process has ended"))
        elif not valid_topic(topic) or topic.count("/") >= self._engine.limits.max_levels:
            done.set_exception(Refused(f"no message can be published to {topic!r}"))
        elif len(payload) > self._engine.limits.max_packet:
            done.set_exception(TooLarge(f"{len(payload)} bytes; the broker takes {self._engine.limits.max_packet}"))
        else:
            self._unsafe.add(done)
            self._engine.publish(topic, payload, 1, retain=retain, origin=self)
            self._engine.keeper.then(self._published, done)
        return done

    def _published(self, done: asyncio.Future[None]) -> None:
        self._unsafe.discard(done)
        if self._holds:
            self._held_back.append(done)
        elif not done.done():
            done.set_result(None)

    async def subscribe(self, filters: Sequence[str]) -> None:
        """Subscribe at QoS 1.

        Raises:
            LinkLost: the connection has ended.
            Refused: some filters were not granted; it names them.
        """
        self._alive()
        refused = [
            pattern
            for pattern in filters
            if not valid_filter(pattern) or not self._engine.subscribe(self._session, pattern, 1)
        ]
        await self._safe()
        self.wake()
        if refused:
            raise Refused(f"not granted: {', '.join(map(repr, refused))}", filters=tuple(refused))

    async def unsubscribe(self, filters: Sequence[str]) -> None:
        """Raises LinkLost."""
        self._alive()
        for pattern in filters:
            self._engine.unsubscribe(self._session, pattern)
        await self._safe()

    async def close(self, *, goodbye: bool = True) -> None:
        """End the connection. Without `goodbye` the will is published. Never raises."""
        if goodbye:
            self._will = None
        self._end(LinkLost("the connection inside this process was closed"))

    def _alive(self) -> None:
        if self.lost.done():
            raise LinkLost("the connection inside this process has ended")

    async def _safe(self) -> None:
        """Wait until everything so far is safe."""
        done: asyncio.Future[None] = self._loop.create_future()
        self._unsafe.add(done)
        self._engine.keeper.then(self._published, done)
        await done

    # -------------------------------------------------------------- deliveries

    def wake(self, origin: Origin | None = None) -> None:
        """Deliver later in this turn; above the window `origin` has to wait."""
        if not self._woken:
            self._woken = True
            self._loop.call_soon(self.flush)
        if origin is not None and origin is not self and self._session.unacknowledged > self._limit:
            self._waiting.add(origin)
            origin.hold(self._reason)

    def flush(self) -> None:
        """Hand over what is due."""
        self._woken = False
        for _ in range(_SLICE):
            if self.lost.done():
                return
            copy = self._next()
            if copy is None:
                return
            self._deliver(copy)
        self.wake()

    def _next(self) -> Outgoing | None:
        if self._again:
            return self._again.popleft()
        if self._session.backlog or self._session.queue.gap:
            self._engine.refill(self._session)
        return self._engine.pull(self._session)

    def _deliver(self, copy: Outgoing) -> None:
        message = copy.message
        delivery = Delivery(message.topic, message.payload, copy.retain, copy.dup, partial(self._ack, copy))
        try:
            self._hello.on_message(delivery)
        except Exception:
            log.exception("%r failed on a message to %r; it stays unacknowledged", self._hello.client_id, message.topic)

    def _ack(self, copy: Outgoing) -> None:
        session = self._session
        if self.lost.done() or session.inflight.get(copy.packet_id) is not copy:
            return
        session.acknowledged(copy.packet_id)
        if session.noted(copy):
            self._engine.keeper.settled(session, copy)
        if session.queue or session.backlog:
            self.wake()
        if self._waiting and session.unacknowledged <= self._limit // 2:
            self._let_go()

    def _let_go(self) -> None:
        waiting, self._waiting = self._waiting, set()
        for origin in waiting:
            origin.release(self._reason)

    # -------------------------------------------------------------- as a publisher

    def hold(self, reason: str) -> None:
        """Another client of this process is slow: leave publishes unanswered until `release`."""
        self._holds.add(reason)

    def release(self, reason: str) -> None:
        """Take back one `hold`."""
        self._holds.discard(reason)
        if not self._holds:
            held, self._held_back = self._held_back, []
            for done in held:
                self._published(done)

    # -------------------------------------------------------------- the end

    def taken_over(self) -> None:
        """Another connection of this process has the client ID now."""
        self._end(TakenOver(f"another connection of this process uses the client ID {self._hello.client_id!r}"))

    def evict(self, reason: str) -> None:
        """Not used on a client of this process: it makes publishers wait instead."""
        self._end(LinkLost(reason))

    def stop(self) -> None:
        """The broker ends: no will."""
        self._will = None
        self._end(LinkLost("the broker in this process was stopped"))

    def _end(self, reason: Exception) -> None:
        if self.lost.done():
            return
        self.lost.set_result(reason)
        self._engine.detach(self._session, self)
        self._let_go()
        for done in (*self._unsafe, *self._held_back):
            if not done.done():
                done.set_exception(LinkLost(str(reason)))
        self._unsafe.clear()
        self._held_back.clear()
        will, self._will = self._will, None
        if will is not None:
            self._engine.publish(will.topic, will.payload, 1, retain=True)
