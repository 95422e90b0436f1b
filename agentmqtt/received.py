"""Commands as the owner's application gets them (PROTOCOL §7.2, §7.3)."""

from __future__ import annotations

import asyncio
import enum
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from types import TracebackType
from typing import Final, Protocol, Self

from agentmqtt.core.inbox import Inbox
from agentmqtt.core.states import RECEIVED
from agentmqtt.errors import UsageError
from agentmqtt.frames import Handed
from agentmqtt.types import CommandState, Entry, Value, When
from agentmqtt.values import check_type
from agentmqtt.waiting import Signal

INTERRUPT: Final = "interrupt"
ANSWER: Final = "answer"
_RANK: Final = {When.NOW: 0, When.NEXT_STEP: 1, When.NEXT_TURN: 2}


class Mode(enum.StrEnum):
    """How an interrupt wants the work to stop (§7.6)."""

    STOP = "stop"
    PAUSE = "pause"
    AFTER_STEP = "after_step"


def interrupt_data(reason: Value, mode: str) -> Value:
    """What an interrupt carries: its reason, or reason and mode. Raises UsageError: there is no such mode."""
    try:
        chosen = Mode(mode)
    except ValueError:
        raise UsageError(f"mode={mode!r} is not one of {', '.join(Mode)}") from None
    return reason if chosen is Mode.STOP else {"reason": reason, "mode": str(chosen)}


def read_interrupt(data: Value) -> tuple[Value, Mode]:
    """Reason and mode of an interrupt. A mode that this version does not know is a stop."""
    if isinstance(data, Mapping) and data.get("mode") in list(Mode):
        return data.get("reason"), Mode(data["mode"])
    return data, Mode.STOP


class Writes(Protocol):
    """Puts an atomic group into the log. Raises TooLarge, BadValue: nothing was added."""

    def __call__(self, *entries: Entry) -> None: ...


class ReceivedCommand:
    """One command. `again`: an earlier owner may have acted on it already.

    It counts as applied when the loop over `commands()` asks for the next one, or at `applied()`.
    """

    def __init__(self, handed: Handed, inbox: Inbox, write: Writes) -> None:
        self.id: str = handed.id
        self.kind: str = handed.kind
        self.data: Value = handed.data
        self.sender: str = handed.sender
        self.again: bool = handed.again
        self.deadline: int = handed.deadline
        self.when: When = handed.when
        self.settled: bool = False
        self._inbox, self._write = inbox, write

    def __repr__(self) -> str:
        return f"<ReceivedCommand {self.kind} {self.id} from {self.sender}>"

    def applied(self) -> None:
        """Its effect has happened. The receipt goes into the log."""
        self.settle(CommandState.APPLIED)

    def rejected(self, reason: Value) -> None:
        """It will not happen, and why."""
        self.settle(CommandState.REJECTED, reason)

    def too_late(self) -> None:
        """The run ends without it."""
        self.settle(CommandState.TOO_LATE)

    def apply(self) -> Application:
        """`async with command.apply() as effect: effect.emit("text", …)`: its effect in the log and its receipt
        are one: after a crash both are there, or neither, and then the command comes again.
        """
        return Application(self)

    def settle(self, state: CommandState, reason: Value = None, *effect: Entry) -> None:
        """The outcome, with what it does to the log. The first one stays."""
        if not self.settled:
            self._write(*effect, self._inbox.settle(self.id, state, reason))
            self.settled = True


class Application:
    """What a command does to the log, all at once with its receipt (§7.3).

    Leaving by an exception emits nothing and settles nothing. Leaving normally raises TooLarge if the group is
    above the event limit; then nothing was emitted.
    """

    def __init__(self, command: ReceivedCommand) -> None:
        self._command = command
        self._entries: list[Entry] = []

    def emit(self, type: str, data: Value = None) -> None:
        """Add an event to the group. Raises BadValue, UsageError."""
        check_type(type)
        if type.startswith("am."):
            raise UsageError(f"{type!r}: types that begin with 'am.' are reserved; use another name")
        self._entries.append(Entry(type, data))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._command.settle(CommandState.APPLIED, None, *self._entries)


