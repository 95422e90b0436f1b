"""An owner's outbox between its disk and the wire: written, then sent, then dropped (PROTOCOL §5.3)."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable

from agentmqtt import wire
from agentmqtt.core.states import WriterState
from agentmqtt.core.writer import Save, Writer
from agentmqtt.errors import AgentMQTTError, Ended, Fenced, Owned, TooLarge
from agentmqtt.frames import Frame
from agentmqtt.host import Host
from agentmqtt.store.base import Put, Write
from agentmqtt.types import Entry
from agentmqtt.values import check_value
from agentmqtt.waiting import Signal

log = logging.getLogger("agentmqtt.owner")

CLAIM_EVERY = 1.0
UNSAVED = 2000
"""Rows that wait for the disk before an owner has to wait too."""


class Spool:
    """Does what the writer decides. `changed` fires when somebody who waits should look again.

    `ready` says whether claims and frames may go out: the owner must hear what answers them.
    """

    def __init__(self, host: Host, name: str, writer: Writer, ready: Callable[[], bool]) -> None:
        self.name = name
        self.writer = writer
        self.changed = Signal()
        self.disk_error: Exception | None = None
        self._host, self._ready = host, ready
        self._gate = 0
        self._unsaved: dict[int, Put] = {}
        self._failed_saves: list[list[Write]] = []
        self._claimed_at = 0.0
        self._progress_at = 0.0
        self._patience = host.options.resend
        self._pump_due = False

    @property
    def full(self) -> bool:
        """Nothing more fits: more than a bound waits for the disk or for the journal."""
        return len(self._unsaved) > UNSAVED or self.writer.outbox.bytes > self._host.options.outbox

    def failure(self) -> AgentMQTTError:
        """Why nothing more goes out, as the error to raise."""
        writer = self.writer
        if writer.state is WriterState.FENCED:
            return Fenced(
                f"{self.name!r} has a newer owner; {writer.left_unsent} events of this one were left unsent",
                unsent=writer.left_unsent,
            )
        if writer.ended is not None:
            outcome, result = writer.ended
            return Ended(
                f"{self.name!r} has ended: {outcome}; own it with reopen=True to start it again",
                outcome=outcome,
                result=result,
            )
        return Owned(f"{self.name!r} has a living owner; wait for it, or own it with takeover=True")

    # ---- to the disk

    def put(self, entries: tuple[Entry, ...], time: int) -> None:
        """Add an atomic group; it goes out as soon as it is written.

        Raises:
            BadValue, TooLarge: nothing was added.
        """
        for entry in entries:
            check_value(entry.data, entry.type)
        size, limit = wire.size_of(entries), self._host.options.event
        if size > limit:
            raise TooLarge(
                f"an event of {self.name!r} takes {size} bytes; the limit is {limit}: split it, or publish a reference"
            )
        row = self.writer.append(entries, size, time)
        epoch = self.writer.outbox.header.epoch if self.writer.owned else 0
        put = self._unsaved[row.seq] = self._host.state.row(self.name, row, epoch)
        self._host.state.store.submit([put], functools.partial(self._row_saved, row.seq), sync=False)

    async def on_disk(self) -> None:
        """Wait until every row so far survives kill -9. Raises StoreError: the disk refuses it."""
        while self._unsaved:
            if self.disk_error is not None:
                raise self.disk_error
            await self.changed.wait()

    def _row_saved(self, seq: int, error: Exception | None) -> None:
        if error is not None:
            self._disk_failed(error)
            return
        self._unsaved.pop(seq, None)
        if not self._unsaved and not self._failed_saves:
            self.disk_error = None
        self.writer.committed(min(self._unsaved, default=self.writer.outbox.next_seq) - 1)
        self.pump_soon()
        if not self.full:
            self.changed.fire()

    def save(self, save: Save | None) -> None:
        """Write a header and what left the outbox. With `sync`, nothing goes out before it is durable."""
        if save is None:
            return
        state = self._host.state
        writes = [state.header(self.name, save.header), *state.gone(self.name, save.gone)]
        writes += [state.row(self.name, row, save.header.epoch if row.first else 0) for row in save.changed]
        for row in save.gone:
            self._unsaved.pop(row.seq, None)
        self._gate += save.sync
        state.store.submit(writes, functools.partial(self._saved, writes, save.sync), sync=save.sync)

    def _saved(self, writes: list[Write], sync: bool, error: Exception | None) -> None:
        if error is not None:
            self._disk_failed(error)
            if sync:
                self._failed_saves.append(writes)
            return
        self._gate -= sync
        if sync and not self._gate:
            self.step()

    def _disk_failed(self, error: Exception) -> None:
        if self.disk_error is None:
            log.error("the outbox of %r cannot be written; it is tried again: %s", self.name, error)
        self.disk_error = error
        self.changed.fire()

    def _save_again(self) -> None:
        saves, self._failed_saves = self._failed_saves, []
        for writes in saves:
            self._host.state.store.submit(writes, functools.partial(self._saved, writes, True))
        for seq, put in self._unsaved.items():
            self._host.state.store.submit([put], functools.partial(self._row_saved, seq), sync=False)

    # ---- to the wire

    def step(self) -> None:
        """Something changed: claim, or send what may go."""
        if self.writer.claiming:
            self._claim()
        else:
            self.pump_soon()
        self.changed.fire()

    def _claim(self) -> None:
        if self._gate or not self._ready():
            return
        self._claimed_at = asyncio.get_running_loop().time()
        claim = self.writer.claim(self._host.session.conn)
        self._host.publish(self._host.topics.own(self.name, self._host.client_id), wire.encode(claim))

    def pump_soon(self) -> None:
        """Send in this turn of the loop, or after the linger."""
        if not self._pump_due:
            self._pump_due = True
            loop, linger = asyncio.get_running_loop(), self._host.options.linger
            loop.call_later(linger, self._pump) if linger else loop.call_soon(self._pump)

    def _pump(self) -> None:
        self._pump_due = False
        if not self._gate and self._host.session.up:
            self._send(self.writer.pump())

    def _send(self, frames: list[Frame]) -> None:
        topic = self._host.topics.out(self.name)
        for frame in frames:
            self._host.publish(topic, wire.encode(frame))
        if frames and not self._progress_at:
            self._progress_at = asyncio.get_running_loop().time()

    def resend(self) -> None:
        """A new link, or a new journal: begin again at the first event without a receipt."""
        if self._gate:
            return
        if self.writer.claiming:
            self._claim()
        else:
            self._send(self.writer.resend())

    def heard(self, save: Save | None) -> None:
        """The writer took in an answer."""
        self.save(save)
        self._progress_at = 0.0 if self.writer.drained else asyncio.get_running_loop().time()
        self._patience = self._host.options.resend
        if save is None or not save.sync:
            self.step()

    def tick(self, now: float) -> None:
        """Time passed: repeat what was not answered, and what the disk refused."""
        if self.disk_error is not None:
            self._save_again()
        if self.writer.claiming and now - self._claimed_at >= CLAIM_EVERY:
            self._claim()
        elif self.writer.owned and self._progress_at and now - self._progress_at >= self._patience:
            self._progress_at = now
            self._patience = min(self._patience * 2, self._host.options.keepalive)
            if self._host.session.up and not self._gate:
                self._send(self.writer.resend(probe=False))
