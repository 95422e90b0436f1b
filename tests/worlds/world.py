"""One world: a seed, a profile, chaos, then healing. What happened is in `facts`."""

from __future__ import annotations

import itertools
import random
from bisect import bisect
from collections.abc import Callable

from agentmqtt.core.ledger import Ledger
from agentmqtt.core.states import WriterState
from agentmqtt.frames import Claim, Command, Frame
from tests.worlds.bus import Bus
from tests.worlds.events import note
from tests.worlds.facts import Facts, OwnerFact
from tests.worlds.journal import NAME, SimJournal
from tests.worlds.owner import Disk, SimOwner
from tests.worlds.watcher import SimSender, SimWatcher

PROFILES = ("all", "withdraw", "amnesia", "stored", "slow")

STEPS = 350
ROUNDS = 36
"""Rounds of three seconds in which everything heals; the first third still loses frames and status to watchers."""

Weights = dict[str, float]

CALM: Weights = {
    "deliver": 45,
    "emit": 12,
    "owner_tick": 8,
    "work": 3,
    "journal_tick": 6,
    "commit": 4,
    "send_command": 2,
    "resend_commands": 1,
    "watcher_tick": 3,
    "take": 3,
    "start_owner": 2.5,
    "start_journal": 1,
    "special": 1,
}
FAULTS: Weights = {
    "crash_owner": 1.1,
    "freeze": 1,
    "relink_owner": 1,
    "crash_journal": 0.6,
    "crash_watcher": 1,
    "relink_watcher": 1,
    "relink_sender": 1,
    "crash_broker": 0.3,
    "second_owner": 0.5,
    "clone": 0.3,
    "roll_back_disk": 0.2,
    "late_watcher": 0.4,
    "withdraw": 0.8,
    "trim": 0.4,
    "end": 0.3,
    "release": 0.3,
    "rogue": 0.4,
    "stale_refusals": 1.2,
}
MORE: dict[str, Weights] = {
    "all": {},
    "withdraw": {"withdraw": 3, "special": 4, "crash_owner": 2, "start_owner": 4, "clone": 0.6},
    "amnesia": {"crash_journal": 1.5, "start_journal": 3, "second_owner": 1, "freeze": 2, "send_command": 4},
    "stored": {"crash_owner": 2, "crash_journal": 1, "trim": 0.1},
    "slow": {"trim": 1, "take": 2},
}
SPECIAL = ("ask", "answer", "state", "note")


