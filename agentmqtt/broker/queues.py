"""What waits for one session, in order: a head and a tail in memory, and between them what is on disk only."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from agentmqtt.broker.messages import Outgoing

COPIES = 128
"""Copies that a head or a tail may have in memory where the rest can be on disk."""
BYTES = 512 << 10
"""And their bytes, unless it is one copy."""
LAST = 2**62


class Wanted(NamedTuple):
    """Copies to be read from disk: those numbered above `after`, below `before`."""

    after: int
    before: int


class Queue:
    """Copies in the order of their numbers.

    Where `spills` is set, lasting copies beyond the head need not be in memory: while `awake` (somebody
    is connected) head and tail are bounded, otherwise nothing is held. Copies that do not last are not
    on disk and wait in the head, however long it is.
    """

    __slots__ = ("_bytes", "_gap", "_head", "_last", "_tail", "_tail_bytes", "_wanted", "awake", "spills")

    def __init__(self, *, spills: bool) -> None:
        self.spills: bool = spills
        self.awake: bool = False
        self._head: deque[Outgoing] = deque()
        self._tail: deque[Outgoing] | None = None
        self._bytes = self._tail_bytes = 0
        self._gap = 0
        self._last = 0
        self._wanted: Wanted | None = None

    def __len__(self) -> int:
        return len(self._head) + self._gap + (len(self._tail) if self._tail else 0)

    def __iter__(self) -> Iterator[Outgoing]:
        """Those in memory."""
        yield from self._head
        yield from self._tail or ()

    @property
    def gap(self) -> int:
        """How many are on disk only."""
        return self._gap

    def push(self, copy: Outgoing) -> None:
        """Add the newest."""
        if not (self.spills and copy.lasting):
            self._append(copy)
        elif not self.awake:
            self._gap += 1
        elif not self._gap and not self._tail and _fits(len(self._head), self._bytes, copy):
            self._append(copy)
        else:
            self._push_tail(copy)

    def _append(self, copy: Outgoing) -> None:
        self._head.append(copy)
        self._bytes += copy.message.cost
        if copy.lasting:
            self._last = copy.number

    def _push_tail(self, copy: Outgoing) -> None:
        tail = self._tail
        if tail is None:
            tail = self._tail = deque()
        tail.append(copy)
        self._tail_bytes += copy.message.cost
        while len(tail) > 1 and (len(tail) > COPIES or self._tail_bytes > BYTES):
            self._tail_bytes -= tail.popleft().message.cost
            self._gap += 1

    def first(self) -> Outgoing | None:
        """The oldest, or None if there is none in memory: `wanted` then tells what to read."""
        if self._tail and not self._gap and not self._head:
            for copy in self._tail:
                self._append(copy)
            self._tail, self._tail_bytes = None, 0
        return self._head[0] if self._head else None

    def pop(self) -> Outgoing:
        """Remove the oldest, which `first` returned."""
        copy = self._head.popleft()
        self._bytes -= copy.message.cost
        return copy

    # -------------------------------------------------------------- the part on disk

    def wanted(self) -> Wanted | None:
        """What to read now; `take` is due for it. None if nothing, or if that is asked for already."""
        if not self._gap or not self.awake or self._wanted or len(self._head) >= COPIES // 2:
            return None
        self._wanted = Wanted(self._last, self._tail[0].number if self._tail else LAST)
        return self._wanted

    def expects(self, wanted: Wanted) -> bool:
        """Whether an answer to this very question is still of use."""
        return self._wanted is wanted

    def take(self, copies: list[Outgoing], lost: int = 0) -> None:
        """The answer to `wanted`: the next copies in order. `lost` more could not be read and are gone."""
        self._wanted = None
        before = self._tail[0].number if self._tail else LAST
        found = [copy for copy in copies if copy.number < before]
        for copy in found:
            self._append(copy)
        self._gap = max(0, self._gap - len(found) - lost)

    def recall(self, number: int) -> None:
        """Found on disk at the start, in order of `number`."""
        if not self._gap:
            self._last = number - 1
        self._gap += 1

    def passed(self, number: int) -> None:
        """Found in flight at the start: it does not wait any more, and what waits is numbered above it."""
        self._last = max(self._last, number)

    def suspend(self) -> list[Outgoing]:
        """Nobody is connected any more. Returns what does not last, which is gone."""
        gone = [copy for copy in self._head if not copy.lasting]
        lasting = [copy for copy in self._head if copy.lasting]
        self.awake, self._wanted = False, None
        if self.spills:
            if lasting:
                self._last = lasting[0].number - 1
            self._gap = len(self) - len(gone)
            self._head, self._tail, self._bytes, self._tail_bytes = deque(), None, 0, 0
        else:
            self._head = deque(lasting)
            self._bytes -= sum(copy.message.cost for copy in gone)
        return gone


def _fits(count: int, size: int, copy: Outgoing) -> bool:
    return not count or (count < COPIES and size + copy.message.cost <= BYTES)
