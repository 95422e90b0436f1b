"""`following.json`: conversations of one reader with a broker that loses, repeats and reorders, and with a journal.

A small truth (`Log`) plays the owner and the journal; the reader of the core answers, and what it asked and
showed is written down. At the end of each conversation what it showed is the log, or this file is not made.
"""

from __future__ import annotations

import dataclasses
import random
from typing import Any

from agentmqtt import wire
from agentmqtt.core.reader import Delivered, Reader, Saved
from agentmqtt.frames import Ack, Fetch, Frame, Item, Page, PageKind, Status
from agentmqtt.types import ORIGIN, Entry, Event, Gap, OwnerState, Position, Rewound, RunState
from tests.vectors.plain import plain

WF = "report-42"
NOW = 1_700_000_000_000
SEEDS = 40


class Log:
    """What a channel holds: epochs with parents, events, the place before which nothing is kept."""

    def __init__(self, inc: bytes) -> None:
        self.inc = inc
        self.parents: dict[int, Position] = {1: ORIGIN}
        self.events: dict[Position, Entry] = {}
        self.stored = ORIGIN
        self.kept = ORIGIN

    @property
    def epoch(self) -> int:
        return max(self.parents)

    @property
    def parent(self) -> Position:
        return self.parents[self.epoch]

    def emit(self, *entries: Entry) -> Frame:
        first = self.stored.n + 1 if self.stored.epoch == self.epoch else 1
        for n, entry in enumerate(entries, first):
            self.events[Position(self.epoch, n)] = entry
        self.stored = Position(self.epoch, first + len(entries) - 1)
        return Frame(self.inc, self.epoch, self.parent, first, NOW + self.epoch, entries)

    def fork(self, at: Position) -> None:
        """A new epoch that continues at `at`; what lay after it is withdrawn."""
        self.parents[self.epoch + 1] = at
        self.events = {place: entry for place, entry in self.events.items() if place <= at}
        self.stored = at

    def trim(self, to: Position) -> None:
        """Nothing up to there is kept."""
        self.kept = to
        self.events = {place: entry for place, entry in self.events.items() if place > to}

    def status(self) -> Status:
        state = (RunState.RUNNING, OwnerState.ONLINE, NOW, NOW)
        return Status(WF, self.inc, self.epoch, self.parent, self.stored, *state)

    def ack(self) -> Ack:
        n = self.stored.n if self.stored.epoch == self.epoch else 0
        return Ack(self.inc, self.epoch, n)

    def page(self, fetch: Fetch, most: int = 3) -> Page:
        """The answer of §6.4: at most `most` groups of events, consecutive text merged."""
        kind, start = self._place(fetch)
        items = () if fetch.limit == 0 or kind in (PageKind.REWOUND, PageKind.AHEAD) else self._items(start)[:most]
        head = (fetch.request, WF, self.inc, self.epoch, self.parent, kind)
        return Page(*head, fetch.position, start, self.stored, items)

    def _place(self, fetch: Fetch) -> tuple[PageKind, Position]:
        at = fetch.position
        if fetch.inc != self.inc and (fetch.inc or at != ORIGIN):
            return PageKind.RESET, self.kept
        if at > self.stored and at.epoch == self.epoch:
            return PageKind.AHEAD, at
        if at > max(ORIGIN, self.kept) and at not in self.events:
            return PageKind.REWOUND, self._fork_of(at)
        return (PageKind.TRIMMED, self.kept) if at < self.kept else (PageKind.OK, at)

    def _fork_of(self, at: Position) -> Position:
        """The newest place that a reader at a withdrawn position shares with the log."""
        return min(parent for epoch, parent in self.parents.items() if epoch > at.epoch)

    def _items(self, after: Position) -> tuple[Item, ...]:
        made: list[Item] = []
        for place in sorted(self.events):
            entry = self.events[place]
            if place <= after:
                continue
            last = made[-1] if made else None
            if last and entry.type == last.type == "text" and place == (last.epoch, last.first + last.span):
                made[-1] = last._replace(span=last.span + 1, data=last.data + entry.data)
            else:
                made.append(Item(place.epoch, place.n, 1, NOW + place.epoch, *entry))
        return tuple(made)

    def shown(self) -> list[Any]:
        """What a reader has to end with, text joined."""
        return _joined([self.events[place] for place in sorted(self.events)])


