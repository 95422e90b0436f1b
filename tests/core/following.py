"""Words for what a reader does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agentmqtt.core.reader import Delivered, Reader
from agentmqtt.frames import Frame, Item
from agentmqtt.types import Event, Gap, Rewound
from tests.core.make import WF, at, frame, items, page, texts


def say(thing: Delivered) -> str:
    match thing:
        case Event(cursor, span=1):
            return str(cursor)
        case Event(cursor, span=span):
            return f"{cursor} x{span}"
        case Gap(cursor, reason):
            return f"{reason} {cursor}"
        case Rewound(cursor):
            return f"back {cursor}"


def taken(reader: Reader) -> Iterator[Delivered]:
    """What waits for the application, until nothing does."""
    while (thing := reader.take()) is not None:
        yield thing


def shown(reader: Reader) -> list[str]:
    """What the application takes now."""
    return [say(thing) for thing in taken(reader)]


def reply(reader: Reader, *those: Item, **changes: Any) -> None:
    """The reader asks, and a page answers."""
    asked = reader.fetch()
    assert asked is not None
    reader.on_page(page(asked.request, str(asked.position), those, **changes))


def fresh(**options: Any) -> Reader:
    return Reader(WF, **options)


def following(**options: Any) -> Reader:
    """It took 1.1 to 1.3 one by one, and is live."""
    reader = fresh(**options)
    reply(reader, *items(1, 1, 3))
    assert shown(reader) == ["1.1", "1.2", "1.3"]
    assert not reader.behind
    return reader


def second(first: int, count: int, parent: str = "1.3") -> Frame:
    return frame(f"2.{first}", texts(count), parent=at(parent))
