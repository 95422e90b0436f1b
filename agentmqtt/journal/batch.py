"""Persist, then tell: what the ledgers decided becomes one transaction, and is said after it (PROTOCOL §5)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from agentmqtt.store.base import Put, Store, Write

log = logging.getLogger("agentmqtt.journal")

Say = Callable[[], None]


class Owner(Protocol):
    """What the batch asks of the journal around it."""

    def records(self, names: set[str]) -> list[Put]:
        """The records of these channels, as they stand now."""
        ...

    def failed(self, error: Exception) -> None:
        """A commit failed: nothing of it is on disk and nothing was said."""
        ...


class Batch:
    """Collects writes and what to say after them; one commit is under way at a time.

    What arrives meanwhile waits for the next one, so a failure can never leave a hole: the owner
    throws its memory away and reads the disk again.
    """

    def __init__(self, store: Store, owner: Owner) -> None:
        self._store = store
        self._owner = owner
        self._writes: list[Write] = []
        self._dirty: set[str] = set()
        self._says: list[Say] = []
        self._unique: dict[str, Say] = {}
        self._waiters: list[asyncio.Future[None]] = []
        self._busy = False
        self._scheduled = False

    @property
    def idle(self) -> bool:
        """True if everything that was decided is on disk."""
        return not (self._busy or self._writes or self._dirty or self._says or self._unique or self._waiters)

    def write(self, write: Write) -> None:
        self._writes.append(write)
        self._schedule()

    def save(self, name: str) -> None:
        """The channel's record changed; it is written once per commit."""
        self._dirty.add(name)
        self._schedule()

    def say(self, say: Say) -> None:
        """Run after the commit of everything decided so far."""
        self._says.append(say)
        self._schedule()

    def say_latest(self, key: str, say: Say) -> None:
        """Like `say`, but a later one with the same key replaces it: receipts are cumulative."""
        self._unique[key] = say
        self._schedule()

    async def durable(self) -> None:
        """Wait until everything decided so far is on disk. Raises StoreError if that failed."""
        if self.idle:
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(done)
        self._schedule()
        await done

    def _clear(self) -> list[asyncio.Future[None]]:
        waiters, self._waiters = self._waiters, []
        self._writes, self._dirty, self._says, self._unique = [], set(), [], {}
        return waiters

    def _schedule(self) -> None:
        if not self._scheduled and not self._busy:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._flush)

    @staticmethod
    def _run(say: Say) -> None:
        try:
            say()
        except Exception:
            log.exception("an answer could not be sent; whoever waits for it asks again")

    def _flush(self) -> None:
        self._scheduled = False
        if self._busy or self.idle:
            return
        self._busy = True
        writes = [*self._writes, *self._owner.records(self._dirty)]
        says = [*self._unique.values(), *self._says]
        waiters = self._clear()
        self._store.submit(writes, lambda error: self._done(error, says, waiters))

    def _done(self, error: Exception | None, says: list[Say], waiters: list[asyncio.Future[None]]) -> None:
        self._busy = False
        if error is not None:
            waiters += self._clear()
            self._owner.failed(error)
        else:
            for say in says:
                self._run(say)
        for waiter in waiters:
            if not waiter.done():
                waiter.set_exception(error) if error is not None else waiter.set_result(None)
        if not self.idle:
            self._flush()
