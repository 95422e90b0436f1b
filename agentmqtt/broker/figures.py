"""What a broker tells about itself: as numbers for Prometheus, and as messages below `$SYS`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from agentmqtt.broker.engine import Engine
from agentmqtt.version import VERSION

COUNTED = {
    "published": "messages that were taken from clients and plugins",
    "dropped": "messages that an offline client missed because its queue was full",
    "evicted": "clients that were cut off because they did not read",
    "refused": "connections and logins that were refused",
    "not_retained": "messages for which there was no room to be retained",
}
"""Counters of the engine."""


class Figure(NamedTuple):
    """One number. `topic` is where it stands below `$SYS/broker`."""

    name: str
    topic: str
    help: str
    value: float
    counts: bool = False


class Lag:
    """How late the event loop comes to what was due: the longest of the last two intervals."""

    def __init__(self, every: float = 0.5, window: float = 30.0) -> None:
        self._every, self._window = every, window
        self._now = self._before = 0.0
        self._due = self._turn = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def seconds(self) -> float:
        return max(self._now, self._before)

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._due = loop.time() + self._every
        self._turn = self._due + self._window
        self._timer = loop.call_at(self._due, self._tick)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._now = max(self._now, now - self._due)
        if now >= self._turn:
            self._before, self._now, self._turn = self._now, 0.0, now + self._window
        self._due = now + self._every
        self._timer = loop.call_at(self._due, self._tick)


class Figures:
    """Everything that can be told now.

    Args:
        connections: how many clients are connected.
        certificate: days until the certificate ends, None without one.
    """

    def __init__(self, engine: Engine, connections: Callable[[], int], certificate: Callable[[], float | None]) -> None:
        self.lag = Lag()
        self._engine, self._connections, self._certificate = engine, connections, certificate
        self._began = time.monotonic()

    def all(self) -> Iterator[Figure]:
        """Every figure, with what it counts."""
        engine = self._engine
        sessions = list(engine.sessions.values())
        yield Figure("uptime_seconds", "uptime", "since the broker started", round(time.monotonic() - self._began, 1))
        yield Figure("connections", "clients/connected", "clients that are connected", self._connections())
        yield Figure("sessions", "clients/total", "sessions, with those of clients that are away", len(sessions))
        waiting = sum(session.unacknowledged for session in sessions)
        held = sum(session.held for session in sessions)
        yield Figure("queued_messages", "store/messages/count", "messages that wait or are in flight", waiting)
        yield Figure("queued_bytes", "store/messages/bytes", "bytes of messages that wait or are in flight", held)
        yield Figure("retained_messages", "retained messages/count", "topics with a retained message", engine.retained)
        yield Figure("retained_bytes", "retained messages/bytes", "bytes of retained messages", engine.retained_bytes)
        for name, about in COUNTED.items():
            yield Figure(f"{name}_total", f"messages/{name}", about, engine.counters[name], counts=True)
        yield Figure("loop_lag_seconds", "load/lag", "longest delay of the event loop", round(self.lag.seconds, 4))
        healthy = engine.keeper.trouble is None
        yield Figure("store_works", "store/works", "1 while the store can be written", int(healthy))
        if (days := self._certificate()) is not None:
            yield Figure("certificate_days", "certificate/days", "days until the certificate ends", round(days, 1))

    def text(self) -> str:
        """In the text format of Prometheus."""
        lines = []
        for figure in self.all():
            name = f"agentmqtt_broker_{figure.name}"
            kind = "counter" if figure.counts else "gauge"
            lines += [f"# HELP {name} {figure.help}", f"# TYPE {name} {kind}", f"{name} {figure.value:g}"]
        return "\n".join(lines) + "\n"

    def publish(self) -> None:
        """Say everything below `$SYS/broker`, to those who may read it. Nothing of it is kept."""
        self._engine.announce("$SYS/broker/version", f"agentmqtt {VERSION}".encode())
        for figure in self.all():
            self._engine.announce(f"$SYS/broker/{figure.topic}", f"{figure.value:g}".encode())
