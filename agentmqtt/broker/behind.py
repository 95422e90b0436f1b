"""Write behind, acknowledge after: what is noted becomes a commit, and calls that wait for it run then."""

from __future__ import annotations

import asyncio
import logging
import time
import weakref
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from agentmqtt.broker.pad import Pad
from agentmqtt.broker.sessions import Origin
from agentmqtt.errors import StoreError
from agentmqtt.store.base import Key, Store

log = logging.getLogger("agentmqtt.broker")

_TURNS = 3
"""Turns of the event loop before a commit: what the same packet causes elsewhere shares its fsync."""
_UNSAFE = 8 << 20
"""Bytes that may wait for the disk before publishers do."""
_CALLS = 20_000
"""Calls that may wait for the disk before publishers do."""
_FIRST_RETRY, _LAST_RETRY = 0.1, 5.0
_SLICE = 0.002
"""Seconds that calls run before others get their turn."""
_HOLD = "disk"


class WriteBehind:
    """One commit at a time. One that fails is tried again with all that came since, so that there is never a hole.

    `prepare` may add to the pad right before a commit, `written` hears of each that succeeded.
    """

    def __init__(self, store: Store, prepare: Callable[[], None], written: Callable[[], None]) -> None:
        self._store, self._prepare, self._written = store, prepare, written
        self.pad = Pad()
        self.trouble: Exception | None = None
        self._taken: Pad | None = None
        self._calls: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._ran = self._safe = 0
        self._draining = self._scheduled = self._resting = False
        self._retry: asyncio.TimerHandle | None = None
        self._delay = _FIRST_RETRY
        self._since = 0.0
        self._held: weakref.WeakSet[Origin] = weakref.WeakSet()

    @property
    def clean(self) -> bool:
        """Whether everything that was noted is on disk."""
        return self._taken is None and not self.pad

    def pending(self, space: str, key: Key, stored: bytes | None) -> bytes | None:
        """What a record will be that is `stored` now."""
        if self._taken is not None:
            stored = self._taken.over(space, key, stored)
        return self.pad.over(space, key, stored)

    def then(self, call: Callable[..., None], *args: Any) -> None:
        """See `Keeper.then`."""
        if self.clean and not self._calls:
            call(*args)
            return
        self._calls.append((call, args))
        if self.clean:
            self._safe = self._ran + len(self._calls)

    def delays(self, origin: Origin) -> bool:
        """See `Keeper.delays`."""
        if not self._strained():
            return False
        self._held.add(origin)
        origin.hold(_HOLD)
        return True

    def _strained(self) -> bool:
        unsafe = self.pad.size + (self._taken.size if self._taken is not None else 0)
        return self.trouble is not None or unsafe > _UNSAFE or len(self._calls) > _CALLS

    # -------------------------------------------------------------- commits

    def schedule(self) -> None:
        """The pad has something new."""
        if not (self._scheduled or self._resting or self._retry) and self._taken is None:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._wait, _TURNS)

    def _wait(self, turns: int) -> None:
        if turns:
            asyncio.get_running_loop().call_soon(self._wait, turns - 1)
            return
        self._scheduled = False
        self._commit()

    def _commit(self) -> None:
        self._retry = None
        self._prepare()
        if not self.pad and self.trouble is None:
            self._finish(self._ran + len(self._calls))
            return
        self._taken, self.pad = self.pad, Pad()
        covered = self._ran + len(self._calls)
        try:
            self._store.submit(self._taken.writes(), partial(self._done, covered))
        except StoreError as error:
            self._done(covered, error)

    def _done(self, covered: int, error: Exception | None) -> None:
        taken, self._taken = self._taken, None
        if error is None:
            self._recovered()
            self._written()
            self._finish(covered if self.pad else self._ran + len(self._calls))
        elif taken is not None:
            self.pad.after(taken)
            self._failed(error)

    def _finish(self, safe: int) -> None:
        self._safe = max(self._safe, safe)
        if self.pad and not (self._resting or self._scheduled):
            self._commit()
        if not self._draining:
            self._drain()

    def _failed(self, error: Exception) -> None:
        if self.trouble is None:
            self._since = time.monotonic()
            log.error("nothing is acknowledged and publishers wait until this can be stored: %s", error)
        self.trouble = error
        if not self._resting:
            self._retry = asyncio.get_running_loop().call_later(self._delay, self._commit)
            self._delay = min(2 * self._delay, _LAST_RETRY)

    def _recovered(self) -> None:
        if self.trouble is not None:
            log.warning("what waited is stored after %.1f s; publishers go on", time.monotonic() - self._since)
        self.trouble, self._delay = None, _FIRST_RETRY

    # -------------------------------------------------------------- what waits

    def _drain(self) -> None:
        self._draining = False
        until = time.monotonic() + _SLICE
        while self._ran < self._safe:
            call, args = self._calls.popleft()
            self._ran += 1
            try:
                call(*args)
            except Exception:
                log.exception("%r failed after what it waited for was stored", call)
            if self._ran < self._safe and time.monotonic() > until:
                self._draining = True
                asyncio.get_running_loop().call_soon(self._drain)
                return
        self._let_go()

    def _let_go(self) -> None:
        if self._strained():
            return
        held = list(self._held)
        self._held.clear()
        for origin in held:
            origin.release(_HOLD)

    # -------------------------------------------------------------- begin and end

    def resume(self) -> None:
        """Write again."""
        self._resting = False
        if self.pad:
            self.schedule()

    async def rest(self, limit: float) -> None:
        """Wait at most `limit` seconds until everything is safe, then write nothing more."""
        safe: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.then(safe.set_result, None)
        await asyncio.wait([safe], timeout=limit)
        if not safe.done():
            log.error("what was not acknowledged could not be stored before the end: %s", self.trouble or "too slow")
        self._resting = True
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
