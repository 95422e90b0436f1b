"""The store without a disk: for tests, and for processes that may forget."""

from __future__ import annotations

import asyncio
import bisect
import collections
from collections.abc import Sequence
from pathlib import Path

from agentmqtt.errors import StoreError
from agentmqtt.store.base import Done, Key, Put, Write
from agentmqtt.store.commits import tell


class _Space:
    """Records of one space, sorted."""

    def __init__(self) -> None:
        self.keys: list[Key] = []
        self.bodies: dict[Key, bytes] = {}

    def put(self, key: Key, body: bytes) -> None:
        if key not in self.bodies:
            bisect.insort(self.keys, key)
        self.bodies[key] = body

    def delete(self, first: Key, last: Key) -> None:
        found = self.between(first, last)
        for key in self.keys[found]:
            del self.bodies[key]
        del self.keys[found]

    def between(self, first: Key, last: Key) -> slice:
        low = bisect.bisect_left(self.keys, first)
        return slice(low, max(low, bisect.bisect_right(self.keys, last)))

    def copy(self) -> _Space:
        twin = _Space()
        twin.keys, twin.bodies = list(self.keys), dict(self.bodies)
        return twin


class MemoryStore:
    """A `Store` in memory with the promises of the one on disk, except that it ends with its process.

    For tests: `fail_next`, `pause`, `resume` and `crash`.
    """

    replaced: Path | None = None

    def __init__(self) -> None:
        self._spaces: collections.defaultdict[str, _Space] = collections.defaultdict(_Space)
        self._waiting: list[tuple[Sequence[Write], Done | None]] = []
        self._scheduled = False
        self._paused = False
        self._closed = False
        self._failures: list[Exception] = []

    def submit(self, writes: Sequence[Write], done: Done | None = None, *, sync: bool = True) -> None:
        """See `Store.submit`."""
        if self._closed:
            raise StoreError("the store in memory is closed; nothing more can be written")
        self._waiting.append((tuple(writes), done))
        self._schedule()

    async def scan(
        self, space: str, first: Key, last: Key, *, limit: int | None = None, max_bytes: int | None = None
    ) -> list[tuple[Key, bytes]]:
        """See `Store.scan`."""
        await asyncio.sleep(0)
        if self._closed:
            raise StoreError("the store in memory is closed; nothing more can be read")
        if space not in self._spaces:
            return []
        records = self._spaces[space]
        keys = records.keys[records.between(first, last)][:limit]
        found: list[tuple[Key, bytes]] = []
        size = 0
        for key in keys:
            body = records.bodies[key]
            size += len(body)
            if found and max_bytes is not None and size > max_bytes:
                break
            found.append((key, body))
        return found

    async def size(self) -> int:
        """Bytes of all bodies."""
        return sum(len(body) for space in self._spaces.values() for body in space.bodies.values())

    async def close(self) -> None:
        """Commit what waits; everybody is told before this returns."""
        self._paused = False
        while self._waiting:
            self._schedule()
            await asyncio.sleep(0)
        self._closed = True

    # --- for tests -------------------------------------------------------------------------------

    def fail_next(self, error: Exception) -> None:
        """Let the next commit fail with `error`. Several calls fail several commits."""
        self._failures.append(error)

    def pause(self) -> None:
        """Hold commits back, as a slow disk does."""
        self._paused = True

    def resume(self) -> None:
        """Commit again."""
        self._paused = False
        if self._waiting:
            self._schedule()

    def crash(self) -> MemoryStore:
        """What a restart after kill -9 finds: the commits so far. This store forgets what waits and tells nobody."""
        heir = MemoryStore()
        heir._spaces.update({name: space.copy() for name, space in self._spaces.items()})
        self._waiting.clear()
        self._closed = True
        return heir

    # --- commits ---------------------------------------------------------------------------------

    def _schedule(self) -> None:
        if not self._scheduled and not self._paused:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._commit)

    def _commit(self) -> None:
        self._scheduled = False
        if self._paused:
            return
        batch, self._waiting = self._waiting, []
        error = self._failures.pop(0) if batch and self._failures else None
        if not error:
            for writes, _ in batch:
                self._apply(writes)
        for _, done in batch:
            tell(done, error)

    def _apply(self, writes: Sequence[Write]) -> None:
        for write in writes:
            space = self._spaces[write.space]
            if isinstance(write, Put):
                space.put(write.key, bytes(write.body))
            else:
                space.delete(write.first, write.last)
