"""The chain of epochs: which positions are in a channel's log (PROTOCOL §4.2, §6.4)."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from agentmqtt.types import ORIGIN, Position, Value

KEPT_EPOCHS = 256


@dataclasses.dataclass(frozen=True, slots=True)
class Epoch:
    """One grant: who got it and where it continues.

    `cut` says that a withdraw made it, though the log may have had nothing to withdraw; `attempt_from`
    is where its attempt began.
    """

    parent: Position
    instance: bytes
    boot: bytes
    client: str
    request: bytes
    cut: bool
    attempt: int
    attempt_from: Position


class Segment(NamedTuple):
    """Events 1 to `upto` of `epoch` are in the log."""

    epoch: int
    upto: int


class Chain:
    """Epochs in order, what survives of each, and the first position that is kept.

    `base` is the last trimmed position: everything after it can be read.
    """

    def __init__(self) -> None:
        self.epochs: dict[int, Epoch] = {}
        self.segments: list[Segment] = []
        self.last: dict[int, int] = {}
        self.current = 0
        self.base = ORIGIN

    @property
    def tail(self) -> Position:
        return Position(*self.segments[-1]) if self.segments else self.base

    @property
    def holder(self) -> Epoch | None:
        return self.epochs.get(self.current)

    @property
    def stored(self) -> int:
        """Number of the newest event of the current epoch."""
        return self.last.get(self.current, 0)

    def contains(self, at: Position) -> bool:
        """True if `at` is in the log, kept or trimmed, or is its beginning."""
        if at in (ORIGIN, self.base):
            return True
        return any(seg.epoch == at.epoch and 1 <= at.n <= seg.upto for seg in self.segments)

    def ancestor(self, at: Position) -> Position:
        """The newest position of the log that a reader at `at` shares with it."""
        upto = dict(self.segments)
        while at != ORIGIN and at != self.base:
            if alive := upto.get(at.epoch):
                return Position(at.epoch, min(at.n, alive))
            if at.epoch not in self.epochs:
                return ORIGIN
            at = self.epochs[at.epoch].parent
        return at

    def grant(self, epoch: Epoch) -> int:
        """Begin the next epoch at its parent; what lies after the parent is no longer in the log."""
        self._truncate(epoch.parent)
        self.current += 1
        self.epochs[self.current] = epoch
        self.last[self.current] = 0
        self._forget()
        return self.current

    def append(self, count: int) -> None:
        """Add `count` events to the current epoch."""
        n = self.stored + count
        self.last[self.current] = n
        if self.segments and self.segments[-1].epoch == self.current:
            self.segments.pop()
        self.segments.append(Segment(self.current, n))

    def trim(self, to: Position) -> None:
        """Forget events up to `to`. The caller made sure that `to` is in the log."""
        self.base = to

    def _truncate(self, parent: Position) -> None:
        self.segments = [
            Segment(seg.epoch, min(seg.upto, parent.n) if seg.epoch == parent.epoch else seg.upto)
            for seg in self.segments
            if seg.epoch <= parent.epoch
        ]
        self.base = min(self.base, parent)

    def _forget(self) -> None:
        """Bound the table: epochs of long ago are unknown ones (§6.4)."""
        for old in list(self.epochs)[:-KEPT_EPOCHS]:
            del self.epochs[old]
            del self.last[old]
        if len(self.segments) > KEPT_EPOCHS:
            self.segments = self.segments[-KEPT_EPOCHS:]

    def snapshot(self) -> Value:
        epochs = [
            [e, *row.parent, row.instance, row.boot, row.client, row.request, row.cut, row.attempt, *row.attempt_from]
            for e, row in self.epochs.items()
        ]
        return [epochs, [[*seg] for seg in self.segments], [[e, n] for e, n in self.last.items()], [*self.base]]

    @classmethod
    def restore(cls, value: Value) -> Chain:
        chain = cls()
        epochs, segments, last, base = value
        for e, pe, pn, instance, boot, client, request, cut, attempt, ae, an in epochs:
            chain.epochs[e] = Epoch(Position(pe, pn), instance, boot, client, request, cut, attempt, Position(ae, an))
        chain.segments = [Segment(*seg) for seg in segments]
        chain.last = dict(last)
        chain.current = max(chain.epochs, default=0)
        chain.base = Position(*base)
        return chain
