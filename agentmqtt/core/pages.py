"""Stored rows as a reader gets them: compacted, bounded, from just after its cursor (PROTOCOL §6.4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from agentmqtt.frames import Item
from agentmqtt.types import Entry, Position

TEXT: Final = "text"


class LogRow(NamedTuple):
    """Events `first`… of `epoch`, as they were stored."""

    epoch: int
    first: int
    time: int
    entries: tuple[Entry, ...]


def compact(
    rows: Iterable[LogRow], start: Position, tail: Position, limit: int, size: Callable[[Entry], int]
) -> tuple[Item, ...]:
    """Items after `start` up to `tail`, at most `limit` bytes but at least one.

    Consecutive `text` events of one epoch become one item with their span. `size` gives an entry's
    bytes on the wire.
    """
    page: list[Item] = []
    texts: list[str] = []
    room = limit
    for item in _items(rows, start, tail):
        room -= size(Entry(item.type, item.data)) + 8
        if page and room < 0:
            break
        if page and _joins(page[-1], item):
            texts.append(item.data)
            page[-1] = page[-1]._replace(span=page[-1].span + 1)
            continue
        _close(page, texts)
        page.append(item)
        texts = [item.data] if item.type == TEXT and isinstance(item.data, str) else []
    _close(page, texts)
    return tuple(page)


def _items(rows: Iterable[LogRow], start: Position, tail: Position) -> Iterator[Item]:
    for row in rows:
        for n, entry in enumerate(row.entries, row.first):
            if start < (row.epoch, n) <= tail:
                yield Item(row.epoch, n, 1, row.time, entry.type, entry.data)


def _joins(before: Item, item: Item) -> bool:
    together = before.epoch == item.epoch and before.first + before.span == item.first
    both = before.type == item.type == TEXT and isinstance(before.data, str) and isinstance(item.data, str)
    return together and both


def _close(page: list[Item], texts: list[str]) -> None:
    if len(texts) > 1:
        page[-1] = page[-1]._replace(data="".join(texts))
