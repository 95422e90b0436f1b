"""The seam between state and disk: ordered records, written by one group-commit writer."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias

MAX = 2**63 - 1


class Key(NamedTuple):
    """Place of a record inside its space, ordered by name (code points of UTF-8), then `a`, then `b`."""

    name: str
    a: int = 0
    b: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Put:
    """Write a record, replacing what was there."""

    space: str
    key: Key
    body: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class Delete:
    """Remove every record with `first <= key <= last`."""

    space: str
    first: Key
    last: Key


Write: TypeAlias = Put | Delete
Done: TypeAlias = Callable[[Exception | None], None]


class Store(Protocol):
    """Ordered records in named spaces. Every space exists as soon as it is named.

    Writes take effect in the order of `submit`, all of one call or none. What survives a crash is
    always a prefix of the submitted calls.

    A commit that fails undoes itself and fails every call submitted before its `done` was told, so
    nothing is written that builds on what is not there. Calls made from then on are tried again.
    """

    replaced: Path | None
    """Where a damaged or foreign file was put when this one took its place."""

    def submit(self, writes: Sequence[Write], done: Done | None = None, *, sync: bool = True) -> None:
        """Queue writes for the next commit; everything that waits becomes one transaction.

        `done` runs on the event loop, in order of submission, after the commit: with None, or with
        the StoreError that undid it. `sync=True` waits for the disk (fsync); without it the write
        survives kill -9 but perhaps not power loss. An empty `writes` is a barrier.
        """
        ...

    async def scan(
        self, space: str, first: Key, last: Key, *, limit: int | None = None, max_bytes: int | None = None
    ) -> list[tuple[Key, bytes]]:
        """Committed records with `first <= key <= last` in order; at least one if there is any.

        Stops after `limit` records or as soon as `max_bytes` of bodies are exceeded.
        """
        ...

    async def size(self) -> int:
        """Bytes in use on disk (in memory: bytes of bodies)."""
        ...

    async def close(self) -> None:
        """Commit what waits, then release the file."""
        ...
