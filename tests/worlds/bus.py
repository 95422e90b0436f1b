"""A broker at its worst: it drops, repeats, delays and reorders, and forgets queues when a link breaks.

Per publisher, topic and receiver it keeps order, but for late copies; across topics it keeps none.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from typing import Any, Protocol


class Endpoint(Protocol):
    """Something that subscribes. Nothing is delivered while it is not `ready`."""

    ready: bool
    kind: str

    def on(self, topic: str, source: str, message: Any) -> None: ...


Queue = tuple[str, str, int]


class Bus:
    """Topics, queues per (publisher, topic, receiver), retained messages and a pool of late copies."""

    def __init__(self, rng: random.Random, hits: Counter[str]) -> None:
        self._random = rng.random
        self._hits = hits
        self._queues: dict[Queue, tuple[Endpoint, deque[Any]]] = {}
        self._subs: dict[str, dict[int, Endpoint]] = {}
        self._late: list[tuple[Endpoint, str, str, Any]] = []
        self._recent: dict[int, deque[tuple[str, str, Any]]] = {}
        self.retained: dict[str, tuple[str, Any]] = {}
        self.drop = 0.0
        self.repeat = 0.0
        self.tail_loss = 0.0

    def subscribe(self, endpoint: Endpoint, *topics: str) -> None:
        for topic in topics:
            self._subs.setdefault(topic, {})[id(endpoint)] = endpoint
            for full, (source, message) in self.retained.items():
                if full.partition("/")[0] == topic:
                    self._push(source, topic, endpoint, message)

    def unsubscribe(self, endpoint: Endpoint) -> None:
        for subs in self._subs.values():
            subs.pop(id(endpoint), None)

    def publish(self, source: str, topic: str, message: Any, *, retain: str = "") -> None:
        """Send to every subscriber, if it is lucky. `retain` names the retained slot."""
        if retain:
            self.retained[retain] = (source, message)
        for endpoint in self._subs.get(topic, {}).values():
            luck = self._random()
            if self.tail_loss and luck < self.tail_loss and endpoint.kind == "watcher" and topic in ("out", "status"):
                continue
            if luck < self.drop:
                self._hits["dropped"] += 1
                continue
            self._push(source, topic, endpoint, message)
            if luck > 1 - self.repeat:
                self._late.append((endpoint, topic, source, message))
                self._hits["duplicated"] += 1

    def hold(self, endpoint: Endpoint, topic: str, source: str, message: Any) -> None:
        """A message that comes at any later time."""
        self._late.append((endpoint, topic, source, message))

    def _push(self, source: str, topic: str, endpoint: Endpoint, message: Any) -> None:
        key = (source, topic, id(endpoint))
        entry = self._queues.get(key)
        if entry is None:
            self._queues[key] = (endpoint, deque((message,)))
        else:
            entry[1].append(message)

    def lose(self, endpoint: Endpoint, share: float) -> None:
        """Its link broke: what waits for it may vanish."""
        for key in [key for key in self._queues if key[2] == id(endpoint)]:
            if self._random() < share:
                del self._queues[key]
                self._hits["queue lost"] += 1

    def redeliver(self, endpoint: Endpoint) -> None:
        """It is back, and the broker never heard that it had its last messages."""
        if self.repeat and self._random() < 0.5:
            self._hits["delivered again on a new link"] += 1
            for source, topic, message in self._recent.get(id(endpoint), ()):
                self._push(source, topic, endpoint, message)

    def crash(self, *, retained: bool) -> None:
        """The broker itself died; perhaps with what it retained."""
        for key in list(self._queues):
            if self._random() < 0.7:
                del self._queues[key]
        if retained:
            self.retained.clear()

    def step(self) -> bool:
        """Deliver one message. False if nothing can be delivered."""
        if self._late and self._random() < 0.08 and self._deliver_late():
            return True
        keys = [key for key, entry in self._queues.items() if entry[0].ready]
        if not keys:
            return bool(self._late) and self._deliver_late()
        self._deliver(keys[int(self._random() * len(keys))])
        return True

    def drain(self, limit: int = 20_000) -> None:
        """Deliver until nothing waits but what unready endpoints would get."""
        while limit > 0:
            keys = [key for key, entry in self._queues.items() if entry[0].ready]
            late = any(held[0].ready for held in self._late)
            if not keys and not late:
                return
            for key in keys:
                if key in self._queues:
                    self._deliver(key)
            if late:
                self._deliver_late()
            limit -= len(keys) + 1
        raise AssertionError("the world does not come to rest: somebody answers every answer")

    def _deliver(self, key: Queue) -> None:
        endpoint, queue = self._queues[key]
        if not endpoint.ready:
            return
        message = queue.popleft()
        if not queue:
            del self._queues[key]
        recent = self._recent.get(key[2])
        if recent is None:
            recent = self._recent[key[2]] = deque(maxlen=8)
        recent.append((key[0], key[1], message))
        endpoint.on(key[1], key[0], message)

    def _deliver_late(self) -> bool:
        at = int(self._random() * len(self._late))
        endpoint, topic, source, message = self._late[at]
        if not endpoint.ready:
            return False
        self._late[at] = self._late[-1]
        self._late.pop()
        self._hits["late"] += 1
        endpoint.on(topic, source, message)
        return True