class World:
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

    def _any(self, owners: list[SimOwner]) -> SimOwner | None:
        return owners[int(self.random() * len(owners))] if owners else None

    def _owner(self) -> SimOwner | None:
        """Somebody whose process runs and is not stopped."""
        return self._any([o for o in self.owners if o.ready])

    def _holder(self) -> SimOwner | None:
        return self._any([o for o in self.owners if o.ready and o.writer.owned])

    def _watcher(self) -> SimWatcher:
        return self.watchers[int(self.random() * len(self.watchers))]

    def _deliver(self) -> None:
        self.bus.step()

    def _emit(self) -> None:
        owner = self._any([o for o in self.owners if o.up and not o.frozen])
        if owner:
            owner.say("text" if self.random() < 0.7 else "note")

    def _special(self) -> None:
        if owner := self._owner():
            owner.say(SPECIAL[int(self.random() * 4)])

    def _owner_tick(self) -> None:
        if owner := self._owner():
            if owner.writer.finished:
                owner.die(power=False)
            else:
                owner.flush()
                owner.tick()

    def _work(self) -> None:
        if owner := self._owner():
            owner.work()

    def _journal_tick(self) -> None:
        if self.journal.ready:
            self.journal.tick()

    def _commit(self) -> None:
        if self.journal.ready:
            self.journal.commit()

    def _send_command(self) -> None:
        deadline = self.ms + int(self.pick(15, 60, 400, 4000) * 1000)
        if self.sender.ready:
            self.sender.send(Command(f"c{next(self._numbers)}", NAME, "say", None, deadline))

    def _resend_commands(self) -> None:
        if self.sender.ready:
            self.sender.tick()

    def _watcher_tick(self) -> None:
        watcher = self._watcher()
        if not watcher.up:
            watcher.start()
        elif watcher.ready:
            watcher.tick()

    def _take(self) -> None:
        watcher = self._watcher()
        if watcher.up:
            watcher.take(1 + int(self.random() * 3))

    def _start_owner(self) -> None:
        owner = self._any([o for o in self.owners if not o.up])
        if owner:
            often = 0.5 if self.profile == "withdraw" else 0.2
            reopen = self.random() < 0.3
            owner.start(takeover=self.random() < self.takeover, attempt=reopen or self.random() < often, reopen=reopen)

    def _start_journal(self) -> None:
        if not self.journal.ready:
            if self.profile == "amnesia" and self.random() < 0.6:
                self.journal.lose_store()
            self.journal.start()

    # ---- faults

    def _crash_owner(self) -> None:
        if owner := self._any([o for o in self.owners if o.up]):
            owner.die(power=self.random() < 0.5)

    def _freeze(self) -> None:
        if owner := self._any([o for o in self.owners if o.up]):
            owner.freeze()

    def _relink_owner(self) -> None:
        if owner := self._any([o for o in self.owners if o.up]):
            if owner.linked:
                owner.unlink()
            else:
                owner.relink()

    def _crash_journal(self) -> None:
        if self.journal.ready:
            self.journal.crash()

    def _crash_watcher(self) -> None:
        watcher = self._watcher()
        if watcher.up:
            watcher.crash()

    def _relink_watcher(self) -> None:
        watcher = self._watcher()
        if watcher.up:
            watcher.relink()

    def _relink_sender(self) -> None:
        self.sender.relink()

    def _crash_broker(self) -> None:
        self.hits["broker crashed"] += 1
        self.bus.crash(retained=self.random() < 0.5)

    def _second_owner(self) -> None:
        if len(self.owners) < 5:
            self.hits["second owner"] += 1
            self.new_owner().start(takeover=self.random() < self.takeover + 0.2)

    def _clone(self) -> None:
        origin = self._any(self.owners)
        if origin and len(self.owners) < 6:
            self.hits["cloned outbox"] += 1
            client = origin.client if self.random() < 0.5 else ""
            self.new_owner(Disk(*origin.disk.copy()), client).start(takeover=self.random() < 0.2)

    def _roll_back_disk(self) -> None:
        """Somebody restores an older copy of a disk, or makes one."""
        owner = self._any(self.owners)
        if owner and owner.up:
            owner.backup = owner.disk.copy()
        elif owner:
            owner.roll_back(owner.backup, "older disk restored")
            self.facts.restored.add(owner.name)

    def _late_watcher(self) -> None:
        if len(self.watchers) < 4:
            self.hits["late watcher"] += 1
            self.new_watcher()

    def _withdraw(self) -> None:
        if owner := self._holder():
            owner.withdraw()

    def _trim(self) -> None:
        if self.journal.ready:
            self.journal.trim()

    def _end(self) -> None:
        if owner := self._holder():
            owner.say("end")

    def _release(self) -> None:
        if owner := self._holder():
            owner.say("release")

    def _rogue(self) -> None:
        """A broken owner writes after its end, or into an epoch that nobody was given."""
        ledger: Ledger = self.journal.ledger
        number = self.number("note")
        self.facts.rogue.add(number)
        ended = ledger.fold.ended or ledger.fold.released
        epoch = ledger.epoch if ended else ledger.epoch + 1
        first = ledger.chain.stored + 1 if ended else 1
        frame = Frame(ledger.inc, epoch, ledger.parent, first, self.ms, (note("note", number),))
        if ledger.inc and self.journal.ready:
            self.journal.on("out", "rogue", frame)

    def _stale_refusals(self) -> None:
        """Copies of an old refusal of frames come again and again."""
        if self.journal.refused is not None and self.bus.repeat:
            for owner in self.owners:
                for _ in range(4):
                    self.bus.hold(owner, "ack", "journal", self.journal.refused)

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
