"""An owner's frames, and which answers it believes (PROTOCOL §4.4, §5.3)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmqtt.core.states import WriterState
from agentmqtt.core.writer import DOUBTS
from agentmqtt.frames import Frame, Why
from agentmqtt.types import ORIGIN, Entry, Position
from tests.core import make
from tests.core.make import (
    DISK_B,
    END,
    FRESH,
    INC,
    OTHER,
    ack,
    at,
    emit,
    grant,
    owning,
    texts,
)

# ---- frames (§4.4)


def spans(frames: list[Frame]) -> list[tuple[int, int]]:
    return [(frame.first, frame.last) for frame in frames]


def test_nothing_goes_out_before_it_is_on_disk() -> None:
    made = owning()
    rows = [made.append(texts(1), 10, 0) for _ in range(3)]
    assert made.pump() == []
    made.committed(rows[1].seq)
    made.committed(rows[0].seq)
    assert spans(made.pump()) == [(1, 2)]
    assert made.pump() == []


def test_a_full_window_makes_larger_frames() -> None:
    made = owning(window=2, limit=30)
    sent = []
    for n in range(1, 8):
        emit(made, *texts(1, n))
        sent += spans(made.pump())
    assert sent == [(1, 1), (2, 2)]
    made.on_ack(ack("1.1"), *FRESH)
    assert spans(made.pump()) == [(3, 5)]
    made.on_ack(ack("1.5"), *FRESH)
    assert spans(made.pump()) == [(6, 7)]


def test_a_group_is_never_split() -> None:
    made = owning(limit=30)
    made.committed(made.append(texts(4), 100, 0).seq)
    made.committed(made.append(texts(2), 20, 0).seq)
    assert spans(made.pump()) == [(1, 4), (5, 6)]


def test_seqs_with_holes_are_sent_once() -> None:
    made = owning(limit=10)
    for n in range(5):
        emit(made, make.receipt(f"c{n}") if n % 2 else texts(1)[0])
    made.withdraw(ORIGIN, b"cut")
    made.on_grant(grant(made, 2))
    emit(made, *texts(1))
    assert [row.seq for row in made.outbox.rows] == [2, 4, 6]
    assert spans(made.pump()) == [(1, 1), (2, 2), (3, 3)]


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 40), st.sampled_from(["", "pump", "ack"])), max_size=30))
def test_every_event_is_sent_once_in_order_and_in_bounds(steps: list[tuple[int, int, str]]) -> None:
    made, sent, flight, stored = owning(window=3, limit=50), list[Frame](), 0, 0
    sizes = {}
    for count, size, then in steps:
        row = made.append(texts(count, made.outbox.top + 1), size, 0)
        made.committed(row.seq)
        sizes[row.first] = size
        if then == "pump":
            frames = made.pump()
            sent += frames
            flight += len(frames)
            assert flight <= 3
        elif then == "ack" and flight:
            flight -= 1
            stored = sent[len(sent) - flight - 1].last
            made.on_ack(ack(f"1.{stored}"), *FRESH)
    entries = [entry for frame in sent for entry in frame.entries]
    assert tuple(entries) == texts(len(entries))
    assert made.stored == (Position(1, stored) if stored else ORIGIN)
    for frame in sent:
        inside = [size for first, size in sizes.items() if frame.first <= first <= frame.last]
        assert sum(inside) <= 50


# ---- again (§5.3, rule 6)


def test_sending_again_begins_at_the_first_row_without_receipt_and_softly() -> None:
    made = owning(window=16, limit=10)
    emit(made, *texts(8))
    assert len(made.pump()) == 8
    made.on_ack(ack("1.3"), *FRESH)
    assert spans(made.resend()) == [(4, 4), (5, 5)]
    made.on_ack(ack("1.5"), *FRESH)
    assert len(made.pump()) == 3


def test_without_rows_a_probe_asks() -> None:
    made = owning()
    emit(made, *texts(2))
    made.pump()
    made.on_ack(ack("1.2"), *FRESH)
    assert made.resend(probe=False) == []
    assert [(frame.first, frame.entries) for frame in made.resend()] == [(3, ())]


def test_a_receipt_that_is_told_again_changes_nothing() -> None:
    made = owning()
    emit(made, *texts(2))
    made.pump()
    assert made.on_ack(ack("1.2"), *FRESH) is not None
    for why in (None, Why.ENDED):
        assert made.on_ack(ack("1.2", why), *FRESH) is None
    assert (made.owned, made.pump(), made.stored) == (True, [], at("1.2"))


def test_one_gap_is_one_reason_to_send_again() -> None:
    made = owning(limit=10)
    emit(made, *texts(3))
    made.pump()
    made.on_ack(ack("1.1", Why.GAP), *FRESH)
    assert made.pump() == []  # it was a receipt too
    made.on_ack(ack("1.1", Why.GAP), *FRESH)
    assert spans(made.pump()) == [(2, 2), (3, 3)]
    made.on_ack(ack("1.1", Why.GAP), *FRESH)
    assert made.pump() == []


def test_a_gap_below_the_outbox_is_believed_when_it_is_told_again_and_again() -> None:
    made = owning()
    emit(made, *texts(3))
    made.pump()
    made.on_ack(ack("1.2"), *FRESH)
    for _ in range(DOUBTS - 1):
        made.on_ack(ack("1.1", Why.GAP), *FRESH)
    made.on_ack(ack("1.3"), *FRESH)
    for _ in range(DOUBTS - 1):
        made.on_ack(ack("1.1", Why.GAP), *FRESH)
    assert made.state is WriterState.OWNING
    made.on_ack(ack("1.1", Why.GAP), *FRESH)
    assert made.state is WriterState.RECLAIMING


# ---- what it believes (§5.3, rule 5)


def test_a_receipt_for_more_than_was_sent_is_a_disk_that_was_set_back() -> None:
    made = owning()
    assert made.on_ack(ack("1.5"), *FRESH) is None
    assert (made.state, made.claim(1).replaces) == (WriterState.RECLAIMING, 1)


def test_an_older_epoch_is_late_news_unless_it_is_all_that_the_journal_knows() -> None:
    made = owning(3)
    made.on_ack(ack("2.7"), *FRESH)
    assert made.owned
    for _ in range(DOUBTS):  # one may be about a frame of long ago
        assert made.owned
        made.on_ack(ack("2.7", Why.VOID), *FRESH)
    assert (made.state, made.claim(1).mine, made.claim(1).replaces) == (WriterState.RECLAIMING, 3, 3)


def test_another_incarnation_is_asked_with_its_epoch_and_gets_the_outbox() -> None:
    made = owning(3)
    emit(made, *texts(2))
    made.on_ack(ack("5.0", Why.VOID, OTHER), *FRESH)
    assert (made.claim(1).mine, made.claim(1).replaces, made.claim(1).inc) == (3, 5, INC)
    made.on_grant(grant(made, 6, inc=OTHER))
    assert [(frame.inc, frame.epoch, frame.first) for frame in made.pump()] == [(OTHER, 6, 1)]


def test_a_fenced_owner_says_how_much_it_left() -> None:
    made = owning()
    made.committed(made.append(texts(3), 10, 0).seq)
    save = made.on_ack(ack("2.0"), *FRESH)
    assert save is not None
    assert (save.sync, len(save.gone), save.header.instance, save.header.epoch) == (True, 1, DISK_B, 0)
    assert (made.left_unsent, made.drained, made.finished) == (3, True, True)


@pytest.mark.parametrize(
    ("status", "state"),
    [
        (make.status("1.0", inc=b""), WriterState.OWNING),
        (make.status("1.0"), WriterState.OWNING),
        (make.status("2.0", epoch=2), WriterState.FENCED),
        (make.status("1.0", inc=OTHER), WriterState.RECLAIMING),
    ],
)
def test_an_owner_reads_the_status_too(status: Any, state: WriterState) -> None:
    made = owning()
    made.on_status(status, *FRESH)
    assert made.state is state


@pytest.mark.parametrize(("data", "ended"), [({"outcome": "done", "result": 42}, 42), ({"outcome": "done"}, None)])
def test_a_stored_end_is_the_outcome(data: Any, ended: Any) -> None:
    made = owning()
    emit(made, *texts(1), Entry(END.type, data))
    made.pump()
    made.on_ack(ack("1.1"), *FRESH)
    assert made.ended is None
    made.on_ack(ack("1.2"), *FRESH)
    assert made.ended == ("done", ended)
