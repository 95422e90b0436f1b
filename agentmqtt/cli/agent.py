"""A program under `agentmqtt run`: its output becomes events, commands become input and signals."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from agentmqtt.cli import common
from agentmqtt.cli.child import Child
from agentmqtt.cli.common import say
from agentmqtt.cli.lines import Lines
from agentmqtt.errors import StoreError
from agentmqtt.received import INTERRUPT, Interruption, ReceivedCommand

if TYPE_CHECKING:
    from agentmqtt.client import Client
    from agentmqtt.owner import OwnedRun, Retry

Jobs = list[asyncio.Task[None]]

SLOW_END = 2.0
"""Seconds after which a person wants to know why it does not return."""

FULL_PAUSE = 0.5
"""Seconds between two tries of a full disk."""

LATE = 0.2
"""Seconds for a signal to arrive here that has reached the program already."""

REASON = 4096
"""Characters of a reason that are kept."""

LADDER = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
"""Ask, then order, then kill."""


class Task(NamedTuple):
    """What `run` was asked to do."""

    workflow: str
    command: list[str]
    retry: Retry
    again: bool
    takeover: bool
    offline: bool
    grace: float
    chunks: bool


class Stop(NamedTuple):
    """Why a program is stopped, the first signal that it gets, and whether the run is over then."""

    reason: object
    first: signal.Signals
    final: bool


class Wishes:
    """What the terminal and the system want, told by signals: `asked` is the first wish, `hurry` any later one."""

    def __init__(self) -> None:
        self.asked: asyncio.Future[Stop] = asyncio.get_running_loop().create_future()
        self.hurry = asyncio.Event()

    def listen(self) -> None:
        """Ctrl-C cancels the run; SIGTERM and SIGHUP stop the program and leave the run to be resumed."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self.wish, Stop("stopped at the terminal", signal.SIGINT, True))
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self.wish, Stop(None, signal.SIGTERM, False))

    async def late(self) -> Stop | None:
        """A signal that killed the program first, because it went to everybody."""
        await asyncio.wait((self.asked,), timeout=LATE)
        return self.asked.result() if self.asked.done() else None

    def wish(self, stop: Stop) -> None:
        if self.asked.done():
            self.hurry.set()
        else:
            self.asked.set_result(stop)


async def supervise(client: Client, task: Task) -> int:
    """Own the name, run the program, say how it ended. Returns the exit code."""
    owning = client.own(
        task.workflow, retry=task.retry, takeover=task.takeover, reopen=task.again, offline=task.offline
    )
    async with owning as run:
        if sys.stderr.isatty():
            say(f"{task.workflow!r} runs; follow it with: agentmqtt watch {shlex.quote(task.workflow)}")
        wishes = Wishes()
        async with Child(task.command, _environment(task.workflow)) as child:
            wishes.listen()
            stop = await _follow(run, child, task, wishes)
            code = child.exited.result()
            if stop is None and code < 0:
                stop = await wishes.late()
        if stop is None or stop.final:
            await _end(run, stop, code, wishes)
        return code if code >= 0 else 128 - code


def _environment(workflow: str) -> dict[str, str]:
    """A Python program would hold back its output in a pipe."""
    return {"PYTHONUNBUFFERED": "1"} | os.environ | {"AGENTMQTT_WORKFLOW": workflow}


# ---- while it runs


async def _follow(run: OwnedRun, child: Child, task: Task, wishes: Wishes) -> Stop | None:
    """Carry output and commands until the program is over and all its output is in the outbox."""
    pumps = [
        asyncio.create_task(_pump(run, child, pipe, type_, Lines(whole=not task.chunks)), name=f"agentmqtt-run-{type_}")
        for pipe, type_ in ((child.stdout, "text"), (child.stderr, "log"))
    ]
    jobs = [*pumps, asyncio.create_task(_steer(run, child, wishes), name="agentmqtt-run-commands")]
    try:
        stop = await _until_over(run, child, wishes, jobs)
        if stop is not None:
            await _stop(child, stop.first, task.grace, wishes, jobs)
        await _first(jobs, asyncio.gather(*pumps, return_exceptions=True))
        for pump in pumps:
            pump.result()
    finally:
        await common.end(*jobs)
    return stop


