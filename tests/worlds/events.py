"""Events that can be told apart: every one carries a number of its own."""

from __future__ import annotations

from agentmqtt.types import Entry, Value


def text(number: int) -> Entry:
    """An event that may be merged with its neighbours on replay."""
    return Entry("text", f"{number};")


def tagged(entry: Entry, number: int) -> Entry:
    """The same event with its number in it."""
    return Entry(entry.type, {**entry.data, "i": number})


def note(kind: str, number: int, **fields: Value) -> Entry:
    return Entry(kind, {"i": number, **fields})


def numbers(kind: str, data: Value) -> tuple[int, ...]:
    """The numbers in an event as somebody got it."""
    if kind == "text":
        return tuple(map(int, data[:-1].split(";")))
    return (data["i"],)


def numbers_of(entries: tuple[Entry, ...]) -> tuple[int, ...]:
    return tuple(number for entry in entries for number in numbers(entry.type, entry.data))
