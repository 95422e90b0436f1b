"""One client's connection: login, flow, end. Knows no socket; a pipe carries the bytes."""

from __future__ import annotations

import asyncio
import functools
import logging
import secrets
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Protocol

from agentmqtt.broker import packets
from agentmqtt.broker.conversation import Action, Conversation, Identity, needs_disk
from agentmqtt.broker.engine import Engine, NotYours, TooManySessions
from agentmqtt.broker.packets import MalformedPacket, UnsupportedVersion
from agentmqtt.broker.reader import PacketReader
from agentmqtt.broker.sessions import Origin, Session, User
from agentmqtt.broker.wills import Kept

log = logging.getLogger("agentmqtt.broker")

_TURN = 0.002
"""Seconds of one connection's packets before the others have their turn."""


class Pipe(Protocol):
    """The bytes of one connection. It calls `data`, `writable` and, once, `ended` of its connection."""

    @property
    def peer(self) -> tuple[str, int]: ...

    def info(self, name: str) -> Any:
        """Extra information as of an asyncio transport."""

    def write(self, data: bytes) -> None: ...

    def unsent(self) -> int:
        """Bytes that are written and still here. Above the write buffer, `writable` follows once there is room."""

    def pause(self) -> None:
        """Give no more data until `resume`."""

    def resume(self) -> None: ...

    def close(self) -> None:
        """End after what was written has gone out, but soon."""

    def abort(self) -> None:
        """End now."""


class Gate(Protocol):
    """Decides who gets in."""

    async def admit(self, connect: packets.Connect, pipe: Pipe) -> Identity | None:
        """The identity behind a CONNECT, or None."""


