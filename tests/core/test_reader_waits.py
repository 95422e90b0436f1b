"""What a watcher holds back: unread, unstored or merged events, and the way back over them (PROTOCOL §6.2 to §6.6)."""

from __future__ import annotations

from typing import Any

import pytest

from agentmqtt.core.reader import REMEMBERED, Reader, Saved
from agentmqtt.frames import Fetch, PageKind, Why
from agentmqtt.types import ORIGIN
from tests.core.following import following, fresh, reply, say, second, shown
from tests.core.make import INC, OTHER, WF, ack, at, frame, item, items, page, status, texts

# ---- merged events (§6.4)


def merged(**options: Any) -> Reader:
    """It took 1.1, then 1.2 to 1.4 as one event, then 1.5."""
    reader = fresh(**options)
    reply(reader, item("1.1"), item("1.2", span=3), item("1.5"))
    assert shown(reader) == ["1.1", "1.4 x3", "1.5"]
    return reader


@pytest.mark.parametrize(
    ("fork", "back"), [("1.4", "1.4"), ("1.3", "1.1"), ("1.2", "1.1"), ("1.1", "1.1"), ("0.0", "0.0")]
)
def test_a_merged_event_is_never_split(fork: str, back: str) -> None:
    reader = merged()
    reader.on_status(status(fork, epoch=2, parent=at(fork)))
    assert shown(reader) == [f"back {back}"]
    assert reader.behind == (fork != back)
    assert reader.position == at(back)


def test_what_was_merged_in_an_earlier_life_comes_again_from_the_beginning() -> None:
    reader = Reader(WF, merged().saved)
    reader.on_status(status("1.4", epoch=2, parent=at("1.4")))
    assert shown(reader) == ["back 0.0"]


def test_of_many_merged_events_only_the_last_are_known() -> None:
    reader = fresh()
    reply(reader, *(item(f"1.{2 * n + 1}", span=2) for n in range(REMEMBERED + 1)))
    shown(reader)
    reader.on_status(status("1.3", epoch=2, parent=at("1.3")))
    assert shown(reader) == ["back 1.2"]
    reader.on_status(status("1.1", epoch=3, parent=at("1.1")))
    assert shown(reader) == ["back 0.0"]


# ---- the fork (§6.2)


def test_what_was_not_taken_is_withdrawn_silently() -> None:
    reader = following()
    reader.on_frame(frame("1.4", texts(3)))
    assert say(reader.take() or pytest.fail("empty")) == "1.4"
    reader.on_frame(second(1, 1, "1.4"))
    assert shown(reader) == ["2.1"]


def test_a_gap_that_was_not_taken_is_asked_for_again() -> None:
    reader = following()
    reader.behind = True
    reply(reader, *items(1, 8, 9), kind=PageKind.TRIMMED, start=at("1.7"))
    reader.on_status(status("1.5", epoch=2, parent=at("1.5")))
    assert (shown(reader), reader.behind, reader.position) == ([], True, at("1.3"))


def test_a_gap_behind_events_that_were_not_taken() -> None:
    reader = following()
    reader.on_frame(frame("1.4", texts(1)))
    reader.behind = True
    reply(reader, *items(1, 8, 9), kind=PageKind.TRIMMED, start=at("1.7"))
    reader.on_status(status("1.5", epoch=2, parent=at("1.5")))
    assert (shown(reader), reader.behind, reader.position) == (["1.4"], True, at("1.4"))


def test_the_saved_place_moves_with_what_is_taken_and_what_is_known() -> None:
    reader = following()
    reader.on_frame(frame("1.4", texts(1)))
    assert reader.saved == Saved(INC, at("1.3"), 1, ORIGIN)
    reader.on_status(status("1.4", epoch=2, parent=at("1.4")))
    assert reader.saved == Saved(INC, at("1.3"), 2, at("1.4"))
    reader.take()
    assert reader.saved == Saved(INC, at("1.4"), 2, at("1.4"))


def test_a_saved_place_behind_its_fork_goes_back_at_once() -> None:
    reader = Reader(WF, Saved(INC, at("1.5"), 2, at("1.3")))
    assert shown(reader) == ["back 0.0"]
    assert reader.fetch() == Fetch(1, WF, INC, ORIGIN)


def test_a_place_of_the_old_incarnation_is_saved_without_the_new_fork() -> None:
    reader = following()
    reader.on_frame(frame("1.4", texts(1)))
    reader.behind = True
    asked = reader.fetch()
    assert asked is not None
    late = reader.buffer[0]
    reader.on_page(page(asked.request, "1.4", (), kind=PageKind.RESET, inc=OTHER, start=ORIGIN, epoch=7))
    reader.buffer.appendleft(late)
    reader.take()
    assert reader.saved == Saved(INC, at("1.4"))


# ---- frames while a page is under way


def test_frames_wait_for_the_page() -> None:
    reader = fresh()
    asked = reader.fetch()
    assert asked is not None
    reader.on_frame(frame("1.4", texts(1)))
    reader.on_frame(frame("1.3", texts(1)))
    assert shown(reader) == []
    reader.on_page(page(asked.request, "0.0", items(1, 1, 3)))
    assert (shown(reader), reader.behind) == (["1.1", "1.2", "1.3", "1.4"], False)


