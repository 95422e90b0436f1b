"""What the journal decides about one channel: its order, owner, history and commands (PROTOCOL §5).

Every method takes what arrived and returns effects; the shell makes the writes durable before it
does the rest. `now` is milliseconds since 1970 by a clock that never steps back.
"""

from __future__ import annotations

from collections.abc import Mapping

from agentmqtt.core.chain import Chain, Epoch
from agentmqtt.core.effects import Append, Effect, Receipt, Restate, SaveChannel, Tell, Trim, Truncate
from agentmqtt.core.fold import FOLDED, Fold
from agentmqtt.core.mailbox import Mailbox
from agentmqtt.core.states import END, RECEIPT, RECEIVED, RELEASE
from agentmqtt.frames import Ack, Claim, Command, Fetch, Frame, Grant, PageKind, Refusal, Status, Why, Withdraw
from agentmqtt.types import NO_INC, ORIGIN, Entry, OwnerState, Position, RunState, Value

Holder = tuple[str, bytes]
"""Client ID and boot ID of the process that owns a name."""


class Ledger:
    """One channel. `live`: the owner's lease runs; `heard`: it spoke since this journal started."""

    def __init__(self, workflow: str, *, pending_limit: int = 1000) -> None:
        self.workflow = workflow
        self.inc = NO_INC
        self.chain = Chain()
        self.fold = Fold()
        self.mailbox = Mailbox(workflow, pending_limit=pending_limit)
        self.evidence: dict[bytes, int] = {}
        self.updated = 0
        self.live = False
        self.heard = False
        self.interrupted = False
        self.generation = 0

    # ---- what it says about itself

    @property
    def epoch(self) -> int:
        return self.chain.current

    @property
    def parent(self) -> Position:
        holder = self.chain.holder
        return holder.parent if holder else ORIGIN

    @property
    def holder(self) -> Holder | None:
        """Who owns the name now; None before the first claim, after a release and after the end."""
        row = self.chain.holder
        if row is None or self.fold.ended or self.fold.released:
            return None
        return row.client, row.boot

    @property
    def online(self) -> bool:
        return self.holder is not None and self.live and self.heard

    @property
    def state(self) -> RunState:
        if not self.epoch:
            return RunState.NEW
        if self.fold.ended:
            return self.fold.state
        return RunState.INTERRUPTED if self.interrupted or self.fold.released else self.fold.state

    @property
    def owner(self) -> OwnerState:
        if self.holder is None:
            return OwnerState.NONE
        return OwnerState.ONLINE if self.online else OwnerState.LOST

    def status(self, now: int, request: int = 0) -> Status:
        """The fold of the log and the owner's liveness, as of now (§8)."""
        attempt = self.chain.holder.attempt if self.chain.holder else 0
        return Status(
            self.workflow,
            self.inc,
            self.epoch,
            self.parent,
            self.chain.tail,
            self.state,
            self.owner,
            now,
            self.updated,
            attempt,
            self.fold.detail,
            self.fold.result,
            request,
        )

    # ---- claims (§5.2)

    def on_claim(self, claim: Claim, client: str, now: int, fresh_inc: bytes) -> list[Effect]:
        """Grant the name or say why not. `fresh_inc` becomes the incarnation of a channel without one."""
        minted = self._mint(fresh_inc)
        if (epoch := self._granted(claim.request)) is not None:
            return [Tell(client, self._repeat(claim, epoch))]
        cut = self._cut_of(claim)
        why = self._objection(claim, cut)
        if why is not None:
            return [*minted, Tell(client, self._refuse(claim, why))]
        if self._foreign(claim):
            self.evidence[claim.inc] = max(claim.mine, self.evidence.get(claim.inc, 0))
        stored = 0 if self._foreign(claim) else self.chain.last.get(claim.mine, 0)
        effects = self._grant(claim, client, cut, now)
        grant = Grant(claim.request, self.workflow, self.inc, self.epoch, self.parent, stored, self._attempt)
        return [*effects, Tell(client, grant), *self.hand(), Restate(urgent=True)]

    @property
    def _attempt(self) -> int:
        return self.chain.epochs[self.epoch].attempt

    def _mint(self, inc: bytes) -> list[Effect]:
        """Give a channel its incarnation, once."""
        if self.inc:
            return []
        self.inc = inc
        self.generation += 1
        return [SaveChannel(), Restate(urgent=False)]

    def _foreign(self, claim: Claim) -> bool:
        return claim.inc not in (NO_INC, self.inc)

    def _outdated(self, claim: Claim) -> bool:
        """A newer owner of the lost store was here already."""
        return self._foreign(claim) and claim.mine < self.evidence.get(claim.inc, 0)

    def _late(self, claim: Claim) -> bool:
        """The holder's disk has claimed again since: request IDs of 16 bytes rise per disk (§5.1)."""
        row = self.chain.holder
        if row is None or row.instance != claim.instance or min(len(claim.request), len(row.request)) < 16:
            return False
        return claim.request[:8] < row.request[:8]

    def _granted(self, request: bytes) -> int | None:
        return next((e for e, row in self.chain.epochs.items() if row.request == request), None)

    def _repeat(self, claim: Claim, epoch: int) -> Grant | Refusal:
        if epoch != self.epoch:
            return self._refuse(claim, Why.FENCED)
        row = self.chain.epochs[epoch]
        stored = 0 if self._foreign(claim) else self.chain.last.get(claim.mine, 0)
        return Grant(claim.request, self.workflow, self.inc, epoch, row.parent, stored, row.attempt)

    def _cut_of(self, claim: Claim) -> Position | None:
        """Where the claim wants to go back to. A lost store took the attempt with it."""
        if not claim.attempt:
            return claim.cut
        row = self.chain.holder
        return row.attempt_from if row and not self._foreign(claim) else None

    def _objection(self, claim: Claim, cut: Position | None) -> Why | None:
        """The first rule that forbids the grant (§5.2), or None."""
        if claim.cut is not None and not claim.attempt and not self._can_cut(claim, claim.cut):
            return Why.GONE
        if self._outdated(claim) or self._late(claim):
            return Why.FENCED
        if self.fold.ended and not (claim.reopen and cut is not None):
            return Why.ENDED
        row = self.chain.holder
        if row is None or self._may_have(claim, row, cut):
            return None
        fresh = self._foreign(claim) or claim.replaces in (0, self.epoch)
        return Why.OWNED if self.live and fresh else Why.FENCED

    def _can_cut(self, claim: Claim, cut: Position) -> bool:
        return not self._foreign(claim) and self.chain.contains(cut) and cut >= self.chain.base

    def _may_have(self, claim: Claim, row: Epoch, cut: Position | None) -> bool:
        free = claim.takeover or not self.live or self.holder is None
        if self._foreign(claim):
            if row.boot == claim.boot and not self.chain.stored:
                return True  # a late copy of an earlier claim of this very process came first
            return self._resumes(claim, cut, 0) if self._known(claim) else free
        if row.boot == claim.boot and claim.replaces == self.epoch:
            # the holder withdraws (§5.5), comes back after its release, or was told of a loss (§5.3)
            return cut is not None or self.holder is None or claim.mine == self.epoch
        if row.instance == claim.instance:
            return self._resumes(claim, cut, claim.mine)
        return claim.replaces == self.epoch and claim.mine == 0 and free and not self._known(claim)

    def _resumes(self, claim: Claim, cut: Position | None, mine: int) -> bool:
        """The disk proves itself: nothing was stored since the epoch that it knows (§5.2)."""
        later = range(mine + 1, self.epoch + 1)
        return all(self._harmless(claim, self.chain.epochs.get(e), self.chain.last.get(e, 1), cut) for e in later)

    def _harmless(self, claim: Claim, row: Epoch | None, last: int, cut: Position | None) -> bool:
        """An epoch in which nothing happened. One that a withdraw made counts only for the same withdraw, or
        if a late claim of this very process made it in a new store."""
        if row is None or row.instance != claim.instance or last:
            return False
        return not row.cut or cut == row.parent or (row.boot == claim.boot and self._foreign(claim))

    def _known(self, claim: Claim) -> bool:
        return any(row.instance == claim.instance for row in self.chain.epochs.values())

    def _refuse(self, claim: Claim, why: Why) -> Refusal:
        live = self.live and self.holder is not None
        return Refusal(
            claim.request,
            self.workflow,
            self.inc,
            self.epoch,
            why,
            live,
            self._known(claim) or self._outdated(claim),
            self.fold.outcome,
            self.fold.result if self.fold.ended else None,
        )

    def _grant(self, claim: Claim, client: str, cut: Position | None, now: int) -> list[Effect]:
        old = self.chain.holder
        parent = self.chain.tail if cut is None else cut
        withdrawn = parent != self.chain.tail
        attempt, start = (1, parent) if old is None else (old.attempt, old.attempt_from)
        if cut is not None and old is not None:
            attempt, start = old.attempt + 1, cut
        cuts = claim.attempt or cut is not None
        self.chain.grant(Epoch(parent, claim.instance, claim.boot, client, claim.request, cuts, attempt, start))
        self.fold.cut(parent)
        self.owner_seen()
        self.updated = max(self.updated, now)
        self.generation += 1
        effects: list[Effect] = [Truncate(parent)] if withdrawn else []
        return [*effects, SaveChannel(), *self.mailbox.take_back(now)]

    # ---- frames (§4.3)

    def on_frame(self, frame: Frame, now: int) -> list[Effect]:
        """Store what is new and next; refuse what is not; always say how far the log goes."""
        why = self._unfit(frame)
        if why is not None:
            return [Receipt(Ack(self.inc, self.epoch, self.chain.stored, why))]
        self.owner_seen()
        fresh = frame.entries[self.chain.stored + 1 - frame.first :] if frame.last > self.chain.stored else ()
        effects = self._store(fresh, frame.time, now) if fresh else []
        return [*effects, Receipt(Ack(self.inc, self.epoch, self.chain.stored))]

    def _unfit(self, frame: Frame) -> Why | None:
        if frame.inc != self.inc or frame.epoch > self.epoch:
            return Why.VOID
        if frame.epoch < self.epoch:
            return Why.FENCED
        if self.fold.ended or self.fold.released:
            return None if frame.last <= self.chain.stored else Why.ENDED
        return Why.GAP if frame.first > self.chain.stored + 1 else None

    def _store(self, entries: tuple[Entry, ...], time: int, now: int) -> list[Effect]:
        first = self.chain.stored + 1
        effects: list[Effect] = []
        kept = 0
        for entry in entries:
            kept += 1
            if entry.type == RECEIPT and isinstance(entry.data, Mapping):
                effects += self.mailbox.receipt(entry.data, now)
            elif entry.type == RECEIVED and isinstance(entry.data, Mapping):
                effects += self.mailbox.received(entry.data, now)
            elif entry.type in FOLDED:
                self.fold.add(Position(self.epoch, first + kept - 1), entry)
                if entry.type in (END, RELEASE):  # the epoch is sealed: nothing after it counts
                    break
        self.chain.append(kept)
        self.updated = now
        stored: list[Effect] = [Append(self.epoch, first, time, entries[:kept]), SaveChannel()]
        if self.fold.ended:
            effects += self.mailbox.end(now)
        elif effects:
            effects += self.hand()
        return [*stored, *effects, Restate(urgent=any(entry.type in FOLDED for entry in entries[:kept]))]

    # ---- commands (§7)

    def on_command(self, command: Command, sender: str, now: int, fresh_inc: bytes) -> list[Effect]:
        """Accept a command, or say what became of it. It may come before the first owner."""
        minted = self._mint(fresh_inc)
        accepted = self.mailbox.accept(command, sender, now, ended=self.fold.ended)
        return [*minted, *accepted, *self.hand()]

    def on_withdraw(self, asked: Withdraw, sender: str, now: int, fresh_inc: bytes) -> list[Effect]:
        """A sender takes back a command of its own; what an owner holds is asked for there (§7.5)."""
        minted = self._mint(fresh_inc)
        decided = self.mailbox.withdraw(asked.id, sender, asked.deadline, now)
        if self.online:
            client = self.chain.epochs[self.epoch].client
            decided += self.mailbox.recalls(asked.id, self.inc, self.epoch, client)
        return [*minted, *decided]

    def hand(self) -> list[Effect]:
        """Hand what waits, if there is an owner that hears (§7.2)."""
        if not self.online:
            return []
        return self.mailbox.hand(self.inc, self.epoch, self.chain.epochs[self.epoch].client)

    def hand_again(self) -> list[Effect]:
        """Repeat what the owner holds; the shell asks for it when the owner reconnects and now and then."""
        if not self.online:
            return []
        return self.mailbox.hand_again(self.inc, self.epoch, self.chain.epochs[self.epoch].client)

    def tick(self, now: int) -> list[Effect]:
        """Deadlines of commands."""
        return [*self.mailbox.tick(now, live=self.live and self.holder is not None), *self.hand()]

    # ---- liveness (§5.4)

    def owner_seen(self) -> bool:
        """The owner spoke. True if the status changed by it."""
        before = self.owner, self.state
        self.live = self.heard = True
        self.interrupted = False
        return before != (self.owner, self.state)

    def owner_lost(self) -> None:
        """Its lease ended, or its will said so."""
        self.live = False

    def grace_ended(self) -> None:
        """It did not come back in time: the run is interrupted."""
        self.interrupted = True

    # ---- history (§6.4)

    def plan(self, fetch: Fetch) -> tuple[PageKind, Position]:
        """How to answer a fetch: the kind of page and where it starts."""
        at, chain = fetch.position, self.chain
        if fetch.inc not in (NO_INC, self.inc):
            return PageKind.RESET, chain.base
        if self.epoch and at.epoch == self.epoch and at.n > chain.stored:
            return PageKind.AHEAD, at
        if not chain.contains(at):
            return PageKind.REWOUND, chain.ancestor(at)
        if at < chain.base:
            return PageKind.TRIMMED, chain.base
        return PageKind.OK, at

    def trim(self, to: Position) -> list[Effect]:
        """Forget the log up to `to`, a position that is in it."""
        if not self.chain.contains(to) or to <= self.chain.base:
            return []
        self.chain.trim(to)
        self.generation += 1
        return [Trim(to), SaveChannel(), Restate(urgent=False)]

    # ---- disk

    def snapshot(self) -> Value:
        """The channel's record, without its log and its command rows."""
        evidence = [[inc, mine] for inc, mine in self.evidence.items()]
        return [
            1,
            self.inc,
            self.chain.snapshot(),
            self.fold.snapshot(),
            evidence,
            self.updated,
            self.interrupted,
        ]

    @classmethod
    def restore(cls, workflow: str, value: Value, *, pending_limit: int = 1000) -> Ledger:
        """A ledger from its record. Whoever owned the name has one lease to come back (§5.4)."""
        ledger = cls(workflow, pending_limit=pending_limit)
        _, ledger.inc, chain, fold, evidence, ledger.updated, ledger.interrupted = value[:7]
        ledger.chain, ledger.fold = Chain.restore(chain), Fold.restore(fold)
        ledger.evidence = dict(evidence)
        ledger.live = ledger.holder is not None
        return ledger
