"""One name held by this process: claimed, written to, flushed, released (PROTOCOL §5). `OwnedRun` works with it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from types import TracebackType
from typing import Literal, Self

from agentmqtt import wire
from agentmqtt.core.inbox import Inbox
from agentmqtt.core.outbox import ATTEMPT
from agentmqtt.core.states import MARK, RELEASE, STATE, WriterState
from agentmqtt.core.writer import Identity, Save, Writer
from agentmqtt.errors import (
    AgentMQTTError,
    Fenced,
    NoJournal,
    StoreError,
    UsageError,
)
from agentmqtt.frames import Grant, Handed, Recall, Refusal
from agentmqtt.host import Host
from agentmqtt.received import Commands, ReceivedCommand
from agentmqtt.session import Subscription
from agentmqtt.spool import Spool
from agentmqtt.transport.base import Delivery
from agentmqtt.types import Cursor, Entry, Value, When
from agentmqtt.values import check_type

log = logging.getLogger("agentmqtt.owner")

Retry = Literal["continue", "withdraw_attempt"]
UNHEARD = 5
"""Times its patience that an owner repeats a claim which a living journal does not answer."""
BREATH = 64
"""Events after which `emit` lets the event loop run."""


class Ownership:
    """Everything about a name but what its application does with it."""

    def __init__(
        self, host: Host, name: str, *, retry: Retry, takeover: bool, reopen: bool, wait: float, offline: bool
    ) -> None:
        self.name = name
        self._host = host
        self._retry, self._wait, self._offline = retry, wait, offline
        self._identity = Identity(host.boot, takeover, reopen)
        self._commands: Commands
        self._spool: Spool
        self._subscriptions: list[Subscription] = []
        self._task: asyncio.Task[object] | None = None
        self._fenced: Fenced | None = None
        self._breath = 0
        self._entered = False

    # ---- what it stands for

    @property
    def _writer(self) -> Writer:
        return self._spool.writer

    @property
    def epoch(self) -> int:
        """The epoch that this process was granted."""
        return self._writer.outbox.header.epoch

    @property
    def attempt(self) -> int:
        """Which attempt this is: 1, and one more for each withdrawn one."""
        return self._writer.attempt

    @property
    def stored(self) -> Cursor:
        """The newest event that the journal has stored."""
        return Cursor(self._writer.outbox.header.inc, self._writer.stored)

    @property
    def unsent(self) -> int:
        """Events in the outbox that have no receipt yet."""
        return self._writer.outbox.events

    @property
    def left_unsent(self) -> int:
        """Events of an earlier process on this disk that were set aside because another owner went on."""
        return self._writer.left_unsent

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} epoch {self.epoch}>"

    # ---- entering and leaving

    async def __aenter__(self) -> Self:
        self._task = asyncio.current_task()
        await self._open()
        try:
            if not self._offline:
                await self._until_owned()
        except BaseException:
            self._close()
            raise
        self._entered = True
        return self

    async def _open(self) -> None:
        host = self._host
        outbox = await host.state.outbox(self.name)
        window, frame = host.options.window, host.options.frame - wire.FRAME_HEAD
        writer = Writer(self.name, outbox, self._identity, fresh(), window=window, limit=frame)
        self._spool = Spool(host, self.name, writer, self._hears)
        self._commands = Commands(Inbox(outbox.receipted), self._write, self._take_answer)
        intend = self._retry == "withdraw_attempt" and not outbox.sealed
        self._spool.save(self._writer.intend(ATTEMPT) if intend else Save(outbox.header, sync=True))
        topics = host.topics
        self._subscriptions = [
            host.session.subscribe(topics.ack(self.name), self._on_ack),
            host.session.subscribe(topics.status(self.name), self._on_status),
        ]
        for subscription in self._subscriptions:
            subscription.on_granted = self._spool.step
        host.owners[self.name] = self

    def _hears(self) -> bool:
        return all(subscription.standing for subscription in self._subscriptions)

    async def _until_owned(self) -> None:
        """Wait for the grant. With `wait`, a living owner is given time to go."""
        now, patience = asyncio.get_running_loop().time, self._host.options.patience
        asked = now()
        while not self._writer.owned:
            if self._writer.finished:
                if self._writer.state is not WriterState.REFUSED or now() >= asked + self._wait:
                    raise self._spool.failure()
                await self._claim_afresh()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    await self._spool.changed.wait()
            if self._writer.claiming and now() - asked >= patience:
                await self._host.require_journal()
            if self._writer.claiming and now() - asked >= UNHEARD * patience:
                raise NoJournal(
                    f"the journal answers, but not the claim of {self.name!r}: may this login own it? "
                    "It needs the role agent, and the name among its workflows"
                )
        if self._writer.left_unsent:
            log.warning("%r: %d events of an earlier process were set aside", self.name, self._writer.left_unsent)
        if self._writer.outbox.sealed:
            await self.flush()
            raise self._spool.failure()

    async def _claim_afresh(self) -> None:
        await asyncio.sleep(1.0)
        old, window = self._writer, self._host.options.window
        self._spool.writer = Writer(self.name, old.outbox, self._identity, fresh(), window=window)
        self._spool.step()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._entered = False
        try:
            if self._fenced is not None:
                self._leave_fenced(kind)
            if not (self._writer.finished or self._writer.outbox.sealed):
                await self._leave(error)
        finally:
            self._close()

    def _leave_fenced(self, kind: type[BaseException] | None) -> None:
        """Our own cancellation of the block becomes Fenced; anything else stays what it is."""
        assert self._fenced is not None
        cancelled = kind is not None and issubclass(kind, asyncio.CancelledError)
        if self._task is not None and cancelled and self._task.uncancel() == 0:
            raise self._fenced
        if kind is None:
            raise self._fenced

    async def _leave(self, error: BaseException | None) -> None:
        if error is None:
            await self._release(None)
        elif isinstance(error, Exception):
            await self._release({"error": f"{type(error).__name__}: {error}"[:2000]})

    async def _release(self, data: Value) -> None:
        """The last event, not a request that could overtake frames (§4.5)."""
        with contextlib.suppress(StoreError):
            self._append((Entry(RELEASE, data),))
        with contextlib.suppress(TimeoutError, AgentMQTTError):
            await self.flush(timeout=self._host.options.goodbye)

    def _close(self) -> None:
        self._commands.close(self._fenced)
        for subscription in self._subscriptions:
            subscription.close()
        if self._host.owners.get(self.name) is self:
            del self._host.owners[self.name]

    # ---- emitting

    async def emit(self, type: str, data: Value = None) -> None:
        """Add an event. Returns when it is queued on this disk's outbox; `flush` waits until it is stored.

        Args:
            type: the application's name for it, 1 to 128 characters; `am.` is reserved.
            data: a value of the CBOR subset (PROTOCOL §3).

        Raises:
            BadValue, TooLarge: nothing was emitted.
            StoreFull: the disk has no room; nothing was emitted.
            Fenced, Ended: this process no longer owns the run.
        """
        check_type(type)
        if type.startswith("am."):
            raise UsageError(f"{type!r}: types that begin with 'am.' are reserved; use another name")
        await self._emit((Entry(type, data),))

    async def state(self, name: str, detail: Value = None) -> None:
        """Say what the run is doing; the last one wins in the status."""
        await self._emit((Entry(STATE, _named(name, detail)),))

    async def mark(self, name: str, detail: Value = None) -> None:
        """Name a step in the log."""
        await self._emit((Entry(MARK, _named(name, detail)),))
        self._commands.boundary(When.NEXT_STEP)

    async def _emit(self, entries: tuple[Entry, ...]) -> None:
        self._check_open()
        while self._spool.full and self._spool.disk_error is None:
            await self._spool.changed.wait()
            self._check_open()
        if self._spool.disk_error is not None:
            raise self._spool.disk_error
        self._append(entries)
        self._breath += 1
        if self._breath >= BREATH:
            self._breath = 0
            await asyncio.sleep(0)

    def _append(self, entries: tuple[Entry, ...]) -> None:
        self._spool.put(entries, int(time.time() * 1000))

    def _write(self, *entries: Entry) -> None:
        """A receipt, perhaps with what its command does to the log."""
        if not self._writer.finished and not self._writer.outbox.sealed:
            self._append(entries)

    def _take_answer(self, command: ReceivedCommand) -> bool:
        """Whether a command answers a question of this run."""
        return False

    def _check_open(self) -> None:
        if self._fenced is not None or self._writer.finished:
            raise self._spool.failure()
        if self._writer.outbox.sealed:
            raise UsageError(f"{self.name!r} is over: nothing can be emitted after end() or release")

    def resend(self) -> None:
        """A new link, or a new journal."""
        self._spool.resend()

    def tick(self, now: float) -> None:
        self._spool.tick(now)

    # ---- hearing

    def _on_ack(self, delivery: Delivery) -> None:
        self._heard(self._writer.on_ack(wire.decode_ack(delivery.payload), fresh(), fresh()))

    def _on_status(self, delivery: Delivery) -> None:
        if delivery.payload:
            self._heard(self._writer.on_status(wire.decode_status(delivery.payload), fresh(), fresh()))

    def on_response(self, message: Grant | Refusal | Handed | Recall) -> None:
        match message:
            case Grant():
                self._heard(self._writer.on_grant(message))
            case Refusal():
                self._heard(self._writer.on_refusal(message, fresh(), fresh()))
            case Handed(inc=inc, epoch=epoch):
                header = self._writer.outbox.header
                if self._takes_commands and (inc, epoch) == (header.inc, header.epoch):
                    self._commands.on_handed(message)
            case Recall(inc=inc, epoch=epoch):
                header = self._writer.outbox.header
                if self._takes_commands and (inc, epoch) == (header.inc, header.epoch):
                    self._commands.on_recall(message.id)

    @property
    def _takes_commands(self) -> bool:
        return self._writer.owned and not self._writer.outbox.sealed

    def _heard(self, save: Save | None) -> None:
        self._spool.heard(save)
        if self._writer.state is WriterState.FENCED and self._fenced is None:
            self._on_fenced()

    def _on_fenced(self) -> None:
        failure = self._spool.failure()
        assert isinstance(failure, Fenced)
        self._fenced = failure
        self._commands.close(failure)
        self._spool.changed.fire()
        if self._task is not None and self._entered:
            self._task.cancel()

    # ---- waiting

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until everything emitted so far is stored by the journal: it survives kill -9 and power loss.

        Raises:
            TimeoutError: `timeout` seconds passed; the events stay in the outbox and go out later.
            Fenced: a newer owner has the name.
        """
        last = self._writer.outbox.next_seq - 1
        async with asyncio.timeout(timeout):
            while self._writer.outbox.rows and self._writer.outbox.rows[0].seq <= last:
                if self._fenced is not None:
                    raise self._fenced
                if self._writer.finished:
                    raise self._spool.failure()
                await self._spool.changed.wait()
        if self._fenced is not None:
            raise self._fenced


def _named(name: str, detail: Value) -> Value:
    return {"name": name} if detail is None else {"name": name, "detail": detail}


def fresh() -> bytes:
    return secrets.token_bytes(8)
