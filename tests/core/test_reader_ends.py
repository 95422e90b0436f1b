"""A watcher ends with the log, each event once, whatever was lost on the way (PROTOCOL §10)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agentmqtt.core.ledger import Ledger
from agentmqtt.core.pages import LogRow, compact
from agentmqtt.core.reader import Reader
from agentmqtt.frames import Page
from agentmqtt.types import ORIGIN, Event, Position, Rewound
from tests.core.following import fresh, taken
from tests.core.make import INC, NOW, WF, ack, claim, frame, texts


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
        for thing in taken(self.reader):
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