class Connection:
    """The server's side of one MQTT connection.

    Nothing takes effect before the login succeeded, nothing is sent before CONNACK, and what is in
    flight is sent again before anything new. `gone` is told when the pipe has ended.
    """

    def __init__(self, engine: Engine, gate: Gate, pipe: Pipe, gone: Callable[[Connection], None]) -> None:
        self._engine, self._gate, self._pipe, self._gone = engine, gate, pipe, gone
        self._loop = asyncio.get_running_loop()
        self._reader = PacketReader(engine.limits.max_connect)
        self._deferred: packets.Packet | None = None
        self._identity: Identity | None = None
        self._session: Session | None = None
        self._talk: Conversation | None = None
        self._will: Kept | None = None
        self._out: list[bytes] = []
        self._holds: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._woken = self._closed = False
        self._seen = self._loop.time()
        self._timer = self._loop.call_later(engine.limits.connect_timeout, self.fail, "no login in time")

    def __str__(self) -> str:
        name = repr(self._session.client_id) if self._session else "a client"
        return f"{name} at {self._pipe.peer[0]}:{self._pipe.peer[1]}"

    # -------------------------------------------------------------- from the pipe

    def data(self, chunk: bytes) -> None:
        """Bytes from the client."""
        if not self._closed:
            self._reader.feed(chunk)
            self._work()

    def writable(self) -> None:
        """The pipe has room again."""
        self.release("writes")
        self.wake()

    def ended(self) -> None:
        """The pipe is gone; without a DISCONNECT before it the will is published [3.1.2-8]."""
        self._end()
        self._gone(self)

    def _work(self) -> None:
        """Handle packets until none is left, somebody holds, or it is the others' turn."""
        start = self._loop.time()
        try:
            while not (self._holds or self._closed):
                packet, self._deferred = self._deferred or self._reader.next(), None
                if packet is None:
                    return
                self._seen = self._loop.time()
                self._handle(packet)
                if self._seen - start > _TURN:
                    self.hold("turn")
                    self._loop.call_soon(self.release, "turn")
        except UnsupportedVersion as error:
            self._refuse(error.answer, str(error), logging.INFO)  # newer clients ask so, then speak 3.1.1
        except MalformedPacket as error:
            self.fail(str(error))

    def _handle(self, packet: packets.Packet) -> None:
        if self._talk is not None:
            if needs_disk(packet) and self._engine.keeper.delays(self):
                self._deferred = packet
            else:
                self._talk.handle(packet)
        elif isinstance(packet, packets.Connect):
            self.hold("login")
            self._spawn(self._login(packet), "login")

    # -------------------------------------------------------------- login

    async def _login(self, connect: packets.Connect) -> None:
        """Every question first; `_accept` then takes effect in one step."""
        limit = self._engine.limits.max_client_id
        if len(connect.client_id) > limit or not (connect.client_id or connect.clean):
            self._refuse(packets.connack(packets.BAD_CLIENT_ID), "a client ID that is too long or missing [3.1.3-8]")
            return
        connect = connect._replace(client_id=connect.client_id or f"auto-{secrets.token_hex(8)}")
        identity = await self._gate.admit(connect, self._pipe)
        if identity is None:
            code = packets.NOT_AUTHORISED if connect.username is None else packets.BAD_LOGIN
            self._refuse(packets.connack(code), f"wrong login for user {connect.username!r}")
        elif connect.will is not None and not await self._may_leave(identity, connect.will):
            self._refuse(packets.connack(packets.NOT_AUTHORISED), f"a will for {connect.will.topic!r} is not allowed")
        else:
            self._accept(connect, identity, *await self._revoked(connect, identity))

    @staticmethod
    async def _may_leave(identity: Identity, will: packets.LastWill) -> bool:
        return not will.topic.startswith("$") and (await identity.ask("publish", [will.topic]))[0]

    async def _revoked(self, connect: packets.Connect, identity: Identity) -> tuple[list[str], list[int]]:
        """Filters and flights of the session to be resumed that this identity may no longer have."""
        session = self._engine.sessions.get(connect.client_id)
        if session is None or connect.clean or session.user not in (identity.user, None):
            return [], []
        filters = list(session.subscriptions)
        flights = {pid: copy.message.topic for pid, copy in session.inflight.items() if not copy.received}
        may_have = await identity.ask("subscribe", filters)
        may_get = await identity.ask("receive", list(flights.values()))
        return (
            [pattern for pattern, allowed in zip(filters, may_have, strict=True) if not allowed],
            [pid for pid, allowed in zip(flights, may_get, strict=True) if not allowed],
        )

    def _accept(
        self, connect: packets.Connect, identity: Identity, filters: Iterable[str], flights: Iterable[int]
    ) -> None:
        old, keeper = self._engine.sessions.get(connect.client_id), self._engine.keeper
        lasts = not connect.clean or (old is not None and not old.clean)
        if lasts and keeper.trouble is not None:
            self._refuse(packets.connack(packets.UNAVAILABLE), f"its session cannot be stored: {keeper.trouble}")
            return
        try:
            session, present = self._engine.attach(self, connect.client_id, identity.user, clean=connect.clean)
        except NotYours as error:
            self._refuse(packets.connack(packets.NOT_AUTHORISED), str(error))
            return
        except TooManySessions as error:
            self._refuse(packets.connack(packets.UNAVAILABLE), str(error))
            return
        self._session, self._identity = session, identity
        for pattern in filters:
            self._engine.unsubscribe(session, pattern)
        for packet_id in flights:
            self._engine.recall(session, packet_id)
        greet = functools.partial(self._greet, session, identity, connect, present)
        welcome = functools.partial(keeper.then, greet) if lasts else greet
        if connect.will is None:
            self._engine.wills.forget(connect.client_id)
            welcome()
        else:
            self._will = Kept(connect.client_id, _name_of(identity.user), connect.will, connect.keepalive)
            self._engine.wills.keep(self._will, welcome)

    def _greet(self, session: Session, identity: Identity, connect: packets.Connect, present: bool) -> None:
        if self._closed:
            return
        self._timer.cancel()
        self._reader.limit = self._engine.limits.max_packet
        self._reader.greeted = True
        self.send(packets.connack(packets.ACCEPTED, present=present))
        self._talk = Conversation(self._engine, session, identity, self)
        self.release("login")
        if connect.keepalive:
            self._watch(connect.keepalive * 1.5)

    def _refuse(self, answer: bytes, reason: str, level: int = logging.WARNING) -> None:
        self._engine.counters["refused"] += 1
        log.log(level, "%s is refused: %s", self, reason)
        self.send(answer)
        self._leave()

    def may_read(self, topic: str) -> bool:
        """Whether its login is known to be allowed to."""
        return self._identity is not None and self._identity.verdict("receive", topic) is True

    def review(self) -> None:
        """Leave if the login counts no more."""
        if self._identity is not None and (flaw := self._identity.flaw()):
            self.fail(flaw)

    # -------------------------------------------------------------- keep-alive

    def _watch(self, limit: float) -> None:
        """Close when no packet came for `limit` seconds [3.1.2-24]; time in which we did not read does not count."""
        idle = self._loop.time() - self._seen
        if self._holds - {"writes"}:
            idle = 0.0
        if idle >= limit:
            self.fail(f"nothing was heard for {idle:.0f} s")
        else:
            self._timer = self._loop.call_later(limit - idle, self._watch, limit)

    # -------------------------------------------------------------- holding

    def hold(self, reason: str) -> None:
        """Read nothing more until `release` of the same reason."""
        if not self._holds and not self._closed:
            self._pipe.pause()
        self._holds.add(reason)

    def release(self, reason: str) -> None:
        """Take back one `hold`; the last one lets the client speak again."""
        if reason not in self._holds:
            return
        self._holds.remove(reason)
        if self._holds or self._closed:
            return
        self._seen = self._loop.time()
        self._pipe.resume()
        self._loop.call_soon(self._work)

    # -------------------------------------------------------------- sending

    def send(self, data: bytes) -> None:
        """Write later in this turn, together with whatever else comes up."""
        if not self._closed:
            self._out.append(data)
            self.wake()

    def wake(self, origin: Origin | None = None) -> None:
        """Flush later in this turn. A reader on the network never makes a publisher wait."""
        if not self._woken and not self._closed:
            self._woken = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Write what is due, as far as the pipe has room."""
        self._woken = False
        if self._closed:
            return
        out, self._out = self._out, []
        if self._talk is not None:
            self._collect(self._talk, out)
        if out:
            self._pipe.write(b"".join(out))
        if self._pipe.unsent() >= self._engine.limits.write_buffer:
            self.hold("writes")

    def _collect(self, talk: Conversation, out: list[bytes]) -> None:
        room = self._engine.limits.write_buffer - self._pipe.unsent()
        if room <= 0:
            return
        while room > 0:
            data = talk.next()
            if data is None:
                return
            out.append(data)
            room -= len(data)
        self.wake()

    # -------------------------------------------------------------- asking

    def consult(self, action: Action, topics: Sequence[str], then: Callable[[list[bool]], None]) -> None:
        """Ask what the client may do, then call `then`, which may find the client's packet malformed."""
        if self._identity is not None and not self._closed:
            self._spawn(self._ask(self._identity, action, topics, then), action)

    async def _ask(
        self, identity: Identity, action: Action, topics: Sequence[str], then: Callable[[list[bool]], None]
    ) -> None:
        answers = await identity.ask(action, topics)
        try:
            then(answers)
        except MalformedPacket as error:
            self.fail(str(error))

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = self._loop.create_task(work, name=f"agentmqtt broker {name} {self}")
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s: internal error", self, exc_info=error)
            self.fail("internal error")

    # -------------------------------------------------------------- the end

    def goodbye(self) -> None:
        """DISCONNECT: the will is void [3.1.2-10]."""
        if self._will is not None:
            self._engine.wills.void(self._will)
        self._will = None
        self._leave()

    def fail(self, reason: str) -> None:
        """Close because the client broke a rule; its will is published."""
        if not self._closed:
            log.info("%s is disconnected: %s", self, reason)
            self._leave()

    def taken_over(self) -> None:
        """Another connection has this client ID now [3.1.4-2]."""
        self.fail("its client ID connected again")

    def evict(self, reason: str) -> None:
        """Cut a reader off. Its will follows later: this may be called in the middle of routing."""
        log.warning("%s is cut off: %s", self, reason)
        self._shut()
        self._pipe.abort()
        self._loop.call_soon(self._publish_will)

    def stop(self) -> None:
        """The broker ends: no will now. One that is kept on disk waits there for its client to come back."""
        self._will = None
        self._leave()

    def abort(self) -> None:
        """Waste no more time on it."""
        self._pipe.abort()

    def _leave(self) -> None:
        self.flush()
        self._end()
        self._pipe.close()

    def _end(self) -> None:
        self._shut()
        self._publish_will()

    def _shut(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        if self._session is not None:
            self._engine.detach(self._session, self)

    def _publish_will(self) -> None:
        kept, self._will = self._will, None
        if kept is not None:
            will = kept.will
            self._engine.publish(will.topic, will.payload, will.qos, retain=will.retain)
            self._engine.keeper.then(self._engine.wills.void, kept)


def _name_of(user: User) -> str | None:
    return user if isinstance(user, str) else None
