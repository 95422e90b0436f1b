"""Changes that wait for the disk: one per record, the last one counts."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from agentmqtt.store.base import Delete, Key, Put, Write

_OVERHEAD = 200
"""Bytes of memory that a change costs beside its record."""

Place: TypeAlias = tuple[str, Key]


class _Change(NamedTuple):
    """`body` is None for a record that goes. `born` ones are not on disk: if they go again, nothing is written."""

    body: bytes | None
    born: bool


class Pad:
    """Changes by record. `size` is about the memory they take."""

    def __init__(self) -> None:
        self._changes: dict[Place, _Change] = {}
        self.size = 0

    def __bool__(self) -> bool:
        return bool(self._changes)

    def create(self, space: str, key: Key, body: bytes) -> None:
        """A record that is not on disk, as far as it is not on this pad."""
        self._set((space, key), body, born=True)

    def put(self, space: str, key: Key, body: bytes) -> None:
        self._set((space, key), body, born=False)

    def delete(self, space: str, key: Key) -> None:
        self._set((space, key), None, born=False)

    def _set(self, place: Place, body: bytes | None, *, born: bool) -> None:
        old = self._changes.pop(place, None)
        if old is not None:
            born = old.born
            self.size -= _size(old)
        if body is not None or not born:
            change = self._changes[place] = _Change(body, born)
            self.size += _size(change)

    def over(self, space: str, key: Key, stored: bytes | None) -> bytes | None:
        """What becomes of a record."""
        change = self._changes.get((space, key))
        return stored if change is None else change.body

    def writes(self) -> list[Write]:
        """What a store has to do."""
        return [
            Put(space, key, change.body) if change.body is not None else Delete(space, key, key)
            for (space, key), change in self._changes.items()
        ]

    def after(self, earlier: Pad) -> None:
        """`earlier` was not written after all: its changes come before these."""
        changes, self._changes, self.size = self._changes, earlier._changes, earlier.size
        for place, change in changes.items():
            self._set(place, change.body, born=change.born)


def _size(change: _Change) -> int:
    return len(change.body or b"") + _OVERHEAD
