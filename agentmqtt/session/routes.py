"""Who gets which message: subscriptions by filter, and a quick way from a topic to its handlers."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from agentmqtt.errors import LinkLost, UsageError
from agentmqtt.transport.base import Delivery
from agentmqtt.transport.topics import is_pattern, is_valid_filter, matches, strip_share

MAX_CACHED = 4096
"""Topics whose handlers are remembered; above it the memory starts again."""


class _Keep(enum.Enum):
    KEEP = "keep"


KEEP: Final = _Keep.KEEP
"""Returned by a handler that calls `delivery.ack` itself later. Kept by several: the first call acknowledges."""

Handler: TypeAlias = Callable[[Delivery], object]
"""Runs on the loop, in order of arrival, and must not block. Unless it returns KEEP the session acknowledges."""


class Entry:
    """One filter and everybody who wants it. `granted` is done while it stands on the current connection."""

    __slots__ = ("filter", "granted", "subscriptions")

    def __init__(self, filter_: str) -> None:
        self.filter: str = filter_
        self.subscriptions: list[Subscription] = []
        self.granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def grant(self) -> None:
        if self.granted.done() and self.granted.exception() is not None:
            self.renew()
        if not self.granted.done():
            self.granted.set_result(None)
        for subscription in tuple(self.subscriptions):
            if subscription.on_granted is not None:
                subscription.on_granted()

    def fail(self, error: Exception) -> None:
        if not self.granted.done():
            self.granted.set_exception(error)
            self.granted.exception()  # told to those who ask for `ready`, and logged by the session

    def renew(self) -> None:
        if self.granted.done():
            self.granted = self.granted.get_loop().create_future()


class Subscription:
    """A handler's place at a filter. Made by Session.subscribe.

    `on_granted`, if set, is called each time the broker grants the filter, on every connection.
    """

    __slots__ = ("_entry", "_on_close", "closed", "filter", "handler", "on_granted")

    def __init__(self, entry: Entry, handler: Handler, on_close: Callable[[Subscription], None]) -> None:
        self._entry, self._on_close = entry, on_close
        self.filter: str = entry.filter
        self.handler: Handler = handler
        self.closed: bool = False
        self.on_granted: Callable[[], None] | None = None

    @property
    def standing(self) -> bool:
        """Whether the broker granted it on the current connection."""
        granted = self._entry.granted
        return granted.done() and granted.exception() is None

    async def ready(self) -> None:
        """Returns once the subscription stands on the current connection; waits for one if there is none.

        Raises:
            Refused: the broker did not grant it on the current connection.
            LinkLost: it was closed meanwhile.
            AgentMQTTError: the session has stopped for good, with its reason.
        """
        await asyncio.shield(self._entry.granted)

    def close(self) -> None:
        """No message reaches the handler any more. Closing again does nothing."""
        if not self.closed:
            self.closed = True
            self._on_close(self)


class Routes:
    """All subscriptions of a session."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self._exact: dict[str, list[Entry]] = {}
        self._patterns: dict[str, Entry] = {}
        self._cache: dict[str, tuple[Subscription, ...]] = {}

    def add(self, filter_: str, handler: Handler, on_close: Callable[[Subscription], None]) -> Subscription:
        """Raises UsageError for a filter that MQTT does not allow."""
        if not is_valid_filter(filter_):
            raise UsageError(f"{filter_!r} is not a topic filter; + and # stand alone in a level, # is the last")
        entry = self.entries.get(filter_)
        if entry is None:
            entry = self.entries[filter_] = Entry(filter_)
            self._index(entry)
        subscription = Subscription(entry, handler, on_close)
        entry.subscriptions.append(subscription)
        self._cache.clear()
        return subscription

    def remove(self, subscription: Subscription) -> bool:
        """Whether it was the last one of its filter."""
        entry = self.entries[subscription.filter]
        entry.subscriptions.remove(subscription)
        self._cache.clear()
        if entry.subscriptions:
            return False
        del self.entries[entry.filter]
        self._unindex(entry)
        entry.fail(LinkLost(f"the subscription to {entry.filter} was closed"))
        return True

    def find(self, topic: str) -> tuple[Subscription, ...]:
        """The subscriptions that take `topic`, exact ones first."""
        found = self._cache.get(topic)
        if found is None:
            patterns = (entry for entry in self._patterns.values() if matches(strip_share(entry.filter), topic))
            found = tuple(sub for entry in (*self._exact.get(topic, ()), *patterns) for sub in entry.subscriptions)
            if len(self._cache) >= MAX_CACHED:
                self._cache.clear()
            self._cache[topic] = found
        return found

    def lost(self) -> None:
        """The connection has gone: nothing stands any more."""
        for entry in self.entries.values():
            entry.renew()

    def settle(self, filters: Iterable[str], refused: Iterable[str], error: Exception | None) -> None:
        """The broker's word about `filters`."""
        refusals = frozenset(refused)
        for entry in filter(None, map(self.entries.get, filters)):
            if error is not None and entry.filter in refusals:
                entry.renew()
                entry.fail(error)
            else:
                entry.grant()

    def fail(self, error: Exception) -> None:
        """The session has stopped."""
        for entry in self.entries.values():
            entry.fail(error)

    def _index(self, entry: Entry) -> None:
        inner = strip_share(entry.filter)
        if is_pattern(inner):
            self._patterns[entry.filter] = entry
        else:
            self._exact.setdefault(inner, []).append(entry)

    def _unindex(self, entry: Entry) -> None:
        inner = strip_share(entry.filter)
        self._patterns.pop(entry.filter, None)
        if (entries := self._exact.get(inner)) is not None and entry in entries:
            entries.remove(entry)
            if not entries:
                del self._exact[inner]
