"""The journal's command table of one channel: every command ends once (PROTOCOL §7)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Final

from agentmqtt.core.effects import DropCommand, Effect, SaveCommand, Tell
from agentmqtt.core.states import AT_DEADLINE, AT_END, AT_WITHDRAW, FINAL, RECEIPTS, Pending
from agentmqtt.frames import Command, Handed, Outcome, Recall
from agentmqtt.types import CommandState, Value, When

DAY: Final = 24 * 3600 * 1000
SLACK: Final = 3600 * 1000
"""Milliseconds that an outcome is remembered after its deadline."""
PATIENCE: Final = 60 * 1000
"""Milliseconds after its deadline until a command that a dead owner holds is `unknown`."""
HAND_WINDOW: Final = 64
"""Commands that an owner holds without a receipt."""


@dataclasses.dataclass(slots=True)
class Row:
    """One command. `state` is pending, handed, or its outcome."""

    seq: int
    id: str
    kind: str
    data: Value
    sender: str
    deadline: int
    state: str = Pending.PENDING
    again: bool = False
    reason: Value = None
    when: str = When.NOW
    received: bool = False
    recalled: bool = False

    def pack(self) -> Value:
        fixed = [self.id, self.kind, self.data, self.sender, self.deadline, str(self.state), self.again, self.reason]
        return [*fixed, str(self.when), self.received, self.recalled]

    @classmethod
    def unpack(cls, seq: int, value: Value) -> Row:
        return cls(seq, *value)


class Mailbox:
    """Commands of one channel by ID, in the order in which they were accepted."""

    def __init__(self, workflow: str, *, pending_limit: int = 1000) -> None:
        self.workflow = workflow
        self.rows: dict[str, Row] = {}
        self._open: dict[str, Row] = {}
        self._by_seq: dict[int, Row] = {}
        self.next_seq = 1
        self._pending_limit = pending_limit

    def load(self, row: Row) -> None:
        """Take back a row that was saved."""
        self.rows[row.id] = self._by_seq[row.seq] = row
        if row.state not in FINAL:
            self._open[row.id] = row
        self.next_seq = max(self.next_seq, row.seq + 1)

    def row(self, seq: int) -> Row:
        return self._by_seq[seq]

    @property
    def open(self) -> list[Row]:
        """Rows without an outcome."""
        return list(self._open.values())

    def accept(self, command: Command, sender: str, now: int, *, ended: bool) -> list[Effect]:
        """A command arrived, perhaps not for the first time."""
        if (row := self.rows.get(command.id)) is not None:
            return [self._tell(row, now, to=sender)]
        deadline = min(command.deadline or now + DAY, now + 30 * DAY)
        if now > deadline:  # it never came, or nobody remembers what became of it
            state = CommandState.EXPIRED if now <= deadline + SLACK else CommandState.UNKNOWN
            return [Tell(sender, Outcome(self.workflow, command.id, state, None, now))]
        if len(self._open) >= self._pending_limit:
            return [Tell(sender, Outcome(self.workflow, command.id, CommandState.QUEUED, "full", now))]
        row = self._add(command.id, command.kind, command.data, sender, deadline, command.when)
        if ended:
            return self._settle(row, CommandState.TOO_LATE, None, now)
        return [SaveCommand(row.seq), self._tell(row, now)]

    def _add(self, id_: str, kind: str, data: Value, sender: str, deadline: int, when: str = When.NOW) -> Row:
        row = Row(self.next_seq, id_, kind, data, sender, deadline, when=when)
        self.load(row)
        return row

    def hand(self, inc: bytes, epoch: int, client: str) -> list[Effect]:
        """Hand what waits to the owner that is online."""
        handed = sum(row.state == Pending.HANDED for row in self._open.values())
        effects: list[Effect] = []
        for row in self.open:
            if row.state == Pending.PENDING and handed < HAND_WINDOW:
                row.state = Pending.HANDED
                handed += 1
                effects += [SaveCommand(row.seq), self._handed(row, inc, epoch, client)]
        return effects

    def hand_again(self, inc: bytes, epoch: int, client: str) -> list[Effect]:
        """Repeat what the owner holds without a receipt: it may not have heard (§7.2)."""
        held = [row for row in self.open if row.state == Pending.HANDED]
        recalls = [effect for row in held for effect in self.recalls(row.id, inc, epoch, client)]
        return [*(self._handed(row, inc, epoch, client) for row in held), *recalls]

    def take_back(self, now: int) -> list[Effect]:
        """A new epoch: what the old owner held waits again, flagged (§7.2)."""
        return list(self._take_back(now))

    def _take_back(self, now: int) -> Iterator[Effect]:
        for row in self.open:
            if row.state == Pending.HANDED and row.recalled:  # nobody can say any more whether it was begun
                yield from self._settle(row, CommandState.UNKNOWN, None, now)
            elif row.state == Pending.HANDED:
                row.state, row.again, row.received = Pending.PENDING, True, False
                yield SaveCommand(row.seq)

    def received(self, data: Value, now: int) -> list[Effect]:
        """The owner has it; `kept` says that it was begun when its sender wanted it back (§7.5)."""
        row = self.rows.get(str(data.get("id")))
        if row is None or row.state != Pending.HANDED:
            return []
        row.received = True
        reason = "kept" if data.get("kept") is True else None
        return [SaveCommand(row.seq), Tell(row.sender, self._outcome(row, CommandState.RECEIVED, reason, now))]

    def withdraw(self, id_: str, sender: str, deadline: int, now: int) -> list[Effect]:
        """Its sender wants it back. One that did not come yet leaves a tombstone, on which it ends (§7.5)."""
        row = self.rows.get(id_)
        if row is None:
            return self._bury(id_, sender, min(deadline or now + DAY, now + 30 * DAY), now)
        if row.state == Pending.PENDING and row.sender == sender:
            return self._settle(row, AT_WITHDRAW[row.again], None, now)
        if row.state == Pending.HANDED and row.sender == sender:
            row.recalled = True
            return [SaveCommand(row.seq), self._tell(row, now)]
        return [self._tell(row, now, to=sender)]

    def _bury(self, id_: str, sender: str, deadline: int, now: int) -> list[Effect]:
        if now > deadline + SLACK:  # nobody remembers what became of it
            return [Tell(sender, Outcome(self.workflow, id_, CommandState.UNKNOWN, None, now))]
        row = self._add(id_, "", None, sender, deadline)
        return self._settle(row, CommandState.WITHDRAWN, None, now)

    def recalls(self, id_: str, inc: bytes, epoch: int, client: str) -> list[Effect]:
        """The owner is asked to give it back, if it holds it."""
        row = self.rows.get(id_)
        held = row is not None and row.state == Pending.HANDED and row.recalled
        return [Tell(client, Recall(self.workflow, inc, epoch, id_))] if held else []

    def receipt(self, data: Value, now: int) -> list[Effect]:
        """The owner's word was stored. The first outcome stays (§7.3).

        A command that this journal does not know may still come: its sender has not heard that the store
        was lost. It finds its outcome here.
        """
        id_, outcome = data.get("id"), data.get("outcome")
        if not isinstance(id_, str) or not isinstance(outcome, str) or outcome not in RECEIPTS:
            return []
        row = self.rows.get(id_)
        if row is None:
            row = self._add(id_, "", None, "", now + DAY)
            return self._settle(row, CommandState(outcome), data.get("reason"), now)[:1]
        return [] if row.state in FINAL else self._settle(row, CommandState(outcome), data.get("reason"), now)

    def end(self, now: int) -> list[Effect]:
        """The run ended: nothing that waits can happen any more (§7.4)."""
        return [
            effect
            for row in self.open
            for effect in self._settle(row, AT_END[Pending(row.state), row.again], None, now)
        ]

    def tick(self, now: int, *, live: bool) -> list[Effect]:
        """Deadlines pass; outcomes are forgotten when nobody can ask any more."""
        effects: list[Effect] = []
        for row in list(self.rows.values()):
            if row.state in FINAL:
                if now > row.deadline + SLACK:
                    del self.rows[row.id], self._by_seq[row.seq]
                    effects.append(DropCommand(row.seq))
            elif self._overdue(row, now, live):
                effects += self._settle(row, AT_DEADLINE[Pending(row.state), row.again], None, now)
        return effects

    @staticmethod
    def _overdue(row: Row, now: int, live: bool) -> bool:
        if row.state == Pending.PENDING:
            return now > row.deadline
        return not live and now > row.deadline + PATIENCE

    def _settle(self, row: Row, state: CommandState, reason: Value, now: int) -> list[Effect]:
        row.state, row.reason, row.data = state, reason, None
        self._open.pop(row.id, None)
        return [SaveCommand(row.seq), self._tell(row, now)]

    def _tell(self, row: Row, now: int, *, to: str = "") -> Tell:
        going_on = CommandState.RECEIVED if row.received else CommandState.ACCEPTED
        state = CommandState(row.state) if row.state in FINAL else going_on
        return Tell(to or row.sender, self._outcome(row, state, row.reason, now))

    def _outcome(self, row: Row, state: CommandState, reason: Value, now: int) -> Outcome:
        return Outcome(self.workflow, row.id, state, reason, now)

    def _handed(self, row: Row, inc: bytes, epoch: int, client: str) -> Tell:
        fixed = (self.workflow, inc, epoch, row.id, row.kind, row.data, row.sender, row.deadline, row.again)
        message = Handed(*fixed, When(row.when))
        return Tell(client, message)
