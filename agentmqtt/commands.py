"""Commands on their way to an owner: kept on disk until their outcome is known (PROTOCOL §7.1)."""

from __future__ import annotations

import asyncio
import dataclasses
import secrets
import time
from collections.abc import AsyncIterator, Callable

from agentmqtt import wire
from agentmqtt.core.states import FINAL
from agentmqtt.errors import NoJournal, TooLarge, UsageError
from agentmqtt.frames import Command, Outcome, Withdraw
from agentmqtt.state import State
from agentmqtt.types import CommandState, Entry, Value, When
from agentmqtt.values import check_type, check_value
from agentmqtt.waiting import Signal

LONGEST = 30 * 86400.0
"""Seconds: the journal keeps no command longer without an outcome (§7.1)."""


class Receipt:
    """Where one command is. `state` is None until the journal has stored it."""

    def __init__(self, workflow: str, id_: str) -> None:
        self.workflow = workflow
        self.id = id_
        self.state: CommandState | None = None
        self.reason: Value = None
        self._kept = False
        self._changed = Signal()

    def __repr__(self) -> str:
        return f"<Receipt {self.id} for {self.workflow!r}: {self.state or 'sending'}>"

    @property
    def final(self) -> bool:
        return self.state in FINAL

    async def accepted(self, timeout: float | None = None) -> CommandState:
        """Wait until the journal has stored it, or refused.

        Raises:
            NoJournal: `timeout` seconds passed; the command stays in the outbox and is sent again.
        """
        try:
            async with asyncio.timeout(timeout):
                while self.state is None or self.state is CommandState.QUEUED:
                    await self._changed.wait()
        except TimeoutError:
            full = self.state is CommandState.QUEUED
            why = "too many commands wait for that name" if full else "no journal answered"
            raise NoJournal(
                f"command {self.id} for {self.workflow!r} is not accepted after {timeout:g} s: {why}; "
                "it stays in the outbox and is sent again"
            ) from None
        return self.state

    async def outcome(self, timeout: float | None = None) -> CommandState:
        """Wait for the one outcome: applied, rejected, expired, withdrawn, superseded, too_late or unknown.

        `reason` says why.

        Raises:
            TimeoutError: `timeout` seconds passed without one.
        """
        async with asyncio.timeout(timeout):
            while not self.final:
                await self._changed.wait()
        assert self.state is not None
        return self.state

    async def steps(self) -> AsyncIterator[CommandState]:
        """Each step as it is heard, from where it is now to the outcome. Steps that passed quickly may be left out."""
        shown: CommandState | None = None
        while True:
            if self.state is not None and self.state != shown:
                shown = self.state
                yield shown
            if self.final:
                return
            if self.state == shown:
                await self._changed.wait()

    async def settled(self, timeout: float | None = None) -> CommandState:
        """After a withdraw: wait until it is withdrawn, or is known to be too late for that.

        Raises:
            TimeoutError: `timeout` seconds passed; the withdraw stays in the outbox and is sent again.
        """
        async with asyncio.timeout(timeout):
            while not (self.final or self._kept):
                await self._changed.wait()
        assert self.state is not None
        return self.state

    def hear(self, outcome: Outcome) -> None:
        """The journal's word. The first outcome stays."""
        if self.final:
            return
        if self.state is CommandState.RECEIVED and outcome.state is CommandState.ACCEPTED:
            return  # an answer that was overtaken
        kept = outcome.state is CommandState.RECEIVED and outcome.reason == "kept"
        self._kept = self._kept or kept
        self.state, self.reason = outcome.state, None if kept else outcome.reason
        self._changed.fire()


@dataclasses.dataclass(slots=True)
class _Sent:
    seq: int
    command: Command
    receipt: Receipt
    due: float = 0.0
    wait: float = 1.0
    stored: bool = False
    withdrawn: bool = False


