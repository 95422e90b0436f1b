"""What an owner emitted and the journal has not receipted: rows on disk and their numbers (PROTOCOL §5.3).

A row is one atomic group of events. It has numbers only inside a granted epoch: rows emitted before
this process's grant are unnumbered, and only numbered rows may be dropped because the journal says
that it has them (§5.3, rule 4).
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Iterable

from agentmqtt.core.states import END, RECEIPT, RELEASE
from agentmqtt.types import NO_INC, ORIGIN, Entry, Position, Value

ATTEMPT = "attempt"
"""An intent to withdraw back to where the current attempt began."""

Intent = Position | str | None


@dataclasses.dataclass(slots=True)
class Row:
    """One atomic group. `first` is the number of its first event, 0 while it has none; `size` is in bytes."""

    seq: int
    time: int
    entries: tuple[Entry, ...]
    size: int
    first: int = 0

    @property
    def last(self) -> int:
        return self.first + len(self.entries) - 1

    @property
    def receipts(self) -> tuple[Entry, ...]:
        return tuple(entry for entry in self.entries if entry.type == RECEIPT)

    @property
    def ends(self) -> bool:
        return any(entry.type == END for entry in self.entries)

    @property
    def releases(self) -> bool:
        return any(entry.type == RELEASE for entry in self.entries)


@dataclasses.dataclass(slots=True)
class Header:
    """What an owner's disk knows about one name, beside the rows (§5.3).

    `base` is the number of the last event that left the outbox in this epoch; rows up to
    `numbered` (a `seq`) have numbers in it, and so have those appended while it was owned. `intent`
    withdraws rows up to `upto` (a `seq`): what was emitted after it was asked for is the new attempt's.
    `life` counts the writers that this disk has had.
    """

    instance: bytes
    inc: bytes = NO_INC
    epoch: int = 0
    parent: Position = ORIGIN
    base: int = 0
    numbered: int = 0
    intent: Intent = None
    upto: int = 0
    life: int = 0

    def pack(self) -> Value:
        intent = [*self.intent] if isinstance(self.intent, Position) else self.intent
        at = [self.inc, self.epoch, [*self.parent], self.base, self.numbered]
        return [1, self.instance, *at, intent, self.upto, self.life]

    @classmethod
    def unpack(cls, value: Value) -> Header:
        _, instance, inc, epoch, parent, base, numbered, intent, upto, life = value[:10]
        goal = Position(*intent) if isinstance(intent, list) else intent
        return cls(instance, inc, epoch, Position(*parent), base, numbered, goal, upto, life)


class Outbox:
    """Rows in order, and the header. A row from disk has `first` > 0 if it was appended in the header's epoch.

    `sealed`: this process said the last word, or an earlier one left an end that waits; nothing may be
    emitted after it, also when it has been stored (§4.5). `receipted`: commands whose receipts
    an earlier process left here, and the receipt as soon as it is stored.
    """

    def __init__(self, header: Header, rows: Iterable[Row] = ()) -> None:
        self.header = header
        self.rows: deque[Row] = deque(rows)
        self.sealed = any(row.ends for row in self.rows)
        self.next_seq = max([header.numbered, header.upto, *(row.seq for row in self.rows)]) + 1
        self.bytes = sum(row.size for row in self.rows)
        self.events = sum(len(row.entries) for row in self.rows)
        self.receipted: dict[str, Entry | None] = {
            entry.data["id"]: None for row in self.rows for entry in row.receipts
        }
        self._inherited = self.next_seq - 1
        self._number(lambda row: row.seq <= header.numbered or row.first > 0)

    @property
    def top(self) -> int:
        """Number of the newest event that has one in this epoch."""
        return next((row.last for row in reversed(self.rows) if row.first), self.header.base)

    def append(self, entries: tuple[Entry, ...], size: int, time: int, *, owned: bool) -> Row:
        """Add a group. It gets numbers at once if the name is owned."""
        row = Row(self.next_seq, time, entries, size, self.top + 1 if owned else 0)
        self.next_seq += 1
        if owned:
            self.header.numbered = row.seq
        self.sealed = self.sealed or row.ends or row.releases
        self.rows.append(row)
        self.bytes += size
        self.events += len(entries)
        return row

    def drop_stored(self, n: int) -> list[Row]:
        """Remove numbered rows whose events the journal has stored up to `n`."""
        gone: list[Row] = []
        while self.rows and self.rows[0].first and self.rows[0].last <= n:
            gone.append(self._pop())
        if gone:
            self.header.base = gone[-1].last
        return gone

    def drop_withdrawn(self) -> tuple[list[Row], list[Row]]:
        """Take out what the intent is about, all but receipts: those are never withdrawn (§7.3).

        Returns the rows that are gone, and those of which only the receipts are left.
        """
        about = [row for row in self.rows if row.seq <= self.header.upto]
        gone = [row for row in about if not row.receipts]
        changed = [row for row in about if 0 < len(row.receipts) < len(row.entries)]
        for row in changed:
            row.entries = row.receipts
        self._keep([row for row in self.rows if row.seq > self.header.upto or row.receipts])
        return gone, changed

    def drop_released(self) -> list[Row]:
        """Take out releases that an earlier process could not send: the name has an owner again (§4.5)."""
        gone = [row for row in self.rows if row.releases and row.seq <= self._inherited]
        if gone:
            self._keep([row for row in self.rows if row not in gone])
        return gone

    def drop_all(self) -> list[Row]:
        gone = list(self.rows)
        self._keep([])
        self.sealed = False
        self.receipted.clear()
        return gone

    def renumber(self, inc: bytes, epoch: int, parent: Position) -> None:
        """A grant: everything that is left counts from 1 in the new epoch."""
        numbered = self.rows[-1].seq if self.rows else self.next_seq - 1
        self.header = Header(self.header.instance, inc, epoch, parent, 0, numbered, life=self.header.life)
        self.sealed = any(row.ends or row.releases for row in self.rows)
        self._number(lambda _: True)

    def _number(self, has: Callable[[Row], bool]) -> None:
        n = self.header.base
        for row in self.rows:
            row.first = n + 1 if has(row) else 0
            n += len(row.entries)

    def _pop(self) -> Row:
        row = self.rows.popleft()
        self.bytes -= row.size
        self.events -= len(row.entries)
        if row.seq <= self._inherited:
            self.receipted.update({entry.data["id"]: entry for entry in row.receipts})
        return row

    def _keep(self, rows: list[Row]) -> None:
        self.rows = deque(rows)
        self.bytes = sum(row.size for row in rows)
        self.events = sum(len(row.entries) for row in rows)
