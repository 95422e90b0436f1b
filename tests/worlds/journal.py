"""The journal of a world: a real ledger, what is staged, and a disk that has only what was committed."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from agentmqtt.core.effects import (
    Append,
    DropCommand,
    Effect,
    Receipt,
    Restate,
    SaveChannel,
    SaveCommand,
    Tell,
    Trim,
    Truncate,
)
from agentmqtt.core.leases import Leases
from agentmqtt.core.ledger import Ledger
from agentmqtt.core.mailbox import Row
from agentmqtt.core.pages import LogRow, compact
from agentmqtt.core.states import END, RELEASE
from agentmqtt.frames import Ack, Alive, Claim, Command, Fetch, Frame, Grant, Handed, Outcome, Page, Refusal, Renew
from agentmqtt.types import Entry, Position, Value
from tests.worlds.events import numbers_of
from tests.worlds.facts import AppendFact, GrantFact, StatusFact, TrimFact

if TYPE_CHECKING:
    from tests.worlds.world import World

LEASE = 30.0
GRACE = 15.0
NAME = "w"


@dataclasses.dataclass(slots=True)
class Store:
    """What survives a crash of the journal."""

    record: Value = None
    rows: list[LogRow] = dataclasses.field(default_factory=list)
    commands: dict[int, Value] = dataclasses.field(default_factory=dict)
    holder: tuple[bytes, bytes] = (b"", b"")
    sealed: bool = False


class Oracle:
    """Whether the owner lives, told by a rule of three lines instead of the core's."""

    def __init__(self, holder: tuple[bytes, bytes], *, sealed: bool, now: float) -> None:
        self.instance, self.boot = holder
        self.sealed = sealed
        self.until = now + LEASE
        self.conn: int | None = None
        self.known = False  # to this journal: what its predecessor knew is old news
        self.doubtful = False

    def heard(self, boot: bytes, now: float, conn: int | None = None, *, fits: bool = True) -> None:
        """`fits`: a frame that is refused may be an old copy; it proves nothing after a restart."""
        if boot == self.boot:
            self.known = self.known or fits
            self.doubtful = not self.known
            self.until = now + LEASE
            self.conn = conn if conn is not None and conn > (self.conn or 0) else self.conn

    def died(self, boot: bytes, conn: int, now: float) -> None:
        if boot == self.boot and conn == self.conn:
            self.until = now

    def granted(self, instance: bytes, boot: bytes, conn: int, now: float) -> None:
        self.conn = max(conn, self.conn or 0) if boot == self.boot and not self.sealed else conn
        self.instance, self.boot, self.sealed, self.until = instance, boot, False, now + LEASE
        self.known, self.doubtful = True, False

    def alive(self, now: float) -> bool:
        return bool(self.boot) and not self.sealed and now < self.until


