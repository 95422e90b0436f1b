"""Routing: who gets what. Synchronous and without I/O; links do the sending, the keeper the remembering."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence

from agentmqtt.broker.keeper import InMemory, Keeper, Kept
from agentmqtt.broker.limits import Limits
from agentmqtt.broker.messages import Message, Outgoing
from agentmqtt.broker.sessions import Bounds, Link, Origin, Session, User
from agentmqtt.broker.topics import Subscriptions, TopicMap
from agentmqtt.broker.wills import Wills
from agentmqtt.errors import LinkError

log = logging.getLogger("agentmqtt.broker")

_REFILL = 64
_RETURN = 600.0
"""Seconds that every session has to come back after a restart: the time between is an estimate."""


class NotYours(LinkError):
    """The client ID belongs to another user."""


class TooManySessions(LinkError):
    """There is no room for one more session."""


class Engine:
    """Every session, subscription and retained message of one broker.

    `unqueued` are filters whose messages are not kept for sessions that are offline.
    """

    def __init__(
        self,
        limits: Limits,
        *,
        unqueued: Sequence[str] = (),
        keeper: Keeper | None = None,
        wills: Wills | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limits: Limits = limits
        self.keeper: Keeper = keeper or InMemory()
        self.wills: Wills = wills or Wills()
        self.sessions: dict[str, Session] = {}
        self.counters: Counter[str] = Counter()
        self._clock = clock
        self._subscriptions: Subscriptions[Session] = Subscriptions()
        self._retained: TopicMap[Message] = TopicMap()
        self._retained_bytes = 0
        self._unqueued: Subscriptions[str] = Subscriptions()
        for pattern in unqueued:
            self._unqueued.add(pattern, pattern, 0)

    def restore(self, kept: Kept) -> None:
        """Go on where an earlier process ended. Nobody is connected yet."""
        earliest = self._clock() - max(0.0, self.limits.session_expiry - _RETURN)
        for session in kept.sessions:
            session.offline_since = max(session.offline_since or earliest, earliest)
            self.sessions[session.client_id] = session
            for pattern, qos in session.subscriptions.items():
                self._subscriptions.add(pattern, session, qos)
        for message in kept.retained:
            message.kept = not self._unqueued.match(message.topic)
            self._retained.put(message.topic, message)
            self._retained_bytes += message.cost
        for session in kept.sessions:
            for pattern in session.due & session.subscriptions.keys():
                self._owe(session, pattern, session.subscriptions[pattern])

    @property
    def retained(self) -> int:
        """Topics that have a retained message."""
        return len(self._retained)

    @property
    def retained_bytes(self) -> int:
        """What retained messages take."""
        return self._retained_bytes

    # -------------------------------------------------------------- sessions

    def attach(
        self, link: Link, client_id: str, user: User, *, clean: bool, bounds: Bounds | None = None
    ) -> tuple[Session, bool]:
        """Connect `link` to its session; the second value tells whether one was resumed [3.1.2.4].

        A session that a client without a name made is anybody's: it never was a secret.

        Raises:
            NotYours: another user has this client ID; nothing happened to it.
            TooManySessions: the session would be new and there is no room.
        """
        old = self.sessions.get(client_id)
        if old is not None and self._expired(old):
            self.drop(old)
        elif old is not None and old.user not in (user, None):
            raise NotYours(f"client ID {client_id!r} belongs to another user")
        elif old is not None and old.link is not None:
            old.link.taken_over()
        session = self.sessions.get(client_id)
        if session is not None and clean:
            self.drop(session)
            session = None
        present = session is not None
        if session is None:
            session = self._open(client_id, user, clean=clean, bounds=bounds)
        session.link, session.user, session.offline_since = link, user, None
        session.bounds, session.queue.awake = bounds or self.limits, True
        if not clean:
            self.keeper.opened(session)
        return session, present

    def _open(self, client_id: str, user: User, *, clean: bool, bounds: Bounds | None) -> Session:
        if len(self.sessions) >= self.limits.sessions:
            self.sweep()
        if len(self.sessions) >= self.limits.sessions:
            raise TooManySessions(f"no room for {client_id!r}: there are {len(self.sessions)} sessions")
        spills = self.keeper.spills and not clean
        session = Session(client_id, user, clean=clean, bounds=bounds or self.limits, spills=spills)
        self.sessions[client_id] = session
        return session

    def detach(self, session: Session, link: Link) -> None:
        """The connection of `link` ended. Another link's session is not touched."""
        if session.link is not link:
            return
        session.link, session.offline_since = None, self._clock()
        if session.clean:
            self.drop(session)
            return
        session.suspend()
        self.keeper.closed(session)

    def drop(self, session: Session) -> None:
        """Forget a session and everything it had."""
        if self.sessions.get(session.client_id) is session:
            del self.sessions[session.client_id]
        for pattern in session.subscriptions:
            self._subscriptions.remove(pattern, session)
        if not session.clean:
            self.keeper.dropped(session)
        session.subscriptions.clear()

    def sweep(self) -> None:
        """Drop the sessions whose time is over."""
        for session in [session for session in self.sessions.values() if self._expired(session)]:
            self.drop(session)

    def _expired(self, session: Session) -> bool:
        since = session.offline_since
        return since is not None and self._clock() - since > self.limits.session_expiry

    # -------------------------------------------------------------- subscriptions

    def subscribe(self, session: Session, pattern: str, qos: int) -> bool:
        """Whether `pattern`, which is valid, was granted. Its retained messages follow [3.8.4-3]."""
        new = pattern not in session.subscriptions
        if new and len(session.subscriptions) >= self.limits.subscriptions:
            return False
        if pattern.startswith("$share/") or pattern.count("/") >= self.limits.max_levels:
            return False
        session.subscriptions[pattern] = qos
        self._subscriptions.add(pattern, session, qos)
        self._owe(session, pattern, qos)
        if not session.clean:
            self.keeper.subscribed(session, pattern, qos)
        return True

    def _owe(self, session: Session, pattern: str, qos: int) -> None:
        """The retained messages of a subscription are due."""
        if topics := self._retained.match(pattern):
            session.backlog.update(dict.fromkeys(topics, qos))
            session.due |= {pattern}

    def unsubscribe(self, session: Session, pattern: str) -> None:
        """Nothing happens if it was not subscribed [3.10.4-5]."""
        if session.subscriptions.pop(pattern, None) is None:
            return
        self._subscriptions.remove(pattern, session)
        if not session.clean:
            self.keeper.unsubscribed(session, pattern)

    def refill(self, session: Session) -> None:
        """See that there is something to pull: what is on disk, then a few retained messages as they are now."""
        if session.queue.gap:
            self.keeper.fetch(session)
        while session.backlog and len(session.queue) < _REFILL:
            topic, granted = session.backlog.popitem()
            message = self._retained.get(topic)
            if message is None:
                continue
            copy = session.push(message, min(message.qos, granted), retain=True)
            if copy is None:
                session.backlog[topic] = granted
                return
            if session.noted(copy):
                self.keeper.queued(session, copy)
        if session.due and not session.backlog:
            self._paid(session)

    def _paid(self, session: Session) -> None:
        due, session.due = session.due, frozenset()
        for pattern in due & session.subscriptions.keys():
            if not session.clean:
                self.keeper.subscribed(session, pattern, session.subscriptions[pattern])

    def pull(self, session: Session) -> Outgoing | None:
        """The next copy to send. One at QoS 2 must wait until that is safe: its packet ID may not come twice."""
        copy = session.pull()
        if copy is not None and session.noted(copy):
            self.keeper.progressed(session, copy)
        return copy

    def recall(self, session: Session, packet_id: int) -> None:
        """Give up a flight that its reader may not have any more."""
        copy = session.give_up(packet_id)
        if copy is not None and session.noted(copy):
            self.keeper.settled(session, copy)

    # -------------------------------------------------------------- messages

    def publish(
        self, topic: str, payload: bytes, qos: int, *, retain: bool = False, origin: Origin | None = None
    ) -> None:
        """Route a message to everyone who wants it. `origin` may be asked to wait."""
        message = Message(topic, payload, qos, kept=not self._unqueued.match(topic))
        self.counters["published"] += 1
        if retain:
            self._retain(message)
        for session, granted in self._subscriptions.match(topic):
            self._deliver(session, message, qos if qos < granted else granted, origin)

    def announce(self, topic: str, payload: bytes) -> None:
        """What the broker says itself: at QoS 0, not counted, not kept."""
        message = Message(topic, payload, 0, kept=False)
        for session, _ in self._subscriptions.match(topic):
            self._deliver(session, message, 0, None)

    def _deliver(self, session: Session, message: Message, qos: int, origin: Origin | None) -> None:
        link = session.link
        noted = qos > 0 and message.kept and not session.clean
        if link is None and not noted:
            return
        copy = session.push(message, qos) or self._make_room(session, message, qos)
        if copy is None:
            return
        if noted:
            self.keeper.queued(session, copy)
        if session.link is not None:
            session.link.wake(origin)

    def _make_room(self, session: Session, message: Message, qos: int) -> Outgoing | None:
        """A full queue: a reader that is there must take something or leave, an offline one misses the message."""
        link = session.link
        if link is not None:
            link.flush()
            if copy := session.push(message, qos):
                return copy
            self.counters["evicted"] += 1
            link.evict(f"it does not read: {len(session.queue)} messages, {session.held} bytes wait for it")
        if session.clean or not qos or not message.kept:
            return None
        copy = session.push(message, qos)
        if copy is None:
            self._count_drop(session)
        return copy

    def _count_drop(self, session: Session) -> None:
        if not session.dropped:
            log.warning("the queue of offline client %r is full; what it misses is dropped", session.client_id)
        session.dropped += 1
        self.counters["dropped"] += 1

    def _retain(self, message: Message) -> None:
        """Keep `message` as the topic's last word; an empty one clears it [3.3.1-10]."""
        topic, old = message.topic, self._retained.get(message.topic)
        room = self._retained_bytes - (old.cost if old else 0)
        fits = old is not None or len(self._retained) < self.limits.retained
        keep = bool(message.payload) and fits and room + message.cost <= self.limits.retained_bytes
        if keep:
            self._retained.put(topic, message)
            self._retained_bytes = room + message.cost
        elif old is not None:
            self._retained.pop(topic)
            self._retained_bytes = room
        if message.payload and not keep:
            self.counters["not_retained"] += 1
            log.warning("no room to retain %r: %d topics, %d bytes", topic, len(self._retained), self._retained_bytes)
        if keep or old is not None:
            self.keeper.retained(topic, message if keep else None)
