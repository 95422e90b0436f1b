"""The judge: reads plain facts, knows the promises, and shares no code with what it judges."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tests.worlds.facts import DropFact, Facts, GrantFact
from tests.worlds.truth import Spot, Truth
from tests.worlds.watch import Watch

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
        torn = any(truth.ever.get((inc, other)) != (epoch, n + i) for i, other in enumerate(group))
        if torn and not (set(group[1:]) & facts.rolled_back or _stripped(facts, group)):
            yield f"P3 an atomic group was torn: {group}"


def _stripped(facts: Facts, group: tuple[int, ...]) -> bool:
    """A withdraw leaves of a group its receipts."""
    gone = {number for drop in facts.dropped if drop.why == "withdrawn" for _, ids in drop.rows for number in ids}
    return all(number in gone for number in group if not facts.kinds[number].startswith("am.receipt"))


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
            back = spot[2] in doomed and spot[:2] > parent and spot[0] >= epoch
            if back and not _of_a_clone(spot, epoch, parent, facts, truth):
                yield f"P6 event {spot[2]} came back at {spot[:2]} after it was withdrawn by epoch {epoch}"


def _of_a_clone(spot: tuple[int, int, int], epoch: int, parent: Spot, facts: Facts, truth: Truth) -> bool:
    """It was on a copy of the disk, a clone or an older one put back, that is another owner by now; or both
    copies withdrew to the same place, and each counts only what it had when it asked.

    The journal cannot tell those from two processes of one disk; nothing was stored between them.
    """
    first = truth.grants[truth.inc, epoch]
    grants = [truth.grants[truth.inc, e] for e in range(epoch + 1, spot[0] + 1)]
    copies = [
        g
        for g in grants
        if facts.disk_of[g.boot] in facts.restored or facts.disk_of[g.boot] != facts.disk_of[first.boot]
    ]
    if copies and grants[-1].instance != first.instance:
        return True
    same = (g for g in copies if g.asked is not None and tuple(g.parent) == parent)
    return any(spot[2] not in facts.withdraws.get(g.request, ()) for g in same)


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
