"""The watcher's handle on one run: follow, steer, resume (design §6)."""

from __future__ import annotations

import asyncio
import dataclasses
import secrets
from types import TracebackType
from typing import Self

from agentmqtt import wire
from agentmqtt.commands import Receipt
from agentmqtt.core.reader import Delivered, Reader, Saved
from agentmqtt.frames import Fetch, Page, Status
from agentmqtt.host import Host
from agentmqtt.received import ANSWER, INTERRUPT, Mode, interrupt_data
from agentmqtt.session import Subscription
from agentmqtt.transport.base import Delivery
from agentmqtt.types import NO_INC, ORIGIN, CommandState, Cursor, Event, Rewound, Value, When
from agentmqtt.waiting import Signal

ANSWER_WITHIN = 2.0
"""Seconds until a fetch is repeated; doubles up to the keep-alive."""
FRUITLESS = 0.1
"""Seconds until a question whose answer changed nothing is asked again; doubles up to the keep-alive."""


class WatchedRun:
    """One name, followed inside `async with client.watch(name) as run`: `async for event in run`.

    Yields Event, Gap and Rewound, each once and in order. The kept cursor moves past an item when the
    next one is asked for: what was being handled when the process died comes again.
    """

    def __init__(
        self,
        host: Host,
        name: str,
        *,
        start: str | Cursor,
        resume: bool,
        stored: bool,
        pace: float | None,
        buffer: int,
    ) -> None:
        self.name = name
        self._host = host
        self._start, self._resume, self._stored, self._pace = start, resume, stored, pace
        self._buffer = buffer
        self._reader: Reader
        self._kept: Saved | None = None
        self._signal = Signal()
        self._subscriptions: list[Subscription] = []
        self._asked_at = 0.0
        self._wait = ANSWER_WITHIN
        self._hold = 0.0
        self._heard_at = 0.0
        self._closed = False

    @property
    def cursor(self) -> Cursor:
        """After the item that was taken last."""
        taken = self._reader.taken
        return Cursor(taken.inc, taken.position)

    def __repr__(self) -> str:
        return f"<WatchedRun {self.name!r} at {self.cursor}>"

    # ---- entering and leaving

    async def __aenter__(self) -> Self:
        host, topics = self._host, self._host.topics
        self._kept = await self._first()
        self._reader = Reader(
            self.name,
            self._kept,
            at_end=self._start == "end",
            live=self._pace is None,
            stored=self._stored,
            capacity=self._buffer,
            first_request=secrets.randbelow(2**31),
        )
        self._subscriptions = [host.session.subscribe(topics.status(self.name), self._on_status)]
        if self._pace is None:
            self._subscriptions.append(host.session.subscribe(topics.out(self.name), self._on_frame))
        if self._stored:
            self._subscriptions.append(host.session.subscribe(topics.ack(self.name), self._on_ack))
        host.watchers.append(self)
        host.watching_changed()
        for subscription in self._subscriptions:
            subscription.on_granted = self.refresh
        return self

    async def _first(self) -> Saved | None:
        """An explicit cursor, the kept one, or none."""
        if isinstance(self._start, Cursor):
            at = self._start
            return Saved(at.inc, at.position, at.position.epoch, ORIGIN)
        return await self._host.state.saved(self.name) if self._resume else None

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed = True
        for subscription in self._subscriptions:
            subscription.close()
        if self in self._host.watchers:
            self._host.watchers.remove(self)
            self._host.watching_changed()
        if kind is None:
            self.keep()

    # ---- reading

    def __aiter__(self) -> WatchedRun:
        return self

    async def __anext__(self) -> Delivered:
        self.keep()
        while (item := self._reader.take()) is None:
            if self._closed:
                raise StopAsyncIteration
            self._fetch()
            await self._signal.wait()
        self._fetch()
        return item

    def keep(self) -> None:
        """Keep the cursor after the item that was taken last. `async for` does it by itself."""
        saved = self._reader.saved
        if self._resume and saved != self._kept and saved.inc != NO_INC:
            self._kept = saved
            self._host.state.save(self.name, saved)

    # ---- hearing

    def _on_frame(self, delivery: Delivery) -> None:
        self._reader.on_frame(wire.decode_frame(delivery.payload))
        self._heard()

    def _on_ack(self, delivery: Delivery) -> None:
        self._reader.on_ack(wire.decode_ack(delivery.payload))
        self._heard()

    def _on_status(self, delivery: Delivery) -> None:
        if delivery.payload and self._pace is None:
            self._reader.on_status(wire.decode_status(delivery.payload))
            self._heard()

    def on_page(self, page: Page) -> None:
        before = self._reader.position
        self._reader.on_page(page)
        self._wait = ANSWER_WITHIN
        if self._reader.position != before or not self._reader.behind:
            self._hold = 0.0
        else:
            self._hold = min(max(2 * self._hold, FRUITLESS), self._host.options.keepalive)
        self._heard()

    def _heard(self) -> None:
        self._heard_at = asyncio.get_running_loop().time()
        self._signal.fire()
        self._fetch()

    # ---- asking

    def refresh(self) -> None:
        """A new link or a new journal: is my tail the tail?"""
        if all(subscription.standing for subscription in self._subscriptions):
            self._send(self._reader.probe())

    def tick(self, now: float) -> None:
        """Time passed: repeat a fetch without an answer; ask after a silence, or at the reader's pace."""
        if self._reader.asking:
            if now - self._asked_at >= self._wait:
                self._wait = min(self._wait * 2, self._host.options.keepalive)
                self._send(self._reader.retry())
        elif now - max(self._heard_at, self._asked_at) >= (self._pace or self._host.options.keepalive):
            self._send(self._reader.probe())
        else:
            self._fetch()

    def _fetch(self) -> None:
        early = self._hold and asyncio.get_running_loop().time() < self._asked_at + self._hold
        if self._host.session.up and self._pace is None and not early:
            self._send(self._reader.fetch())

    def _send(self, fetch: Fetch | None) -> None:
        if fetch is None:
            return
        self._asked_at = asyncio.get_running_loop().time()
        topic = self._host.topics.req(self.name, self._host.client_id)
        self._host.publish(topic, wire.encode(dataclasses.replace(fetch, deflate=True)))

    # ---- steering

    async def send(
        self,
        data: Value,
        *,
        kind: str = "message",
        expiry: float | None = None,
        id: str | None = None,
        when: str = When.NOW,
    ) -> Receipt:
        """Send a command to the run's owner. Returns when the journal has stored it; see `Client.send`.

        Raises:
            NoJournal: nobody stored it in time; it stays in the outbox and is sent again.
            BadValue, TooLarge, UsageError: it cannot be sent.
        """
        return await self._host.send(self.name, data, kind=kind, expiry=expiry, id=id, when=when)

    async def interrupt(
        self, reason: str = "", *, mode: str = Mode.STOP, expiry: float | None = None, id: str | None = None
    ) -> Receipt:
        """Ask the owner to stop what it is doing. Returns when the journal has stored it; see `Client.send`.

        Args:
            mode: `stop`, `pause`, or `after_step`: when the step that it is at has ended.

        The receipt is `received` once the owner has it, and `applied` when the work has really stopped.
        """
        return await self._host.send(self.name, interrupt_data(reason, mode), kind=INTERRUPT, expiry=expiry, id=id)

    async def answer(self, id: str, value: Value, *, expiry: float | None = None) -> Receipt:
        """Answer a question of the run, by the ID of its `am.ask` event. The first answer that fits wins.

        The receipt is `applied` if it was this one, `superseded` if another came first, `rejected` if it does not fit.
        """
        return await self._host.send(self.name, {"ask": id, "value": value}, kind=ANSWER, expiry=expiry)

    async def withdraw(self, id: str, *, timeout: float | None = None) -> CommandState:
        """Take back a command of this client; see `Client.withdraw`."""
        return await self._host.withdraw(self.name, id, timeout=timeout)

    async def status(self) -> Status:
        """The state of the run, now. Raises NoJournal."""
        return await self._host.status(self.name)


async def read_back(host: Host, name: str, upto: Cursor) -> list[Event]:
    """What is stored of a name up to a cursor. Raises NoJournal: nothing more came within its patience."""
    kept: list[Event] = []
    reading = WatchedRun(host, name, start="start", resume=False, stored=True, pace=None, buffer=host.options.buffer)
    async with reading as run:
        while True:
            try:
                async with asyncio.timeout(host.options.patience):
                    item = await anext(run)
            except TimeoutError:
                await host.require_journal()
                continue
            if isinstance(item, Event):
                kept.append(item)
            elif isinstance(item, Rewound):
                kept = [event for event in kept if event.cursor.position <= item.cursor.position]
            if item.cursor.position >= upto.position:
                return [event for event in kept if event.cursor.position <= upto.position]
