"""What one process keeps on its disk: who it is, its outboxes, its cursors, its commands (design §3, §4).

Spaces: `identity`, `outbox` (name) headers, `row` (name, seq) outbox rows, `cursor` (name) where a
reader is, `sent` ("", seq) commands without an outcome.
"""

from __future__ import annotations

import secrets
import string
from collections.abc import Sequence

from agentmqtt import wire
from agentmqtt.core.outbox import Header, Outbox, Row
from agentmqtt.core.reader import Saved
from agentmqtt.frames import Command
from agentmqtt.names import is_client_id
from agentmqtt.store.base import MAX, Delete, Key, Put, Store, Write
from agentmqtt.types import Entry, Value, When

IDENTITY, HEADER, ROW, CURSOR, SENT = "identity", "outbox", "row", "cursor", "sent"
_ALPHABET = string.ascii_letters + string.digits


def new_client_id() -> str:
    """23 letters and digits: the longest ID that every MQTT 3.1.1 broker takes."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(23))


class State:
    """Typed access to a client's store."""

    def __init__(self, store: Store) -> None:
        self.store = store

    async def client_id(self) -> str:
        """This installation's ID, made at the first call."""
        found = await self.store.scan(IDENTITY, Key("client"), Key("client"))
        known = found[0][1].decode("ascii", "replace") if found else ""
        if is_client_id(known):
            return known
        fresh = new_client_id()
        self.store.submit([Put(IDENTITY, Key("client"), fresh.encode())])
        return fresh

    # ---- outboxes

    async def outbox(self, name: str) -> Outbox:
        """The outbox of a name as the last process left it, or a new one with a fresh instance."""
        found = await self.store.scan(HEADER, Key(name), Key(name))
        if not found:
            return Outbox(Header(secrets.token_bytes(8)))
        header = Header.unpack(wire.unpack(found[0][1]))
        rows = await self.store.scan(ROW, Key(name), Key(name, MAX, MAX))
        return Outbox(header, [_row(key.a, body, header) for key, body in rows])

    @staticmethod
    def header(name: str, header: Header) -> Write:
        return Put(HEADER, Key(name), wire.pack(header.pack()))

    @staticmethod
    def row(name: str, row: Row, epoch: int) -> Put:
        """A row; `epoch` is the one in which it got its numbers, 0 if it has none."""
        return Put(ROW, Key(name, row.seq), wire.pack([epoch, row.time, wire.runs_of(row.entries)]))

    @staticmethod
    def gone(name: str, rows: tuple[Row, ...]) -> list[Write]:
        """Removal of rows, as few ranges as possible."""
        ranges: list[tuple[int, int]] = []
        for row in rows:
            if ranges and ranges[-1][1] + 1 == row.seq:
                ranges[-1] = (ranges[-1][0], row.seq)
            else:
                ranges.append((row.seq, row.seq))
        return [Delete(ROW, Key(name, first), Key(name, last, MAX)) for first, last in ranges]

    @staticmethod
    def forget_outbox(name: str) -> list[Write]:
        return [Delete(HEADER, Key(name), Key(name)), Delete(ROW, Key(name), Key(name, MAX, MAX))]

    # ---- cursors

    async def saved(self, name: str) -> Saved | None:
        """Where this client's reader of a name was."""
        found = await self.store.scan(CURSOR, Key(name), Key(name))
        return Saved.unpack(wire.unpack(found[0][1])) if found else None

    async def below(self, prefix: str) -> list[str]:
        """Names that begin with a prefix and whose place is kept."""
        found = await self.store.scan(CURSOR, Key(prefix, -MAX, -MAX), Key(prefix + "\U0010ffff", MAX, MAX))
        return [key.name for key, _ in found]

    def save(self, name: str, saved: Saved) -> None:
        """Keep where a reader is. Survives kill -9; after power loss some events may come again."""
        self.store.submit([Put(CURSOR, Key(name), wire.pack(saved.pack()))], sync=False)

    # ---- commands

    async def sent(self) -> list[tuple[int, Command, bool]]:
        """Commands whose outcome was not known when the last process stopped, and whether it wanted them back."""
        found = await self.store.scan(SENT, Key(""), Key("", MAX, MAX))
        return [(key.a, *_command(wire.unpack(body))) for key, body in found]

    @staticmethod
    def command(seq: int, command: Command, *, withdrawn: bool = False) -> Put:
        body = [command.id, command.workflow, command.kind, command.data, command.deadline]
        return Put(SENT, Key("", seq), wire.pack([*body, str(command.when), withdrawn]))

    @staticmethod
    def settled(seq: int) -> Delete:
        return Delete(SENT, Key("", seq), Key("", seq, MAX))


def _command(body: Sequence[Value]) -> tuple[Command, bool]:
    """A record of this version, or of one that knew neither `when` nor withdrawing."""
    id_, workflow, kind, data, deadline = body[:5]
    when, withdrawn = body[5:7] if len(body) > 5 else (When.NOW, False)
    return Command(id_, workflow, kind, data, deadline, When(when)), bool(withdrawn)


def _row(seq: int, body: bytes, header: Header) -> Row:
    epoch, time, runs = wire.unpack(body)
    entries: tuple[Entry, ...] = wire.entries_of(runs)
    numbered = epoch > 0 and epoch == header.epoch
    return Row(seq, time, entries, wire.size_of(entries), 1 if numbered else 0)
