"""Questions of a run to whoever answers first (PROTOCOL §7.7)."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from agentmqtt import wire
from agentmqtt.core.memory import Answered, Memory
from agentmqtt.core.states import ANSWER, ASK
from agentmqtt.errors import UsageError
from agentmqtt.received import ANSWER as ANSWER_KIND
from agentmqtt.received import ReceivedCommand
from agentmqtt.types import CommandState, Entry, Value
from agentmqtt.values import check_value

MISSING: Final = object()
"""No default: a question that nobody answers in time raises Unanswered."""


class Question(NamedTuple):
    """What is asked. Its ID names the question itself: another question, or other choices, has another one."""

    text: Value
    choices: tuple[Value, ...] | None
    schema: Mapping[str, Any] | None
    by: tuple[str, ...] | None

    @classmethod
    def make(
        cls, text: Value, choices: Sequence[Value] | None, schema: Mapping[str, Any] | None, by: Sequence[str] | None
    ) -> Question:
        """Raises BadValue, UsageError: what is asked cannot be sent, or `schema` is no JSON Schema."""
        made = cls(
            text,
            None if choices is None else tuple(choices),
            schema,
            None if by is None else tuple(by),
        )
        for name, part in made._asdict().items():
            check_value(list(part) if isinstance(part, tuple) else part, name)
        if choices is not None and not choices:
            raise UsageError("choices=[] leaves no answer; leave it out if anything may be answered")
        if schema is not None:
            _validator(schema)
        return made

    @property
    def digest(self) -> str:
        """The same for the same question only."""
        body = wire.pack([self.text, self.choices, self.schema, self.by])
        return hashlib.sha256(body).hexdigest()[:16]

    def event(self, id_: str, timeout: float | None) -> Entry:
        data: dict[str, Value] = {"id": id_, "question": self.text}
        given = {"choices": self.choices, "schema": self.schema, "by": self.by, "timeout": timeout}
        return Entry(ASK, data | {name: _listed(part) for name, part in given.items() if part is not None})

    def flaw(self, value: Value, sender: str) -> str:
        """Why this is no answer; empty if it is one."""
        if self.by is not None and sender not in self.by:
            return "this client is not asked"
        if self.choices is not None and not any(same(value, choice) for choice in self.choices):
            return f"it is not one of {list(self.choices)!r}"
        if self.schema is not None:
            return next((error.message for error in _validator(self.schema).iter_errors(value)), "")
        return ""


def same(value: Value, other: Value) -> bool:
    """Equal, and of one type all the way down: true is not 1. A tuple is the list that it is sent as."""
    if isinstance(value, list | tuple) and isinstance(other, list | tuple):
        return len(value) == len(other) and all(map(same, value, other))
    if isinstance(value, Mapping) and isinstance(other, Mapping):
        return value.keys() == other.keys() and all(same(value[key], other[key]) for key in value)
    return type(value) is type(other) and bool(value == other)


def _listed(part: Any) -> Value:
    return list(part) if isinstance(part, tuple) else part


def _validator(schema: Mapping[str, Any]) -> Any:
    try:
        from jsonschema import Draft202012Validator, SchemaError
    except ImportError as error:
        raise UsageError("schema= needs jsonschema; install it with: pip install 'agentmqtt[schema]'") from error
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise UsageError(f"schema= is no JSON Schema: {error.message}") from error
    return Draft202012Validator(schema)


class Asks:
    """The questions that are open in this process, and those that the log says are answered."""

    def __init__(self, memory: Callable[[], Memory | None]) -> None:
        self._memory = memory
        self._open: dict[str, tuple[Question, asyncio.Future[Answered]]] = {}
        self._counts: dict[str, int] = {}

    def name(self, question: Question) -> str:
        """The ID of the next question that asks just this: the first, the second, …"""
        n = self._counts[question.digest] = self._counts.get(question.digest, 0) + 1
        return f"{question.digest}-{n}"

    def recount(self, memory: Memory) -> None:
        """After a withdraw: questions that are not in the log any more were not asked."""
        self._counts = {digest: min(n, memory.questions_of(digest)) for digest, n in self._counts.items()}

    def open(self, id_: str, question: Question) -> asyncio.Future[Answered]:
        """Take answers from now on."""
        future: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()
        self._open[id_] = question, future
        return future

    def close(self, id_: str) -> None:
        self._open.pop(id_, None)

    def take(self, command: ReceivedCommand) -> bool:
        """Whether this command was an answer that could be judged now. One that comes early waits."""
        if command.kind != ANSWER_KIND or not isinstance(command.data, Mapping):
            return False
        id_, value = command.data.get("ask"), command.data.get("value")
        memory = self._memory()
        if id_ in self._open:
            self._judge(command, str(id_), value)
        elif memory is not None and id_ in memory.answers:
            expired = memory.answers[str(id_)].expired
            command.settle(CommandState.EXPIRED if expired else CommandState.SUPERSEDED)
        else:
            return False
        return True

    def _judge(self, command: ReceivedCommand, id_: str, value: Value) -> None:
        question, future = self._open[id_]
        if flaw := question.flaw(value, command.sender):
            command.rejected(flaw)
            return
        said = Answered(value, command.sender, expired=False)
        command.settle(CommandState.APPLIED, None, answer(id_, said))
        self.remember(id_, said)
        if not future.done():
            future.set_result(said)

    def remember(self, id_: str, said: Answered) -> None:
        """It is answered: whoever comes later is told so."""
        self.close(id_)
        if (memory := self._memory()) is not None:
            memory.add(answer(id_, said))


def answer(id_: str, said: Answered) -> Entry:
    """The event that closes a question: who answered is the client ID of the topic, never what a payload says."""
    data: dict[str, Value] = {"id": id_, "value": said.value}
    return Entry(ANSWER, data | ({"expired": True} if said.expired else {"by": said.by}))
