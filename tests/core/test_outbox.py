"""Rows and their numbers (PROTOCOL §5.3, rules 2 to 4)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmqtt.core.outbox import ATTEMPT, Header, Intent, Outbox, Row
from agentmqtt.types import ORIGIN, Entry, Position
from tests import strategies
from tests.core import make
from tests.core.make import DISK_A, INC, at, receipt, texts

HEADERS = st.builds(
    Header,
    instance=strategies.IDS,
    inc=strategies.INCS,
    epoch=strategies.COUNTS,
    parent=strategies.POSITIONS,
    base=strategies.COUNTS,
    numbered=strategies.COUNTS,
    intent=st.none() | st.just(ATTEMPT) | strategies.POSITIONS,
    upto=strategies.COUNTS,
    life=strategies.COUNTS,
)


@given(HEADERS)
def test_a_header_comes_back_from_its_record(header: Header) -> None:
    assert Header.unpack(make.through_disk(header.pack())) == header


def row(seq: int, *entries: Entry, first: int = 0, size: int = 10) -> Row:
    return Row(seq, make.NOW, entries or texts(1), size, first)


def owned(*groups: tuple[Entry, ...]) -> Outbox:
    """An outbox whose groups were all emitted in epoch 1."""
    box = Outbox(Header(DISK_A, INC, 1))
    for group in groups:
        box.append(group, 10, make.NOW, owned=True)
    return box


def places(box: Outbox) -> list[tuple[int, int]]:
    return [(row.first, row.last) for row in box.rows]


def seqs(rows: list[Row]) -> list[int]:
    return [row.seq for row in rows]


def withdraw(box: Outbox, intent: Intent = ATTEMPT) -> tuple[list[Row], list[Row]]:
    box.header.intent, box.header.upto = intent, box.next_seq - 1
    return box.drop_withdrawn()


# ---- numbers


def test_rows_before_the_grant_have_no_numbers() -> None:
    box = Outbox(Header(DISK_A))
    box.append(texts(2), 10, make.NOW, owned=False)
    box.append(texts(1), 10, make.NOW, owned=False)
    assert [row.first for row in box.rows] == [0, 0]
    assert box.top == 0
    assert box.drop_stored(99) == []
    box.renumber(INC, 4, at("3.1"))
    assert places(box) == [(1, 2), (3, 3)]
    assert (box.top, box.header.epoch, box.header.parent) == (3, 4, at("3.1"))


def test_a_group_leaves_only_when_it_is_stored_whole() -> None:
    box = owned(texts(2), texts(3), texts(1))
    assert seqs(box.drop_stored(4)) == [1]
    assert (box.header.base, box.top, box.events, box.bytes) == (2, 6, 4, 20)
    assert seqs(box.drop_stored(6)) == [2, 3]
    assert (box.header.base, box.top) == (6, 6)
    assert box.append(texts(1), 10, make.NOW, owned=True).first == 7


def test_a_process_that_comes_back_counts_where_the_last_one_was() -> None:
    header = Header(DISK_A, INC, 2, at("1.4"), base=5, numbered=11)
    box = Outbox(header, [row(10, *texts(2)), row(11), row(12, first=9), row(13)])
    assert places(box) == [(6, 7), (8, 8), (9, 9), (0, 0)]
    assert box.top == 9
    assert seqs(box.drop_stored(99)) == [10, 11, 12]
    assert (box.next_seq, box.events, box.bytes) == (14, 1, 10)


@pytest.mark.parametrize(
    ("header", "rows", "following"),
    [
        (Header(DISK_A), [], 1),
        (Header(DISK_A, numbered=7), [], 8),
        (Header(DISK_A, numbered=7, upto=9), [], 10),
        (Header(DISK_A, numbered=7, upto=9), [row(12)], 13),
    ],
)
def test_a_seq_is_never_used_again(header: Header, rows: list[Row], following: int) -> None:
    assert Outbox(header, rows).next_seq == following


# ---- withdraw and release


def test_a_withdraw_leaves_receipts_and_what_came_after_it() -> None:
    box = owned(texts(1), (*texts(2), receipt("c1")), (receipt("c2"),))
    box.header.intent, box.header.upto = ATTEMPT, box.next_seq - 1
    box.append(texts(1), 10, make.NOW, owned=True)
    gone, changed = box.drop_withdrawn()
    assert seqs(gone) == [1]
    assert seqs(changed) == [2]
    assert [row.entries for row in box.rows] == [(receipt("c1"),), (receipt("c2"),), texts(1)]
    box.renumber(INC, 2, ORIGIN)
    assert places(box) == [(1, 1), (2, 2), (3, 3)]
    assert (box.events, box.bytes, box.header.numbered) == (3, 30, 4)


@pytest.mark.parametrize("last", [make.END, make.RELEASE])
def test_nothing_follows_the_last_word_unless_it_is_withdrawn(last: Entry) -> None:
    box = owned(texts(1), (last,))
    assert box.sealed
    box.drop_stored(2)
    assert box.sealed
    box.renumber(INC, 2, ORIGIN)
    assert not box.sealed


def test_a_withdrawn_end_opens_the_outbox() -> None:
    box = owned(texts(1), (make.END,))
    assert withdraw(box, ORIGIN)[0]
    box.renumber(INC, 2, ORIGIN)
    assert not box.sealed


def test_an_inherited_end_seals_and_an_inherited_release_does_not() -> None:
    assert Outbox(Header(DISK_A), [row(1, make.END)]).sealed
    box = Outbox(Header(DISK_A), [row(1), row(2, make.RELEASE)])
    assert not box.sealed
    box.append((make.RELEASE,), 10, make.NOW, owned=False)
    assert seqs(box.drop_released()) == [2]
    assert seqs(list(box.rows)) == [1, 3]
    assert box.drop_released() == []
    assert (box.sealed, box.events) == (True, 2)


def test_setting_it_aside_leaves_nothing() -> None:
    box = Outbox(Header(DISK_A), [row(1), row(2, receipt("c1")), row(3, make.END)])
    waiting = box.receipted
    assert waiting == {"c1": None}
    assert seqs(box.drop_all()) == [1, 2, 3]
    assert (box.sealed, box.events, box.bytes, box.top) == (False, 0, 0, 0)
    assert waiting == {}
    assert box.next_seq == 4


# ---- any order of things


class Driven:
    """An outbox beside what a journal would have stored; every step keeps the invariants."""

    def __init__(self) -> None:
        self.box = Outbox(Header(DISK_A))
        self.owned = False
        self.emitted = 0

    def step(self, what: str, size: int) -> None:
        before = self.box.top
        match what:
            case "append":
                self.emitted += 1
                self.box.append(texts(size), size * 7, make.NOW, owned=self.owned)
            case "receipt":
                self.box.append((*texts(size - 1), receipt(f"c{self.emitted}")), size * 7, make.NOW, owned=self.owned)
            case "stored":
                rows = [row.seq for row in self.box.rows if row.first and row.last <= before - size + 1]
                assert seqs(self.box.drop_stored(before - size + 1)) == rows
                assert self.box.top == before
            case "grant":
                self.box.renumber(INC, self.box.header.epoch + 1, ORIGIN)
                self.owned = True
                assert all(row.first for row in self.box.rows)
            case "withdraw":
                withdraw(self.box)
                assert all(row.receipts == row.entries for row in self.box.rows)
                self.box.renumber(INC, self.box.header.epoch + 1, ORIGIN)
                self.owned = True
            case "restart":
                self.restart()

    def restart(self) -> None:
        box = self.box
        header = Header.unpack(make.through_disk(box.header.pack()))
        self.box = Outbox(header, [Row(row.seq, row.time, row.entries, row.size, row.first) for row in box.rows])
        assert self.box.rows == box.rows
        assert (self.box.top, self.box.events, self.box.bytes) == (box.top, box.events, box.bytes)
        self.owned = False

    def check(self) -> None:
        box, following = self.box, self.box.header.base + 1
        rows = list(box.rows)
        assert seqs(rows) == sorted(set(seqs(rows)))
        assert all(row.seq < box.next_seq for row in rows)
        assert box.events == sum(len(row.entries) for row in rows)
        assert box.bytes == sum(row.size for row in rows)
        numbered = [row for row in rows if row.first]
        assert rows[: len(numbered)] == numbered
        for row in numbered:
            assert row.first == following
            following = row.last + 1
        assert box.top == following - 1


STEPS = st.sampled_from(["append", "append", "receipt", "stored", "grant", "withdraw", "restart"])


@given(st.lists(st.tuples(STEPS, st.integers(1, 3)), max_size=25))
def test_numbers_stay_dense_whatever_happens(steps: list[tuple[str, int]]) -> None:
    driven = Driven()
    for what, size in steps:
        driven.step(what, size)
        driven.check()


def test_an_intent_is_kept_as_position_or_word() -> None:
    for intent in (Position(3, 4), ATTEMPT, None):
        assert Header.unpack(Header(DISK_A, intent=intent).pack()).intent == intent
