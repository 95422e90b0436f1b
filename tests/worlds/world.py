"""One world: a seed, a profile, chaos, then healing. What happened is in `facts`."""

from __future__ import annotations

import itertools
import random
from bisect import bisect
from collections.abc import Callable

from agentmqtt.core.states import WriterState
from agentmqtt.frames import Claim
from tests.worlds.acts import CALM, FAULTS, MORE, Acts
from tests.worlds.bus import Bus
from tests.worlds.disk import Disk
from tests.worlds.facts import Facts, OwnerFact
from tests.worlds.journal import SimJournal
from tests.worlds.owner import SimOwner
from tests.worlds.watcher import SimSender, SimWatcher

PROFILES = ("all", "withdraw", "amnesia", "stored", "slow")

STEPS = 350
ROUNDS = 36
"""Rounds of three seconds in which everything heals; the first third still loses frames and status to watchers."""


class World(Acts):
    """Everything that lives in it, and its dice."""

    def __init__(self, seed: int, profile: str = "all", *, clean: bool = False) -> None:
        rng = random.Random(seed)
        self.random = rng.random
        self.profile = profile
        self.facts = Facts()
        self.hits = self.facts.hits
        self.now = 1000.0
        self._numbers = itertools.count(1)
        self._bytes = itertools.count(1)
        self.window = self.pick(1, 2, 4, 64)
        self.limit = self.pick(10, 40, 1000)
        self.held = self.pick(2, 8, 64)
        self.eager = self.pick(0.2, 0.6, 1.0)
        self.pace = self.pick(0.2, 0.5, 1.0)
        self.takeover = 0.7 if profile == "amnesia" else 0.3
        self.asked: dict[bytes, None] = {}
        self.owners: list[SimOwner] = []
        self.watchers: list[SimWatcher] = []
        self.bus = Bus(rng, self.hits)
        self.bus.drop = 0 if clean else self.pick(0, 0.05, 0.2)
        self.bus.repeat = 0 if clean else self.pick(0, 0.1, 0.3)
        self.crash_after_effect = 0 if clean else self.pick(0, 0.1)
        self.journal = SimJournal(self)
        self.sender = SimSender(self)
        self.new_owner().start()
        for _ in range(2):
            self.new_watcher()
        self._plan(clean=clean)

    # ---- dice and counters

    def pick(self, *options: float) -> float:
        return options[int(self.random() * len(options))]

    @property
    def ms(self) -> int:
        return int(self.now * 1000)

    def number(self, kind: str) -> int:
        number = next(self._numbers)
        self.facts.kinds[number] = kind
        return number

    def bytes(self) -> bytes:
        return b"%08d" % next(self._bytes)

    def fresh_number(self) -> int:
        """A number of which the next thousand are free."""
        return next(self._bytes) * 1000

    def inc(self) -> bytes:
        return b"i%d" % next(self._bytes)

    def is_current(self, claim: Claim) -> bool:
        return any(o.up and o.boot == claim.boot and o.writer.request == claim.request for o in self.owners)

    # ---- who lives in it

    def new_owner(self, disk: Disk | None = None, client: str = "") -> SimOwner:
        owner = SimOwner(self, client or f"agent{len(self.owners)}", disk)
        self.owners.append(owner)
        return owner

    def new_watcher(self) -> None:
        luck, chance = self.random(), self.random
        stored = luck < 0.25 or (self.profile == "stored" and luck < 0.9)
        slow = chance() < (0.7 if self.profile == "slow" else 0.2)
        self.watchers.append(
            SimWatcher(
                self,
                stored=stored,
                live=chance() > 0.15,
                capacity=int(self.pick(1, 3, 8)) if slow else 1000,
                slow=slow,
                at_end=chance() < 0.1,
            )
        )

    def _plan(self, *, clean: bool) -> None:
        level = 0.0 if clean else self.pick(0.3, 1.0, 2.0)
        weights = CALM | FAULTS | MORE[self.profile]
        for name in FAULTS:  # no world has every fault: what one hides, another shows
            weights[name] *= level * self.pick(0, 0, 0.5, 1, 2)
        if self.profile == "amnesia" and self.random() < 0.5:  # one process that outlives the store
            weights |= dict.fromkeys(("crash_owner", "second_owner", "clone", "end", "release"), 0.0)
        self._acts: list[Callable[[], None]] = [getattr(self, "_" + name) for name in weights]
        self._sums = list(itertools.accumulate(weights.values()))

    # ---- chaos

    def run(self, steps: int = STEPS) -> Facts:
        acts, sums, total = self._acts, self._sums, self._sums[-1]
        for _ in range(steps):
            self.now += self.pace
            acts[bisect(sums, self.random() * total)]()
        self._heal()
        self._collect()
        return self.facts

    # ---- healing

    def _heal(self) -> None:
        self.bus.drop = self.bus.repeat = self.crash_after_effect = 0
        self.eager = 1
        if not self.journal.ready:
            self.journal.start()
        if not self.sender.ready:
            self.sender.relink()
        if self.random() < 0.3:
            self.facts.forgotten.update(self.sender.doze())
        for watcher in self.watchers:
            watcher.slow = False
            if not watcher.up:
                watcher.start()
            elif not watcher.linked:
                watcher.relink()
        for owner in self.owners:
            self._mend(owner)
        for turn in range(ROUNDS):
            self.now += 3
            self.bus.tail_loss = 0.6 if turn < ROUNDS // 3 else 0
            self._turn(turn)
            if turn == ROUNDS // 3:
                self._somebody()
            if turn == ROUNDS // 2:
                self._everybody_works()
        self._afterwards()

    def _mend(self, owner: SimOwner) -> None:
        if owner.frozen:
            owner.freeze()
        if owner.up and not owner.linked:
            owner.relink()
        if not owner.up and owner.disk.rows:
            owner.start()

    def _turn(self, turn: int) -> None:
        self.journal.tick()
        for owner in self.owners:
            if owner.up and owner.writer.finished:
                owner.die(power=False)
            elif owner.up:
                owner.flush()
                owner.tick()
                while owner.todo and owner.open:
                    owner.work()
        for watcher in self.watchers:
            watcher.take(1000)
            if turn % 3 == 0:
                watcher.tick()
        if turn % 3 == 0:
            self.sender.tick()
        self.bus.drain()
        self.journal.commit()
        self.bus.drain()

    def _somebody(self) -> None:
        """Nobody left? A new owner comes, so that what waits gets its answer."""
        if not any(o.up and o.writer.owned for o in self.owners):
            self.hits["a new owner at the end"] += 1
            self.new_owner().start(takeover=True)

    def _everybody_works(self) -> None:
        """Who owns the name and did not end or release it can emit, and it is stored."""
        for owner in self.owners:
            if owner.up and owner.writer.owned and not owner.over and not self.journal.ledger.fold.ended:
                if self.now - owner.granted_at > 20 and owner.disk.rows:
                    self.facts.lies.append("P4 an outbox does not drain though nothing is lost any more")
                before = len(self.facts.emitted)
                owner.say("note")
                if len(self.facts.emitted) == before:
                    self.facts.lies.append("P4 an owner that neither ended nor released cannot emit")

    def _afterwards(self) -> None:
        """Perhaps the last owner dies; then every lease, grace and deadline passes."""
        if self.random() < 0.4:
            for owner in self.owners:
                if owner.up:
                    owner.die(power=False)
        for step in (20, 20, 20, 600, 3600, 20, 20):
            left = step
            while left > 0:
                self.now += min(left, 20) if step < 100 else step
                left -= 20 if step < 100 else step
                for owner in self.owners:
                    if owner.up and owner.writer.owned:
                        owner.tick()
                self.bus.drain()
                self._turn(0)
        self.sender.wake()
        self._turn(0)

    # ---- the facts at the end

    def _collect(self) -> None:
        facts, journal = self.facts, self.journal
        facts.inc = journal.ledger.inc
        facts.base = journal.ledger.chain.base
        for row in journal.store.rows:
            for n, entry in enumerate(row.entries, row.first):
                kind = entry.data
                number = int(kind[:-1]) if entry.type == "text" else kind["i"]
                facts.disk.append((row.epoch, n, number))
        for owner in self.owners:
            if owner.up:
                owner._count()
                facts.owners.append(self._owner_fact(owner))
            facts.disks.append(tuple(owner.disk.ids()))
        facts.waiting = list(self.sender.open)

    def _owner_fact(self, owner: SimOwner) -> OwnerFact:
        header = owner.writer.outbox.header
        owned = owner.writer.state is WriterState.OWNING
        return OwnerFact(
            owner.name,
            owner.boot,
            "owning" if owned else str(owner.writer.state),
            header.inc,
            header.epoch,
            owner.ready,
            tuple(owner.disk.ids()),
            owner.writer.left_unsent,
        )
