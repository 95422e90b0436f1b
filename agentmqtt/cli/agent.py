"""A program under `agentmqtt run`: its output becomes events, commands become input and signals."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from agentmqtt.cli import common
from agentmqtt.cli.child import LEFT_OPEN, Child
from agentmqtt.cli.common import say
from agentmqtt.cli.lines import Lines
from agentmqtt.errors import StoreError
from agentmqtt.received import Interruption, ReceivedCommand

if TYPE_CHECKING:
    from agentmqtt.client import Client
    from agentmqtt.owner import OwnedRun, Retry

FULL_PAUSE = 0.5
"""Seconds between two tries of a full disk."""


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
    """Why a program is stopped, the first signal for it, and whether the run is over then."""

    reason: object
    first: signal.Signals
    final: bool


async def supervise(client: Client, task: Task) -> int:
    """Own the name, run the program, say how it ended. Returns the exit code."""
    asked: asyncio.Future[Stop] = asyncio.get_running_loop().create_future()
    owning = client.own(
        task.workflow, retry=task.retry, takeover=task.takeover, reopen=task.again, offline=task.offline
    )
    async with owning as run:
        if sys.stderr.isatty():
            say(f"{task.workflow} runs; follow it with: agentmqtt watch {task.workflow}")
        async with Child(task.command, _environment(task.workflow)) as child:
            hurry = _on_signals(asked)
            stop, code = await _follow(run, child, task, asked, hurry)
        if stop is None or stop.final:
            await _end(run, stop, code, asked)
        return code if code >= 0 else 128 - code


def _environment(workflow: str) -> dict[str, str]:
    """A Python program would hold back its output in a pipe."""
    return {"PYTHONUNBUFFERED": "1"} | os.environ | {"AGENTMQTT_WORKFLOW": workflow}


def _on_signals(asked: asyncio.Future[Stop]) -> asyncio.Event:
    """Ctrl-C cancels the run; SIGTERM and SIGHUP stop the program and leave the run to be resumed."""
    loop, hurry = asyncio.get_running_loop(), asyncio.Event()

    def stop(wish: Stop) -> None:
        hurry.set() if asked.done() else asked.set_result(wish)

    loop.add_signal_handler(signal.SIGINT, stop, Stop("stopped at the terminal", signal.SIGINT, True))
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop, Stop(None, signal.SIGTERM, False))
    return hurry


# ---- while it runs


async def _follow(
    run: OwnedRun, child: Child, task: Task, asked: asyncio.Future[Stop], hurry: asyncio.Event
) -> tuple[Stop | None, int]:
    """Carry output and commands until the program is over and all its output is in the outbox."""
    pumps = [
        asyncio.create_task(_pump(run, reader, type_, whole=not task.chunks), name=f"agentmqtt-run-{type_}")
        for reader, type_ in ((child.stdout, "text"), (child.stderr, "log"))
    ]
    jobs = [*pumps, asyncio.create_task(_steer(run, child, hurry), name="agentmqtt-run-commands")]
    try:
        stop = await _until_over(run, child, asked, jobs)
        if stop is not None:
            await _stop(child, stop.first, task.grace, hurry, jobs)
        await _drain(child, pumps, jobs)
    finally:
        await common.end(*jobs)
    return stop, child.exited.result()


async def _until_over(
    run: OwnedRun, child: Child, asked: asyncio.Future[Stop], jobs: list[asyncio.Task[None]]
) -> Stop | None:
    """None when the program ended by itself."""
    async with run.interruptible() as interruption:
        try:
            await _first(jobs, child.exited, asked)
        except asyncio.CancelledError:
            if interruption.interrupted:
                child.signal(signal.SIGINT)  # before the command counts as applied
            raise
    if interruption.interrupted:
        return Stop(_reason(interruption), signal.SIGINT, True)
    return asked.result() if asked.done() else None


def _reason(interruption: Interruption) -> object:
    return interruption.reason or "interrupted"


async def _first(jobs: list[asyncio.Task[None]], *futures: asyncio.Future[Any], timeout: float | None = None) -> None:
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


async def _stop(
    child: Child, first: signal.Signals, grace: float, hurry: asyncio.Event, jobs: list[asyncio.Task[None]]
) -> None:
    """Ask, then order, then kill. A further interrupt hurries."""
    ladder = [signal.SIGINT, signal.SIGTERM, signal.SIGKILL]
    for number in ladder[ladder.index(first) :]:
        child.signal(number)
        hurry.clear()
        hurried = asyncio.create_task(hurry.wait())
        try:
            await _first(jobs, child.exited, hurried, timeout=None if number is signal.SIGKILL else grace)
        finally:
            await common.end(hurried)
        if child.exited.done():
            return
    await child.exited


async def _drain(child: Child, pumps: list[asyncio.Task[None]], jobs: list[asyncio.Task[None]]) -> None:
    """The rest of its output. What it left running in the background may hold the pipes for ever."""
    rest = asyncio.gather(*pumps)
    await _first(jobs, rest, timeout=LEFT_OPEN)
    if not rest.done():
        child.close_output()
    await rest


async def _pump(run: OwnedRun, reader: asyncio.StreamReader, type_: str, *, whole: bool) -> None:
    lines = Lines(whole=whole)
    data = b"more"
    while data:
        data = await reader.read(65536)
        for text in lines.feed(data):
            await _emit(run, type_, text)


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


async def _steer(run: OwnedRun, child: Child, hurry: asyncio.Event) -> None:
    async for command in run.commands():
        await _obey(command, child, hurry)


async def _obey(command: ReceivedCommand, child: Child, hurry: asyncio.Event) -> None:
    if command.kind == "interrupt":
        hurry.set()
    elif command.kind != "message":
        command.rejected(f"this agent takes 'message' and 'interrupt', not {command.kind!r}")
    elif not await child.write(command.data if isinstance(command.data, str) else json.dumps(command.data)):
        command.rejected("the program does not read its input any more")


# ---- when it is over


async def _end(run: OwnedRun, stop: Stop | None, code: int, asked: asyncio.Future[Stop]) -> None:
    result: dict[str, object] = {"exit": code}
    if code < 0:
        result = {"exit": 128 - code, "signal": signal.Signals(-code).name}
    if stop is not None:
        result["reason"] = stop.reason
    outcome = "cancelled" if stop is not None else "failed" if code else "done"
    await run.end(result, outcome=outcome)
