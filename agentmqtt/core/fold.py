"""The state of a run as the fold of its log (PROTOCOL §8.1)."""

from __future__ import annotations

from collections.abc import Mapping

from agentmqtt.core.states import ANSWER, ASK, END, OUTCOMES, RELEASE, STATE
from agentmqtt.types import Entry, Position, RunState, Value

KEPT_STATES = 16
KEPT_ASKS = 64


class Fold:
    """What the log says about its run. `cut` takes back what was withdrawn.

    Only the last `KEPT_STATES` named states are remembered: a cut behind all of them leaves none. Of
    asks and answers it is the last `KEPT_ASKS`, those of open questions before the others.
    """

    def __init__(self) -> None:
        self.states: list[tuple[Position, Value]] = []
        self.asks: list[tuple[Position, str, bool]] = []
        self.outcome = ""
        self.result: Value = None
        self.released = False

    @property
    def ended(self) -> bool:
        return bool(self.outcome)

    @property
    def detail(self) -> Value:
        return self.states[-1][1] if self.states else None

    @property
    def state(self) -> RunState:
        """State of a run that has an owner, or had one."""
        if self.outcome:
            return OUTCOMES[self.outcome]
        return RunState.WAITING if self._open() else RunState.RUNNING

    def _open(self) -> set[str]:
        """Questions whose last word is the question."""
        return {name for name, asks in {name: asks for _, name, asks in self.asks}.items() if asks}

    def add(self, at: Position, entry: Entry) -> None:
        """Take in the next event of the log."""
        match entry.type:
            case "am.state":
                self.states = [*self.states[1 - KEPT_STATES :], (at, entry.data)]
            case "am.ask" | "am.answer":
                self._ask(at, _field(entry.data, "id"), asks=entry.type == ASK)
            case "am.release":
                self.released = True
                self.result = entry.data
            case "am.end":
                self._end(entry.data)
            case _:
                pass

    def _ask(self, at: Position, name: str, *, asks: bool) -> None:
        still = self._open()
        if asks and name in still:
            return
        self.asks.append((at, name, asks))
        if len(self.asks) > KEPT_ASKS:
            del self.asks[next((n for n, ask in enumerate(self.asks) if ask[1] not in still), 0)]

    def _end(self, data: Value) -> None:
        outcome = _field(data, "outcome")
        self.outcome = outcome if outcome in OUTCOMES else "failed"
        self.result = data.get("result") if isinstance(data, Mapping) else None

    def cut(self, to: Position) -> None:
        """Forget what was said after `to`; a new owner begins."""
        self.states = [kept for kept in self.states if kept[0] <= to]
        self.asks = [ask for ask in self.asks if ask[0] <= to]
        self.outcome, self.result, self.released = "", None, False

    def snapshot(self) -> Value:
        states = [[*at, data] for at, data in self.states]
        asks = [[*at, name, opens] for at, name, opens in self.asks]
        return [states, asks, self.outcome, self.result, self.released]

    @classmethod
    def restore(cls, value: Value) -> Fold:
        fold = cls()
        states, asks, fold.outcome, fold.result, fold.released = value
        fold.states = [(Position(epoch, n), data) for epoch, n, data in states]
        fold.asks = [(Position(epoch, n), name, opens) for epoch, n, name, opens in asks]
        return fold


def _field(data: Value, name: str) -> str:
    value = data.get(name) if isinstance(data, Mapping) else None
    return value if isinstance(value, str) else ""


FOLDED = frozenset({STATE, ASK, ANSWER, RELEASE, END})
"""Event types that change the fold."""
