"""Faults that somebody could make in the core, as replaced source text. Each `old` occurs exactly once."""

from __future__ import annotations

from typing import NamedTuple


class Fault(NamedTuple):
    """A realistic mistake: `old` becomes `new` in a module of agentmqtt/core. `profile`: where to look for it."""

    name: str
    module: str
    old: str
    new: str
    profile: str = "mixed"


FAULTS = (
    Fault(
        "an owner believes receipts of any epoch",
        "writer",
        "        if ack.epoch != header.epoch:\n            return self._other_epoch(ack, request, instance)\n",
        "",
    ),
    Fault("a cut does not shorten the log", "chain", "        self._truncate(epoch.parent)\n", ""),
    Fault(
        "rows get numbers before the grant",
        "writer",
        "holds = self.state in (WriterState.OWNING, WriterState.WITHDRAWING)",
        "holds = True",
    ),
    Fault(
        "a grant drops rows that had no number",
        "outbox",
        "while self.rows and self.rows[0].first and self.rows[0].last <= n:",
        "while self.rows and (self.rows[0].last <= n):",
    ),
    Fault(
        "any answer to a fetch is used",
        "reader",
        "if self._asked is None or self._asked != (page.request, page.asked) or page.asked != self.position:",
        "if self._asked is None:",
    ),
    Fault(
        "the fork is not kept with the cursor",
        "reader",
        "return [1, self.inc, [*self.position], self.epoch, [*self.fork]]",
        "return [1, self.inc, [*self.position], 0, [0, 0]]",
    ),
    Fault(
        "evidence of a lost store is ignored",
        "ledger",
        "return self._foreign(claim) and claim.mine < self.evidence.get(claim.inc, 0)",
        "return False",
        profile="amnesia",
    ),
    Fault(
        "a reader takes a frame one too far",
        "reader",
        "frame.first <= self.position.n + 1",
        "frame.first <= self.position.n + 2",
    ),
    Fault(
        "a receipt says one too many",
        "ledger",
        "return [*effects, Receipt(Ack(self.inc, self.epoch, self.chain.stored))]",
        "return [*effects, Receipt(Ack(self.inc, self.epoch, frame.last + 1))]",
    ),
    Fault(
        "receipts are withdrawn with their attempt",
        "outbox",
        "if row.seq > self.header.upto or row.receipts])",
        "if row.seq > self.header.upto])",
    ),
    Fault("handed commands are not taken back at a grant", "ledger", ", *self.mailbox.take_back(now)]", "]"),
    Fault(
        "a command handed again gets no receipt again",
        "inbox",
        "return None if outcome is None else self._once(handed, receipt(handed.id, *outcome))",
        "return None",
        profile="amnesia",
    ),
    Fault(
        "the journal goes on after the end",
        "ledger",
        "if self.fold.ended or self.fold.released:\n            return None if",
        "if False:\n            return None if",
    ),
    Fault(
        "an owner goes on after the end",
        "outbox",
        "self.sealed = self.sealed or row.ends or row.releases",
        "self.sealed = False",
    ),
    Fault(
        "trimmed history is skipped without a Gap",
        "reader",
        'self._gap(page.start, "trimmed")\n        elif',
        "self.position = page.start\n        elif",
    ),
    Fault("a stored reader shows frames at once", "reader", "(self._stored and not foreign)", "False"),
    Fault(
        "the intent to withdraw is not written down",
        "outbox",
        "return [1, self.instance, *at, intent, self.upto, self.life]",
        "return [1, self.instance, *at, None, self.upto, self.life]",
    ),
    Fault(
        "a will of an old connection is believed",
        "leases",
        "if lease is None or lease.lost or conn != lease.conn:",
        "if lease is None or lease.lost:",
    ),
    Fault(
        "a repeated claim gets another epoch",
        "ledger",
        "if (epoch := self._granted(claim.request)) is not None:",
        "if (epoch := None) is not None:",
    ),
    Fault(
        "a disk need not prove itself",
        "ledger",
        "if row is None or row.instance != claim.instance or last:",
        "if row is None or row.instance != claim.instance:",
    ),
    Fault(
        "a claim need not name what it replaces",
        "ledger",
        "return claim.replaces == self.epoch and claim.mine == 0 and free",
        "return claim.mine == 0 and free",
    ),
    Fault(
        "a living owner is robbed",
        "ledger",
        "free = claim.takeover or not self.live or self.holder is None",
        "free = True",
    ),
    Fault(
        "the second outcome of a command replaces the first",
        "mailbox",
        "return [] if row.state in FINAL else self._settle(",
        "return self._settle(",
    ),
    Fault(
        "a handed command expires though its owner lives",
        "mailbox",
        "        if row.state == Pending.PENDING:\n            return now > row.deadline\n        return not live",
        "        if row.state == Pending.PENDING:\n            return now > row.deadline\n        return True",
    ),
    Fault(
        "what a dead owner held is called expired",
        "states",
        '    (Pending.HANDED, False): CommandState.UNKNOWN,\n    (Pending.HANDED, True): CommandState.UNKNOWN,\n}\n"""What becomes of it at',
        '    (Pending.HANDED, False): CommandState.EXPIRED,\n    (Pending.HANDED, True): CommandState.EXPIRED,\n}\n"""What becomes of it at',
    ),
    Fault(
        "the journal stores over a gap",
        "ledger",
        "return Why.GAP if frame.first > self.chain.stored + 1 else None",
        "return None",
    ),
    Fault(
        "a repeated event is stored again",
        "ledger",
        "fresh = frame.entries[self.chain.stored + 1 - frame.first :] if",
        "fresh = frame.entries[max(0, self.chain.stored - frame.first) :] if",
    ),
    Fault(
        "frames of a lost store are taken",
        "ledger",
        "if frame.inc != self.inc or frame.epoch > self.epoch:",
        "if frame.epoch > self.epoch:",
    ),
    Fault(
        "an owner does not read the status",
        "writer",
        "if self.state is not WriterState.OWNING or not status.inc:",
        "if True:",
    ),
    Fault(
        "a reader takes frames of an older epoch",
        "reader",
        "        if frame.epoch < self.epoch:\n            return\n        self._learn",
        "        self._learn",
    ),
    Fault(
        "a reader does not go back at a fork",
        "reader",
        "        if self._void():\n            self._rewind(parent)\n",
        "",
    ),
    Fault(
        "a reader cuts merged events", "reader", "self.position = to = self._seam(fork)", "self.position = to = fork"
    ),
    Fault(
        "after a restart the journal forgets that the owner lives",
        "ledger",
        "ledger.live = ledger.holder is not None",
        "ledger.live = False",
    ),
    Fault(
        "rows are dropped for what another store has",
        "writer",
        "if header.epoch and same else []",
        "if header.epoch else []",
        profile="amnesia",
    ),
    Fault(
        "a grant does not number anew",
        "outbox",
        "self.header = Header(self.header.instance, inc, epoch, parent, 0, numbered,",
        "self.header = Header(self.header.instance, inc, epoch, parent, self.header.base, numbered,",
    ),
    Fault(
        "an epoch that a withdraw made can be resumed without it",
        "ledger",
        "return not row.cut or cut == row.parent or",
        "return True or",
    ),
    Fault(
        "the withdraw takes what was emitted since",
        "outbox",
        "about = [row for row in self.rows if row.seq <= self.header.upto]",
        "about = list(self.rows)",
    ),
    Fault(
        "a withdraw waits without hearing its refusal",
        "writer",
        "        header.intent = None\n",
        "",
    ),
    Fault(
        "withdrawn history is not followed back to the fork",
        "chain",
        "at = self.epochs[at.epoch].parent",
        "return ORIGIN",
    ),
    Fault(
        "text is merged across epochs",
        "pages",
        "together = before.epoch == item.epoch and before.first + before.span == item.first",
        "together = True",
    ),
    Fault(
        "the state of a run survives the withdraw of it",
        "fold",
        "self.asks = [ask for ask in self.asks if ask[0] <= to]",
        "self.asks = list(self.asks)",
    ),
    Fault(
        "a released name is still owned",
        "ledger",
        "if row is None or self.fold.ended or self.fold.released:\n            return None\n        return row.client",
        "if row is None or self.fold.ended:\n            return None\n        return row.client",
    ),
    Fault(
        "a late copy of an older claim is granted",
        "ledger",
        "return claim.request[:8] < row.request[:8]",
        "return False",
    ),
    Fault(
        "a command in the outbox's receipts is done again",
        "inbox",
        "        if handed.id in self._receipted:\n            return self._once(handed, self._receipted[handed.id])\n",
        "",
    ),
    Fault(
        "an owner sends before its rows are on disk",
        "writer",
        "if row.seq > self._committed or (rows and size > self._limit):",
        "if rows and size > self._limit:",
    ),
    Fault(
        "a withdrawing owner is fenced by its own grant",
        "states",
        "    (WriterState.WITHDRAWING, Word.VOID): WriterState.RECLAIMING,\n",
        "    (WriterState.WITHDRAWING, Word.VOID): WriterState.RECLAIMING,\n    (WriterState.WITHDRAWING, Word.NEWER): WriterState.FENCED,\n",
    ),
    Fault(
        "a new incarnation is taken for the old one",
        "reader",
        "elif page.kind is PageKind.RESET or page.inc != self.inc:",
        "elif page.kind is None:",
    ),
    Fault(
        "frames are not sent again",
        "writer",
        "        self._sent = 0\n        self._flight.clear()\n        self._gap_at = -1\n        self._window_now",
        "        self._gap_at = -1\n        self._window_now",
    ),
    Fault(
        "a reader begins again with a lost incarnation",
        "reader",
        "if self._knew or self._at_end or",
        "if self.inc != NO_INC or self.position != ORIGIN or self._at_end or",
        profile="amnesia",
    ),
    Fault(
        "a lost store knows a disk and sends it away",
        "ledger",
        "return self._resumes(claim, cut, 0) if self._known(claim) else free",
        "return free and not self._known(claim)",
    ),
)
