"""The owner's handle on one run: what its application does with the name (design §6)."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar, cast

from agentmqtt import wire
from agentmqtt.asking import MISSING, Asks, Question, answer
from agentmqtt.core.memory import KEPT, Answered, Memory
from agentmqtt.core.outbox import ATTEMPT, Intent
from agentmqtt.core.states import CHILD, END, OUTCOMES, STEP
from agentmqtt.errors import BadValue, Gone, NoJournal, Unanswered, UsageError
from agentmqtt.frames import WatcherRow
from agentmqtt.ownership import Ownership, Retry, fresh
from agentmqtt.received import Interruption, ReceivedCommand
from agentmqtt.types import ORIGIN, Cursor, Entry, Event, Value, When
from agentmqtt.values import check_type, check_value

__all__ = ["OwnedRun", "Retry", "child_name"]

P = ParamSpec("P")
T = TypeVar("T")


class OwnedRun(Ownership):
    """One name, owned by this process, inside `async with client.own(name) as run`.

    Leaving normally without `end` releases the name; leaving by an exception records the error and
    releases; being cancelled or killed records nothing, so the run resumes elsewhere. When a newer
    owner takes the name, the block is cancelled and the `async with` raises Fenced.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._memory: Memory | None = None
        self._remembering = asyncio.Lock()
        self._asks = Asks(lambda: self._memory)
        self._steps: dict[str, int] = {}

    # ---- commands

    def commands(self) -> AsyncIterator[ReceivedCommand]:
        """Commands for this run, each once; one counts as applied when the next is asked for.

        Raises:
            Fenced: a newer owner has the name.
        """
        return self._commands.each()

    def inbox(self, due: str = When.NOW) -> list[ReceivedCommand]:
        """Take what is due now, without waiting, in order: at `next_step` and `next_turn` what was sent for then too.

        Say of each what became of it (`applied()`, `rejected(why)`); what is left counts as applied at `end`.
        Raises UsageError: `due` is none of the three.
        """
        try:
            return self._commands.drain(When(due))
        except ValueError:
            raise UsageError(f"due={due!r} is not one of {', '.join(When)}") from None

    def turn(self) -> None:
        """One turn has ended: what was sent for the next step or the next turn is due now."""
        self._commands.boundary(When.NEXT_TURN)

    def interruptible(self) -> Interruption:
        """A block that an interrupt cancels; it ends quietly, and `reason` says why."""
        return Interruption(self._commands)

    # ---- ending

    async def end(self, result: Value = None, *, outcome: str = "done", timeout: float | None = None) -> None:
        """The run is over; waits until that is stored. `outcome` is done, failed or cancelled.

        Raises:
            BadValue: another outcome, or a result that cannot be sent.
            TimeoutError: `timeout` seconds passed; the end stays in the outbox and goes out later.
            Fenced: a newer owner has the name.
        """
        self._check_open()
        if outcome not in OUTCOMES:
            raise BadValue(f"outcome {outcome!r} is not one of {', '.join(OUTCOMES)}")
        data = {"outcome": outcome} if result is None else {"outcome": outcome, "result": result}
        check_value(data, END)
        self._commands.end()
        self._append((Entry(END, data),))
        await self.flush(timeout)
        self._host.state.store.submit(self._host.state.forget_outbox(self.name), sync=False)

    async def withdraw(self, to: Cursor | None = None) -> None:
        """Take back this attempt's output, or what was emitted after `to`; the run goes on in a new epoch.

        Raises:
            Gone: `to` is no longer in the log; nothing was withdrawn.
            Fenced: a newer owner has the name.
        """
        self._check_open()
        if not self._writer.owned:
            raise NoJournal(f"{self.name!r} is not owned yet; wait for the grant before you withdraw")
        intent: Intent = ATTEMPT if to is None else to.position
        save = self._writer.withdraw(intent, fresh())
        if save is None:
            raise Gone(f"{to} is not known to be stored in the log of {self.name!r}; flush() before you withdraw to it")
        before = self.epoch
        self._spool.save(save)
        while not self._writer.owned:
            if self._writer.finished:
                raise self._spool.failure()
            await self._spool.changed.wait()
        if self.epoch == before:
            raise Gone(f"{to} is no longer in the log of {self.name!r}; nothing was withdrawn")
        await self._forget_withdrawn()

    # ---- what it did before

    async def history(self) -> AsyncIterator[Event]:
        """What this run has said so far and what still counts, from the journal and from this disk's outbox.

        Text may come merged (`Event.span`). Raises NoJournal, Fenced.
        """
        for event in await self._read_back():
            yield event

    async def _read_back(self) -> list[Event]:
        """The log up to what is stored now, then what this disk has not sent yet."""
        header, upto = self._writer.outbox.header, self.stored
        waiting = [entry for row in self._writer.outbox.rows for entry in row.entries]
        events = await self._host.read(self.name, Cursor(upto.inc, max(upto.position, header.parent)))
        here = Cursor(header.inc, ORIGIN)
        return [*events, *(Event(here, entry.type, entry.data, 0) for entry in waiting)]

    async def _remember(self) -> Memory:
        async with self._remembering:
            if self._memory is None:
                memory = Memory()
                for event in await self._read_back():
                    if event.type in KEPT:
                        memory.add(Entry(event.type, event.data))
                self._memory = memory
        return self._memory

    async def step(self, name: str, fn: Callable[P, Awaitable[T] | T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do something once: its result is stored in the log, and a later owner gets it instead of doing it again.

        A step is known by its name, its arguments and how often just this was done before. An exception
        is not stored. A withdrawn attempt takes its results with it.

        Args:
            fn: a function, or a coroutine function; its result is a value of the CBOR subset (PROTOCOL §3).

        Raises:
            BadValue: arguments or result cannot be stored; TooLarge: the result is above the event limit.
                The step was done, and nothing of it was stored: it is done again next time.
            NoJournal: what was done before cannot be read. Fenced, Ended.
        """
        check_type(name)
        memory = await self._remember()
        key = _key(name, list(args), dict(kwargs))
        n = self._steps[key] = self._steps.get(key, 0) + 1
        self._commands.boundary(When.NEXT_STEP)
        if memory.has_result(key, n):
            return cast("T", memory.result(key, n))
        made = fn(*args, **kwargs)
        result = await made if inspect.isawaitable(made) else made
        entry = Entry(STEP, {"name": name, "key": key, "n": n, "result": result})
        await self._emit((entry,))
        memory.add(entry)
        await self._stored_soon()
        return cast("T", result)

    async def _stored_soon(self) -> None:
        """Wait for this disk, and for the journal as long as there is a link."""
        await self._spool.on_disk()
        if self._host.session.up:
            with contextlib.suppress(TimeoutError):
                await self.flush(timeout=self._host.options.patience)

    async def _forget_withdrawn(self) -> None:
        """What was withdrawn was not done: a later owner counts from what is left, and so does this one."""
        if self._memory is None:
            return
        self._memory = None
        memory = await self._remember()
        self._steps = {key: min(n, memory.steps_of(key)) for key, n in self._steps.items()}
        self._asks.recount(memory)

    async def watchers(self) -> tuple[WatcherRow, ...]:
        """Who watches this run now: client IDs, and since when. Raises NoJournal."""
        return await self._host.watched_by(self.name)

    # ---- questions

    async def ask(
        self,
        question: Value,
        *,
        choices: Sequence[Value] | None = None,
        schema: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        default: Any = MISSING,
        by: Sequence[str] | None = None,
    ) -> Value:
        """Ask whoever answers first; the journal has the answer when this returns, and a later owner that asks
        the same gets it without asking again.

        Args:
            choices: what may be answered, compared by type and value.
            schema: a JSON Schema for the answer; needs `agentmqtt[schema]`.
            timeout: seconds until nobody is waited for any more: that is no denial.
            default: what is returned then.
            by: client IDs that may answer; everybody who may send to this run by default.

        Raises:
            Unanswered: `timeout` seconds passed, and there is no default.
            BadValue, UsageError: it cannot be asked so. NoJournal, Fenced.
        """
        asked = Question.make(question, choices, schema, by)
        memory = await self._remember()
        id_ = self._asks.name(asked)
        said = memory.answers.get(id_)
        if said is None:
            if id_ not in memory.asked:
                await self._emit((asked.event(id_, timeout),))
            said = await self._answered(id_, asked, timeout, default)
        if said.expired and default is MISSING:
            raise Unanswered(f"nobody answered {question!r} of {self.name!r} within {timeout:g} s; that is no denial")
        return default if said.expired else said.value

    async def _answered(self, id_: str, asked: Question, timeout: float | None, default: Any) -> Answered:
        future = self._asks.open(id_, asked)
        try:
            self._commands.judge_answers()
            await asyncio.wait((future,), timeout=timeout)
        finally:
            self._asks.close(id_)
        if future.done():
            await self.flush()  # it came through the journal, and it counts once the journal has it
            return future.result()
        said = Answered(None if default is MISSING else default, "", expired=True)
        self._asks.remember(id_, said)  # from now on it is too late, also while this waits for room
        await self._emit((answer(id_, said),))
        await self._stored_soon()
        return said

    def _take_answer(self, command: ReceivedCommand) -> bool:
        return self._asks.take(command)

    # ---- children

    @contextlib.asynccontextmanager
    async def child(self, name: str, **options: Any) -> AsyncIterator[OwnedRun]:
        """A run of its own below this one: `async with run.child("search") as sub`. Options are those of `own`.

        It is announced in this run's log; `watch(name, children=True)` follows both.
        """
        workflow = child_name(self.name, name)
        memory = await self._remember()
        if workflow not in memory.children:
            entry = Entry(CHILD, {"name": name, "wf": workflow})
            await self._emit((entry,))
            memory.add(entry)
        async with self._host.own(workflow, **options) as run:
            yield run


def child_name(parent: str, child: str) -> str:
    """The workflow ID of a child: `parent/child`, in which a slash or % of the child's name is written %2F or %25."""
    if not child:
        raise UsageError(f"a child of {parent!r} needs a name")
    return f"{parent}/{child.replace('%', '%25').replace('/', '%2F')}"


def _key(name: str, args: list[Value], kwargs: dict[str, Value]) -> str:
    """Name and arguments of a step, as one short text."""
    check_value(args, "args")
    check_value(kwargs, "kwargs")
    return hashlib.sha256(wire.pack([name, args, kwargs])).hexdigest()[:24]
