"""The commands that an owner was handed: each reaches the application once (PROTOCOL §7.2, §7.3)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import TypeAlias

from agentmqtt.core.states import RECEIPT
from agentmqtt.frames import Handed
from agentmqtt.types import CommandState, Entry, Value

REMEMBERED = 4096
"""Handled commands that are remembered; the journal hands at most 64 at a time."""


def receipt(id_: str, outcome: CommandState, reason: Value = None) -> Entry:
    """The event that ends a command (§7.3)."""
    data: dict[str, Value] = {"id": id_, "outcome": str(outcome)}
    if reason is not None:
        data["reason"] = reason
    return Entry(RECEIPT, data)


Answer: TypeAlias = Handed | Entry


class Inbox:
    """Knows what was handed to this process, and what it answered.

    `receipted` is `outbox.receipted`: what an earlier process answered, and the receipt once it was sent.
    """

    def __init__(self, receipted: Mapping[str, Entry | None] | None = None) -> None:
        self._known: OrderedDict[str, tuple[CommandState, Value] | None] = OrderedDict()
        self._receipted = {} if receipted is None else receipted
        self._answered_in: dict[str, tuple[bytes, int]] = {}

    def on_handed(self, handed: Handed) -> Answer | None:
        """A command for the application, a receipt to emit again, or nothing to do.

        A command that this disk answered before a new epoch gets its receipt again, not its effect.
        """
        if handed.id in self._receipted:
            return self._once(handed, self._receipted[handed.id])
        if handed.id not in self._known:
            self._remember(handed.id, None)
            return self._once(handed, handed)
        outcome = self._known[handed.id]
        return None if outcome is None else self._once(handed, receipt(handed.id, *outcome))

    def _once(self, handed: Handed, answer: Answer | None) -> Answer | None:
        """One answer in one epoch: the journal repeats what it did not see yet."""
        epoch = (handed.inc, handed.epoch)
        if answer is None or self._answered_in.get(handed.id) == epoch:
            return None
        self._answered_in[handed.id] = epoch
        return answer

    def settle(self, id_: str, outcome: CommandState, reason: Value = None) -> Entry:
        """The application is done with it: the receipt to emit."""
        self._remember(id_, (outcome, reason))
        return receipt(id_, outcome, reason)

    def on_recall(self, id_: str) -> Entry | None:
        """The sender wants it back. One that never came ends here: the receipt to emit (§7.5)."""
        if id_ in self._known or id_ in self._receipted:
            return None
        return self.settle(id_, CommandState.WITHDRAWN)

    @property
    def unsettled(self) -> list[str]:
        """IDs that the application has, or will get, and has not answered."""
        return [id_ for id_, outcome in self._known.items() if outcome is None]

    def _remember(self, id_: str, outcome: tuple[CommandState, Value] | None) -> None:
        self._known[id_] = outcome
        if len(self._known) > REMEMBERED:
            old = next((key for key, value in self._known.items() if value is not None), None)
            if old is not None:
                del self._known[old]
                self._answered_in.pop(old, None)
