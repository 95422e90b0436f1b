"""The log as it must be, replayed from what the journal made durable. Shares no code with the core."""

from __future__ import annotations

from collections.abc import Iterator

from tests.worlds.facts import AppendFact, Facts, GrantFact, TrimFact

Spot = tuple[int, int]
START: Spot = (0, 0)


class Truth:
    """The log as it must be, replayed from what the journal made durable."""

    def __init__(self) -> None:
        self.inc = b""
        self.log: list[tuple[int, int, int]] = []
        self.grants: dict[tuple[bytes, int], GrantFact] = {}
        self.order: list[GrantFact] = []
        self.ever: dict[tuple[bytes, int], Spot] = {}
        self.explicit: set[tuple[bytes, int]] = set()
        self.bases: set[tuple[bytes, Spot]] = set()
        self.trimmed: Spot = START
        self.losses = 0
        self._begin()

    def _begin(self) -> None:
        self.inc = b""
        self.log, self.epoch, self.last, self.sealed, self.ended = [], 0, 0, False, False
        self.attempt: Spot = START
        self.cut_requests: dict[bytes, tuple[int, Spot]] = {}  # a lost store forgets what it granted
        self.shown: dict[bytes, int] = {}
        self.filled: dict[int, int] = {}
        self.trimmed = START

    @property
    def tail(self) -> Spot:
        return self.log[-1][:2] if self.log else START

    def replay(self, facts: Facts) -> Iterator[str]:
        rewinds = list(reversed(facts.rewinds))
        for count, fact in enumerate(facts.history):
            while rewinds and rewinds[-1][0] <= count:
                yield from self._rewind(*rewinds.pop()[1:])
            if fact is None:
                self.losses += 1
                self._begin()
            elif isinstance(fact, GrantFact):
                yield from self._grant(fact)
                yield from self._in_order(fact, facts)
            elif isinstance(fact, AppendFact):
                yield from self._append(fact, facts)
            else:
                self._trim(fact)

    def _rewind(self, inc: bytes, at: Spot, start: Spot) -> Iterator[str]:
        """A void cursor goes back to the newest event of the log that it has in common with it, no further."""
        at = tuple(at)
        while at != START and inc == self.inc:
            alive = max((n for epoch, n, _ in self.log if epoch == at[0]), default=0)
            if alive:
                at = (at[0], min(at[1], alive))
                break
            grant = self.grants.get((inc, at[0]))
            at = tuple(grant.parent) if grant else START
        if inc == self.inc and tuple(start) != at:
            yield f"P2 a void cursor was sent back to {start}, must be {at}"

    def _trim(self, fact: TrimFact) -> None:
        self.trimmed = fact.upto
        self.bases.add((fact.inc, fact.upto))

    def _grant(self, fact: GrantFact) -> Iterator[str]:
        if self.inc and fact.inc != self.inc:
            yield "P2 the incarnation changed without a loss"
        self.inc = fact.inc
        foreign = fact.claimed_inc not in (b"", self.inc)
        yield from self._may(fact, foreign=foreign)
        parent = self.tail
        if fact.asked == "attempt" and self.epoch and not foreign:
            parent = self.attempt
        elif fact.asked is not None and fact.asked != "attempt":
            parent = tuple(fact.asked)
        if tuple(fact.parent) != parent:
            yield f"P6 a grant continues at {fact.parent}, must be {parent}"
        if parent != START and parent not in {spot[:2] for spot in self.log}:
            yield f"P6 a grant continues at {parent}, which is not in the log"
        if fact.epoch != self.epoch + 1:
            yield "P5 epochs are not consecutive"
        cut = parent != self.tail or fact.asked is not None
        self.explicit |= {(self.inc, spot[2]) for spot in self.log if spot[:2] > parent}
        self.log = [spot for spot in self.log if spot[:2] <= parent]
        if not self.epoch or (cut and fact.asked is not None and not foreign):
            self.attempt = parent
        if fact.asked is not None and not foreign:
            self.cut_requests[fact.request] = (fact.epoch, parent)
        self.epoch, self.last, self.sealed, self.ended = fact.epoch, 0, False, False
        self.trimmed = min(self.trimmed, parent)
        self.bases.add((fact.inc, self.trimmed))
        self.grants[fact.inc, fact.epoch] = fact
        self.order.append(fact)

    def _may(self, fact: GrantFact, *, foreign: bool) -> Iterator[str]:
        """One owner: who lives is not robbed, and who was left behind does not come back."""
        if fact.holder_alive and not fact.takeover:
            yield "P5 a living owner lost its name to somebody who did not ask for a takeover"
        if self.ended and not (fact.reopen and fact.asked is not None):
            yield "P5 an ended run was given away"
        if foreign:
            if fact.mine < self.shown.get(fact.claimed_inc, 0):
                yield "P5 a zombie of a lost store came back behind its successor"
            self.shown[fact.claimed_inc] = max(fact.mine, self.shown.get(fact.claimed_inc, 0))
        elif self.epoch and not self._knew(fact) and fact.replaces != self.epoch:
            yield "P5 a newcomer got the name from an owner that it did not know of"
        elif any(self.filled.get(e) for e in range(fact.mine + 1, self.epoch + 1)) and self._knew(fact):
            yield "P5 a disk came back though others wrote after it"

    def _in_order(self, fact: GrantFact, facts: Facts) -> Iterator[str]:
        """Processes of one disk get the name in the order in which they were born."""
        disk = facts.disk_of[fact.boot]
        if disk in facts.restored:  # its count of lives went back with it
            return
        before = (g for g in self.order if g.inc == fact.inc and g.instance == fact.instance and g.boot > fact.boot)
        if any(facts.disk_of[old.boot] == disk for old in before):
            yield "P5 a late claim of a dead process came in after its successor's"

    def _knew(self, fact: GrantFact) -> bool:
        return any(old.inc == fact.inc and old.instance == fact.instance for old in self.order)

    def _append(self, fact: AppendFact, facts: Facts) -> Iterator[str]:
        grant = self.grants.get((fact.inc, fact.epoch))
        if grant is None or fact.epoch != self.epoch or fact.inc != self.inc:
            yield f"P5 events of epoch {fact.epoch} stored in epoch {self.epoch}"
            return
        if fact.first != self.last + 1:
            yield f"P2 event {fact.epoch}.{fact.first} stored after {self.last}"
        for n, number in enumerate(fact.ids, fact.first):
            if self.sealed:
                yield "P5 an event was stored after the end"
            if facts.sent.get((fact.inc, fact.epoch, n)) != (grant.boot, number):
                yield f"P5 {fact.epoch}.{n} was stored, but its owner never sent it so"
            if (self.inc, number) in self.ever:
                yield f"P4 event {number} stored twice"
            self.ever[self.inc, number] = (fact.epoch, n)
            self.log.append((fact.epoch, n, number))
            self.ended |= facts.kinds[number].startswith("am.end")
            self.sealed |= self.ended or facts.kinds[number] == "am.release"
            self.last = n
            self.filled[fact.epoch] = n
