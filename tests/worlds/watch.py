"""What one watcher showed, judged step by step against the truth. Shares no code with the core."""

from __future__ import annotations

from collections.abc import Iterator

from tests.worlds.facts import Facts, WatcherFacts
from tests.worlds.truth import START, Spot, Truth


class Watch:
    """What one watcher showed, step by step."""

    def __init__(self, facts: WatcherFacts, world: Facts, truth: Truth) -> None:
        self.facts, self.world, self.truth = facts, world, truth
        self.inc = b""
        self.app: list[tuple[int, int, int]] = []
        self.merged: list[tuple[int, int, int]] = []
        self.holes: list[tuple[Spot, Spot]] = []
        self.last: Spot = START
        self.told: tuple[bytes, int, Spot] = (b"", 0, START)
        self.kept = self._state()

    def _state(self) -> tuple[object, ...]:
        return self.inc, list(self.app), list(self.merged), list(self.holes), self.last, self.told

    def judge(self) -> Iterator[str]:
        for step in self.facts.story:
            yield from getattr(self, "_on_" + step[0])(*step[1:])
        yield from self._final()

    def _on_s(self) -> Iterator[str]:
        self.kept = self._state()
        return iter(())

    def _on_c(self) -> Iterator[str]:
        self.inc, app, merged, holes, self.last, self.told = self.kept
        self.app, self.merged, self.holes = list(app), list(merged), list(holes)
        return iter(())

    def _on_t(self, inc: bytes, epoch: int, parent: Spot) -> Iterator[str]:
        if inc != self.told[0] or epoch > self.told[1]:
            self.told = (inc, epoch, tuple(parent))
        return iter(())

    def _on_b(self, inc: bytes, position: Spot) -> Iterator[str]:
        self.inc, self.last = inc, tuple(position)
        self.holes.append((START, self.last))
        return iter(())

    def _on_e(self, inc: bytes, epoch: int, last: int, span: int, ids: tuple[int, ...]) -> Iterator[str]:
        first = last - span + 1
        if len(ids) != span:
            yield f"P2 a merged event says {span} and holds {len(ids)}"
        if self.inc not in (inc, b""):
            yield "P2 events of another incarnation without a Gap"
        self.inc = inc
        if epoch == self.last[0]:
            if first != self.last[1] + 1:
                yield f"P2 {epoch}.{first} shown after {self.last}, silently"
        elif first != 1 or self._parent(inc, epoch) != self.last:
            yield f"P2 {epoch}.{first} (parent {self._parent(inc, epoch)}) shown after {self.last}, silently"
        if self.told[0] == inc and epoch < self.told[1] and (epoch, first) > self.told[2]:
            yield "P5 an event was shown that the watcher had been told is void"
        if span > 1:
            self.merged.append((epoch, first, last))
        self.app += [(epoch, first + i, number) for i, number in enumerate(ids)]
        self.last = (epoch, last)

    def _parent(self, inc: bytes, epoch: int) -> Spot | None:
        grant = self.truth.grants.get((inc, epoch))
        return tuple(grant.parent) if grant else None

    def _on_g(self, inc: bytes, position: Spot, reason: str) -> Iterator[str]:
        position = tuple(position)
        if reason == "reset":
            if inc == self.inc and (inc or not self.truth.losses):
                yield "P2 Gap(reset) though nothing was lost"
            self.app, self.merged, self.holes, self.inc = [], [], [(START, position)], inc
        else:
            if self.inc not in (inc, b""):
                yield "P2 Gap(trimmed) hides another incarnation"
            if (inc, position) not in self.truth.bases:
                yield f"P2 Gap(trimmed) up to {position}, which was never trimmed"
            self.inc = inc
            self.holes.append((self.last, position))
        self.last = position

    def _on_r(self, inc: bytes, position: Spot) -> Iterator[str]:
        position = tuple(position)
        if inc != self.inc:
            yield "P2 Rewound of another incarnation"
        if any(epoch == position[0] and first <= position[1] < last for epoch, first, last in self.merged):
            yield f"P2 Rewound to {position}, inside a merged event that nobody can split"
        self.merged = [(epoch, first, last) for epoch, first, last in self.merged if (epoch, last) <= position]
        gone = [spot for spot in self.app if spot[:2] > position]
        self.app = [spot for spot in self.app if spot[:2] <= position]
        self.holes = [(a, min(b, position)) for a, b in self.holes if a < position]
        here = position == START or (self.app and self.app[-1][:2] == position) or self._in_hole(position)
        if not here:
            yield f"P2 Rewound to {position}, where this watcher never was"
        self.last = position
        if self.facts.stored:
            for spot in gone:
                if (inc, spot[2]) not in self._withdrawn(inc):
                    yield f"P5 stored=True showed {spot}, which was taken back though nobody withdrew it"

    def _withdrawn(self, inc: bytes) -> set[tuple[bytes, int]]:
        """What may be taken back: what was withdrawn, and after that, to come again, what was stored before it."""
        explicit = self.truth.explicit
        again = any(seen == inc for seen, _ in explicit)
        return explicit | {key for key in self.truth.ever if again and key[0] == inc}

    def _in_hole(self, position: Spot) -> bool:
        return any(a <= position <= b for a, b in self.holes)

    def _final(self) -> Iterator[str]:
        truth = self.truth
        if self.inc != truth.inc:
            if truth.log or self.app:
                yield "P2 the watcher ends with another incarnation than the journal"
            return
        must = [spot for spot in truth.log if not any(a < spot[:2] <= b for a, b in self.holes)]
        if self.app != must:
            at = next((i for i, (a, b) in enumerate(zip(self.app, must, strict=False)) if a != b), -1)
            yield f"P2 the watcher ends with {len(self.app)} events, must be {len(must)}, first difference {at}"
        elif self.last != truth.tail:
            yield f"P2 the watcher ends at {self.last}, the log at {truth.tail}"
