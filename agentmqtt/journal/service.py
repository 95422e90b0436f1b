"""The journal: one process beside the broker that settles every channel's order, owner and commands (PROTOCOL §5)."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import secrets
from collections.abc import Callable
from typing import Self

from agentmqtt import wire
from agentmqtt.core import effects as fx
from agentmqtt.core.ledger import Ledger
from agentmqtt.errors import StoreError, StoreGone, TakenOver
from agentmqtt.frames import JournalAlive
from agentmqtt.journal import probe
from agentmqtt.journal.batch import Batch
from agentmqtt.journal.desk import Desk
from agentmqtt.journal.history import History, Retention
from agentmqtt.journal.shelf import Shelf
from agentmqtt.options import JournalOptions
from agentmqtt.session import Presence, Session
from agentmqtt.store.base import Put, Store
from agentmqtt.transport.base import Delivery, Transport
from agentmqtt.version import VERSION

log = logging.getLogger("agentmqtt.journal")

TICK = 0.25


class Journal:
    """A journal on one broker, as an async context manager; it works until it is left or `stopped` is done.

    Args:
        transport: how to reach the broker.
        store: where channels are kept; the journal does not close it.
        options: bounds and intervals.
        alone: nobody else can be on this broker yet, so no living journal is looked for.
        visible: whether a client may know of a run; by default every run is listed to everybody.

    Raises on entry:
        StoreError: the store cannot be read.
        JournalRunning: another journal lives on this root.
        LinkError: the broker refuses the journal.
    """

    def __init__(
        self,
        transport: Transport,
        store: Store,
        *,
        options: JournalOptions | None = None,
        alone: bool = False,
        visible: Callable[[str, str], bool] | None = None,
    ) -> None:
        self.options: JournalOptions = options or JournalOptions()
        self._alone = alone
        self.boot: bytes = secrets.token_bytes(8)
        self.stopped: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        self._transport, self._store = transport, store
        self._shelf = Shelf(store, self.options)
        self._batch = Batch(store, self)
        self._desk = Desk(self._shelf, self._batch, self._publish, self.options)
        if visible is not None:
            self._desk.visible = visible
        self._history = History(self._shelf, self._batch, self.options, self._desk.answer)
        self._desk.fetch = self._history.ask
        self._retention = Retention(self._shelf, self.options)
        self._session: Session | None = None
        self._stack = contextlib.AsyncExitStack()
        self._healing: asyncio.Task[None] | None = None

    # ---- life

    async def __aenter__(self) -> Self:
        await self._load()
        if not self._alone:
            await probe.refuse_if_running(self._transport, self._desk.topics, self.options)
        async with contextlib.AsyncExitStack() as stack:
            self._session = await stack.enter_async_context(self._make_session())
            await self._subscribe(self._session)
            self._session.fatal.add_done_callback(self._on_fatal)
            self._history.start()
            stack.push_async_callback(self._history.stop)
            for name, work in (("tick", self._tick_forever), ("sweep", self._sweep_forever)):
                stack.push_async_callback(_cancel, asyncio.create_task(work(), name=f"agentmqtt-journal-{name}"))
            self._stack = stack.pop_all()
        self._state_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._desk.closed = True
        with contextlib.suppress(StoreError):
            self._batch.write(self._shelf.clock(self._desk.clock.now()))
            await self._batch.durable()
        await self._stack.aclose()
        if self._healing is not None:
            await _cancel(self._healing)
        self.stopped.cancel()

    def _make_session(self) -> Session:
        presence = Presence(self._desk.topics.journal(), self._presence, self._is_mine)
        client_id = probe.journal_id(self.options.root)
        return Session(self._transport, client_id=client_id, keepalive=self.options.keepalive, presence=presence)

    def _presence(self, conn: int, online: bool) -> bytes:
        return wire.encode(JournalAlive(online, VERSION, self.boot, conn, self.options.lease, self.options.page))

    def _is_mine(self, payload: bytes) -> bool:
        return wire.decode_journal(payload).boot == self.boot

    async def _subscribe(self, session: Session) -> None:
        topics, desk = self._desk.topics, self._desk
        handlers: list[tuple[str, Callable[[Delivery], object]]] = [
            (topics.all_alive(), desk.on_alive),
            (topics.all_own(), desk.on_request),
            (topics.all_req(), desk.on_request),
            (topics.all_client_req(), desk.on_request),
            (topics.all_in(), desk.on_command),
            (topics.all_out(), desk.on_frame),
        ]
        for subscription in [session.subscribe(pattern, handler) for pattern, handler in handlers]:
            await subscription.ready()

    def _publish(self, topic: str, payload: bytes, retain: bool) -> None:
        """Send if there is a link. What is lost here is asked for again (§2.4)."""
        if self._session is not None:
            self._session.publish(topic, payload, retain=retain)

    def _on_fatal(self, fatal: asyncio.Future[Exception]) -> None:
        if self.stopped.done() or fatal.cancelled():
            return
        error = fatal.result()
        if isinstance(error, TakenOver):
            error = TakenOver("another journal started on this broker and took over; this one has stopped")
        self._stop(error)

    def _stop(self, error: Exception) -> None:
        log.error("%s", error)
        self._desk.closed = True
        self.stopped.set_result(error)

    # ---- disk

    async def _load(self) -> None:
        await self._shelf.load()
        self._desk.clock.raise_to(self._shelf.clock_high)
        self._desk.hold_all()

    def records(self, names: set[str]) -> list[Put]:
        return self._shelf.records(names)

    def failed(self, error: Exception) -> None:
        """Nothing of the last decisions is on disk: decide nothing more until it can be read again (§9.5)."""
        self._desk.release()
        if self._desk.closed or self.stopped.done():
            return
        if isinstance(error, StoreGone):  # no waiting brings it back
            self._stop(error)
            return
        log.error("the journal's store failed; nothing is acknowledged until it works again: %s", error)
        self._desk.closed = True
        self._healing = asyncio.create_task(self._heal(), name="agentmqtt-journal-heal")

    async def _heal(self) -> None:
        """Try the disk until it works, then go on from what it holds."""
        pause = 0.2
        while (error := await self._try_disk()) is not None:
            log.debug("the store still fails: %s", error)
            await asyncio.sleep(pause)
            pause = min(pause * 2, 5.0)
        self._desk.closed = False
        log.warning("the journal's store works again")
        self._state_all()

    async def _try_disk(self) -> Exception | None:
        done: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self._store.submit([self._shelf.clock(self._desk.clock.now())], done.set_result)
        error = await done
        if error is None:
            try:
                await self._load()
            except StoreError as failure:
                return failure
        return error

    # ---- time

    async def _tick_forever(self) -> None:
        rehand = self._desk.clock.monotonic() + self.options.rehand
        while True:
            await asyncio.sleep(TICK)
            now = self._desk.clock.monotonic()
            due = now >= rehand
            rehand = now + self.options.rehand if due else rehand
            if not self._desk.closed:
                try:
                    self._tick(now, rehand=due)
                except Exception:
                    log.exception("the journal's clock work failed; it goes on")

    def _tick(self, now: float, *, rehand: bool) -> None:
        """Leases end, statuses are due, deadlines pass, what was handed is repeated."""
        self._expire(now)
        self._desk.state_tails()
        for ledger in self._shelf.ledgers.values():
            if ledger.mailbox.rows:
                self._tick_ledger(ledger, rehand=rehand)

    def _tick_ledger(self, ledger: Ledger, *, rehand: bool) -> None:
        try:
            again = ledger.hand_again() if rehand else []
            self._desk.apply(ledger, [*ledger.tick(self._desk.clock.now()), *again])
        except Exception:  # one channel's trouble is not that of those after it
            log.exception("the commands of %r were not looked at; the others are", ledger.workflow)

    def _expire(self, now: float) -> None:
        lost, over = self._desk.leases.expire(now)
        for name in lost:
            self._desk.lost(self._shelf.ledgers[name])
        for name in over:
            ledger = self._shelf.ledgers[name]
            ledger.grace_ended()
            self._desk.apply(ledger, [fx.SaveChannel(), fx.Restate(urgent=True)])

    async def _sweep_forever(self) -> None:
        while True:
            await asyncio.sleep(self.options.sweep)
            if self._desk.closed:
                continue
            try:
                await self._sweep()
            except StoreError as error:
                log.warning("retention waits: %s", error)
            except Exception:
                log.exception("retention failed; it is tried again")

    async def _sweep(self) -> None:
        """Keep every log and the store within their bounds (§9.4)."""
        self._batch.write(self._shelf.clock(self._desk.clock.now()))
        for ledger in list(self._shelf.ledgers.values()):
            if (to := await self._retention.cut(ledger)) is not None:
                self._desk.apply(ledger, ledger.trim(to))
        expired = self._retention.expired(self._desk.clock.now())
        for name in [*expired, *await self._retention.over_quota(self._store)]:
            for write in self._shelf.forget(name):
                self._batch.write(write)
            self._batch.say(functools.partial(self._publish, self._desk.topics.status(name), b"", True))

    def _state_all(self) -> None:
        for ledger in self._shelf.ledgers.values():
            self._desk.state(ledger)


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
