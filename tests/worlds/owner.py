"""The owner of a world: one disk, and on it one process after another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from agentmqtt.core.inbox import Inbox
from agentmqtt.core.outbox import ATTEMPT, Header, Intent, Outbox, Row
from agentmqtt.core.states import ANSWER, ASK, END, RECEIPT, RELEASE, STATE, WriterState
from agentmqtt.core.writer import Identity, Save, Writer
from agentmqtt.frames import Ack, Alive, Frame, Grant, Handed, Refusal, Renew, Status
from agentmqtt.types import ORIGIN, CommandState, Entry, Position
from tests.worlds.disk import Content, Disk, PackedRow
from tests.worlds.events import note, numbers_of, tagged, text
from tests.worlds.facts import DropFact
from tests.worlds.journal import NAME

if TYPE_CHECKING:
    from tests.worlds.world import World


class SimOwner:
    """A thin shell around writer and inbox."""

    kind = "owner"

    def __init__(self, world: World, client: str, disk: Disk | None = None) -> None:
        self.world = world
        self.hits = world.hits
        self.client = client
        self.name = f"owner{len(world.owners)}"
        self.disk = disk or Disk(Header(world.bytes()).pack(), {})
        self.backup = self.disk.copy()
        self.up = self.ready = False
        self.frozen = False
        self.linked = True
        self.slow = world.random() < 0.3
        self.left = 0

    # ---- life

    def start(self, *, takeover: bool = False, attempt: bool = False, reopen: bool = False) -> None:
        world = self.world
        self.up, self.frozen, self.linked = True, False, True
        self.boot, self.conn = world.bytes(), 1
        world.facts.disk_of[self.boot] = self.name
        self.knows = world.journal.boot
        self.left = 0
        self.over = False
        self.pending: list[PackedRow] = []
        self.todo: list[Handed] = []
        self.known: list[Position] = []
        outbox = Outbox(Header.unpack(self.disk.header), (Row(*row) for row in self.disk.rows.values()))
        who = Identity(self.boot, takeover, reopen)
        self.writer = Writer(NAME, outbox, who, world.bytes(), window=world.window, limit=world.limit)
        self.inbox = Inbox(outbox.receipted)
        if self.disk.asked and outbox.header.intent is None:
            world.facts.lies.append("P6 a withdraw that was asked for is forgotten after a restart")
        if attempt:
            self._doom()
        self._save(self.writer.intend(ATTEMPT) if attempt else Save(outbox.header, sync=True))
        self._ready()
        world.bus.subscribe(self, "ack", "status", "res:" + self.client)
        self._claim()

    def _ready(self) -> None:
        self.ready = self.up and self.linked and not self.frozen

    def die(self, *, power: bool) -> None:
        self.hits["owner crashed"] += 1
        self.up = False
        self._ready()
        self._count()
        self.world.bus.unsubscribe(self)
        self.world.bus.lose(self, 0.9)
        self._will()
        if power:
            self.roll_back(self.disk.synced, "power loss with rollback")

    def roll_back(self, content: Content, word: str) -> None:
        if self.disk.copy() != content:
            self.hits[word] += 1
        self.world.facts.rolled_back.update(self.disk.restore(content))

    def _will(self) -> None:
        if self.world.random() < 0.7:
            message = Alive(self.boot, self.conn, online=False)
            self.world.bus.hold(self.world.journal, "alive", self.client, message)
            self.world.bus.retained["alive/" + self.client] = (self.client, message)

    def freeze(self) -> None:
        self.frozen = not self.frozen
        self.hits["frozen" if self.frozen else "thawed"] += 1
        self._ready()

    def unlink(self) -> None:
        self.linked = False
        self._ready()
        self.world.bus.lose(self, 0.8)

    def relink(self) -> None:
        self._will()
        self.conn += 1
        self.linked = True
        self._ready()
        self.hits["owner came back on a new link"] += 1
        if not self.ready:
            return
        self.world.bus.redeliver(self)
        self.world.bus.publish(
            self.client, "alive", Alive(self.boot, self.conn, online=True), retain="alive/" + self.client
        )
        self._claim()
        self._send(self.writer.resend())

    def tick(self) -> None:
        """Its timers: claim again, renew the lease, send again what nobody receipted."""
        if self.writer.claiming:
            self._claim()
        elif self.writer.owned and self.knows is not self.world.journal.boot and self.world.journal.ready:
            self.knows = self.world.journal.boot
            self._send(self.writer.resend())
        elif self.writer.owned:
            self.world.bus.publish(self.client, "renew", Renew(self.boot, self.conn))
            if self.world.random() < 0.5:
                self._send(self.writer.resend(probe=False))
            else:
                self.pump()

    # ---- emitting

    @property
    def open(self) -> bool:
        return self.up and not self.writer.finished and not self.writer.outbox.sealed

    def emit(self, entries: tuple[Entry, ...]) -> None:
        if not self.open:
            self.hits["emit refused after the end"] += self.up and self.writer.outbox.sealed
            return
        row = self.writer.append(entries, 10 * len(entries), self.world.ms)
        self.pending.append((row.seq, row.time, row.entries, row.size, row.first))
        ids = numbers_of(entries)
        for number in ids:
            self.world.facts.emitted[number] = self.name, self.boot
        if len(ids) > 1:
            self.world.facts.groups.append(ids)
        if self.world.random() < 0.8:
            self.flush()
        if not self.ready:
            self.hits["emitted without a link"] += 1

    def flush(self) -> None:
        """Commit what waits; sometimes the disk really has it."""
        for row in self.pending:
            self.disk.rows[row[0]] = row
            for number in numbers_of(row[2]):
                self.world.facts.committed[number] = None
        if self.pending:
            self.writer.committed(self.pending[-1][0])
            self.pending.clear()
            if self.world.random() < 0.3:
                self.disk.sync()
        self.pump()

    def pump(self) -> None:
        if self.ready:
            self._send(self.writer.pump())

    def _send(self, frames: list[Frame]) -> None:
        if not self.ready:
            return
        facts = self.world.facts
        for frame in frames:
            for n, number in enumerate(numbers_of(frame.entries), frame.first):
                if number not in facts.committed:
                    facts.lies.append("P4 an event was sent before it was on disk")
                place = (frame.inc, frame.epoch, n)
                if facts.sent.setdefault(place, (self.boot, number)) != (self.boot, number):
                    facts.reused.append(place)
            self.world.bus.publish(self.client, "out", frame)

    def say(self, kind: str) -> None:
        """Emit something of this kind."""
        random = self.world.random
        self.over |= self.open and kind in ("end", "release")
        match kind:
            case "text":
                self.emit(tuple(text(self.world.number("text")) for _ in range((1, 1, 2)[int(random() * 3)])))
            case "end":
                outcome = ("done", "failed", "cancelled")[int(random() * 3)]
                self.emit((note(END, self.world.number(f"{END}:{outcome}"), outcome=outcome, result=1),))
            case "ask":
                name = f"q{int(random() * 3)}"
                self.emit((note(ASK, self.world.number(f"{ASK}:{name}"), id=name),))
            case "answer":
                name = f"q{int(random() * 3)}"
                self.emit((note(ANSWER, self.world.number(f"{ANSWER}:{name}"), id=name),))
            case "release":
                self.emit((note(RELEASE, self.world.number(RELEASE)),))
            case "state":
                self.emit((note(STATE, self.world.number(STATE)),))
            case _:
                self.emit((note("note", self.world.number("note")),))

    # ---- claiming and withdrawing

    def _claim(self) -> None:
        if not self.ready or not self.writer.claiming:
            return
        claim = self.writer.claim(self.conn)
        if claim.cut is not None or claim.attempt:
            self.world.facts.withdraws.setdefault(claim.request, self.disk.doomed)
        self.world.bus.publish(self.client, "own", claim)

    def _doom(self) -> None:
        """Remember what of this outbox the withdraw is about, whatever the core thinks."""
        self.flush()
        self.disk.doomed = tuple(
            number
            for row in self.writer.outbox.rows
            for entry in row.entries
            if entry.type != RECEIPT
            for number in numbers_of((entry,))
        )

    def withdraw(self) -> None:
        """Withdraw while owning: the attempt, back to something stored, or to a place that is not there."""
        if not self.writer.owned or not self.ready or self.writer.outbox.header.intent is not None:
            return
        self._doom()
        random = self.world.random
        goal: Intent = ATTEMPT
        if (luck := random()) < 0.4 and self.known:
            at = self.known[int(random() * len(self.known))]
            goal = Position(at.epoch, 1 + int(random() * at.n))
        elif luck < 0.5:
            goal = self.writer.outbox.header.parent
        elif luck < 0.6:
            epoch, top = self.writer.outbox.header.epoch, self.writer.outbox.top
            goal = (ORIGIN, Position(epoch, top + 3), Position(max(1, epoch - 1), 7))[int(random() * 3)]
        save = self.writer.withdraw(goal, self.world.bytes())
        if save is None:
            self.hits["live withdraw to what is not stored"] += 1
            self.disk.doomed = ()
            return
        self.hits["live withdraw asked"] += 1
        self._save(save)
        self._claim()

    def _save(self, save: Save | None) -> None:
        if save is None:
            return
        self.flush()
        self.disk.header = save.header.pack()
        for row in save.gone:
            self.disk.rows.pop(row.seq, None)
        for row in save.changed:
            self.disk.rows[row.seq] = (row.seq, row.time, row.entries, row.size, row.first)
        self.disk.asked = save.header.intent is not None
        if not self.disk.asked:
            self.disk.doomed = ()
        if save.sync:
            self.disk.sync()

    # ---- what it hears

    def on(self, topic: str, _source: str, message: Any) -> None:
        match message:
            case Ack():
                owned = self.writer.owned
                self._hear("ack", lambda: self.writer.on_ack(message, self.world.bytes(), self.world.bytes()))
                if owned and self.writer.state is WriterState.RECLAIMING:
                    self.hits["outbox could not serve" if message.why == "gap" else "claimed again"] += 1
                if self.writer.stored not in self.known:
                    self.known = [*self.known[-5:], self.writer.stored]
            case Status():
                self._hear("status", lambda: self.writer.on_status(message, self.world.bytes(), self.world.bytes()))
                header = self.writer.outbox.header
                if self.writer.owned and header.inc == message.inc and header.epoch < message.epoch:
                    self.world.facts.lies.append("P5 an owner read of a newer epoch and goes on")
            case Grant():
                self._on_grant(message)
            case Refusal():
                self._on_refusal(message)
            case Handed():
                self._on_handed(message)
        self._claim_if_new()

    def _claim_if_new(self) -> None:
        if self.writer.claiming and self.writer.request not in self.world.asked:
            self.world.asked[self.writer.request] = None
            self._claim()

    def _hear(self, how: str, call: Callable[[], Save | None]) -> Save | None:
        """Let the core decide, then look at what became of the outbox."""
        outbox = self.writer.outbox
        was, events = outbox.header, outbox.events
        instance, inc, epoch = was.instance, was.inc, was.epoch
        before = [(row.first, row.entries) for row in outbox.rows]
        save = call()
        fenced = outbox.header.instance != instance
        if fenced or outbox.events != events:
            left = {number for row in outbox.rows for number in numbers_of(row.entries)}
            rows = ((first, tuple(i for i in numbers_of(entries) if i not in left)) for first, entries in before)
            gone = tuple((first, ids) for first, ids in rows if ids)
            self.world.facts.dropped.append(DropFact("left" if fenced else how, self.boot, inc, epoch, gone))
            if fenced:
                self.left += sum(len(ids) for _, ids in gone)
                self._fenced(how, inc, epoch)
        self._save(save)
        self.pump()
        return save

    def _fenced(self, how: str, inc: bytes, epoch: int) -> None:
        self.hits["fenced by " + how] += 1
        facts = self.world.facts
        facts.fences.append((self.boot, inc, epoch, len(facts.history)))

    def _on_grant(self, grant: Grant) -> None:
        writer = self.writer
        intent, before, state = writer.outbox.header.intent, len(writer.outbox.rows), writer.state
        receipts = set(_receipted(writer.outbox))
        how = "stored" if intent is None else "withdrawn"
        if self._hear(how, lambda: writer.on_grant(grant)) is None:
            return
        self.granted_at = self.world.now
        self.hits["grant dropped rows"] += len(writer.outbox.rows) < before and intent is None
        if intent is not None and state is WriterState.WITHDRAWING:
            self.hits["live withdraw"] += 1
        if intent is not None and receipts & set(_receipted(writer.outbox)):
            self.hits["receipt carried over a withdraw"] += 1

    def _on_refusal(self, refusal: Refusal) -> None:
        answered = self.writer.claiming and self.writer.request == refusal.request
        self._hear("refusal", lambda: self.writer.on_refusal(refusal, self.world.bytes(), self.world.bytes()))
        header = self.writer.outbox.header
        if answered and self.writer.owned and (header.inc != refusal.inc or header.epoch < refusal.epoch):
            self.world.facts.lies.append("P5 an owner goes on in an epoch of which it was told that it is over")

    # ---- commands

    def _on_handed(self, handed: Handed) -> None:
        header = self.writer.outbox.header
        if not self.writer.owned or (handed.inc, handed.epoch) != (header.inc, header.epoch) or not self.open:
            self.hits["command for another epoch"] += 1
            return
        answer = self.inbox.on_handed(handed)
        if isinstance(answer, Entry):
            self.hits["receipt emitted again"] += 1
            self.emit((tagged(answer, self.world.number(RECEIPT)),))
        elif answer is not None:
            self.todo.append(answer)
            if not self.slow:
                self.work()

    def work(self) -> None:
        """The application handles the next command."""
        if not self.todo or not self.open:
            return
        handed = self.todo.pop(0)
        world, facts = self.world, self.world.facts
        if world.random() < 0.15:
            facts.refused.add(handed.id)
            self._settle(handed.id, CommandState.REJECTED)
            return
        facts.effects[handed.id].append(handed.again)
        if world.random() < world.crash_after_effect:
            self.hits["crash between effect and receipt"] += 1
            self.die(power=False)
            return
        self._settle(handed.id, CommandState.APPLIED)

    def _settle(self, command: str, state: CommandState) -> None:
        world = self.world
        entries = [tagged(self.inbox.settle(command, state), world.number(RECEIPT))]
        if state is CommandState.APPLIED and world.random() < 0.6:
            number = world.number("effect")
            world.facts.log_effects[number] = command
            entries.append(note("effect", number))
        self.emit(tuple(entries))

    # ---- the end

    def _count(self) -> None:
        self.world.facts.counts.append((self.boot, self.writer.left_unsent, self.left))


def _receipted(outbox: Outbox) -> Iterator[str]:
    for row in outbox.rows:
        yield from (entry.data["id"] for entry in row.entries if entry.type == RECEIPT)
