"""The keeper on disk: sessions, queues and retained messages in a store, which the journal may share."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from agentmqtt.broker import records
from agentmqtt.broker.behind import WriteBehind
from agentmqtt.broker.bodies import Bodies
from agentmqtt.broker.keeper import Kept
from agentmqtt.broker.messages import Message, Outgoing
from agentmqtt.broker.recall import Recall
from agentmqtt.broker.sessions import Bounds, Origin, Session
from agentmqtt.store.base import Key, Store

_NUMBERS = 1 << 16
"""Numbers that are noted as given out at a time: a restart begins behind them."""
_IDS = 1 << 10
"""Likewise packet IDs of a session."""
_ALL_IDS = 65_535
_MARK = 60.0
"""Seconds between two notes of the time, if there is anything to note."""
_EARLIEST = 1_735_689_600
"""2025 in seconds since 1970: a clock that says less was never set."""
_FAREWELL = 3.0


class StoreKeeper:
    """A `Keeper` over a store. Give it the engine's `clock`; `wall` is in seconds since 1970.

    An offline session's age is counted by `clock` while the broker runs; for the time that it did
    not run, by the difference of two readings of `wall`, and only if both are plausible.
    """

    spills = True

    def __init__(
        self, store: Store, *, clock: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time
    ) -> None:
        self._clock, self._wall = clock, wall
        self._behind = WriteBehind(store, self._prepare, lambda: self._bodies.written())
        self._bodies = Bodies(store, self._behind, self._number)
        self._recall = Recall(store, self._behind, self._bodies)
        self._next = self._reserved = 1
        self._birth = 0.0
        self._marked = -_MARK
        self._loaded = False

    @property
    def trouble(self) -> Exception | None:
        """See `Keeper.trouble`."""
        return self._behind.trouble

    # -------------------------------------------------------------- sessions

    def opened(self, session: Session) -> None:
        """See `Keeper.opened`."""
        if not session.key:
            session.key = self._number()
            self._behind.pad.create(records.SESSION, Key(session.client_id), self._session(session))
            self._behind.schedule()
        else:
            self.closed(session)

    def closed(self, session: Session) -> None:
        """See `Keeper.closed`."""
        if session.key:
            self._put(records.SESSION, Key(session.client_id), self._session(session))

    def _session(self, session: Session) -> bytes:
        session.block = session.last_id // _IDS if session.last_id else -1
        since = None if session.offline_since is None else session.offline_since - self._birth
        # Two blocks ahead: what is sent before this is safe does not come again either.
        used = (session.block + 2) * _IDS % _ALL_IDS if session.last_id else 0
        return records.pack_session(records.SavedSession(session.key, session.user, since, used))

    def dropped(self, session: Session) -> None:
        """See `Keeper.dropped`. The queue follows after that commit, bit by bit; a restart goes on with it."""
        key, session.key = session.key, 0
        if not key:
            return
        self._delete(records.SESSION, Key(session.client_id))
        for pattern in session.subscriptions:
            self._delete(records.SUBSCRIPTION, Key(pattern, key))
        for packet_id in session.inbound:
            self._delete(records.INBOUND, Key("", key, packet_id))
        if session.held:
            self._behind.then(self._recall.clear, key)

    def subscribed(self, session: Session, pattern: str, qos: int) -> None:
        """See `Keeper.subscribed`."""
        record = records.pack_filter(qos, due=pattern in session.due)
        self._put(records.SUBSCRIPTION, Key(pattern, session.key), record)

    def unsubscribed(self, session: Session, pattern: str) -> None:
        """See `Keeper.unsubscribed`."""
        self._delete(records.SUBSCRIPTION, Key(pattern, session.key))

    # -------------------------------------------------------------- messages

    def queued(self, session: Session, copy: Outgoing) -> None:
        """See `Keeper.queued`."""
        self._bodies.hold(copy.message)
        self._behind.pad.create(records.QUEUE, Key("", session.key, copy.number), records.pack_copy(copy))
        self._behind.schedule()

    def progressed(self, session: Session, copy: Outgoing) -> None:
        """See `Keeper.progressed`."""
        self._put(records.QUEUE, Key("", session.key, copy.number), records.pack_copy(copy))
        if session.last_id // _IDS != session.block:
            self.closed(session)

    def settled(self, session: Session, copy: Outgoing) -> None:
        """See `Keeper.settled`."""
        self._bodies.release(copy.message)
        self._delete(records.QUEUE, Key("", session.key, copy.number))

    def inbound(self, session: Session, packet_id: int) -> None:
        """See `Keeper.inbound`."""
        self._behind.pad.create(records.INBOUND, Key("", session.key, packet_id), records.pack_mark())
        self._behind.schedule()

    def released(self, session: Session, packet_id: int) -> None:
        """See `Keeper.released`."""
        self._delete(records.INBOUND, Key("", session.key, packet_id))

    def retained(self, topic: str, message: Message | None) -> None:
        """See `Keeper.retained`."""
        if message is None:
            self._delete(records.RETAINED, Key(topic))
        else:
            self._put(records.RETAINED, Key(topic), records.pack_message(message))

    def _put(self, space: str, key: Key, body: bytes) -> None:
        self._behind.pad.put(space, key, body)
        self._behind.schedule()

    def _delete(self, space: str, key: Key) -> None:
        self._behind.pad.delete(space, key)
        self._behind.schedule()

    # -------------------------------------------------------------- what waits

    def then(self, call: Callable[..., None], *args: Any) -> None:
        """See `Keeper.then`."""
        self._behind.then(call, *args)

    def delays(self, origin: Origin) -> bool:
        """See `Keeper.delays`."""
        return self._behind.delays(origin)

    def fetch(self, session: Session) -> None:
        """See `Keeper.fetch`."""
        self._recall.fetch(session)

    # -------------------------------------------------------------- commits

    def _number(self) -> int:
        number, self._next = self._next, self._next + 1
        if number >= self._reserved:
            self._reserved = number + _NUMBERS
            self._put(records.OWN, Key("numbers"), records.pack_numbers(self._reserved))
        return number

    def _prepare(self) -> None:
        self._bodies.prepare()
        if self._behind.pad and self._clock() - self._marked >= _MARK:
            self._mark()

    def _mark(self) -> None:
        self._marked = self._clock()
        age = int((self._marked - self._birth) * 1000)
        self._behind.pad.put(records.OWN, Key("clock"), records.pack_numbers(age, int(self._wall())))

    # -------------------------------------------------------------- begin and end

    async def load(self, bounds: Bounds) -> Kept:
        """See `Keeper.load`.

        Raises:
            StoreError: the store cannot be read.
        """
        kept = Kept([], []) if self._loaded else await self._load(bounds)
        self._loaded = True
        self._behind.resume()
        self._recall.resume()
        return kept

    async def _load(self, bounds: Bounds) -> Kept:
        (self._next,) = await self._recall.own("numbers", 1)
        self._next = self._reserved = max(1, self._next)
        age, wall = await self._recall.own("clock", 2)
        self._birth = self._clock() - age / 1000 - self._away(wall)
        sessions = await self._recall.sessions(bounds, lambda age: self._birth + age)
        now = self._clock()
        for session in sessions:
            if session.offline_since is None:
                session.offline_since = now
                self.closed(session)
        return Kept(sessions, await self._recall.retained())

    def _away(self, then: float) -> float:
        """Seconds since `then`, if both clocks can be believed."""
        now = self._wall()
        return max(0.0, now - then) if min(now, then) >= _EARLIEST else 0.0

    async def end(self) -> None:
        """See `Keeper.end`."""
        if self._behind.pad:
            self._mark()
        await self._behind.rest(_FAREWELL)
        await self._recall.end()