class Talk:
    """One reader, and every step of it as JSON."""

    def __init__(self, log: Log, saved: Saved | None = None, **options: Any) -> None:
        self.log, self.options = log, options
        self.reader = Reader(WF, saved, **options)
        self.steps: list[dict[str, Any]] = []
        self.application: list[tuple[Position, Entry]] = []
        self.question: Fetch | None = None
        self.gaps = 0
        self.begin = None if saved is None else plain(saved.pack())

    def _note(self, **step: Any) -> None:
        self.steps.append(step)

    def hear(self, message: Frame | Page | Status | Ack) -> None:
        self._note(hear=type(message).__name__.lower(), hex=wire.encode(message).hex())
        match message:
            case Frame():
                self.reader.on_frame(message)
            case Page():
                self.reader.on_page(message)
            case Status():
                self.reader.on_status(message)
            case Ack():
                self.reader.on_ack(message)

    def ask(self, how: str = "fetch") -> Fetch | None:
        """`fetch` if it has a question, `retry` after no answer, `probe` after a silence."""
        asked: Fetch | None = getattr(self.reader, how)()
        self._note(ask=how, asks=None if asked is None else _question(asked))
        self.question = asked or self.question
        return asked

    def answer(self) -> None:
        if self.question is not None:
            self.hear(self.log.page(self.question))

    def take(self, most: int = 1000) -> None:
        """The application takes what waits."""
        shows = []
        while len(shows) < most and (thing := self.reader.take()) is not None:
            shows.append(_said(thing))
            self._apply(thing)
        self._note(take=most, shows=shows)

    def _apply(self, thing: Delivered) -> None:
        match thing:
            case Event():
                self.application.append((thing.cursor.position, Entry(thing.type, thing.data)))
            case Rewound():
                self.application = [part for part in self.application if part[0] <= thing.cursor.position]
            case Gap(reason="reset"):
                self.application, self.gaps = [], self.gaps + 1
            case Gap():
                self.gaps += 1

    def restart(self) -> None:
        """The process dies after it kept where it was."""
        saved = self.reader.saved
        self._note(restart=plain(saved.pack()))
        self.reader = Reader(WF, saved, **self.options)
        self.question = None

    def settle(self) -> None:
        """Nothing is lost any more: ask until there is no question."""
        for _ in range(200):
            self.take()
            if self.ask("retry" if self.reader.asking else "fetch") is None:
                break
            self.answer()
        self.hear(self.log.ack())
        self.take()

    def case(self, name: str) -> dict[str, Any]:
        """The conversation. Its reader ended with the log, if no history was lost on the way."""
        if not self.gaps:
            ends = _joined([entry for _, entry in self.application])
            assert ends == self.log.shown(), f"{name}: {ends} is not {self.log.shown()}"
        return {"name": name, "options": self.options, "begin": self.begin, "steps": self.steps}


def _question(fetch: Fetch) -> dict[str, Any]:
    return {"req": fetch.request, "inc": plain(fetch.inc), "pos": [*fetch.position], "limit": fetch.limit}


def _said(thing: Delivered) -> dict[str, Any]:
    cursor = {"inc": plain(thing.cursor.inc), "pos": [*thing.cursor.position]}
    match thing:
        case Event():
            return {"event": thing.type, "data": plain(thing.data), "time": thing.time, "span": thing.span, **cursor}
        case Gap():
            return {"gap": thing.reason, **cursor}
        case Rewound():
            return {"rewound": True, **cursor}


def _joined(entries: list[Entry]) -> list[Any]:
    made: list[Any] = []
    for entry in entries:
        if made and entry.type == made[-1][0] == "text":
            made[-1][1] += entry.data
        else:
            made.append([entry.type, entry.data])
    return made


def _texts(*words: str) -> list[Entry]:
    return [Entry("text", word) for word in words]


INC = b"inc-here"


def _begun(**options: Any) -> Talk:
    """A reader that asked once and knows an empty channel."""
    talk = Talk(Log(INC), **options)
    talk.ask()
    talk.answer()
    return talk


def live_from_the_first_token() -> Talk:
    talk = _begun()
    for word in ("Hel", "lo ", "you"):
        talk.hear(talk.log.emit(Entry("text", word)))
        talk.take()
    return talk


def repeated_frames_whole_and_in_part() -> Talk:
    talk = _begun()
    frame = talk.log.emit(*_texts("a", "b"))
    talk.hear(frame)
    talk.hear(frame)
    more = talk.log.emit(Entry("text", "c"))
    talk.hear(dataclasses.replace(more, first=2, entries=(frame.entries[1], *more.entries)))
    talk.take()
    return talk


def a_frame_is_missing_in_the_middle() -> Talk:
    talk = _begun()
    frames = [talk.log.emit(Entry("text", word)) for word in "abc"]
    talk.hear(frames[0])
    talk.hear(frames[2])
    talk.settle()
    return talk


def a_lost_last_frame_shows_in_the_status() -> Talk:
    talk = _begun()
    talk.log.emit(*_texts("the", " last"))
    talk.hear(talk.log.status())
    talk.settle()
    return talk


def late_and_then_a_restart() -> Talk:
    talk = Talk(Log(INC))
    talk.log.emit(*_texts("early ", "text"), Entry("tool", {"n": 1}), *_texts("more"))
    talk.settle()
    talk.restart()
    talk.hear(talk.log.emit(Entry("text", "!")))
    talk.settle()
    return talk


def an_attempt_is_withdrawn() -> Talk:
    talk = _begun()
    talk.hear(talk.log.emit(*_texts("a", "b", "c")))
    talk.take()
    talk.log.fork(Position(1, 1))
    talk.hear(talk.log.emit(Entry("text", "B")))
    talk.settle()
    return talk


