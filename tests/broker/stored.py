"""A broker over a store that can be crashed and started again, without sockets."""

from __future__ import annotations

import asyncio
from typing import Any

from agentmqtt.broker.engine import Engine
from agentmqtt.broker.limits import Limits
from agentmqtt.broker.sessions import Session
from agentmqtt.broker.store_keeper import StoreKeeper
from agentmqtt.store.base import MAX, Key, Store
from agentmqtt.store.memory import MemoryStore

SPACES = ("session", "subscription", "queue", "inbound", "message", "share", "retained")
DAY = 86_400.0


class Time:
    """Two clocks on command: the monotonic one, and the wall's."""

    def __init__(self, wall: float = 1_800_000_000.0) -> None:
        self.now, self.wall = 1_000.0, wall

    def passes(self, seconds: float) -> None:
        self.now += seconds
        self.wall += seconds


class Place:
    """An engine over a store. `crash` ends it as kill -9 does; the next `start` finds what was committed."""

    def __init__(self, *, unqueued: tuple[str, ...] = (), store: Store | None = None, **limits: Any) -> None:
        self.limits, self.unqueued = Limits(**limits), unqueued
        self.store: Any = store or MemoryStore()
        self.time = Time()
        self.engine: Engine

    async def start(self) -> Engine:
        keeper = StoreKeeper(self.store, clock=lambda: self.time.now, wall=lambda: self.time.wall)
        self.keeper = keeper
        self.engine = Engine(self.limits, unqueued=self.unqueued, keeper=keeper, clock=lambda: self.time.now)
        self.engine.restore(await keeper.load(self.limits))
        return self.engine

    async def crash(self) -> None:
        """What the old process still has in hand is lost, and nobody hears of it."""
        old = self.store
        self.store = old.crash()
        self.keeper._behind._resting = True
        await self.keeper._recall.end()

    async def again(self) -> Engine:
        await self.crash()
        self.time.now = 5.0  # the monotonic clock of another boot
        return await self.start()

    async def safe(self) -> None:
        """Wait until everything noted is on disk."""
        done = asyncio.get_running_loop().create_future()
        self.keeper.then(done.set_result, None)
        await done

    async def rows(self, *spaces: str) -> dict[str, int]:
        """How many records there are, by space; those without any are left out."""
        found = {space: len(await scan(self.store, space)) for space in spaces or SPACES}
        return {space: count for space, count in found.items() if count}


async def scan(store: Store, space: str) -> list[tuple[Key, bytes]]:
    return await store.scan(space, Key("", -MAX, -MAX), Key("\U0010ffff" * 2, MAX, MAX))


def state(engine: Engine) -> dict[str, Any]:
    """What must be the same after a restart."""
    sessions = {name: _state(session) for name, session in engine.sessions.items() if not session.clean}
    retained = {
        topic: (engine._retained.get(topic).payload, engine._retained.get(topic).qos)
        for topic in engine._retained.match("#")
    }
    return {"sessions": sessions, "retained": retained, "bytes": engine._retained_bytes}


def _state(session: Session) -> dict[str, Any]:
    flights = [
        (pid, copy.message.payload, copy.qos, copy.received, copy.retain) for pid, copy in session.inflight.items()
    ]
    return {
        "user": session.user,
        "subscriptions": dict(session.subscriptions),
        "inbound": set(session.inbound),
        "inflight": flights,
        "waiting": len(session.queue),
        "held": session.held,
    }