def test_only_so_many_frames_wait() -> None:
    reader = fresh(held_limit=2)
    asked = reader.fetch()
    assert asked is not None
    for n in (4, 5, 6):
        reader.on_frame(frame(f"1.{n}", texts(1)))
    reader.on_page(page(asked.request, "0.0", items(1, 1, 3)))
    assert (shown(reader), reader.behind) == (["1.1", "1.2", "1.3"], True)


# ---- stored readers (§6.5)


def test_a_stored_reader_shows_what_is_receipted() -> None:
    reader = following(stored=True)
    reader.on_frame(frame("1.4", texts(2)))
    reader.on_frame(frame("1.6", texts(1)))
    assert shown(reader) == []
    reader.on_ack(ack("1.5"))
    assert (shown(reader), reader.behind) == (["1.4", "1.5"], False)
    reader.on_ack(ack("1.6"))
    assert (shown(reader), reader.behind) == (["1.6"], False)


def test_a_receipt_inside_of_a_frame_leaves_a_stored_reader_behind() -> None:
    reader = following(stored=True)
    reader.on_frame(frame("1.4", texts(2)))
    reader.on_ack(ack("1.4"))
    assert (shown(reader), reader.behind) == ([], True)


def test_a_receipt_without_its_frame_leaves_a_stored_reader_behind() -> None:
    reader = following(stored=True)
    reader.on_ack(ack("1.3"))
    assert not reader.behind
    reader.on_ack(ack("2.0"))
    assert not reader.behind
    reader.on_ack(ack("1.4"))
    assert reader.behind


def test_a_receipt_of_another_incarnation_leaves_a_stored_reader_behind() -> None:
    reader = following(stored=True)
    reader.on_ack(ack("1.9", Why.VOID, OTHER))
    assert reader.behind


def test_receipts_and_frames_of_older_epochs_are_void() -> None:
    reader = following(stored=True)
    reader.on_frame(frame("1.4", texts(1)))
    reader.on_frame(second(1, 1))
    reader.on_ack(ack("2.1"))
    reader.on_ack(ack("1.4"))
    reader.probe()
    reader.on_page(page(2, "1.3", items(2, 1, 1), epoch=2, parent=at("1.3")))
    reader.on_ack(ack("2.1"))
    assert (shown(reader), reader.behind) == (["2.1"], False)


def test_a_receipt_waits_for_the_page_too() -> None:
    reader = following(stored=True)
    reader.probe()
    reader.on_frame(frame("1.4", texts(1)))
    reader.on_frame(frame("1.9", texts(1), inc=OTHER))
    reader.on_ack(ack("1.4"))
    assert shown(reader) == []
    reader.on_page(page(2, "1.3"))
    assert (shown(reader), reader.behind) == (["1.4"], False)


def test_a_stored_reader_asks_about_another_incarnation() -> None:
    reader = following(stored=True)
    reader.on_frame(frame("1.1", texts(1), inc=OTHER))
    assert (shown(reader), reader.behind) == ([], True)


def test_a_live_reader_needs_no_receipt() -> None:
    reader = following()
    reader.on_ack(ack("1.9"))
    assert not reader.behind


# ---- slow readers (§6.6)


def test_a_slow_reader_leaves_live_mode_until_half_of_its_buffer_is_free() -> None:
    reader = following(capacity=4)
    reader.on_frame(frame("1.4", texts(3)))
    reader.on_frame(frame("1.7", texts(3)))
    assert (len(reader.buffer), reader.behind, reader.position) == (4, True, at("1.7"))
    reader.take()
    assert reader.fetch() is None
    reader.take()
    assert reader.fetch() == Fetch(2, WF, INC, at("1.7"))
    reader.on_page(page(2, "1.7", items(1, 8, 12)))
    assert (len(reader.buffer), reader.behind) == (4, True)
    assert shown(reader) == ["1.6", "1.7", "1.8", "1.9"]
    reply(reader, *items(1, 10, 12))
    assert (shown(reader), reader.behind) == (["1.10", "1.11", "1.12"], False)


# ---- a first visit at the end


def test_a_visit_at_the_end_begins_at_the_tail() -> None:
    reader = fresh(at_end=True)
    reader.on_status(status("1.9"))
    asked = reader.fetch()
    assert asked is not None
    assert asked.limit == 0
    reader.on_frame(frame("2.4", texts(1), parent=at("1.9")))
    reader.on_page(page(1, "0.0", epoch=2, parent=at("1.9"), tail=at("2.3")))
    assert reader.taken == Saved(INC, at("2.3"), 2, at("1.9"))
    assert (shown(reader), reader.behind) == (["2.4"], False)


def test_a_saved_place_is_stronger_than_the_end() -> None:
    reader = Reader(WF, Saved(INC, at("1.3"), 1), at_end=True)
    asked = reader.fetch()
    assert asked is not None
    assert (asked.position, asked.limit > 0) == (at("1.3"), True)