class Commands:
    """Commands that wait for the application; the journal hands at most 64 at a time.

    `answers` takes those that answer a question; it returns False for a command that is none.
    """

    def __init__(self, inbox: Inbox, write: Writes, answers: Callable[[ReceivedCommand], bool]) -> None:
        self._inbox, self._write, self._answers = inbox, write, answers
        self._waiting: deque[ReceivedCommand] = deque()
        self._taken: list[ReceivedCommand] = []
        self._due: dict[str, When] = {}
        self._scope: Interruption | None = None
        self._signal = Signal()
        self._closed: BaseException | None = None
        self._over = False

    # ---- from the journal

    def on_handed(self, handed: Handed) -> None:
        """The journal handed one, perhaps again."""
        news = self._inbox.on_handed(handed)
        if isinstance(news, Entry):
            self._put(news)
        elif news is not None:
            self._put(Entry(RECEIVED, {"id": handed.id}))
            self._arrived(ReceivedCommand(news, self._inbox, self._put))

    def _arrived(self, command: ReceivedCommand) -> None:
        if self._answers(command):
            return
        self._waiting.append(command)
        self._offer(at_step=False)
        self._signal.fire()

    def judge_answers(self) -> None:
        """A question is open: answers that came before it are judged now."""
        self._waiting = deque(command for command in self._waiting if not self._answers(command))

    def on_recall(self, id_: str) -> None:
        """Its sender wants it back: given back if nobody has begun it, else said to be too late (§7.5)."""
        receipt = self._inbox.on_recall(id_)
        waiting = next((command for command in self._waiting if command.id == id_), None)
        if receipt is not None:
            self._put(receipt)
        elif waiting is not None:
            self._waiting.remove(waiting)
            waiting.settle(CommandState.WITHDRAWN)
        elif id_ in self._inbox.unsettled:
            self._put(Entry(RECEIVED, {"id": id_, "kept": True}))

    def _put(self, *entries: Entry) -> None:
        if not self._over:
            self._write(*entries)

    # ---- to the application

    async def each(self) -> AsyncIterator[ReceivedCommand]:
        """Commands as they are due, until the run is over."""
        last: ReceivedCommand | None = None
        while True:
            if last is not None and not self._over:
                last.applied()
            while (last := self._next()) is None:
                if self._closed is not None:
                    raise self._closed
                if self._over:
                    return
                await self._signal.wait()
            self._taken = [*(command for command in self._taken if not command.settled), last]
            yield last

    def _next(self) -> ReceivedCommand | None:
        found = next((command for command in self._waiting if self._is_due(command)), None)
        if found is not None:
            self._waiting.remove(found)
            self._due.pop(found.id, None)
        return found

    def _is_due(self, command: ReceivedCommand) -> bool:
        early = command.kind == ANSWER and isinstance(command.data, Mapping) and "ask" in command.data
        return not early and (command.when is When.NOW or command.id in self._due)

    def drain(self, due: When) -> list[ReceivedCommand]:
        """Take everything that is due at this kind of boundary, in order."""
        self.boundary(due)
        found = []
        while (command := self._next()) is not None:
            found.append(command)
        self._taken = [command for command in (*self._taken, *found) if not command.settled]
        return found

    def boundary(self, due: When) -> None:
        """A step or a turn has ended: what waited for that is due now."""
        for command in self._waiting:
            if _RANK[command.when] <= _RANK[due]:
                self._due[command.id] = due
        self._offer(at_step=due is not When.NOW)
        self._signal.fire()

    # ---- interrupts

    def enter(self, scope: Interruption) -> None:
        self._scope = scope
        self._offer(at_step=False)

    def leave(self, scope: Interruption) -> None:
        if self._scope is scope:
            self._scope = scope.outer
        if scope.command is not None:
            scope.command.applied()  # the block has really ended: the work is torn down

    @property
    def scope(self) -> Interruption | None:
        return self._scope

    def _offer(self, *, at_step: bool) -> None:
        """An interrupt goes to the innermost block that can be interrupted; without one it waits."""
        if self._scope is None or self._scope.command is not None:
            return
        for command in self._waiting:
            waits = read_interrupt(command.data)[1] is Mode.AFTER_STEP and not at_step
            if command.kind == INTERRUPT and not waits:
                self._waiting.remove(command)
                self._scope.interrupt(command)
                return

    # ---- the end

    def close(self, error: BaseException | None) -> None:
        """Nothing more comes: fenced (`error`) or left."""
        self._closed, self._over = error, True
        self._signal.fire()

    def end(self) -> None:
        """The run ends: what the application has counts as applied, what it never saw is too late."""
        for command in self._taken:
            command.applied()
        while self._waiting:
            self._waiting.popleft().too_late()
        self.close(None)


class Interruption:
    """`async with run.interruptible()`: an interrupt cancels the block, and the block ends quietly.

    `interrupted` is true after that, `reason` and `mode` say why and how. The sender hears `applied` when the
    block has really ended.
    """

    def __init__(self, commands: Commands) -> None:
        self._commands = commands
        self.command: ReceivedCommand | None = None
        self.outer: Interruption | None = commands.scope
        self._task: asyncio.Task[object] | None = None
        self._before = 0

    @property
    def interrupted(self) -> bool:
        return self.command is not None

    @property
    def reason(self) -> Value:
        return read_interrupt(self.command.data)[0] if self.command else None

    @property
    def mode(self) -> Mode | None:
        return read_interrupt(self.command.data)[1] if self.command else None

    def interrupt(self, command: ReceivedCommand) -> None:
        self.command = command
        if self._task is not None:
            self._task.cancel()

    async def __aenter__(self) -> Self:
        self._task = asyncio.current_task()
        self._before = self._task.cancelling() if self._task else 0
        self._commands.enter(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._commands.leave(self)
        task, self._task = self._task, None
        if self.command is None or task is None:
            return False
        ours = task.uncancel() <= self._before
        return ours and kind is not None and issubclass(kind, asyncio.CancelledError)