async def _until_over(run: OwnedRun, child: Child, wishes: Wishes, jobs: Jobs) -> Stop | None:
    """None when the program ended by itself; else it has got the first signal."""
    async with run.interruptible() as interruption:
        try:
            await _first(jobs, child.exited, wishes.asked)
        except asyncio.CancelledError:
            if interruption.interrupted:
                child.signal(signal.SIGINT)  # before the command counts as applied
            raise
    if interruption.interrupted:
        return Stop(_reason(interruption), signal.SIGINT, True)
    if not wishes.asked.done():
        return None
    stop = wishes.asked.result()
    child.signal(stop.first)
    return stop


def _reason(interruption: Interruption) -> object:
    """What the result of the run says; the log has no room for a reason of any size."""
    reason = interruption.reason or "interrupted"
    if len(json.dumps(reason, default=str)) <= REASON:
        return reason
    text = reason if isinstance(reason, str) else json.dumps(reason, default=str, ensure_ascii=False)
    return text[:REASON] + "…"


async def _first(jobs: Jobs, *futures: asyncio.Future[Any], timeout: float | None = None) -> None:
    """Wait until one of `futures` is done, or the time is over. Raises what a job raises."""
    deadline = None if timeout is None else asyncio.get_running_loop().time() + timeout
    while not any(future.done() for future in futures):
        left = None if deadline is None else deadline - asyncio.get_running_loop().time()
        if left is not None and left <= 0:
            return
        waiting = [*futures, *(job for job in jobs if not job.done())]
        await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        for job in jobs:
            if job.done():
                job.result()


async def _stop(child: Child, sent: signal.Signals, grace: float, wishes: Wishes, jobs: Jobs) -> None:
    """From the signal that was `sent`, climb the ladder until it is over; a further interrupt hurries."""
    for number in LADDER[LADDER.index(sent) + 1 :]:
        wishes.hurry.clear()
        hurried = asyncio.create_task(wishes.hurry.wait())
        try:
            await _first(jobs, child.exited, hurried, timeout=grace)
        finally:
            await common.end(hurried)
        if child.exited.done():
            return
        child.signal(number)
    await _first(jobs, child.exited)


async def _pump(run: OwnedRun, child: Child, pipe: asyncio.StreamReader, type_: str, lines: Lines) -> None:
    data = b"more"
    while data:
        data = await child.read(pipe)
        for text in lines.feed(data):
            await _emit(run, type_, text)
            run.turn()  # a program's step is what it prints at once


async def _emit(run: OwnedRun, type_: str, text: str) -> None:
    """A full disk makes the program wait; nothing is dropped."""
    said = False
    while True:
        try:
            return await run.emit(type_, text)
        except StoreError as error:
            if not error.retryable:
                raise
            if not said:
                say(f"{error}; the program waits")
            said = True
            await asyncio.sleep(FULL_PAUSE)


async def _steer(run: OwnedRun, child: Child, wishes: Wishes) -> None:
    async for command in run.commands():
        await _obey(command, child, wishes)


async def _obey(command: ReceivedCommand, child: Child, wishes: Wishes) -> None:
    if command.kind == INTERRUPT:
        wishes.hurry.set()
    elif command.kind != "message":
        command.rejected(f"this agent takes 'message' and 'interrupt', not {command.kind!r}")
    elif not await child.write(command.data if isinstance(command.data, str) else json.dumps(command.data)):
        command.rejected("the program does not read its input any more")


# ---- when it is over


async def _end(run: OwnedRun, stop: Stop | None, code: int, wishes: Wishes) -> None:
    """Say how it ended, and wait until that is stored; a signal ends the waiting, not what waits on the disk."""
    result: dict[str, object] = {"exit": code if code >= 0 else 128 - code}
    if code < 0:
        result["signal"] = signal.Signals(-code).name
    if stop is not None:
        result["reason"] = stop.reason
    outcome = "cancelled" if stop is not None else "failed" if code else "done"
    ending = asyncio.create_task(run.end(result, outcome=outcome))
    wishes.hurry.clear()
    hurried = asyncio.create_task(wishes.hurry.wait())
    leave = [hurried] if wishes.asked.done() else [hurried, wishes.asked]
    try:
        await _first([], ending, *leave, timeout=SLOW_END)
        if not ending.done():
            say(f"the program has ended, {run.unsent} events wait to be stored; Ctrl-C leaves them on the disk")
        await _first([], ending, *leave)
        if ending.done():
            ending.result()
    finally:
        await common.end(ending, hurried)
