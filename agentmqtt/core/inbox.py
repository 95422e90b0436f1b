"""The commands that an owner was handed: each reaches the application once (PROTOCOL §7.2, §7.3)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

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


class Inbox:
    """Knows what was handed to this process, and what it answered.

    `receipted` are the IDs whose receipts an earlier process left in the outbox: pass `outbox.receipted`,
    which is emptied if the outbox is set aside. Any other iterable is copied.
    """

    def __init__(self, receipted: Iterable[str] = ()) -> None:
        self._known: OrderedDict[str, tuple[CommandState, Value] | None] = OrderedDict()
        self._waiting = receipted if isinstance(receipted, set) else set(receipted)
        self._answered_in: dict[str, tuple[bytes, int]] = {}

    def on_handed(self, handed: Handed) -> Handed | Entry | None:
        """A command for the application, a receipt to emit again, or nothing to do.

        A command that this process handled before a new epoch gets its receipt again, not its effect.
        """
        if handed.id in self._waiting:
            return None
        if handed.id not in self._known:
            self._remember(handed.id, None)
            self._answered_in[handed.id] = (handed.inc, handed.epoch)
            return handed
        outcome = self._known[handed.id]
        if outcome is None or self._answered_in.get(handed.id) == (handed.inc, handed.epoch):
            return None
        self._answered_in[handed.id] = (handed.inc, handed.epoch)
        return receipt(handed.id, *outcome)

    def settle(self, id_: str, outcome: CommandState, reason: Value = None) -> Entry:
        """The application is done with it: the receipt to emit."""
        self._remember(id_, (outcome, reason))
        return receipt(id_, outcome, reason)

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
