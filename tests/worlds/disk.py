"""The disk of an owner: what survives kill -9, and what only fsync saved from a power loss."""

from __future__ import annotations

from agentmqtt.types import Entry, Value
from tests.worlds.events import numbers_of

PackedRow = tuple[int, int, tuple[Entry, ...], int, int]
Content = tuple[Value, dict[int, PackedRow], tuple[int, ...], bool]


class Disk:
    """Header, rows, and whether and what its owner wants to withdraw. `sync` is the mark of the last fsync."""

    def __init__(
        self, header: Value, rows: dict[int, PackedRow], doomed: tuple[int, ...] = (), asked: bool = False
    ) -> None:
        self.header, self.rows, self.doomed, self.asked = header, rows, doomed, asked
        self.synced = self.copy()

    def copy(self) -> Content:
        return self.header, dict(self.rows), self.doomed, self.asked

    def sync(self) -> None:
        self.synced = self.copy()

    def ids(self) -> list[int]:
        return [number for row in self.rows.values() for number in numbers_of(row[2])]

    def restore(self, content: Content) -> list[int]:
        """Go back to an older content. Returns the numbers that are no longer here."""
        before = self.ids()
        self.header, self.rows, self.doomed, self.asked = content[0], dict(content[1]), content[2], content[3]
        self.synced = content
        left = set(self.ids())
        return [number for number in before if number not in left]