def a_withdraw_that_only_the_status_tells_and_a_zombie() -> Talk:
    talk = _begun()
    talk.hear(talk.log.emit(*_texts("a", "b", "c")))
    talk.take(2)
    talk.log.fork(Position(1, 1))
    talk.hear(talk.log.status())
    talk.hear(Frame(INC, 1, ORIGIN, 4, NOW, (Entry("text", "zombie"),)))
    talk.settle()
    return talk


def history_was_trimmed() -> Talk:
    talk = Talk(Log(INC))
    talk.log.emit(*_texts("a", "b", "c"))
    talk.settle()
    talk.log.emit(*_texts("d", "e", "f", "g"))
    talk.log.trim(Position(1, 5))
    talk.ask("probe")
    talk.answer()
    talk.settle()
    return talk


def the_journal_lost_its_store() -> Talk:
    talk = _begun()
    talk.hear(talk.log.emit(*_texts("a", "b")))
    talk.take()
    talk.log = Log(b"inc-else")
    talk.hear(talk.log.emit(*_texts("new")))
    talk.settle()
    return talk


def a_stored_reader_waits_for_the_receipt() -> Talk:
    talk = _begun(stored=True)
    talk.hear(talk.log.emit(*_texts("a", "b")))
    talk.take()
    talk.hear(talk.log.ack())
    talk.take()
    return talk


def a_slow_reader_leaves_live_mode() -> Talk:
    talk = _begun(capacity=4)
    for n in range(9):
        talk.hear(talk.log.emit(Entry("n", n)))
    talk.settle()
    return talk


def a_first_visit_at_the_end() -> Talk:
    talk = Talk(Log(INC), at_end=True)
    talk.log.emit(*_texts("old"))
    talk.ask()
    talk.answer()
    talk.log.trim(talk.log.stored)
    talk.hear(talk.log.emit(*_texts("new")))
    talk.take()
    return talk


TOLD = (
    live_from_the_first_token,
    repeated_frames_whole_and_in_part,
    a_frame_is_missing_in_the_middle,
    a_lost_last_frame_shows_in_the_status,
    late_and_then_a_restart,
    an_attempt_is_withdrawn,
    a_withdraw_that_only_the_status_tells_and_a_zombie,
    history_was_trimmed,
    the_journal_lost_its_store,
    a_stored_reader_waits_for_the_receipt,
    a_slow_reader_leaves_live_mode,
    a_first_visit_at_the_end,
)


def drawn(seed: int) -> dict[str, Any]:
    """A conversation by dice: frames are lost, repeated and late; pages too; owners come and withdraw."""
    dice = random.Random(seed)
    talk = Talk(Log(b"inc-%04d" % seed), stored=seed % 4 == 3, capacity=dice.choice((5, 1000)))
    late: list[Any] = []
    for _ in range(dice.randrange(12, 40)):
        late += _events(dice, talk)
        dice.shuffle(late)
        while late and dice.random() < 0.6:
            message = late.pop()
            if dice.random() < 0.75:
                talk.hear(message)
                late += [message] * (dice.random() < 0.1)
        _reader_acts(dice, talk)
    talk.hear(talk.log.status())
    talk.settle()
    return talk.case(f"by dice {seed}")


def _events(dice: random.Random, talk: Talk) -> list[Any]:
    log, roll = talk.log, dice.random()
    if roll < 0.1 and log.stored.epoch == log.epoch:
        log.fork(dice.choice([ORIGIN, *sorted(log.events)][-4:]))
        return [log.status()]
    if roll < 0.2:
        return [log.status()]
    kinds = [Entry("text", f"<{dice.randrange(100)}>") if dice.random() < 0.8 else Entry("n", dice.randrange(9))]
    return [log.emit(*kinds * dice.choice((1, 1, 2))), log.ack()]


def _reader_acts(dice: random.Random, talk: Talk) -> None:
    roll = dice.random()
    if roll < 0.4 and talk.ask("retry" if roll < 0.1 else "fetch") is not None and dice.random() < 0.7:
        talk.answer()
    elif roll < 0.75:
        talk.take(dice.choice((1, 3, 1000)))
    elif roll < 0.8:
        talk.ask("probe")
    elif roll < 0.84:
        talk.restart()


def build() -> dict[str, Any]:
    """The whole file."""
    about = (
        "A reader is made with `options` and `begin` (null on a first visit, else what `saved` packs: "
        "[1, inc, position, epoch, fork]). Requests count from 1, and from 1 again after `restart`. "
        "hear: a message arrives. ask: fetch if a question is due, retry when nobody answered, probe after a "
        "silence or on a new link; `asks` is the question. take: the application takes up to that many; `shows`."
    )
    told = [make().case(make.__name__.replace("_", " ")) for make in TOLD]
    return {"about": about, "cases": told + [drawn(seed) for seed in range(SEEDS)]}
