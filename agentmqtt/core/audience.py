"""Who watches what now, as far as the journal has heard (PROTOCOL §6.8). In memory: a restart learns it again."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Final

NAMES: Final = 200
"""Names that one client can be said to watch."""
CLIENTS: Final = 10_000
"""Clients that are remembered; those that were heard last."""
DEBOUNCE: Final = 5.0
"""Seconds for which a link may be lost without its watcher having left."""


@dataclasses.dataclass(slots=True)
class Watcher:
    """One process that watches. `since` is when it began with each name, in milliseconds since 1970."""

    boot: bytes
    conn: int
    until: float
    since: dict[str, int]


class Audience:
    """Watchers by client ID. `now` is a monotonic clock in seconds, `wall` milliseconds since 1970."""

    def __init__(self, lease: float) -> None:
        self._lease = lease
        self._watchers: dict[str, Watcher] = {}

    def seen(self, client: str, boot: bytes, conn: int, names: Iterable[str], now: float, wall: int) -> None:
        """A client says what it watches. A word of an older connection of the same process is old news."""
        old = self._watchers.pop(client, None)
        same = old is not None and old.boot == boot
        if old is not None and same and conn < old.conn:
            self._watchers[client] = old
            return
        before = old.since if old is not None and old.until > now else {}
        since = {name: before.get(name, wall) for name, _ in zip(names, range(NAMES), strict=False)}
        if since:
            self._watchers[client] = Watcher(boot, conn, now + self._lease, since)
        if len(self._watchers) > CLIENTS:
            del self._watchers[next(iter(self._watchers))]

    def lost(self, client: str, boot: bytes, conn: int, now: float) -> None:
        """Its link broke: it has left unless it comes back soon. The will of an older connection is old news."""
        watcher = self._watchers.get(client)
        if watcher is not None and (watcher.boot, watcher.conn) == (boot, conn):
            watcher.until = min(watcher.until, now + DEBOUNCE)

    def of(self, name: str, now: float) -> Iterator[tuple[str, int]]:
        """Client IDs that watch a name, and since when."""
        for client, watcher in list(self._watchers.items()):
            if watcher.until <= now:
                del self._watchers[client]
            elif name in watcher.since:
                yield client, watcher.since[name]
