"""How a watcher ends with the journal's log, each event once (PROTOCOL §6).

Frames come from the broker as they are published, pages from the journal when asked for. Both move
one accepted position; what was accepted waits in a bounded buffer until the application takes it, and
only then does the saved position move.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from typing import TypeAlias

from agentmqtt.frames import Ack, Fetch, Frame, Item, Page, PageKind, Status
from agentmqtt.types import NO_INC, ORIGIN, Cursor, Event, Gap, Position, Rewound, Value

Delivered: TypeAlias = Event | Gap | Rewound
REMEMBERED = 256
"""Merged events of which a reader knows where they began."""


@dataclasses.dataclass(frozen=True, slots=True)
class Saved:
    """What a watcher keeps with the application's state (§6.1): where it is, and the newest epoch it
    knows with that epoch's parent, the fork before which older epochs end."""

    inc: bytes = NO_INC
    position: Position = ORIGIN
    epoch: int = 0
    fork: Position = ORIGIN

    def pack(self) -> Value:
        return [1, self.inc, [*self.position], self.epoch, [*self.fork]]

    @classmethod
    def unpack(cls, value: Value) -> Saved:
        _, inc, position, epoch, fork = value[:5]
        return cls(inc, Position(*position), epoch, Position(*fork))


class Reader:
    """One name for one watcher.

    Args:
        saved: where the application was, or None for a first visit.
        at_end: a first visit begins at the tail instead of the first event.
        live: take frames; without it everything comes by fetch.
        stored: hold frames until the journal's receipt covers them (§6.5).
        capacity: events that wait for the application before the name leaves live mode (§6.6).
    """

    def __init__(
        self,
        workflow: str,
        saved: Saved | None = None,
        *,
        at_end: bool = False,
        live: bool = True,
        stored: bool = False,
        capacity: int = 1000,
        held_limit: int = 64,
        first_request: int = 0,
    ) -> None:
        self.workflow = workflow
        start = saved or Saved()
        self.inc, self.position = start.inc, start.position
        self.epoch, self.fork = start.epoch, start.fork
        self.taken = start
        self.buffer: deque[Delivered] = deque()
        self.behind = True
        self._knew = saved is not None
        self._at_end = at_end and saved is None
        self._live, self._stored, self._capacity = live, stored, capacity
        self._held: deque[Frame] = deque(maxlen=held_limit)
        self._receipt: Ack | None = None
        self._asked: tuple[int, Position] | None = None
        self._requests = first_request
        self._merged: deque[tuple[Position, Position]] = deque()
        self._unsure = start.position  # before it, nothing is known of merged events
        if self._void():
            self._rewind(self.fork)

    # ---- the application's side

    def take(self) -> Delivered | None:
        """The next thing to show; the saved position moves with it."""
        if not self.buffer:
            return None
        item = self.buffer.popleft()
        self.taken = Saved(item.cursor.inc, item.cursor.position)
        if item.cursor.inc == self.inc:
            self.taken = dataclasses.replace(self.taken, epoch=self.epoch, fork=self.fork)
        return item

    @property
    def saved(self) -> Saved:
        """What to keep now: the taken position and what is known of newer epochs."""
        if self.taken.inc == self.inc and self.taken.epoch != self.epoch:
            self.taken = Saved(self.taken.inc, self.taken.position, self.epoch, self.fork)
        return self.taken

    # ---- fetching (§6.3)

    def fetch(self) -> Fetch | None:
        """The question to ask now, if one is due and there is room for its answer."""
        if not self.behind or self._asked is not None or len(self.buffer) > self._capacity // 2:
            return None
        return self._ask()

    def retry(self) -> Fetch | None:
        """Nobody answered in time: ask again, with a new request ID."""
        self._asked = None
        return self.fetch()

    def probe(self) -> Fetch | None:
        """After a silence or a new link: is my tail the tail? (§6.3)"""
        self.behind = True
        return self.retry()

    @property
    def asking(self) -> bool:
        return self._asked is not None

    def _ask(self) -> Fetch:
        self._requests += 1
        self._asked = (self._requests, self.position)
        limit = 0 if self._at_end else 48 * 1024
        return Fetch(self._requests, self.workflow, self.inc, self.position, limit)

    def on_page(self, page: Page) -> None:
        """An answer; used only if it answers the last question from where this reader is (§6.3)."""
        if self._asked is None or self._asked != (page.request, page.asked) or page.asked != self.position:
            return
        self._asked = None
        if self._at_end:
            self._begin_at(page)
        elif page.kind is PageKind.RESET or page.inc != self.inc:
            if not self._adopt(page):
                return
        elif page.epoch < self.epoch:
            return  # older than what is known: ask again
        elif page.kind is PageKind.TRIMMED:
            self._gap(page.start, "trimmed")
        elif page.kind is PageKind.REWOUND:
            self._rewind(page.start)
        self._learn(page.epoch, page.parent)
        self._put_items(page)
        self.behind = page.tail > self.position
        self._replay()

    def _begin_at(self, page: Page) -> None:
        """A first visit that wants only what comes now."""
        self._at_end, self._knew = False, True
        self.inc, self.position, self.epoch, self.fork = page.inc, page.tail, page.epoch, page.parent
        self.taken = Saved(self.inc, self.position, self.epoch, self.fork)

    def _adopt(self, page: Page) -> bool:
        """Another incarnation than the one known: begin with it, and say so if something was lost."""
        fresh = self.inc == NO_INC and self.position == ORIGIN
        if page.inc == self.inc and page.epoch < self.epoch:
            return False
        self.inc, self.epoch, self.fork = page.inc, page.epoch, page.parent
        self._knew = True
        if fresh and page.kind is PageKind.OK:
            return True
        self.buffer.clear()
        self._merged.clear()
        self._unsure = ORIGIN
        self._gap(page.start, "trimmed" if fresh else "reset")
        return True

    def _put_items(self, page: Page) -> None:
        if page.start != self.position or page.kind is PageKind.REWOUND:
            return  # what follows may have been trimmed since: asked from here, the journal says so (§6.4)
        for item in page.items:
            if len(self.buffer) >= self._capacity:
                break  # the rest is asked for when there is room
            self._put_item(item)

    def _put_item(self, item: Item) -> None:
        last = Position(item.epoch, item.first + item.span - 1)
        if Position(item.epoch, item.first) <= self.position:
            return
        if item.span > 1:
            self._remember(self.position, last)
        self.position = last
        self.buffer.append(Event(Cursor(self.inc, last), item.type, item.data, item.time, item.span))

    # ---- frames (§6.2)

    def on_frame(self, frame: Frame) -> None:
        """A frame from the broker: the next events, a repetition, or proof that something is missing."""
        if not self._live:
            return
        foreign = self.inc not in (NO_INC, frame.inc)
        if self._asked is not None or (self._stored and not foreign):
            self._hold(frame)
        else:
            self._accept(frame)

    def _hold(self, frame: Frame) -> None:
        if len(self._held) == self._held.maxlen:
            self.behind = True
        self._held.append(frame)

    def _replay(self) -> None:
        """Frames and receipts that came while a page was under way; a receipt is asked about once."""
        held, self._held = self._held, deque(maxlen=self._held.maxlen)
        receipt, self._receipt = self._receipt, None
        if not self._stored:
            for frame in held:
                self._accept(frame)
            return
        self._held.extend(frame for frame in held if frame.inc == self.inc)
        if receipt is not None:
            self.on_ack(receipt)

    def _accept(self, frame: Frame) -> None:
        if frame.inc != self.inc and not self._begins(frame):
            self.behind = True
            return
        if frame.epoch < self.epoch:
            return
        self._learn(frame.epoch, frame.parent)
        if self._follows(frame):
            self._put_frame(frame)
        else:
            self.behind = True

    def _begins(self, frame: Frame) -> bool:
        """The very first frame of a channel, for a reader that knew no incarnation of it."""
        if self._knew or self._at_end or frame.parent != ORIGIN or frame.first != 1:
            return False
        self.inc, self._knew = frame.inc, True
        return True

    def _follows(self, frame: Frame) -> bool:
        """True if nothing is missing between the accepted position and the frame."""
        if frame.epoch == self.position.epoch:
            return frame.first <= self.position.n + 1
        return frame.first == 1 and frame.parent <= self.position

    def _put_frame(self, frame: Frame) -> None:
        known = self.position.n if self.position.epoch == frame.epoch else 0
        for n, entry in enumerate(frame.entries[max(0, known + 1 - frame.first) :], max(known + 1, frame.first)):
            if len(self.buffer) >= self._capacity:  # a slow reader leaves live mode (§6.6)
                self.behind = True
                return
            self.position = Position(frame.epoch, n)
            self.buffer.append(Event(Cursor(self.inc, self.position), entry.type, entry.data, frame.time))

    # ---- receipts, for readers of stored events (§6.5)

    def on_ack(self, ack: Ack) -> None:
        """Frames up to the receipt may be shown."""
        if not self._stored:
            return
        if self._asked is not None:
            self._receipt = ack
            return
        if ack.inc != self.inc or ack.epoch < self.epoch:
            self.behind = self.behind or ack.inc != self.inc
            return
        while self._held and self._held[0].epoch == ack.epoch and self._held[0].last <= ack.n:
            self._accept(self._held.popleft())
        while self._held and self._held[0].epoch < ack.epoch:
            self._held.popleft()
        if Position(ack.epoch, ack.n) > self.position and ack.n:
            self.behind = True

    # ---- status (§6.3)

    def on_status(self, status: Status) -> None:
        """Every status names incarnation, epoch, parent and tail: a lost last frame shows here."""
        if not status.inc or self._at_end:
            return
        if status.inc != self.inc:
            self.behind = True
            return
        if status.epoch < self.epoch:
            return
        self._learn(status.epoch, status.parent)
        if status.tail > self.position:
            self.behind = True

    # ---- the fork (§6.2)

    def _learn(self, epoch: int, parent: Position) -> None:
        """Every sign of a newer epoch moves the fork: what lies after it in older epochs is void."""
        if epoch <= self.epoch:
            return
        self.epoch, self.fork = epoch, parent
        self._asked = None
        if self._void():
            self._rewind(parent)

    def _void(self) -> bool:
        return self.position > self.fork and self.position.epoch < self.epoch

    def _rewind(self, fork: Position) -> None:
        """Go back to the fork, or to what the application can go back to."""
        self.position = to = self._seam(fork)
        self.behind = self.behind or to != fork
        while self.buffer and self.buffer[-1].cursor.position > to:
            if isinstance(self.buffer.pop(), Gap):  # what it stood for must be asked for again
                self.position = min(to, self.buffer[-1].cursor.position if self.buffer else self.taken.position)
                self.behind = True
        if self.taken.inc == self.inc and self.taken.position > to:
            self.buffer.append(Rewound(Cursor(self.inc, to)))
        self._unsure = min(self._unsure, to)
        while self._merged and self._merged[-1][1] > to:
            self._merged.pop()

    def _gap(self, to: Position, reason: str) -> None:
        self.position = to
        self.buffer.append(Gap(Cursor(self.inc, to), reason))

    # ---- merged events, which nobody can split (§6.4)

    def _remember(self, before: Position, last: Position) -> None:
        self._merged.append((before, last))
        if len(self._merged) > REMEMBERED:
            self._unsure = max(self._unsure, self._merged.popleft()[1])

    def _seam(self, to: Position) -> Position:
        """The newest place not after `to` that does not cut a merged event; its first part comes again.

        What was merged in an earlier life is not known: then everything comes again. Only a withdraw back
        to a named position can lie inside of one.
        """
        for before, last in self._merged:
            if before < to < last and to.epoch == last.epoch:
                return before
        return ORIGIN if to < self._unsure else to
