"""Reading back what the keeper wrote: everything at the start, later the parts of long queues."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from functools import partial
from typing import TypeAlias, TypeVar

from agentmqtt.broker import records
from agentmqtt.broker.behind import WriteBehind
from agentmqtt.broker.bodies import Bodies
from agentmqtt.broker.messages import Message, Outgoing
from agentmqtt.broker.queues import BYTES, COPIES, Wanted
from agentmqtt.broker.records import BadRecord, Copy
from agentmqtt.broker.sessions import Bounds, Session
from agentmqtt.errors import StoreError
from agentmqtt.store.base import MAX, Key, Store

log = logging.getLogger("agentmqtt.broker")

T = TypeVar("T")
Row: TypeAlias = tuple[Key, Copy]
_CHUNK = 500
_CHUNK_BYTES = 4 << 20
_END = Key("\U0010ffff" * 4, MAX, MAX)
_PAUSE = 1.0
"""Seconds before a failed read is tried again."""


class Recall:
    """Everything that reads the store. What cannot be read is dropped, and said."""

    def __init__(self, store: Store, behind: WriteBehind, bodies: Bodies) -> None:
        self._store, self._behind, self._bodies = store, behind, bodies
        self._jobs: deque[Callable[[], Awaitable[None]]] = deque()
        self._resting = True
        self._task: asyncio.Task[None] | None = None
        self._bad = 0

    # -------------------------------------------------------------- at the start

    async def sessions(self, bounds: Bounds, clock: Callable[[float], float]) -> list[Session]:
        """Every session with its subscriptions and flights; what waits stays on disk.

        `clock` tells when the broker had an age.
        """
        found: dict[int, Session] = {}
        async for key, saved in self._all(records.SESSION, records.unpack_session):
            session = Session(key.name, saved.user, clean=False, bounds=bounds, spills=True)
            session.key, session.last_id = saved.key, saved.last_id
            session.offline_since = None if saved.since is None else clock(saved.since)
            found[saved.key] = session
        async for key, (qos, due) in self._all(records.SUBSCRIPTION, records.unpack_filter):
            if owner := self._owner(found, records.SUBSCRIPTION, key):
                owner.subscriptions[key.name] = qos
                owner.due |= {key.name} if due else set()
        async for key, _ in self._all(records.INBOUND, records.unpack_mark):
            if owner := self._owner(found, records.INBOUND, key):
                owner.inbound.add(key.b)
        flights = await self._queues(found)
        if self._bad:
            await self._repair()
        await self._flights(flights)
        return list(found.values())

    def _owner(self, sessions: dict[int, Session], space: str, key: Key) -> Session | None:
        session = sessions.get(key.a)
        if session is None:
            self._drop(space, key, "its session is not there")
        return session

    async def _queues(self, sessions: dict[int, Session]) -> list[tuple[Session, Row]]:
        """Count what waits; returns what was in flight."""
        flights = []
        gone: set[int] = set()
        async for key, copy in self._all(records.QUEUE, records.unpack_copy):
            session = sessions.get(key.a)
            if session is None:
                gone.add(key.a)
            elif copy.packet_id:
                flights.append((session, (key, copy)))
            else:
                session.recall(key.b, copy.cost)
        for number in gone:
            self.clear(number)
        return flights

    async def _flights(self, flights: list[tuple[Session, Row]]) -> None:
        for start in range(0, len(flights), _CHUNK):
            part = flights[start : start + _CHUNK]
            messages = await self._bodies.find([copy.message for _, (_, copy) in part])
            for session, row in part:
                if made := self._copies([row], messages):
                    session.recall(made[0].number, row[1].cost, made[0])

    async def retained(self) -> list[Message]:
        """Every retained message."""
        found = []
        async for key, message in self._all(records.RETAINED, records.unpack_message):
            if message.topic != key.name:
                self._drop(records.RETAINED, key, f"it belongs to {message.topic!r}")
            else:
                found.append(message)
        return found

    async def own(self, name: str, count: int) -> list[int]:
        """Numbers of the broker's own; zeros if there are none yet."""
        for key, body in await self._store.scan(records.OWN, Key(name), Key(name)):
            try:
                return records.unpack_numbers(body, count)
            except BadRecord as error:
                self._drop(records.OWN, key, error)
        return [0] * count

    async def _all(self, space: str, read: Callable[[bytes], T]) -> AsyncIterator[tuple[Key, T]]:
        first = Key("", -MAX, -MAX)
        while chunk := await self._store.scan(space, first, _END, limit=_CHUNK, max_bytes=_CHUNK_BYTES):
            for key, body in chunk:
                if self._behind.pending(space, key, body) is None:
                    continue  # dropped already
                try:
                    yield key, read(body)
                except BadRecord as error:
                    self._drop(space, key, error)
            last = chunk[-1][0]
            first = Key(last.name, last.a, last.b + 1)

    def _drop(self, space: str, key: Key, why: object) -> None:
        self._bad += 1
        log.error("a record of the broker cannot be used and is dropped: %s %r: %s", space, tuple(key), why)
        self._behind.pad.delete(space, key)
        self._behind.schedule()

    async def _repair(self) -> None:
        """Something was dropped: count all copies and bring the messages into line with them."""
        counts: Counter[int] = Counter()
        async for _, copy in self._all(records.QUEUE, records.unpack_copy):
            counts[copy.message] += 1
        pad = self._behind.pad
        async for key, _ in self._all(records.SHARE, bytes):
            if counts[key.a] < 2:
                pad.delete(records.SHARE, key)
        async for key, _ in self._all(records.MESSAGE, bytes):
            if not counts[key.a]:
                pad.delete(records.MESSAGE, key)
            elif counts[key.a] > 1:
                pad.put(records.SHARE, key, records.pack_count(counts[key.a]))
        self._behind.schedule()

    # -------------------------------------------------------------- while it runs

    def fetch(self, session: Session) -> None:
        """See `Keeper.fetch`."""
        wanted = session.queue.wanted()
        if wanted is not None:
            self._enqueue(partial(self._fetch, session, session.key, wanted))

    def clear(self, session: int) -> None:
        """Remove the queue of a session that is gone, bit by bit."""
        self._enqueue(partial(self._clear, session))

    async def end(self) -> None:
        """Read no more; what is not finished is found at the next start."""
        self._resting = True
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    def resume(self) -> None:
        """Begin, or go on with what `end` left."""
        self._resting = False
        self._start()

    def _enqueue(self, job: Callable[[], Awaitable[None]]) -> None:
        self._jobs.append(job)
        self._start()

    def _start(self) -> None:
        if self._jobs and self._task is None and not self._resting:
            self._task = asyncio.create_task(self._work(), name="agentmqtt broker recall")

    async def _work(self) -> None:
        """One job after another: two readers would count references apart."""
        while self._jobs:
            try:
                await self._jobs[0]()
            except StoreError as error:
                log.warning("the store cannot be read, which is tried again: %s", error)
                await asyncio.sleep(_PAUSE)
            else:
                self._jobs.popleft()
        self._task = None

    async def _fetch(self, session: Session, key: int, wanted: Wanted) -> None:
        complete = self._behind.clean  # before the read: what is committed during it may be missing
        rows = await self._rows(key, wanted.after + 1, wanted.before - 1)
        messages = await self._bodies.find([copy.message for _, copy in rows])
        queue = session.queue
        if session.key != key or not queue.expects(wanted):
            return
        copies = self._copies(rows, messages)
        if not rows and not complete:
            queue.take([])
            self._behind.then(self.fetch, session)  # it is on its way to the disk
            return
        if not rows:
            log.error("%d messages for %r are not in the store any more", queue.gap, session.client_id)
            session.forget_gap()
        else:
            session.held -= sum(copy.cost for _, copy in rows if copy.message not in messages)
            queue.take(copies, lost=len(rows) - len(copies))
        if session.link is not None:
            session.link.wake()

    async def _clear(self, session: int) -> None:
        rows = await self._rows(session, 0, MAX)
        messages = await self._bodies.find([copy.message for _, copy in rows])
        for key, copy in rows:
            self._behind.pad.delete(records.QUEUE, key)
            if (message := messages.get(copy.message)) is not None:
                self._bodies.release(message)
        self._behind.schedule()
        if rows:
            self._behind.then(self.clear, session)

    async def _rows(self, session: int, first: int, last: int) -> list[Row]:
        """The next rows of a queue, at least one if there is any."""
        found: list[Row] = []
        size = 0
        for key, body in await self._store.scan(
            records.QUEUE, Key("", session, first), Key("", session, last), limit=COPIES
        ):
            try:
                copy = records.unpack_copy(body)
            except BadRecord as error:
                self._drop(records.QUEUE, key, error)
                continue
            size += copy.cost
            if found and size > BYTES:
                break
            found.append((key, copy))
        return found

    def _copies(self, rows: Iterable[Row], messages: dict[int, Message]) -> list[Outgoing]:
        made = []
        for key, row in rows:
            message = messages.get(row.message)
            if message is None:
                self._drop(records.QUEUE, key, f"its message {row.message} is not there")
                continue
            copy = Outgoing(message, row.qos, retain=row.retain, number=key.b)
            copy.packet_id, copy.received = row.packet_id, row.received
            made.append(copy)
        return made
