"""`agentmqtt watch`: follow a run, and resume by itself."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from agentmqtt.cli import common, places
from agentmqtt.cli.common import BrokerURL, Config, Root, Verbose, Workflow, complete, prepare, say
from agentmqtt.cli.into import LinesFile
from agentmqtt.cli.show import JsonLines, Sink, Text, family_json, family_line, write
from agentmqtt.core.states import END, OUTCOMES
from agentmqtt.errors import LinkError, NoJournal, UsageError
from agentmqtt.types import NO_INC, ORIGIN, Cursor, Event, Gap

if TYPE_CHECKING:
    from agentmqtt.client import Client
    from agentmqtt.frames import Status
    from agentmqtt.settings import Settings
    from agentmqtt.watcher import WatchedRun

ASK_AGAIN = 2.0
"""Seconds until a journal that did not answer is asked again."""


class View(NamedTuple):
    """What is to be watched, and how."""

    workflow: str
    start: str | None
    until_end: bool
    stored: bool
    pace: float | None


def watch(
    workflow: Workflow,
    broker: BrokerURL = None,
    start: Annotated[
        str | None,
        typer.Option("--from", metavar="start|end|CURSOR", help="Where to begin.  [default: where it stopped]"),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One object a line: cursor, type, data, time.")] = False,
    until_end: Annotated[bool, typer.Option("--until-end", help="Leave when the run has ended.")] = False,
    stored: Annotated[bool, typer.Option("--stored", help="Show only what is stored.")] = False,
    pace: Annotated[
        float | None, typer.Option(metavar="S", help="Ask every S seconds instead of live.", min=0.1)
    ] = None,
    children: Annotated[
        bool, typer.Option("--children", help="Follow its children too; each line says whose it is.")
    ] = False,
    into: Annotated[
        Path | None, typer.Option("--into", metavar="FILE", help="Append JSON lines to FILE; it resumes by FILE alone.")
    ] = None,
    config: Config = None,
    root: Root = None,
    verbose: Verbose = 0,
) -> None:
    """Follow a run. Text goes to stdout as it is, everything else to stderr; it resumes where it stopped."""
    if into and start:
        raise UsageError("--into resumes by its file; leave out --from, or name a new file")
    if children and (into or start or until_end):
        raise UsageError("--children goes with --json, --stored and --pace only")
    settings = prepare(config, verbose, broker=broker, root=root)
    _checked(start)
    view = View(workflow, start, until_end, stored, pace)
    if children:
        complete(_family(settings, view, machine=json))
        return
    with _sink(into, json) as (sink, cursor):
        complete(_main(settings, view, sink, cursor))


def _checked(start: str | None) -> Cursor | None:
    if start is None or start in ("start", "end"):
        return None
    try:
        return Cursor.parse(start)
    except ValueError:
        raise UsageError(f"--from {start} is none of start, end and a cursor such as 7.42") from None


@contextlib.contextmanager
def _sink(into: Path | None, json: bool) -> Iterator[tuple[Sink, Cursor | None]]:
    """Where it goes, and the cursor that is kept there."""
    if into is None:
        yield (JsonLines() if json else Text()), None
        return
    file = LinesFile(into)
    try:
        yield file, file.cursor or Cursor(NO_INC, ORIGIN)
    finally:
        file.close()


async def _family(settings: Settings, view: View, *, machine: bool) -> None:
    async with common.client(settings, "watch", view.workflow, slots=places.SLOTS) as client:
        common.tell_reconnects(client)
        await common.unless_fatal(client, _follow_family(client, view, machine=machine))


async def _follow_family(client: Client, view: View, *, machine: bool) -> None:
    following = client.watch(view.workflow, stored=view.stored, pace=view.pace, children=True)
    async with following as family:
        async for told in family:
            line = family_json(told) if machine else family_line(told, view.workflow)
            await write(1, line)


async def _main(settings: Settings, view: View, sink: Sink, cursor: Cursor | None) -> None:
    async with common.client(settings, "watch", view.workflow, slots=places.SLOTS) as client:
        await common.unless_fatal(client, _watch(client, view, sink, cursor))


async def _watch(client: Client, view: View, sink: Sink, kept: Cursor | None) -> None:
    common.tell_reconnects(client)
    news = asyncio.create_task(_tell_silence(client), name="agentmqtt-watch-silence")
    start = kept or await _start(client, view)
    following = client.watch(view.workflow, start=start, stored=view.stored, pace=view.pace, resume=kept is None)
    try:
        async with following as run:
            if kept is None and view.start is None and run.cursor.position != ORIGIN and sys.stderr.isatty():
                say(f"goes on after {run.cursor}; --from start shows everything")
            await _copy(client, run, sink, until_end=view.until_end)
    finally:
        await common.end(news)


async def _start(client: Client, view: View) -> str | Cursor:
    """`end`, and a cursor without its incarnation, mean what the journal says they are."""
    given = _checked(view.start)
    if view.start is None:
        return "start"
    if view.start == "start":
        return Cursor(NO_INC, ORIGIN)
    if given is not None and given.inc:
        return given
    status = await _status(client, view.workflow)
    if given is not None and given.position.epoch > status.epoch:
        raise UsageError(f"--from {given} lies after everything in {view.workflow!r}, which ends at {status.tail}")
    return Cursor(status.inc, status.tail if given is None else given.position)


async def _status(client: Client, workflow: str) -> Status:
    """Ask until a journal answers."""
    while True:
        try:
            return await client.status(workflow)
        except (NoJournal, LinkError) as error:
            if not error.retryable:
                raise
            await asyncio.sleep(ASK_AGAIN)


async def _tell_silence(client: Client) -> None:
    """Say once that no journal answers; the link tells by itself that there is no broker."""
    with contextlib.suppress(LinkError):
        try:
            await client.require_journal()
        except NoJournal as error:
            say(f"{error}; waiting for it")


class _Shown:
    """How far it was shown. `doubt`: perhaps the end is not coming, because it was shown before or trimmed."""

    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor
        self.doubt = asyncio.Event()
        self.doubt.set()


async def _copy(client: Client, run: WatchedRun, sink: Sink, *, until_end: bool) -> None:
    """Show everything, until the run has ended if that was asked for."""
    shown = _Shown(run.cursor)
    over = [asyncio.create_task(_until_over(client, run.name, shown))] if until_end else []
    copying = asyncio.create_task(_show(run, sink, shown, until_end=until_end))
    try:
        await asyncio.wait([copying, *over], return_when=asyncio.FIRST_COMPLETED)
        for task in (copying, *over):
            if task.done():
                task.result()
    finally:
        await common.end(copying, *over)


async def _show(run: WatchedRun, sink: Sink, shown: _Shown, *, until_end: bool) -> None:
    async for item in run:
        await sink.put(item)
        shown.cursor = item.cursor
        if isinstance(item, Gap):
            shown.doubt.set()
        if until_end and isinstance(item, Event) and item.type == END:
            return


async def _until_over(client: Client, name: str, shown: _Shown) -> None:
    """Returns if the run has ended and nothing more is to be shown."""
    while True:
        await shown.doubt.wait()
        shown.doubt.clear()
        status = await _status(client, name)
        if status.state in OUTCOMES.values() and shown.cursor == Cursor(status.inc, status.tail):
            return
