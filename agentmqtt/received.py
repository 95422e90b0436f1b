"""Commands as the owner's application gets them (PROTOCOL §7.2, §7.3)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Self

from agentmqtt.core.inbox import Inbox
from agentmqtt.frames import Handed
from agentmqtt.types import CommandState, Entry, Value
from agentmqtt.waiting import Signal

INTERRUPT = "interrupt"


class ReceivedCommand:
    """One command. `again`: an earlier owner may have acted on it already.

    It counts as applied when the loop over `commands()` asks for the next one, or at `applied()`.
    """

    def __init__(self, handed: Handed, settle: Callable[[str, CommandState, Value], None]) -> None:
        self.id: str = handed.id
        self.kind: str = handed.kind
        self.data: Value = handed.data
        self.sender: str = handed.sender
        self.again: bool = handed.again
        self.deadline: int = handed.deadline
        self._settle = settle
        self.settled: bool = False

    def __repr__(self) -> str:
        return f"<ReceivedCommand {self.kind} {self.id} from {self.sender}>"

    def applied(self) -> None:
        """Its effect has happened. The receipt goes into the log."""
        self._finish(CommandState.APPLIED, None)

    def rejected(self, reason: Value) -> None:
        """It will not happen, and why."""
        self._finish(CommandState.REJECTED, reason)

    def too_late(self) -> None:
        """The run ends without it."""
        self._finish(CommandState.TOO_LATE, None)

    def _finish(self, state: CommandState, reason: Value) -> None:
        if not self.settled:
            self.settled = True
            self._settle(self.id, state, reason)


class Commands:
    """Commands that wait for the application; the journal hands at most 64 at a time."""

    def __init__(self, inbox: Inbox, write: Callable[[Entry], None]) -> None:
        self._inbox, self._write = inbox, write
        self._waiting: deque[ReceivedCommand] = deque()
        self._taken: ReceivedCommand | None = None
        self._scope: Interruption | None = None
        self._signal = Signal()
        self._closed: BaseException | None = None
        self._over = False

    def on_handed(self, handed: Handed) -> None:
        """The journal handed one, perhaps again."""
        news = self._inbox.on_handed(handed)
        if isinstance(news, Entry):
            self._write(news)
        elif news is not None:
            self._waiting.append(ReceivedCommand(news, self._settle))
            self._offer()
            self._signal.fire()

    def _settle(self, id_: str, state: CommandState, reason: Value) -> None:
        if not self._over:
            self._write(self._inbox.settle(id_, state, reason))

    async def each(self) -> AsyncIterator[ReceivedCommand]:
        """Commands as they come, until the run is over."""
        while True:
            self._settle_taken()
            while not self._waiting:
                if self._closed is not None:
                    raise self._closed
                if self._over:
                    return
                await self._signal.wait()
            self._taken = self._waiting.popleft()
            yield self._taken

    def _settle_taken(self) -> None:
        taken, self._taken = self._taken, None
        if taken is not None and not self._over:
            taken.applied()

    # ---- interrupts

    def enter(self, scope: Interruption) -> None:
        self._scope = scope
        self._offer()

    def leave(self, scope: Interruption) -> None:
        if self._scope is scope:
            self._scope = scope.outer
        if scope.command is not None:
            scope.command.applied()

    @property
    def scope(self) -> Interruption | None:
        return self._scope

    def _offer(self) -> None:
        """An interrupt goes to the innermost block that can be interrupted; without one it waits."""
        if self._scope is None or self._scope.command is not None:
            return
        found = next((command for command in self._waiting if command.kind == INTERRUPT), None)
        if found is not None:
            self._waiting.remove(found)
            self._scope.interrupt(found)

    # ---- the end

    def close(self, error: BaseException | None) -> None:
        """Nothing more comes: fenced (`error`) or left."""
        self._closed, self._over = error, True
        self._signal.fire()

    def end(self) -> None:
        """The run ends: what the application has counts as applied, what it never saw is too late."""
        self._settle_taken()
        while self._waiting:
            self._waiting.popleft().too_late()
        self.close(None)


class Interruption:
    """`async with run.interruptible()`: an interrupt cancels the block, and the block ends quietly.

    `reason` is the interrupt's data and `interrupted` true after that.
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
        return self.command.data if self.command else None

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
