"""A file of JSON lines that is its own cursor store: it holds each event once, whatever is killed."""

from __future__ import annotations

import json
import os
from pathlib import Path

from agentmqtt.cli.show import Item, as_json
from agentmqtt.errors import StoreFull, UsageError
from agentmqtt.store.lock import FileLock, unusable
from agentmqtt.types import Cursor

BLOCK = 65536


class LinesFile:
    """FILE, open for appending. A torn last line is cut off; `cursor` is where the last whole one was.

    Raises:
        StoreInUse: another process appends to it.
        StoreUnusable: it cannot be read and written.
        UsageError: its lines are something else; it is left as it is.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = FileLock(path.absolute())
        self._lock.acquire()
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            try:
                self.cursor = self._resume()
            except BaseException:
                os.close(self._fd)
                raise
        except OSError as error:
            self._lock.release()
            raise unusable(path, "be read and written", error) from error
        except BaseException:
            self._lock.release()
            raise

    def _resume(self) -> Cursor | None:
        size = os.fstat(self._fd).st_size
        end, last = self._last_line(size)
        cursor = None if last is None else self._cursor_of(last)
        if last is None and size and os.pread(self._fd, 1, 0) != b"{":
            raise self._foreign()
        os.ftruncate(self._fd, end)
        self._end = end
        return cursor

    def _last_line(self, size: int) -> tuple[int, bytes | None]:
        """Where the last whole line ends, and that line."""
        start, tail = size, b""
        while start and tail.count(b"\n") < 2:
            length = min(BLOCK, start)
            start -= length
            tail = os.pread(self._fd, length, start) + tail
        whole, newline, _ = tail.rpartition(b"\n")
        return start + len(whole) + len(newline), whole.rpartition(b"\n")[2] if newline else None

    def _cursor_of(self, line: bytes) -> Cursor:
        try:
            return Cursor.parse(json.loads(line)["at"])
        except (ValueError, TypeError, KeyError):
            raise self._foreign() from None

    def _foreign(self) -> UsageError:
        return UsageError(f"{self._path} does not end in lines of `watch --into`; name a new file")

    async def put(self, item: Item) -> None:
        """Append a line. Raises StoreFull; then nothing of it is there."""
        line = as_json(item).encode("utf-8", "replace")
        flaw = "no room for a whole line"
        try:
            written = os.write(self._fd, line)
        except OSError as error:
            written, flaw = 0, error.strerror or str(error)
        if written < len(line):
            os.ftruncate(self._fd, self._end)
            raise StoreFull(f"{self._path}: {flaw}; make room, then start again: it goes on")
        self._end += written

    def close(self) -> None:
        os.close(self._fd)
        self._lock.release()
