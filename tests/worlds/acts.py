"""What can happen in a world: its calm acts, its faults, and how often each is tried."""

from __future__ import annotations

from agentmqtt.core.ledger import Ledger
from agentmqtt.frames import Command, Frame
from tests.worlds.disk import Disk
from tests.worlds.events import note
from tests.worlds.journal import NAME
from tests.worlds.owner import SimOwner
from tests.worlds.watcher import SimWatcher

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


class Acts:
    """One method for each act, mixed into the World, which picks them by weight."""

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
