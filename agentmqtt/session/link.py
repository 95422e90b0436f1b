"""The session: connects, subscribes, tells who is there, and does it again after every loss."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import logging
import random
from collections.abc import Callable
from types import TracebackType
from typing import Self

from agentmqtt.errors import AgentMQTTError, LinkLost, Refused, TakenOver, Unreachable, WireError
from agentmqtt.session.routes import KEEP, Handler, Routes, Subscription
from agentmqtt.sparing import Sparing
from agentmqtt.transport.base import Connection, Delivery, Hello, Transport, Will

BATCH = 100
"""Filters in one SUBSCRIBE at most."""

MAX_STRAYS = 1000
"""Topics per connection that are unsubscribed because nobody here wants them."""

FAREWELL = 1.0
"""Seconds a clean close waits for the broker to have the last presence."""

_log = logging.getLogger("agentmqtt.session")
_dice = random.SystemRandom()


@dataclasses.dataclass(frozen=True, slots=True)
class Presence:
    """How a process says on one retained topic that it is there.

    `payload(conn, online)` makes the message for a connection counter, different for each; `is_mine(payload)`
    says whether this process wrote it.
    """

    topic: str
    payload: Callable[[int, bool], bytes]
    is_mine: Callable[[bytes], bool]


class Session:
    """One link kept alive by one task. It keeps no message: what was not acknowledged is the caller's to repeat.

    Backoff is seconds (first, longest), with full jitter, and starts again only after `stable_after` seconds
    of connection. It stops for good, and says so in `fatal`, when the broker refuses this client or another
    process uses its client ID.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        client_id: str,
        keepalive: int = 20,
        presence: Presence | None = None,
        session_expiry: int = 3600,
        backoff: tuple[float, float] = (0.1, 15.0),
        stable_after: float = 5.0,
    ) -> None:
        self._transport, self._client_id, self._presence = transport, client_id, presence
        self._keepalive, self._expiry = keepalive, session_expiry
        self._backoff, self._stable_after = backoff, stable_after
        self._routes = Routes()
        self._fresh: dict[str, None] = {}
        self._stale: dict[str, None] = {}
        self._attempts = itertools.count(1)
        self._failures = 0
        self._connection: Connection | None = None
        self._number = self._strays = 0
        self._birth: bytes | None = None
        self._ever_born = self._shaky = False
        self._rivals: set[bytes] = set()
        self._verdict: TakenOver | None = None
        self._task: asyncio.Task[None] | None = None
        self._wake: asyncio.Future[None]
        self._upped: asyncio.Future[None]
        self.faults: int = 0
        self._sparing = Sparing(_log)
        """Handlers and callbacks that raised."""
        self.last_error: Exception | None = None
        """Why the last attempt or connection ended."""
        self.on_up: list[Callable[[int], None]] = []
        """Called with the connection counter when the link is up and every subscription was answered."""
        self.on_down: list[Callable[[Exception], None]] = []
        """Called with the reason when a link that was up is lost."""
        self.fatal: asyncio.Future[Exception]
        """Done with the reason when the session has stopped for good; cancelled by a normal close."""

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._wake, self._upped, self.fatal = loop.create_future(), loop.create_future(), loop.create_future()
        if self._presence is not None:
            self.subscribe(self._presence.topic, self._on_presence)
        self._task = loop.create_task(self._run(), name=f"session[{self._client_id}]")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    # -- what the rest uses -------------------------------------------------------------------------

    @property
    def up(self) -> bool:
        """Whether messages can be published now."""
        return self._connection is not None

    @property
    def conn(self) -> int:
        """Counter of the current or last connection; 0 before the first. It grows, and may skip numbers."""
        return self._number

    async def connected(self, timeout: float | None = None) -> None:
        """Returns when the link is up.

        Raises:
            Refused, TakenOver: the session has stopped for good.
            Unreachable, LinkLost: not up within `timeout` seconds; the last reason.
        """
        try:
            async with asyncio.timeout(timeout):
                await asyncio.wait((self._upped, self.fatal), return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            late = Unreachable(f"{self._transport.describe()} was not reached within {timeout:g} s")
            raise self.last_error or late from None
        if self.fatal.cancelled():
            raise LinkLost("the session was closed")
        if self.fatal.done():
            raise self.fatal.result()

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> asyncio.Future[None] | None:
        """Send at QoS 1, in order; None when the link is not up. The future fails as Connection.publish says."""
        return None if self._connection is None else self._connection.publish(topic, payload, retain=retain)

    def subscribe(self, filter_: str, handler: Handler) -> Subscription:
        """Hand every message on `filter_` to `handler`, on this and each later connection.

        Filters that overlap may bring a message more than once. A further handler on a filter asks the broker
        again, so that it too gets the retained messages; those that were there get them again.

        Raises:
            UsageError: `filter_` is not a filter.
        """
        subscription = self._routes.add(filter_, handler, self._unsubscribe)
        self._stale.pop(filter_, None)
        self._fresh[filter_] = None
        self._poke()
        return subscription

    def _unsubscribe(self, subscription: Subscription) -> None:
        if self._routes.remove(subscription):
            self._fresh.pop(subscription.filter, None)
            self._stale[subscription.filter] = None
            self._poke()

    def _poke(self) -> None:
        if self._task is not None and not self._wake.done():
            self._wake.set_result(None)

    # -- messages ---------------------------------------------------------------------------------------

    def _dispatch(self, delivery: Delivery) -> None:
        kept = False
        subscriptions = self._routes.find(delivery.topic)
        for subscription in subscriptions:
            if subscription.closed:
                continue
            try:
                kept |= subscription.handler(delivery) is KEEP
            except WireError as error:
                self._sparing.warning("ignored a message on %s: %s", delivery.topic, error)
            except Exception:
                self.faults += 1
                _log.exception("the handler of %s failed; the message is acknowledged", delivery.topic)
        if not kept:
            delivery.ack()
        if not subscriptions and not delivery.retain:
            self._stray(delivery.topic)

    def _stray(self, topic: str) -> None:
        """A session that outlived its process brings what that one wanted: tell the broker that nobody does now."""
        if self._strays < MAX_STRAYS and topic not in self._stale:
            self._strays += 1
            self._stale[topic] = None
            self._poke()

    def _on_presence(self, delivery: Delivery) -> None:
        """Somebody wrote our presence. Before our own birth stands it tells about the past only."""
        payload, presence = delivery.payload, self._presence
        if presence is None or not self._ever_born or payload == self._birth or payload in self._rivals:
            return
        if not presence.is_mine(payload):
            self._rival(payload)
        if self._connection is not None and self._birth is not None:  # perhaps a late will: it must not stand there
            self._connection.publish(presence.topic, self._birth, retain=True)

    def _rival(self, payload: bytes) -> None:
        """Another process wrote it. Once, that may be the late will of a process before this one, or what a broker
        restored from its disk; a living rival writes another message with each of its connections.
        """
        self._rivals.add(payload)
        if len(self._rivals) > 1:
            place, hint = self._transport.describe(), "give each process a state directory of its own"
            text = f"another process is connected to {place} as {self._client_id!r}; this one has stopped: {hint}"
            self._verdict = TakenOver(text)
            self._poke()

    # -- the task -----------------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            while True:
                await self._attempt()
                first, longest = self._backoff
                await asyncio.sleep(_dice.uniform(0, min(longest, first * 2 ** min(self._failures, 16))))
        except asyncio.CancelledError:
            self.fatal.cancel()
            self._routes.fail(LinkLost("the session was closed"))
            raise
        except Exception as exc:
            if not isinstance(exc, AgentMQTTError):
                _log.exception("the session of %s failed", self._client_id)
            self.last_error = exc
            self.fatal.set_result(exc)
            self._routes.fail(exc)

    async def _attempt(self) -> None:
        """One connection from beginning to end. Raises what ends the session."""
        number, presence = next(self._attempts), self._presence
        will = Will(presence.topic, presence.payload(number, False)) if presence else None
        hello = Hello(self._client_id, self._keepalive, self._dispatch, will, self._expiry)
        try:
            connection = await self._transport.connect(hello)
        except AgentMQTTError as exc:
            self._failed(exc)
            return
        began = asyncio.get_running_loop().time()
        try:
            error = await self._live(connection, number)
        finally:
            await self._leave(connection, number)
        self._shaky = asyncio.get_running_loop().time() - began < self._stable_after
        if not self._shaky:
            self._failures = 0
        self._failed(error)

    def _failed(self, error: Exception) -> None:
        """Note it; raise it where trying again cannot help."""
        if str(error) != str(self.last_error):
            _log.warning("%s", error)
        self._failures += 1
        self.last_error = error
        if not getattr(error, "retryable", False):
            raise error

    async def _live(self, connection: Connection, number: int) -> Exception:
        """Returns why the connection ended."""
        self._fresh, self._stale = dict.fromkeys(self._routes.entries), {}
        self._strays = 0
        try:
            await self._settle(connection)
            await self._look_for_rivals(connection)
            self._rise(connection, number)
            while not connection.lost.done():
                await asyncio.wait((connection.lost, self._wake), return_when=asyncio.FIRST_COMPLETED)
                await self._settle(connection)
        except LinkLost as exc:
            error: Exception = connection.lost.result() if connection.lost.done() else exc
        except TakenOver as exc:
            error = exc
        else:
            error = connection.lost.result()
        self._fall(error)
        return error

    async def _settle(self, connection: Connection) -> None:
        """Bring the broker's subscriptions to what is wanted, in batches. Raises LinkLost, TakenOver."""
        self._wake = asyncio.get_running_loop().create_future()
        while self._fresh or self._stale:
            self._judge()
            if self._stale:
                await connection.unsubscribe(_take(self._stale))
            else:
                await self._grant(connection, _take(self._fresh))
        self._judge()

    async def _look_for_rivals(self, connection: Connection) -> None:
        """Where there may be one: be sure to have read the presence before ours is written over it.

        The retained message comes after its SUBACK, but before the next one. Without this, the process that
        stops would leave one more sign of itself, and the other one would stop too.
        """
        if self._presence is not None and (self._shaky or self._rivals):
            await self._grant(connection, [self._presence.topic])
            self._judge()

    def _judge(self) -> None:
        if self._verdict is not None:
            raise self._verdict

    async def _grant(self, connection: Connection, filters: list[str]) -> None:
        try:
            await connection.subscribe(filters)
        except Refused as exc:
            _log.warning("%s", exc)
            self._routes.settle(filters, exc.filters or filters, exc)
        else:
            self._routes.settle(filters, (), None)

    def _rise(self, connection: Connection, number: int) -> None:
        if connection.lost.done():
            return
        self._connection, self._number = connection, number
        if self._presence is not None:
            self._birth = self._presence.payload(number, True)
            connection.publish(self._presence.topic, self._birth, retain=True).add_done_callback(self._born)
        self._upped.set_result(None)
        _log.info("connected to %s as %s", self._transport.describe(), self._client_id)
        for callback in tuple(self.on_up):
            self._call(callback, number)

    def _born(self, done: asyncio.Future[None]) -> None:
        if done.cancelled() or done.exception() is None:
            self._ever_born = True
        elif not isinstance(done.exception(), LinkLost):
            _log.warning("the presence of %s was not taken: %s", self._client_id, done.exception())

    def _fall(self, error: Exception) -> None:
        self._routes.lost()
        if self._connection is None:
            return
        self._connection = None
        self._upped = self._upped.get_loop().create_future()
        for callback in tuple(self.on_down):
            self._call(callback, error)

    def _call(self, callback: Callable[..., None], value: object) -> None:
        try:
            callback(value)
        except Exception:
            self.faults += 1
            _log.exception("a callback of the session failed")

    async def _leave(self, connection: Connection, number: int) -> None:
        """Say goodbye if the connection still stands: with the last presence, unless a rival's stands there now."""
        up, self._connection = self._connection is not None, None
        if up and self._presence is not None and not connection.lost.done():
            await self._farewell(connection, self._presence, number)
        await connection.close()

    async def _farewell(self, connection: Connection, presence: Presence, number: int) -> None:
        last = connection.publish(presence.topic, presence.payload(number, False), retain=True)
        try:
            await asyncio.wait((last,), timeout=FAREWELL)
        except asyncio.CancelledError:
            await connection.close(goodbye=False)
            raise


def _take(filters: dict[str, None]) -> list[str]:
    batch = list(itertools.islice(filters, BATCH))
    for item in batch:
        del filters[item]
    return batch
