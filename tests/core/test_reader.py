"""How a watcher ends with the log, each event once (PROTOCOL §6)."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmqtt.core.ledger import Ledger
from agentmqtt.core.pages import LogRow, compact
from agentmqtt.core.reader import REMEMBERED, Delivered, Reader, Saved
from agentmqtt.frames import Fetch, Frame, Item, Page, PageKind, Why
from agentmqtt.types import ORIGIN, Event, Gap, Position, Rewound
from tests import strategies
from tests.core import make
from tests.core.make import INC, NOW, OTHER, WF, ack, at, claim, frame, item, items, page, status, texts

SAVED = st.builds(Saved, strategies.INCS, strategies.POSITIONS, strategies.COUNTS, strategies.POSITIONS)


@given(SAVED)
def test_a_saved_place_comes_back_from_its_record(saved: Saved) -> None:
    assert Saved.unpack(make.through_disk(saved.pack())) == saved


# ---- words for what happens


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


def shown(reader: Reader) -> list[str]:
    """What the application takes now."""
    return [say(thing) for thing in iter(reader.take, None)]


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


# ---- against a journal


class Site:
    """An owner, a journal and a reader; what is sent may be lost."""

    def __init__(self, stored: bool) -> None:
        self.ledger, self.rows, self.log = Ledger(WF), list[LogRow](), list[Position]()
        self.reader = fresh(stored=stored, capacity=6, held_limit=3)
        self.view: list[Position] = []
        self.claim(None)

    def claim(self, cut: Position | None) -> None:
        epoch = self.ledger.epoch
        asked = claim(request=b"%d" % epoch, mine=epoch, replaces=epoch, cut=cut, inc=self.ledger.inc)
        self.ledger.on_claim(asked, "a", NOW, INC)
        self.log = [place for place in self.log if cut is None or place <= cut]

    def send(self, count: int, *, heard: bool) -> None:
        first, epoch = self.ledger.chain.stored + 1, self.ledger.epoch
        sent = frame(f"{epoch}.{first}", texts(count, first), parent=self.ledger.parent)
        self.ledger.on_frame(sent, NOW)
        self.rows.append(LogRow(epoch, first, NOW, sent.entries))
        self.log += [Position(epoch, n) for n in range(first, first + count)]
        if heard:
            self.reader.on_frame(sent)
            self.reader.on_ack(ack(f"{epoch}.{sent.last}"))

    def answer(self) -> None:
        if (asked := self.reader.fetch() or self.reader.retry()) is None:
            return
        ledger, tail = self.ledger, self.ledger.chain.tail
        how, start = ledger.plan(asked)
        live = [row for row in self.rows if Position(row.epoch, row.first) in self.log]
        rows = [row._replace(entries=row.entries[: self.left(row)]) for row in live]
        those = compact(rows, start, tail, 40, lambda entry: len(entry.data))
        place = ledger.inc, ledger.epoch, ledger.parent, how, asked.position, start, tail
        self.reader.on_page(Page(asked.request, WF, *place, those))

    def left(self, row: LogRow) -> int:
        return sum(Position(row.epoch, row.first + n) in self.log for n in range(len(row.entries)))

    def take(self) -> None:
        for thing in iter(self.reader.take, None):
            place = thing.cursor.position
            if isinstance(thing, Rewound):
                self.view = [one for one in self.view if one <= place]
                assert place == (self.view[-1] if self.view else ORIGIN)
            else:
                assert isinstance(thing, Event)
                self.view += [Position(place.epoch, n) for n in range(place.n - thing.span + 1, place.n + 1)]

    def step(self, what: str, number: int) -> None:
        match what:
            case "send" | "lose":
                self.send(number, heard=what == "send")
            case "next":
                self.claim(None)
            case "cut":
                self.claim([ORIGIN, *self.log][-number % (len(self.log) + 1)])
            case "answer":
                self.answer()
            case "take":
                self.take()
            case "restart":
                self.take()
                self.reader = Reader(WF, self.reader.saved, capacity=6)


STEPS = st.sampled_from(["send", "send", "lose", "next", "cut", "answer", "answer", "take", "restart"])


@given(st.booleans(), st.lists(st.tuples(STEPS, st.integers(1, 4)), max_size=30))
def test_a_reader_ends_with_the_log(stored: bool, steps: list[tuple[str, int]]) -> None:
    site = Site(stored)
    for what, number in steps:
        site.step(what, number)
    site.reader.on_status(site.ledger.status(NOW))
    for _ in range(60):
        site.take()
        site.answer()
    site.take()
    assert site.view == site.log
    assert not site.reader.behind
