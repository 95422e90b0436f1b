"""What a watcher does with frames, statuses and pages (PROTOCOL §6.1 to §6.4)."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmqtt.core.reader import Reader, Saved
from agentmqtt.frames import Fetch, Frame, PageKind
from agentmqtt.types import ORIGIN
from tests import strategies
from tests.core import make
from tests.core.following import following, fresh, reply, second, shown
from tests.core.make import INC, OTHER, WF, at, frame, item, items, page, status, texts

SAVED = st.builds(Saved, strategies.INCS, strategies.POSITIONS, strategies.COUNTS, strategies.POSITIONS)


@given(SAVED)
def test_a_saved_place_comes_back_from_its_record(saved: Saved) -> None:
    assert Saved.unpack(make.through_disk(saved.pack())) == saved


# ---- frames (§6.2): the position is 1.3


class Heard(NamedTuple):
    what: str
    frame: Frame
    shown: list[str]
    behind: bool


FRAMES = [
    Heard("another incarnation", frame("1.4", texts(1), inc=OTHER), [], behind=True),
    Heard("the next events", frame("1.4", texts(2)), ["1.4", "1.5"], behind=False),
    Heard("some again", frame("1.2", texts(3)), ["1.4"], behind=False),
    Heard("all again", frame("1.1", texts(3)), [], behind=False),
    Heard("a gap", frame("1.5", texts(1)), [], behind=True),
    Heard("a probe", frame("1.4", ()), [], behind=False),
    Heard("a probe above", frame("1.6", ()), [], behind=True),
    Heard("a new epoch here", second(1, 1), ["2.1"], behind=False),
    Heard("a new epoch before", second(1, 1, "1.1"), ["back 1.1", "2.1"], behind=False),
    Heard("a new epoch at the beginning", second(1, 1, "0.0"), ["back 0.0", "2.1"], behind=False),
    Heard("a new epoch after", second(1, 1, "1.5"), [], behind=True),
    Heard("a new epoch, not its beginning", second(2, 1), [], behind=True),
    Heard("a new epoch before, not its beginning", second(2, 1, "1.1"), ["back 1.1"], behind=True),
    Heard("two epochs later", frame("3.1", texts(1), parent=at("1.2")), ["back 1.2", "3.1"], behind=False),
]


@pytest.mark.parametrize("heard", FRAMES, ids=lambda heard: heard.what)
def test_frames(heard: Heard) -> None:
    reader = following()
    reader.on_frame(heard.frame)
    assert (shown(reader), reader.behind) == (heard.shown, heard.behind)


def test_a_lower_epoch_is_ignored() -> None:
    reader = following()
    reader.on_frame(second(1, 1))
    reader.on_frame(frame("1.4", texts(1)))
    assert (shown(reader), reader.behind) == (["2.1"], False)


@pytest.mark.parametrize(
    ("first", "options", "begins"),
    [
        (frame("1.1", texts(2)), {}, True),
        (frame("1.2", texts(1)), {}, False),
        (frame("2.1", texts(1), parent=at("1.1")), {}, False),
        (frame("1.1", texts(2)), {"at_end": True}, False),
        (frame("1.1", texts(2)), {"saved": Saved()}, False),
        (frame("1.1", texts(2)), {"live": False}, False),
    ],
)
def test_only_the_very_first_frame_of_a_channel_needs_no_page(first: Frame, options: Any, begins: bool) -> None:
    reader = fresh(**options)
    reader.on_frame(first)
    assert shown(reader) == (["1.1", "1.2"] if begins else [])
    assert reader.inc == (INC if begins else b"")


def test_a_reader_that_is_not_live_takes_no_frames() -> None:
    reader = following(live=False)
    reader.on_frame(frame("1.4", texts(1)))
    assert (shown(reader), reader.behind) == ([], False)


# ---- fetch (§6.3)


def test_one_question_at_a_time() -> None:
    reader = fresh(first_request=7)
    assert reader.fetch() == Fetch(8, WF, b"", ORIGIN)
    assert reader.asking
    assert reader.fetch() is None
    assert reader.retry() == Fetch(9, WF, b"", ORIGIN)


def test_only_the_last_question_is_answered() -> None:
    reader = fresh()
    reader.fetch()
    reader.retry()
    reader.on_page(page(1, "0.0", items(1, 1, 2)))
    reader.on_page(page(2, "1.1", items(1, 2, 2)))
    assert (shown(reader), reader.asking) == ([], True)
    reader.on_page(page(2, "0.0", items(1, 1, 2)))
    reader.on_page(page(2, "0.0", items(1, 1, 2)))
    assert (shown(reader), reader.asking, reader.fetch()) == (["1.1", "1.2"], False, None)


def test_a_probe_asks_without_a_reason() -> None:
    reader = following()
    assert reader.fetch() is None
    assert reader.probe() == Fetch(2, WF, INC, at("1.3"))
    reader.on_page(page(2, "1.3"))
    assert not reader.behind


def test_a_page_that_does_not_reach_the_tail_leaves_it_behind() -> None:
    reader = fresh()
    reply(reader, *items(1, 1, 2), tail=at("1.9"))
    assert reader.behind
    assert reader.fetch() == Fetch(2, WF, INC, at("1.2"))


STATUSES = [
    ("the same tail", status("1.3"), [], False),
    ("a later tail", status("1.4"), [], True),
    ("an unknown channel", status("9.9", inc=b""), [], False),
    ("another incarnation", status("1.3", inc=OTHER), [], True),
    ("a newer epoch here", status("1.3", epoch=2, parent=at("1.3")), [], False),
    ("a newer epoch before", status("1.1", epoch=2, parent=at("1.1")), ["back 1.1"], False),
    ("a newer epoch before, with events", status("2.2", epoch=2, parent=at("1.1")), ["back 1.1"], True),
]


@pytest.mark.parametrize(("what", "heard", "seen", "behind"), STATUSES, ids=[case[0] for case in STATUSES])
def test_a_status_shows_what_was_missed(what: str, heard: Any, seen: list[str], behind: bool) -> None:
    reader = following()
    reader.on_status(heard)
    assert (shown(reader), reader.behind) == (seen, behind), what


def test_a_status_of_a_lower_epoch_is_ignored() -> None:
    reader = following()
    reader.on_frame(second(1, 1))
    shown(reader)
    reader.on_status(status("1.9"))
    assert not reader.behind


# ---- pages (§6.4)


def caught_up(reader: Reader, *pages: dict[str, Any]) -> list[str]:
    """Answers one after the other, then what was shown."""
    for one in pages:
        reply(reader, *one.pop("items", ()), **one)
    assert not reader.behind
    return shown(reader)


def test_ok_takes_the_items() -> None:
    reader = following()
    reader.probe()
    reader.on_page(page(2, "1.3", (*items(1, 4, 5), item("2.1")), epoch=2, parent=at("1.5")))
    assert shown(reader) == ["1.4", "1.5", "2.1"]
    assert reader.saved == Saved(INC, at("2.1"), 2, at("1.5"))


def test_ahead_waits() -> None:
    reader = following()
    reader.probe()
    reader.on_page(page(2, "1.3", kind=PageKind.AHEAD, tail=at("1.2")))
    assert (shown(reader), reader.behind, reader.position) == ([], False, at("1.3"))


def test_rewound_goes_back_to_what_is_shared() -> None:
    reader = following()
    reader.behind = True
    back = {"kind": PageKind.REWOUND, "start": at("1.1"), "epoch": 2, "parent": at("1.1"), "tail": at("2.2")}
    rest = {"items": items(2, 1, 2), "epoch": 2, "parent": at("1.1")}
    assert caught_up(reader, back, rest) == ["back 1.1", "2.1", "2.2"]


def test_trimmed_says_so_and_goes_on() -> None:
    reader = following()
    reader.behind = True
    gone = {"kind": PageKind.TRIMMED, "start": at("1.7"), "items": items(1, 8, 9)}
    assert caught_up(reader, gone) == ["trimmed 1.7", "1.8", "1.9"]


def test_reset_begins_with_the_new_incarnation() -> None:
    reader = following()
    reader.on_frame(frame("1.4", texts(1)))
    reader.behind = True
    other = {"kind": PageKind.RESET, "inc": OTHER, "start": ORIGIN, "items": items(1, 1, 1)}
    assert caught_up(reader, other) == ["reset 0.0", "1.1"]
    assert reader.saved == Saved(OTHER, at("1.1"), 1, ORIGIN)


def test_withdrawn_and_trimmed_is_told_in_this_order() -> None:
    reader = following()
    reader.behind = True
    back = {"kind": PageKind.REWOUND, "start": at("1.1"), "epoch": 2, "parent": at("1.1"), "tail": at("2.9")}
    gone = {"kind": PageKind.TRIMMED, "start": at("2.8"), "epoch": 2, "parent": at("1.1"), "items": items(2, 9, 9)}
    assert caught_up(reader, back, gone) == ["back 1.1", "trimmed 2.8", "2.9"]


@pytest.mark.parametrize(
    ("kind", "start", "seen"),
    [(PageKind.OK, "0.0", ["1.1"]), (PageKind.TRIMMED, "1.4", ["trimmed 1.4", "1.5"])],
)
def test_a_first_visit_lost_nothing_but_what_was_trimmed(kind: PageKind, start: str, seen: list[str]) -> None:
    first = at(start).n + 1
    assert caught_up(fresh(), {"kind": kind, "start": at(start), "items": items(1, first, first)}) == seen


@pytest.mark.parametrize("kind", [PageKind.OK, PageKind.RESET])
def test_a_page_of_an_older_epoch_is_not_used(kind: PageKind) -> None:
    reader = Reader(WF, Saved(INC, at("2.1"), 2, at("1.3")))
    reply(reader, *items(1, 1, 2), kind=kind, epoch=1)
    assert (shown(reader), reader.behind, reader.asking) == ([], True, False)


def test_items_that_are_known_are_not_shown_again() -> None:
    reader = following()
    reader.behind = True
    reply(reader, *items(1, 2, 5))
    assert shown(reader) == ["1.4", "1.5"]


def test_a_newer_epoch_in_a_frame_voids_the_question() -> None:
    reader = following()
    reader.on_status(status("1.9"))
    asked = reader.fetch()
    reader.on_status(status("2.1", epoch=2, parent=at("1.1")))
    assert asked is not None
    reader.on_page(page(asked.request, "1.3", items(1, 4, 9)))
    assert shown(reader) == ["back 1.1"]
    assert reader.fetch() == Fetch(3, WF, INC, at("1.1"))