def make(
    workflow: str, kind: str, data: Value, expiry: float, *, id_: str | None, limit: int, when: str = When.NOW
) -> Command:
    """A command of at most `limit` bytes that ends in `expiry` seconds, at most 30 days from now.

    Raises:
        BadValue, TooLarge, UsageError: naming what does not fit. What nobody takes must not reach the outbox:
            it would be sent again for ever.
    """
    check_type(kind, "kind")
    check_value(data, "data")
    if id_ is not None:
        check_type(id_, "id")
    size = wire.size_of([Entry(kind, data)])
    if size > limit:
        raise TooLarge(f"a command for {workflow!r} takes {size} bytes; the limit is {limit}: send a reference")
    if not expiry > 0:
        raise UsageError(f"expiry={expiry!r} for {workflow!r} is no time; give seconds above 0")
    deadline = int((time.time() + min(expiry, LONGEST)) * 1000)
    try:
        due = When(when)
    except ValueError:
        raise UsageError(f"when={when!r} is not one of {', '.join(When)}") from None
    return Command(id_ or secrets.token_hex(12), workflow, kind, data, deadline, due)


class Sender:
    """Every command that this client sent and whose outcome is not known. `publish` sends one, or its withdraw."""

    def __init__(
        self, state: State, publish: Callable[[Command | Withdraw], None], keepalive: float, limit: int
    ) -> None:
        self._state, self._publish, self._keepalive, self._limit = state, publish, keepalive, limit
        self._sent: dict[str, _Sent] = {}
        self._next = 1

    async def load(self) -> None:
        """Commands of an earlier process are asked for again."""
        for seq, command, withdrawn in await self._state.sent():
            receipt = Receipt(command.workflow, command.id)
            self._sent[command.id] = _Sent(seq, command, receipt, stored=True, withdrawn=withdrawn)
            self._next = max(self._next, seq + 1)

    async def send(self, command: Command) -> Receipt:
        """Keep a command on disk, then send it. The same ID again gives the same receipt."""
        if command.id in self._sent:
            return self._sent[command.id].receipt
        return await self._keep(command, withdrawn=False)

    async def withdraw(self, command: Command) -> Receipt:
        """Keep on disk that a command is wanted back, then say so. It may be one of an earlier process."""
        known = self._sent.get(command.id)
        if known is None:
            return await self._keep(command, withdrawn=True)
        if not known.withdrawn:
            known.withdrawn, known.wait = True, 1.0
            await self._write(known)
            self._transmit(known)
        return known.receipt

    async def _keep(self, command: Command, *, withdrawn: bool) -> Receipt:
        workflow = command.workflow
        if len(self._sent) >= self._limit:
            raise NoJournal(
                f"{self._limit} commands wait for their outcome already; {workflow!r} gets no more until some have one"
            )
        receipt = Receipt(workflow, command.id)
        sent = self._sent[command.id] = _Sent(self._next, command, receipt, withdrawn=withdrawn)
        self._next += 1
        try:
            await self._write(sent)
        except Exception:
            del self._sent[command.id]
            raise
        sent.stored = True
        self._transmit(sent)
        return sent.receipt

    async def _write(self, sent: _Sent) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        put = self._state.command(sent.seq, sent.command, withdrawn=sent.withdrawn)
        self._state.store.submit([put], lambda error: _settle(done, error))
        await asyncio.shield(done)

    def on_outcome(self, outcome: Outcome) -> None:
        sent = self._sent.get(outcome.id)
        if sent is None:
            return
        sent.receipt.hear(outcome)
        if sent.receipt.final:
            del self._sent[outcome.id]
            self._state.store.submit([self._state.settled(sent.seq)], sync=False)
        elif outcome.state in (CommandState.ACCEPTED, CommandState.RECEIVED):
            sent.wait = self._keepalive  # the outcome is told when it happens; ask now and then in case it was lost
            sent.due = asyncio.get_running_loop().time() + sent.wait

    def resend(self) -> None:
        """A new link, or a new journal: ask about everything."""
        for sent in self._sent.values():
            sent.wait = 1.0
            self._transmit(sent)

    def tick(self, now: float) -> None:
        for sent in self._sent.values():
            if sent.stored and now >= sent.due:
                self._transmit(sent)

    def _transmit(self, sent: _Sent) -> None:
        sent.due = asyncio.get_running_loop().time() + sent.wait
        sent.wait = min(sent.wait * 2, self._keepalive)
        command = sent.command
        wanted_back = Withdraw(command.workflow, command.id, command.deadline)
        self._publish(wanted_back if sent.withdrawn else command)


def _settle(done: asyncio.Future[None], error: Exception | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
