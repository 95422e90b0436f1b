"""Group commit: what arrives while one commit runs becomes the next one."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Sequence

from agentmqtt.errors import StoreError, StoreFull
from agentmqtt.store.base import Done, Put, Write

logger = logging.getLogger(__name__)

QUIET = 30.0
"""Seconds without a word about a failure that goes on."""

SLICE = 0.002
"""Seconds that callbacks run on the loop before others get their turn."""


@dataclasses.dataclass(slots=True, eq=False)
class Call:
    """One call of `submit`. `generation` counts the failures that its caller had been told of."""

    writes: Sequence[Write]
    done: Done | None
    sync: bool
    size: int
    generation: int
    refused: bool = False


class Committer:
    """One named thread that commits calls in order and tells their callers on the loop, in order.

    A commit that fails also fails every call that was submitted before the caller was told: those
    may build on what is not there. `commit` runs in the thread and raises StoreError.
    """

    def __init__(
        self, commit: Callable[[Sequence[Call]], None], *, name: str, interval: float, max_waiting: int
    ) -> None:
        self._commit = commit
        self._name = name
        self._interval = interval
        self._max_waiting = max_waiting
        self._wake = threading.Condition()
        self._waiting: list[Call] = []
        self._bytes = 0
        self._closing = False
        self._generation = 0
        self._failed = -1
        self._failure = StoreError("")
        self._quiet_until = 0.0
        self._untold: collections.deque[tuple[Call, StoreError | None]] = collections.deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name=f"agentmqtt-store-{name}", daemon=True)
        self._thread.start()

    def submit(self, writes: Sequence[Write], done: Done | None, *, sync: bool) -> None:
        """Queue one call. On the loop only.

        Raises:
            StoreError: if the store is closed.
        """
        size = sum(len(write.body) + 64 if isinstance(write, Put) else 64 for write in writes)
        call = Call(tuple(writes), done, sync, size, self._generation)
        loop = asyncio.get_running_loop()
        with self._wake:
            if self._closing:
                raise StoreError(f"store {self._name} is closed; nothing more can be written")
            self._loop = loop
            call.refused = self._bytes + size > self._max_waiting and self._bytes > 0
            self._bytes += 0 if call.refused else size
            self._waiting.append(call)
            self._wake.notify()

    async def close(self) -> None:
        """Commit what waits, tell everybody, end the thread. Call it once."""
        told = asyncio.get_running_loop().create_future()
        self.submit((), told.set_result, sync=False)
        with self._wake:
            self._closing = True
            self._wake.notify()
        error = await told
        await asyncio.to_thread(self._thread.join)
        if error:
            raise error

    # --- in the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        while batch := self._take():
            self._settle(batch)

    def _take(self) -> list[Call]:
        """Everything that waits; empty at the end."""
        with self._wake:
            self._wake.wait_for(lambda: self._waiting or self._closing)
            if self._interval:
                self._wake.wait_for(lambda: self._closing, self._interval)
            batch, self._waiting, self._bytes = self._waiting, [], 0
        return batch

    def _settle(self, batch: list[Call]) -> None:
        stale = [call for call in batch if call.generation <= self._failed]
        fresh = batch[len(stale) :]
        accepted = next((index for index, call in enumerate(fresh) if call.refused), len(fresh))
        error = self._try(fresh[:accepted]) if accepted else None
        self._tell(stale, self._failure)
        self._tell(fresh[:accepted], error)
        if not error and accepted < len(fresh):
            error = StoreFull(
                f"store {self._name}: more than {self._max_waiting} bytes wait for the disk; write less or slower"
            )
        if error:
            self._log(error)
            self._failed, self._failure = fresh[0].generation, error
            self._tell(fresh[accepted:], error)
        self._wake_loop()

    def _log(self, error: StoreError) -> None:
        """Once per reason and half a minute: a full disk fails every commit."""
        now = time.monotonic()
        if str(error) != str(self._failure) or now >= self._quiet_until:
            self._quiet_until = now + QUIET
            logger.error("a commit failed: %s", error)

    def _try(self, calls: Sequence[Call]) -> StoreError | None:
        try:
            self._commit(calls)
        except StoreError as error:
            return error
        except Exception as error:
            logger.exception("store %s: a commit failed in an unexpected way", self._name)
            return StoreError(f"store {self._name}: {error!r}; nothing of this commit was written")
        return None

    def _tell(self, calls: Sequence[Call], error: StoreError | None) -> None:
        self._untold.extend((call, error) for call in calls)

    def _wake_loop(self) -> None:
        if self._loop is None or self._loop.is_closed():
            logger.warning("store %s: the event loop ended; %d results stay untold", self._name, len(self._untold))
            return
        try:
            self._loop.call_soon_threadsafe(self._drain)
        except RuntimeError:
            logger.warning("store %s: the event loop ended; %d results stay untold", self._name, len(self._untold))

    # --- on the loop -----------------------------------------------------------------------------

    def _drain(self) -> None:
        until = time.monotonic() + SLICE
        while self._untold:
            self._finish(*self._untold.popleft())
            if self._untold and time.monotonic() > until:
                asyncio.get_running_loop().call_soon(self._drain)
                return

    def _finish(self, call: Call, error: StoreError | None) -> None:
        if error and call.generation == self._generation:
            self._generation += 1
        tell(call.done, error)


def tell(done: Done | None, error: Exception | None) -> None:
    """Call `done`; one that fails must not keep the result from the others."""
    if done is None:
        return
    try:
        done(error)
    except Exception as problem:
        asyncio.get_running_loop().call_exception_handler(
            {"message": f"{done!r} failed when a store told it a result", "exception": problem}
        )