class SimJournal:
    """Answers only after its commit; a crash before it forgets what was staged."""

    kind = "journal"

    def __init__(self, world: World) -> None:
        self.world = world
        self.hits = world.hits
        self.store = Store()
        self.ready = False
        self.refused: Ack | None = None
        self.held: dict[str, int] = {}
        self.given_up: set[str] = set()
        self.start()

    # ---- life

    def start(self) -> None:
        store, now = self.store, self.world.now
        self.ledger = Ledger.restore(NAME, store.record) if store.record is not None else Ledger(NAME)
        for seq, value in store.commands.items():
            self.ledger.mailbox.load(Row.unpack(seq, value))
        self.leases = Leases(LEASE, GRACE)
        if self.ledger.holder is not None:
            self.leases.hold(self.ledger.holder, NAME, now)
        self.oracle = Oracle(store.holder, sealed=store.sealed, now=now)
        self.checked = 0.0
        self.staged: list[Any] = []
        self.questions: list[tuple[str, Fetch]] = []
        self.restate = True
        self.ready = True
        self.boot = self.world.bytes()
        self.world.bus.subscribe(self, "out", "own", "in", "req", "renew", "alive")
        self.world.bus.redeliver(self)

    def crash(self) -> None:
        self.hits["journal crashed"] += 1
        if self.staged:
            self.hits["journal crashed before commit"] += 1
        elif self.ledger.inc and not self._saved():
            self.world.facts.lies.append("P3 the journal decided something that it did not write")
        self.ready = False
        self.world.bus.unsubscribe(self)
        self.world.bus.lose(self, 0.8)

    def _saved(self) -> bool:
        return self.store.record is not None and self.ledger.snapshot()[:6] == self.store.record[:6]

    def lose_store(self) -> None:
        self.store = Store()
        self.held.clear()
        self.given_up.clear()
        self.hits["journal lost its store"] += 1
        self.world.facts.history.append(None)
        self.world.facts.inc = b""

    # ---- what arrives

    def on(self, topic: str, source: str, message: Any) -> None:
        getattr(self, "_on_" + topic)(source, message)
        if self.world.random() < self.world.eager:
            self.commit()

    def _on_own(self, source: str, claim: Claim) -> None:
        ledger, now = self.ledger, self.world.now
        before, epoch, alive = ledger.holder, ledger.epoch, self.oracle.alive(now)
        self._count_claim(claim)
        effects = ledger.on_claim(claim, source, self.world.ms, self.world.inc())
        if ledger.epoch != epoch:
            self._granted(claim, source, effects, alive=alive, before=before)
        self._stage(effects)

    def _count_claim(self, claim: Claim) -> None:
        if claim.inc and claim.inc != self.ledger.inc:
            self.hits["foreign incarnation claim"] += 1
        if any(row.request == claim.request for row in self.ledger.chain.epochs.values()):
            self.hits["repeated claim"] += 1
        if not self.world.is_current(claim):
            self.hits["late claim"] += 1

    def _granted(self, claim: Claim, source: str, effects: list[Effect], *, alive: bool, before: Any) -> None:
        grant = next(e.message for e in effects if type(e) is Tell and type(e.message) is Grant)
        asked = "attempt" if claim.attempt else claim.cut
        same = claim.instance == self.oracle.instance or claim.boot == self.oracle.boot
        self.staged.append(
            GrantFact(
                grant.inc,
                grant.epoch,
                grant.parent,
                claim.boot,
                claim.instance,
                claim.request,
                claim.inc,
                claim.mine,
                claim.replaces,
                asked,
                claim.takeover,
                claim.reopen,
                alive and not same,
            )
        )
        if claim.takeover and alive and not same:
            self.hits["takeover"] += 1
        if same and claim.boot != self.oracle.boot:
            self.hits["resume of same disk"] += 1
        if claim.reopen and self.oracle.sealed:
            self.hits["reopen after end"] += 1
        if any(type(effect) is Truncate for effect in effects):
            self.hits["withdraw at grant"] += 1
        if before not in (None, self.ledger.holder):
            self.leases.drop(before, NAME)
        self.leases.hold((source, claim.boot), NAME, self.world.now, claim.conn)
        self.oracle.granted(claim.instance, claim.boot, claim.conn, self.world.now)

    def _on_out(self, _source: str, frame: Frame) -> None:
        ledger, now = self.ledger, self.world.now
        before = ledger.holder
        if frame.inc != ledger.inc:
            self.hits["foreign incarnation frame"] += 1
        elif frame.epoch == ledger.epoch:
            self.oracle.heard(self.oracle.boot, now, fits=frame.first <= ledger.chain.stored + 1)
            if before is not None and self.leases.seen(before, now):
                self._seen()
        was = ledger.owner
        self._stage(ledger.on_frame(frame, self.world.ms))
        if before is not None and ledger.holder is None:
            self.leases.drop(before, NAME)
        self.restate |= was is not ledger.owner

    def _seen(self) -> None:
        self.restate |= self.ledger.owner_seen()
        self._stage([*self.ledger.hand(), *self.ledger.hand_again()])

    def _on_in(self, source: str, command: Command) -> None:
        self._stage(self.ledger.on_command(command, source, self.world.ms, self.world.inc()))

    def _on_req(self, source: str, fetch: Fetch) -> None:
        self.questions.append((source, fetch))

    def _on_renew(self, source: str, renew: Renew) -> None:
        self.oracle.heard(renew.boot, self.world.now, renew.conn)
        if self.leases.seen((source, renew.boot), self.world.now, renew.conn):
            self._seen()

    def _on_alive(self, source: str, alive: Alive) -> None:
        if alive.online:
            self._on_renew(source, Renew(alive.boot, alive.conn))
            return
        self.oracle.died(alive.boot, alive.conn, self.world.now)
        if self.leases.died((source, alive.boot), alive.conn, self.world.now):
            self.hits["will believed"] += 1
            self.ledger.owner_lost()
            self.restate = True
        else:
            self.hits["late will ignored"] += 1

    def tick(self) -> None:
        self.checked = self.world.now
        lost, over = self.leases.expire(self.world.now)
        if lost:
            self.hits["owner lost"] += 1
            self.ledger.owner_lost()
        if over:
            self.hits["interrupted"] += 1
            self.ledger.grace_ended()
            self.staged.append(SaveChannel())
        self.restate |= bool(lost or over) or self.world.random() < 0.1
        self._stage(self.ledger.tick(self.world.ms))
        if self.world.random() < 0.4:
            self._stage(self.ledger.hand_again())
        self.commit()

    def trim(self) -> None:
        """Forget up to a random event of the older half."""
        if len(self.store.rows) < 4 or self.staged:
            return
        row = self.store.rows[int(self.world.random() * len(self.store.rows) / 2)]
        to = Position(row.epoch, row.first + int(self.world.random() * len(row.entries)))
        if effects := self.ledger.trim(to):
            self.hits["trimmed"] += 1
            self._stage(effects)
            self.staged.append(TrimFact(self.ledger.inc, to))
            self.commit()

    # ---- persist, then tell

    def _stage(self, effects: list[Effect]) -> None:
        for effect in effects:
            if type(effect) is Restate:
                self.restate = True
            elif type(effect) is SaveCommand:
                self.staged.append((effect.seq, self.ledger.mailbox.row(effect.seq).pack()))
            else:
                self.staged.append(effect)
                if type(effect) is Append:
                    self.oracle.sealed |= _seals(effect.entries)

    def commit(self) -> None:
        staged, self.staged = self.staged, []
        save = False
        for item in staged:
            if type(item) is SaveChannel:
                save = True
            elif type(item) is tuple:
                self.store.commands[item[0]] = item[1]
            elif type(item) is not Receipt and type(item) is not Tell:
                self._write(item)
        if save:
            self.store.record = self.ledger.snapshot()
        self.store.holder, self.store.sealed = (self.oracle.instance, self.oracle.boot), self.oracle.sealed
        for item in staged:
            if type(item) is Receipt or type(item) is Tell:
                self._tell(item)
        self._answer()
        if self.restate:
            self._publish_status()

    def _write(self, item: Any) -> None:
        rows, facts = self.store.rows, self.world.facts
        match item:
            case Append(epoch, first, time, entries):
                rows.append(LogRow(epoch, first, time, entries))
                facts.history.append(AppendFact(self.ledger.inc, epoch, first, numbers_of(entries)))
                if _seals(entries):
                    self.hits["end" if entries[-1].type == END else "release"] += 1
            case Truncate(after):
                self.store.rows = [cut for row in rows if (cut := _part(row, Position(0, 0), after)).entries]
            case Trim(upto):
                end = Position(1 << 40, 0)
                self.store.rows = [cut for row in rows if (cut := _part(row, upto, end)).entries]
            case DropCommand(seq):
                del self.store.commands[seq]
            case GrantFact() | TrimFact():
                facts.history.append(item)
                self.hits["grant"] += type(item) is GrantFact
            case _:
                raise AssertionError(f"an effect that no shell knows: {item!r}")

    def _tell(self, item: Any) -> None:
        bus = self.world.bus
        if type(item) is Receipt:
            if item.ack.why is not None:
                self.hits["frame refused: " + item.ack.why] += 1
                self.refused = item.ack
            bus.publish("journal", "ack", item.ack)
            return
        message = item.message
        if type(message) is Refusal:
            self.hits["claim refused: " + message.why] += 1
            if message.why == "gone":
                self.world.facts.gone.add(message.request)
        elif type(message) is Handed:
            self.world.facts.handed.add(message.id)
            self.hits["command again" if message.again else "command handed"] += 1
            self.held[message.id] = message.epoch
        elif type(message) is Outcome:
            self.hits["command " + message.state] += 1
            self._judge_unknown(message)
        bus.publish("journal", "res:" + item.client, message)

    def _judge_unknown(self, outcome: Outcome) -> None:
        """Nobody may give up a command that a living owner has."""
        forgotten = outcome.id in self.world.facts.forgotten
        if outcome.state != "unknown" or outcome.id in self.given_up or forgotten:
            return
        self.given_up.add(outcome.id)
        if self.held.get(outcome.id) == self.ledger.epoch and self.oracle.alive(self.world.now):
            self.world.facts.lies.append("P7 a command was given up though the owner that has it lives")

    def _answer(self) -> None:
        questions, self.questions = self.questions, []
        ledger, random = self.ledger, self.world.random
        for source, fetch in questions:
            kind, start = ledger.plan(fetch)
            tail = ledger.chain.tail
            limit = min(fetch.limit, (0, 70, 600)[int(random() * 3)])
            items = compact(self.store.rows, start, tail, limit, _size)
            page = Page(
                fetch.request,
                NAME,
                ledger.inc,
                ledger.epoch,
                ledger.parent,
                kind,
                fetch.position,
                start,
                tail,
                items,
            )
            self.hits["page " + kind] += 1
            if kind == "rewound":
                facts = self.world.facts
                facts.rewinds.append((len(facts.history), ledger.inc, fetch.position, start))
            self.world.bus.publish("journal", "res:" + source, page)

    def _publish_status(self) -> None:
        self.restate = False
        status = self.ledger.status(self.world.ms)
        if not status.inc:
            return
        oracle, now = self.oracle, self.world.now
        lives = oracle.alive(now) and oracle.known
        want = "none" if oracle.sealed or not oracle.boot else "online" if lives else "lost"
        noticed = want != "lost" or oracle.until <= self.checked or not oracle.known
        if status.owner != want and noticed and not oracle.doubtful:
            self.world.facts.lies.append(f"P8 status says {status.owner}, its owner is {want}")
        self.world.facts.status = StatusFact(status.inc, status.epoch, status.tail, status.state, status.owner)
        self.world.bus.publish("journal", "status", status, retain="status")


def _size(_entry: Entry) -> int:
    return 20


def _seals(entries: tuple[Entry, ...]) -> bool:
    return any(entry.type in (END, RELEASE) for entry in entries)


def _part(row: LogRow, after: Position, upto: Position) -> LogRow:
    """The events of a row that lie after `after` and not after `upto`."""
    kept = [(n, e) for n, e in enumerate(row.entries, row.first) if after < (row.epoch, n) <= upto]
    first = kept[0][0] if kept else 0
    return LogRow(row.epoch, first, row.time, tuple(entry for _, entry in kept))
