"""A process on a broker: one connection and one state file for all its names (design §3, §6)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Callable
from types import TracebackType
from typing import Literal, Self, overload

from agentmqtt import wire
from agentmqtt.commands import Receipt, Sender
from agentmqtt.commands import make as make_command
from agentmqtt.core.audience import NAMES
from agentmqtt.enquiries import Enquiries
from agentmqtt.errors import NoJournal, UsageError
from agentmqtt.family import WatchedFamily
from agentmqtt.frames import (
    Alive,
    Command,
    CommandList,
    Grant,
    Handed,
    Listing,
    Outcome,
    Page,
    Recall,
    Refusal,
    Renew,
    Status,
    WatcherList,
    Watching,
    Withdraw,
)
from agentmqtt.host import OwnerSide, WatcherSide
from agentmqtt.names import Topics
from agentmqtt.options import ClientOptions
from agentmqtt.owner import OwnedRun, Retry
from agentmqtt.session import Presence, Session
from agentmqtt.state import State
from agentmqtt.store.base import Store
from agentmqtt.transport.base import Delivery, Transport
from agentmqtt.types import ORIGIN, CommandState, Cursor, Event, Value, When
from agentmqtt.watcher import WatchedRun, read_back

log = logging.getLogger("agentmqtt.client")

TICK = 0.5


class Client(Enquiries):
    """Made by `connect`; an async context manager. Works without a link: what is emitted waits on disk.

    Args:
        transport: how to reach the broker.
        store: opens this process's state when the client is entered.
        options: bounds and intervals.
    """

    def __init__(
        self, transport: Transport, store: Callable[[], Store], *, options: ClientOptions | None = None
    ) -> None:
        super().__init__(transport)
        self.options: ClientOptions = options or ClientOptions()
        self.topics: Topics = Topics(self.options.root)
        self.boot: bytes = secrets.token_bytes(8)
        self.client_id: str = ""
        self.owners: dict[str, OwnerSide] = {}
        self.watchers: list[WatcherSide] = []
        self.state: State
        self._open_store = store
        self._sender: Sender
        self._journal_boot = b""
        self._renewed_at = 0.0
        self._watching = False
        self._stack = contextlib.AsyncExitStack()

    # ---- life

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as stack:
            store = self._open_store()
            stack.push_async_callback(store.close)
            self.state = State(store)
            self.client_id = await self.state.client_id()
            self._sender = Sender(self.state, self._send_command, self.options.keepalive, self.options.commands)
            await self._sender.load()
            self.session: Session = self._make_session()
            self.session.subscribe(self.topics.client_res(self.client_id), self._on_response)
            self.session.subscribe(self.topics.journal(), self._on_journal)
            self.session.on_up.append(self._on_up)
            await stack.enter_async_context(self.session)
            ticker = asyncio.create_task(self._tick_forever(), name="agentmqtt-client-tick")
            stack.push_async_callback(_cancel, ticker)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()
        self._give_up()

    def _make_session(self) -> Session:
        presence = Presence(self.topics.alive(self.client_id), self._alive, self._is_mine)
        return Session(
            self._transport,
            client_id=self.client_id,
            keepalive=self.options.keepalive,
            presence=presence,
            session_expiry=self.options.session_expiry,
        )

    def _alive(self, conn: int, online: bool) -> bytes:
        return wire.encode(Alive(self.boot, conn, online))

    def _is_mine(self, payload: bytes) -> bool:
        return wire.decode_alive(payload).boot == self.boot

    async def connected(self, timeout: float | None = None) -> None:
        """Wait until there is a link.

        Raises:
            LinkError: the broker refuses this client, or `timeout` seconds passed.
        """
        await self.session.connected(timeout)

    # ---- the public handles

    def own(
        self,
        name: str,
        *,
        retry: Retry = "continue",
        takeover: bool = False,
        reopen: bool = False,
        wait: float = 0.0,
        offline: bool = False,
    ) -> OwnedRun:
        """Claim a name, or resume it after a crash: `async with client.own("report-42") as run`.

        Args:
            retry: `withdraw_attempt` takes back what the broken attempt emitted.
            takeover: take the name from a living owner, which gets Fenced.
            reopen: start an ended run again; its attempt's output is withdrawn.
            wait: seconds that a living owner is given to go.
            offline: do not wait for the grant; what is emitted waits in the outbox.

        Raises on entry:
            BadName: no topic can carry it.
            Owned, Ended, NoJournal, LinkError, StoreError.
        """
        self.topics.out(name)
        if name in self.owners:
            raise UsageError(f"{name!r} is owned by this client already; use that handle")
        chosen: Retry = "withdraw_attempt" if reopen else retry
        return OwnedRun(self, name, retry=chosen, takeover=takeover, reopen=reopen, wait=wait, offline=offline)

    @overload
    def watch(
        self,
        name: str,
        *,
        start: str | Cursor = ...,
        resume: bool = ...,
        stored: bool = ...,
        pace: float | None = ...,
        children: Literal[False] = ...,
    ) -> WatchedRun: ...

    @overload
    def watch(
        self,
        name: str,
        *,
        resume: bool = ...,
        stored: bool = ...,
        pace: float | None = ...,
        children: Literal[True],
    ) -> WatchedFamily: ...

    def watch(
        self,
        name: str,
        *,
        start: str | Cursor = "start",
        resume: bool = True,
        stored: bool = False,
        pace: float | None = None,
        children: bool = False,
    ) -> WatchedRun | WatchedFamily:
        """Follow a name: `async with client.watch("report-42") as run`, then `async for event in run`.

        Args:
            start: where a first visit begins: `start`, `end`, or a Cursor, which is always used.
            resume: begin where this state file was, and keep the cursor in it.
            stored: show only what the journal has stored, for consumers that act on what they read.
            pace: seconds between fetches instead of live frames, for metered links.
            children: follow the run and every child that it announces, and theirs: yields `Told`.

        Raises:
            BadName: no topic can carry it.
            UsageError: `start` is something else.
        """
        self.topics.out(name)
        if isinstance(start, str) and start not in ("start", "end"):
            raise UsageError(f"start={start!r} is not 'start', 'end' or a Cursor")
        buffer = self.options.buffer
        if children and start != "start":
            raise UsageError("children=True follows a run from its start: its children are named in its log")
        if children:
            return WatchedFamily(self, name, resume=resume, stored=stored, pace=pace, buffer=buffer)
        return WatchedRun(self, name, start=start, resume=resume, stored=stored, pace=pace, buffer=buffer)

    async def send(
        self,
        name: str,
        data: Value = None,
        *,
        kind: str = "message",
        expiry: float | None = None,
        id: str | None = None,
        when: str = When.NOW,
    ) -> Receipt:
        """Send a command to whoever owns the name now, or first. Returns when the journal has stored it.

        Args:
            kind: what the owner takes it for.
            expiry: seconds for it to be taken; a day by default.
            id: the same one again is the same command.
            when: `now`, `next_step` or `next_turn`: when the owner is to take it.

        Raises:
            NoJournal: nobody stored it in time; it stays in the outbox and is sent again.
            BadName, BadValue, TooLarge, UsageError: it cannot be sent.
        """
        self.topics.out(name)
        expires = self.options.command_expiry if expiry is None else expiry
        command = make_command(name, kind, data, expires, id_=id, limit=self.options.event, when=when)
        receipt = await self._sender.send(command)
        try:
            await receipt.accepted(self.options.patience)
        except NoJournal as error:
            raise NoJournal(f"{error}; {self._nobody()}") from None
        return receipt

    async def withdraw(self, name: str, id: str, *, timeout: float | None = None) -> CommandState:
        """Take back a command of this client. `withdrawn`: nobody acts on it; anything else: it was too late.

        `received` says that its owner has begun it; its outcome follows.

        Raises:
            TimeoutError: `timeout` seconds passed; the withdraw stays in the outbox and is sent again.
            BadName, BadValue: it cannot be asked.
        """
        self.topics.out(name)
        expiry, limit = self.options.command_expiry, self.options.event
        receipt = await self._sender.withdraw(make_command(name, "withdraw", None, expiry, id_=id, limit=limit))
        return await receipt.settled(timeout)

    async def read(self, name: str, upto: Cursor) -> list[Event]:
        """The stored log of a name up to a cursor, without what was withdrawn.

        Raises:
            NoJournal: no journal answered in time.
            BadName: no topic can carry it.
        """
        if upto.position == ORIGIN:
            return []
        return await read_back(self, name, upto)

    # ---- sending

    def _send_command(self, command: Command | Withdraw) -> None:
        name = command.workflow
        withdraws = isinstance(command, Withdraw)
        topic = self.topics.req(name, self.client_id) if withdraws else self.topics.inbox(name, self.client_id)
        self.publish(topic, wire.encode(command))

    # ---- hearing

    def _on_response(self, delivery: Delivery) -> None:
        message = wire.decode_response(delivery.payload)
        match message:
            case Grant() | Refusal() | Handed() | Recall():
                owner = self.owners.get(message.workflow)
                if owner is not None:
                    owner.on_response(message)
            case Page():
                for watcher in [w for w in self.watchers if w.name == message.workflow]:
                    watcher.on_page(message)
            case Outcome():
                self._sender.on_outcome(message)
            case Status() | Listing() | CommandList() | WatcherList():
                self._answered(message)

    def _on_journal(self, delivery: Delivery) -> None:
        journal = wire.decode_journal(delivery.payload)
        self._journal_lives = journal.online
        if journal.online and journal.boot != self._journal_boot:
            known, self._journal_boot = self._journal_boot, journal.boot
            if known:
                self._refresh()

    def _on_up(self, _conn: int) -> None:
        self._refresh()

    def _refresh(self) -> None:
        """A new link or another journal: say again what has no answer."""
        for owner in list(self.owners.values()):
            owner.resend()
        for watcher in list(self.watchers):
            watcher.refresh()
        self._sender.resend()

    # ---- time

    async def _tick_forever(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(TICK)
            try:
                self._tick(loop.time())
            except Exception:
                log.exception("the client's clock work failed; it goes on")

    def _tick(self, now: float) -> None:
        """Repeat what has no answer, and say that the owners live."""
        for owner in list(self.owners.values()):
            owner.tick(now)
        if not self.session.up:
            return
        for watcher in list(self.watchers):
            watcher.tick(now)
        self._sender.tick(now)
        if now - self._renewed_at >= self.options.keepalive / 2:
            self._renewed_at = now
            self._say_present()

    def _say_present(self) -> None:
        """The owners of this process live (§5.4), and this is what it watches (§6.8)."""
        topic = self.topics.client_req(self.client_id)
        if self.owners:
            self.publish(topic, wire.encode(Renew(self.boot, self.session.conn)))
        if self.watchers or self._watching:
            self._watching = bool(self.watchers)
            names = tuple(dict.fromkeys(watcher.name for watcher in self.watchers))[:NAMES]
            self.publish(topic, wire.encode(Watching(self.boot, self.session.conn, names)))

    def watching_changed(self) -> None:
        """Say soon what is watched now."""
        self._renewed_at = 0.0


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
