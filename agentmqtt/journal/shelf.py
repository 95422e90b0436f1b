"""Every channel's ledger, and its records in the store (PROTOCOL §9.2).

Spaces: `channel` (name) holds a ledger's record, `command` (name, seq) its command rows, `log`
(name, epoch, last) its events, `journal` the journal's own.
"""

from __future__ import annotations

import asyncio
import logging

from agentmqtt import wire
from agentmqtt.core.ledger import Ledger
from agentmqtt.core.mailbox import Row
from agentmqtt.core.pages import LogRow
from agentmqtt.errors import BadName, WireError
from agentmqtt.names import encode_name
from agentmqtt.options import JournalOptions
from agentmqtt.store.base import MAX, Delete, Key, Put, Store, Write
from agentmqtt.types import Entry, Position

log = logging.getLogger("agentmqtt.journal")

CHANNEL, COMMAND, LOG, OWN = "channel", "command", "log", "journal"
LOAD_CHUNK = 500


class Shelf:
    """The ledgers in memory and how they are kept. `sizes` holds bytes of log per channel and epoch."""

    def __init__(self, store: Store, options: JournalOptions) -> None:
        self.ledgers: dict[str, Ledger] = {}
        self.sizes: dict[str, dict[int, int]] = {}
        self.clock_high = 0
        self._levels: dict[str, Ledger] = {}
        self._store = store
        self._options = options

    # ---- which channels there are

    def at_level(self, level: str) -> Ledger | None:
        """The channel at a topic level, hashed ones included."""
        return self._levels.get(level)

    def open(self, workflow: str) -> Ledger | None:
        """The channel of a workflow, new if need be; None if there is no room for another."""
        ledger = self.ledgers.get(workflow)
        if ledger is None and len(self.ledgers) < self._options.channels:
            ledger = Ledger(workflow, pending_limit=self._options.pending)
            self._add(ledger, {})
        return ledger

    def forget(self, workflow: str) -> list[Write]:
        """Remove a channel altogether. Whoever comes back finds a new incarnation."""
        self._levels.pop(encode_name(workflow), None)
        self.ledgers.pop(workflow, None)
        self.sizes.pop(workflow, None)
        return [Delete(space, Key(workflow), Key(workflow, MAX, MAX)) for space in (CHANNEL, COMMAND, LOG)]

    def _add(self, ledger: Ledger, size: dict[int, int]) -> None:
        self.ledgers[ledger.workflow] = ledger
        self._levels[encode_name(ledger.workflow)] = ledger
        self.sizes[ledger.workflow] = size

    # ---- reading

    async def load(self) -> None:
        """Read every channel. What memory held before is forgotten."""
        self.ledgers, self.sizes, self._levels = {}, {}, {}
        for key, body in await self._all(OWN):
            if key.name == "clock":
                self.clock_high = wire.unpack(body)
        for key, body in await self._all(CHANNEL):
            self._restore(key.name, body)
            await asyncio.sleep(0)
        for key, body in await self._all(COMMAND):
            if key.name in self.ledgers:
                self.ledgers[key.name].mailbox.load(Row.unpack(key.a, wire.unpack(body)))

    def _restore(self, name: str, body: bytes) -> None:
        try:
            sizes, record = wire.unpack(body)
            self._add(Ledger.restore(name, record, pending_limit=self._options.pending), dict(sizes))
        except (WireError, ValueError, TypeError, BadName):
            log.exception("the record of %r cannot be read; the channel begins anew", name)

    async def _all(self, space: str) -> list[tuple[Key, bytes]]:
        found: list[tuple[Key, bytes]] = []
        first = Key("", 0, 0)
        while chunk := await self._store.scan(space, first, Key("\U0010ffff", MAX, MAX), limit=LOAD_CHUNK):
            found += chunk
            last = chunk[-1][0]
            first = Key(last.name, last.a, last.b + 1)
        return found

    async def log(self, name: str, after: Position, max_bytes: int) -> list[LogRow]:
        """Rows of the log that hold events after a position, cut to what is still in the log."""
        first = Key(name, after.epoch, after.n + 1)
        found = await self._store.scan(LOG, first, Key(name, MAX, MAX), max_bytes=max_bytes)
        ledger = self.ledgers.get(name)
        upto = dict(ledger.chain.segments) if ledger else {}
        rows = [_unpack_row(key, body) for key, body in found if key.a in upto]
        return [row._replace(entries=row.entries[: max(0, upto[row.epoch] + 1 - row.first)]) for row in rows]

    async def oldest(self, name: str, max_bytes: int) -> list[tuple[LogRow, int]]:
        """The oldest rows of a channel's log, with their bytes."""
        found = await self._store.scan(LOG, Key(name), Key(name, MAX, MAX), max_bytes=max_bytes)
        return [(_unpack_row(key, body), len(body)) for key, body in found]

    def shrunk(self, name: str, rows: list[tuple[LogRow, int]]) -> None:
        """These rows were trimmed."""
        for row, size in rows:
            left = self.sizes[name].get(row.epoch, 0) - size
            self.sizes[name][row.epoch] = max(0, left)

    # ---- writing

    def records(self, dirty: set[str]) -> list[Put]:
        """Records of channels that changed."""
        return [
            Put(CHANNEL, Key(name), wire.pack([self._sizes(name), self.ledgers[name].snapshot()]))
            for name in sorted(dirty)
            if name in self.ledgers
        ]

    def _sizes(self, name: str) -> list[list[int]]:
        return [[epoch, size] for epoch, size in self.sizes[name].items()]

    def append(self, name: str, epoch: int, first: int, time: int, entries: tuple[Entry, ...]) -> Put:
        body = wire.pack([first, time, wire.runs_of(entries)])
        self.sizes[name][epoch] = self.sizes[name].get(epoch, 0) + len(body)
        return Put(LOG, Key(name, epoch, first + len(entries) - 1), body)

    def truncate(self, name: str, after: Position) -> Delete:
        """Rows of later epochs. What is left of this one behind the position is cut when it is read."""
        self.sizes[name] = {epoch: size for epoch, size in self.sizes[name].items() if epoch <= after.epoch}
        return Delete(LOG, Key(name, after.epoch + 1), Key(name, MAX, MAX))

    @staticmethod
    def trim(name: str, upto: Position) -> Delete:
        """Rows that end at or before a position."""
        return Delete(LOG, Key(name), Key(name, upto.epoch, upto.n))

    def command(self, name: str, seq: int) -> Write:
        key = Key(name, seq)
        row = self.ledgers[name].mailbox.row(seq)
        return Put(COMMAND, key, wire.pack(row.pack()))

    @staticmethod
    def drop_command(name: str, seq: int) -> Delete:
        return Delete(COMMAND, Key(name, seq), Key(name, seq, MAX))

    @staticmethod
    def clock(now: int) -> Put:
        return Put(OWN, Key("clock"), wire.pack(now))


def _unpack_row(key: Key, body: bytes) -> LogRow:
    first, time, runs = wire.unpack(body)
    return LogRow(key.a, first, time, wire.entries_of(runs))
