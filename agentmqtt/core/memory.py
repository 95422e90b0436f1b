"""What an owner's log says it has done already: steps, questions with their answers, children (PROTOCOL §5.6). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from agentmqtt.core.states import ANSWER, ASK, CHILD, STEP
from agentmqtt.types import Entry, Value


class Answered(NamedTuple):
    """How a question ended. `by` is the client ID that answered; empty if its time was over (`expired`)."""

    value: Value
    by: str
    expired: bool


class Memory:
    """The fold of a run's own log, for the process that goes on with it."""

    def __init__(self) -> None:
        self.answers: dict[str, Answered] = {}
        self.asked: set[str] = set()
        self.children: set[str] = set()
        self._results: dict[tuple[str, int], Value] = {}

    def add(self, entry: Entry) -> None:
        """Take in the next event of the log. What does not fit is not ours, and is skipped."""
        data = entry.data if isinstance(entry.data, Mapping) else {}
        match entry.type, data:
            case "am.step", {"key": str(key), "n": int(n)}:
                self._results.setdefault((key, n), data.get("result"))
            case "am.ask", {"id": str(id_)}:
                self.asked.add(id_)
            case "am.answer", {"id": str(id_)}:
                said = Answered(data.get("value"), str(data.get("by", "")), data.get("expired") is True)
                self.answers.setdefault(id_, said)
            case "am.child", {"wf": str(workflow)}:
                self.children.add(workflow)
            case _:
                pass

    def steps_of(self, key: str) -> int:
        """How many steps of this key were done."""
        return max((n for known, n in self._results if known == key), default=0)

    def questions_of(self, digest: str) -> int:
        """How many questions of this digest were asked."""
        return sum(id_.rpartition("-")[0] == digest for id_ in self.asked)

    def has_result(self, key: str, n: int) -> bool:
        """Whether the `n`-th step of this key was done."""
        return (key, n) in self._results

    def result(self, key: str, n: int) -> Value:
        """What it gave."""
        return self._results[key, n]


KEPT = frozenset({STEP, ASK, ANSWER, CHILD})
"""Event types that a memory takes in."""
