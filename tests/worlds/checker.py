"""The judge: reads plain facts, knows the promises, and shares no code with what it judges."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tests.worlds.facts import AppendFact, DropFact, Facts, GrantFact, TrimFact, WatcherFacts

Spot = tuple[int, int]
START: Spot = (0, 0)
FINAL = {"applied", "rejected", "expired", "too_late", "unknown"}
ENDS = {"am.end:done": "done", "am.end:failed": "failed", "am.end:cancelled": "cancelled"}


def check(facts: Facts) -> list[str]:
    """Every broken promise, each as `P3 what happened: details`."""
    truth = Truth()
    found = list(facts.lies)
    found += truth.replay(facts)
    found += _log(facts, truth)
    for watcher in facts.watchers:
        found += [f"{text} ({watcher.name})" for text in Watch(watcher, facts, truth).judge()]
    found += _stored(facts, truth)
    found += _outboxes(facts, truth)
    found += _owners(facts, truth)
    found += _withdraws(facts, truth)
    found += _commands(facts, truth)
    found += _status(facts, truth)
    return found


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


def _log(facts: Facts, truth: Truth) -> Iterator[str]:
    """The disk holds the log, without what was trimmed."""
    kept = [spot for spot in truth.log if spot[:2] > truth.trimmed]
    if facts.disk != kept:
        yield f"P3 the journal's disk differs from what it stored: {len(facts.disk)} events, must be {len(kept)}"
    if facts.reused:
        yield f"P3 a number was used for two events: {facts.reused[0]}"
    if rogue := [spot for spot in truth.log if spot[2] in facts.rogue]:
        yield f"P5 the journal stored what no owner sent: {rogue[0]}"
    groups = {ids[0]: ids for ids in facts.groups}
    for (inc, number), (epoch, n) in truth.ever.items():
        group = groups.get(number, ())
        if any(truth.ever.get((inc, other)) != (epoch, n + i) for i, other in enumerate(group)):
            if not (set(group[1:]) & facts.rolled_back or _stripped(facts, group)):
                yield f"P3 an atomic group was torn: {group}"


def _stripped(facts: Facts, group: tuple[int, ...]) -> bool:
    """A withdraw leaves of a group its receipts."""
    gone = {number for drop in facts.dropped if drop.why == "withdrawn" for _, ids in drop.rows for number in ids}
    return all(number in gone for number in group if not facts.kinds[number].startswith("am.receipt"))


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


def _stored(facts: Facts, truth: Truth) -> Iterator[str]:
    """What an owner believes stored, by a receipt or by a grant that dropped its rows, is in the log."""
    alive = {spot[2] for spot in truth.log}
    for drop in facts.dropped:
        for n, number in _believed(drop):
            if _void_release(number, drop, facts):
                continue
            spot = truth.ever.get((drop.inc, number))
            if spot is None:
                yield f"P3 event {number} was believed stored ({drop.why}) and never was"
            elif spot != (drop.epoch, n):
                yield f"P3 event {number} was believed stored at {(drop.epoch, n)}, is at {spot}"
            elif drop.inc == truth.inc and number not in alive and (drop.inc, number) not in truth.explicit:
                yield f"P3 stored event {number} is no longer in the log"


def _believed(drop: DropFact) -> Iterator[tuple[int, int]]:
    if drop.why in ("ack", "stored", "status"):
        for first, ids in drop.rows:
            yield from enumerate(ids, first)


def _void_release(number: int, drop: DropFact, facts: Facts) -> bool:
    """A release that an earlier process of this disk could not send means nothing once the name is owned again."""
    return facts.kinds[number] == "am.release" and drop.why != "ack" and facts.emitted[number][1] != drop.boot


def _outboxes(facts: Facts, truth: Truth) -> Iterator[str]:
    """Nothing that was committed disappears without a word, and order stays."""
    stored = {number for _, number in truth.ever}
    left = {number for drop in facts.dropped if drop.why == "left" for _, ids in drop.rows for number in ids}
    doomed = {number for ids in facts.withdraws.values() for number in ids}
    on_disk = {number for ids in facts.disks for number in ids}
    for drop in facts.dropped:
        if drop.why == "withdrawn":
            for number in (number for _, ids in drop.rows for number in ids):
                if number not in stored and number not in doomed and not _void_release(number, drop, facts):
                    yield f"P4 event {number} was withdrawn though nobody asked for it"
    void = {
        number for drop in facts.dropped for _, ids in drop.rows for number in ids if _void_release(number, drop, facts)
    }
    gone = facts.committed.keys() - stored - left - doomed - on_disk - facts.rolled_back - void
    if gone:
        yield f"P4 event {min(gone)} vanished from its outbox: {facts.kinds[min(gone)]}"
    for boot, said, true in facts.counts:
        if said != true:
            yield f"P4 an owner was told that {said} events were left, {true} were ({boot!r})"
    for owner in facts.owners:
        if owner.state == "owning" and owner.waiting and owner.linked:
            yield f"P4 an outbox never drained: {owner.waiting[:3]}"
    yield from _order(facts, truth)


def _order(facts: Facts, truth: Truth) -> Iterator[str]:
    newest: dict[str, int] = {}
    for epoch, _, number in truth.log:
        disk, _ = facts.emitted.get(number, ("", b""))
        if facts.disk_of[truth.grants[truth.inc, epoch].boot] != disk:
            continue  # a clone sends what it copied when it can
        if number < newest.get(disk, 0):
            yield f"P4 event {number} is in the log behind a later one of its owner"
        newest[disk] = number


def _owners(facts: Facts, truth: Truth) -> Iterator[str]:
    owning = [owner for owner in facts.owners if owner.state == "owning"]
    if len(owning) > 1:
        yield f"P5 {len(owning)} owners believe"
    for owner in owning:
        if (owner.inc, owner.epoch) != (truth.inc, truth.epoch):
            yield f"P5 an owner believes in epoch {owner.epoch}, current is {truth.epoch}"
    stuck = [owner for owner in facts.owners if owner.state in ("claiming", "withdrawing", "reclaiming")]
    for owner in stuck:
        yield f"P4 an owner is {owner.state} for ever"
    for boot, inc, epoch, until in facts.fences:
        grants = (g for g in facts.history[:until] if isinstance(g, GrantFact))
        if not any(g.boot != boot and (g.inc != inc or g.epoch > epoch) for g in grants):
            yield "P5 an owner was fenced though nobody else has the name"


def _withdraws(facts: Facts, truth: Truth) -> Iterator[str]:
    """What a granted withdraw was about never comes back after it."""
    for request, (epoch, parent) in truth.cut_requests.items():
        if request in facts.gone:
            yield f"P6 the withdraw of epoch {epoch} was refused, and then it happened"
        doomed = set(facts.withdraws.get(request, ()))
        for spot in truth.log:
            if spot[2] in doomed and spot[:2] > parent and spot[0] >= epoch:
                if not _of_a_clone(spot, epoch, parent, facts, truth):
                    yield f"P6 event {spot[2]} came back at {spot[:2]} after it was withdrawn by epoch {epoch}"


def _of_a_clone(spot: tuple[int, int, int], epoch: int, parent: Spot, facts: Facts, truth: Truth) -> bool:
    """Two copies of one disk, clones or an older one put back, withdrew to the same place; each counts
    only what it had when it asked.

    The journal cannot tell them from two processes of one disk; nothing was stored between them.
    """
    grants = [truth.grants[truth.inc, e] for e in range(epoch + 1, spot[0] + 1)]
    storing = facts.disk_of[grants[-1].boot] if grants else ""
    own = [g for g in grants if facts.disk_of[g.boot] == storing and g.asked is not None and tuple(g.parent) == parent]
    others = storing in facts.restored or storing != facts.disk_of[truth.grants[truth.inc, epoch].boot]
    return others and any(spot[2] not in facts.withdraws.get(g.request, ()) for g in own)


def _commands(facts: Facts, truth: Truth) -> Iterator[str]:
    if facts.waiting:
        yield f"P7 a sender was never told: {facts.waiting[0]}"
    in_log: dict[str, int] = {}
    for spot in truth.log:
        if command := facts.log_effects.get(spot[2]):
            in_log[command] = in_log.get(command, 0) + 1
    for command, told in facts.told.items():
        yield from _command(command, told, facts, in_log.get(command, 0), lost=truth.losses > 0)


def _command(command: str, told: Iterable[str], facts: Facts, in_log: int, *, lost: bool) -> Iterator[str]:
    outcomes = [state for state in told if state in FINAL]
    effects = facts.effects.get(command, [])
    if lost:
        return
    if len(set(outcomes)) > 1:
        yield f"P7 two outcomes: {command} {sorted(set(outcomes))}"
    outcome = outcomes[0] if outcomes else ""
    if outcome in ("expired", "too_late") and effects:
        yield f"P7 told {outcome}, but it happened: {command}"
    if outcome in ("expired", "too_late") and command in facts.refused:
        yield f"P7 told {outcome}, but it was rejected: {command}"
    if outcome == "applied" and not effects:
        yield f"P7 told applied, but it never happened: {command}"
    if outcome == "rejected" and command not in facts.refused:
        yield f"P7 told rejected, but nobody did: {command}"
    if outcome == "unknown" and command not in facts.handed and command not in facts.forgotten:
        yield f"P7 told unknown, but no owner ever had it: {command}"
    if effects.count(False) > 1:  # an owner that was frozen with it may act late, but only one was not warned
        yield f"P7 happened twice without a warning: {command} {effects}"
    if in_log > 1:
        yield f"P7 its effect is in the log {in_log} times: {command}"


def _status(facts: Facts, truth: Truth) -> Iterator[str]:
    """The retained status is the fold of the log, and knows who lives."""
    status = facts.status
    if not truth.inc or status is None:
        if truth.inc:
            yield "P8 a channel without a status"
        return
    if (status.inc, status.epoch, tuple(status.tail)) != (truth.inc, truth.epoch, truth.tail):
        yield f"P8 the status ends at {status.epoch} {status.tail}, the log at {truth.epoch} {truth.tail}"
    holder = truth.grants.get((truth.inc, truth.epoch))
    alive = holder is not None and any(o.boot == holder.boot and o.linked for o in facts.owners)
    state, owner = _run(facts, truth, alive=alive)
    if status.owner != owner:
        yield f"P8 the status says that the owner is {status.owner}, it is {owner}"
    if status.state != state:
        yield f"P8 the status says {status.state}, the run is {state}"


def _run(facts: Facts, truth: Truth, *, alive: bool) -> tuple[str, str]:
    """State and owner after every lease and grace has passed."""
    if not truth.epoch:
        return "new", "none"
    asks: set[str] = set()
    last = ""
    for _, _, number in truth.log:
        last, _, name = facts.kinds[number].partition(":")
        if last == "am.ask":
            asks.add(name)
        elif last == "am.answer":
            asks.discard(name)
        elif last == "am.end":
            asks.clear()
    if truth.sealed and last == "am.end":
        return ENDS[facts.kinds[truth.log[-1][2]]], "none"
    if truth.sealed:
        return "interrupted", "none"
    if not alive:
        return "interrupted", "lost"
    return "waiting" if asks else "running", "online"
