"""Pages against the list of events that they stand for (PROTOCOL §6.4)."""

from __future__ import annotations

from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmqtt.core.pages import LogRow, compact
from agentmqtt.frames import Item
from agentmqtt.types import ORIGIN, Entry, Position, Value
from tests.core.make import at

BIG = 10**9
ENTRIES = st.one_of(
    st.text("ab", max_size=3).map(lambda data: Entry("text", data)),
    st.sampled_from([Entry("text", 7), Entry("tool", "x"), Entry("tool", None)]),
)
LOGS = st.lists(st.tuples(st.booleans(), st.lists(ENTRIES, min_size=1, max_size=4)), max_size=8)


def size(entry: Entry) -> int:
    return len(entry.type) + len(str(entry.data))


def stored(rows: list[tuple[bool, list[Entry]]]) -> list[LogRow]:
    """Rows of a log; True begins another epoch."""
    made: list[LogRow] = []
    epoch, first = 1, 1
    for time, (newer, entries) in enumerate(rows):
        epoch, first = (epoch + 1, 1) if newer else (epoch, first)
        made.append(LogRow(epoch, first, time, tuple(entries)))
        first += len(entries)
    return made


def events(rows: list[LogRow]) -> list[tuple[Position, int, Entry]]:
    return [
        (Position(row.epoch, row.first + n), row.time, entry) for row in rows for n, entry in enumerate(row.entries)
    ]


def naive(rows: list[LogRow]) -> tuple[Item, ...]:
    """Everything, by grouping neighbours of one epoch that are text."""
    made: list[Item] = []
    numbered = list(enumerate(events(rows)))
    for _, group in groupby(numbered, lambda one: _merges(one[0], one[1])):
        parts = [part for _, part in group]
        (epoch, first), time, entry = parts[0]
        data = "".join(part[2].data for part in parts) if len(parts) > 1 else entry.data
        made.append(Item(epoch, first, len(parts), time, entry.type, data))
    return tuple(made)


def _merges(index: int, event: tuple[Position, int, Entry]) -> Value:
    place, _, entry = event
    return place.epoch if entry.type == "text" and isinstance(entry.data, str) else (place.epoch, index)


@given(LOGS)
def test_merges_every_run_of_text_and_nothing_else(log: list[tuple[bool, list[Entry]]]) -> None:
    rows = stored(log)
    assert compact(rows, ORIGIN, Position(BIG, 0), BIG, size) == naive(rows)


@given(LOGS, st.integers(0, 60), st.data())
def test_a_bounded_page_is_the_merged_beginning(
    log: list[tuple[bool, list[Entry]]], limit: int, data: st.DataObject
) -> None:
    rows = stored(log)
    places = [ORIGIN, *(place for place, _, _ in events(rows))]
    start, tail = sorted([data.draw(st.sampled_from(places)), data.draw(st.sampled_from(places))])
    page = compact(rows, start, tail, limit, size)
    wanted = [event for event in events(rows) if start < event[0] <= tail]
    taken = wanted[: sum(item.span for item in page)]
    assert page == naive([LogRow(*place, time, (entry,)) for place, time, entry in taken])
    assert bool(page) == bool(wanted)
    if len(taken) > 1:
        assert sum(size(entry) + 8 for _, _, entry in taken) <= limit
    if len(taken) < len(wanted):
        assert sum(size(entry) + 8 for _, _, entry in wanted[: len(taken) + 1]) > limit


@given(LOGS, st.integers(0, 40))
def test_pages_in_a_row_are_the_log(log: list[tuple[bool, list[Entry]]], limit: int) -> None:
    rows, start, spans, texts = stored(log), ORIGIN, 0, ""
    while page := compact(rows, start, Position(BIG, 0), limit, size):
        start = Position(page[-1].epoch, page[-1].first + page[-1].span - 1)
        spans += sum(item.span for item in page)
        texts += "".join(str(item.data) for item in page)
    assert spans == len(events(rows))
    assert texts == "".join(str(entry.data) for _, _, entry in events(rows))


def test_one_event_above_the_limit_comes_alone() -> None:
    rows = [LogRow(1, 1, 0, (Entry("text", "a" * 50), Entry("text", "b")))]
    assert compact(rows, ORIGIN, at("1.2"), 10, size) == (Item(1, 1, 1, 0, "text", "a" * 50),)


@pytest.mark.parametrize(
    ("rows", "spans"),
    [
        ([LogRow(1, 1, 0, (Entry("text", "a"),)), LogRow(2, 1, 0, (Entry("text", "b"),))], [1, 1]),
        ([LogRow(1, 1, 0, (Entry("text", "a"),)), LogRow(1, 3, 0, (Entry("text", "b"),))], [1, 1]),
        ([LogRow(1, 1, 0, (Entry("text", "a"), Entry("text", 1), Entry("text", "b")))], [1, 1, 1]),
        ([LogRow(1, 1, 5, (Entry("text", "a"),)), LogRow(1, 2, 9, (Entry("text", "b"),))], [2]),
    ],
    ids=["two epochs", "a number is missing", "data that is no text", "two rows"],
)
def test_what_is_merged(rows: list[LogRow], spans: list[int]) -> None:
    page = compact(rows, ORIGIN, at("9.9"), BIG, size)
    assert [item.span for item in page] == spans
    assert page[0].time == rows[0].time
