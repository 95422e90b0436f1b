"""`agentmqtt status` and `agentmqtt ls`: what the journal says about runs."""

from __future__ import annotations

import datetime
import json
import sys
import time
from typing import TYPE_CHECKING

import typer

from agentmqtt import wire
from agentmqtt.cli import common
from agentmqtt.cli.common import BrokerURL, Config, Json, Root, Verbose, Workflow, complete, prepare
from agentmqtt.errors import NoJournal
from agentmqtt.frames import Row, Status
from agentmqtt.types import OwnerState, RunState

if TYPE_CHECKING:
    from agentmqtt.settings import Settings
    from agentmqtt.transport.base import Delivery

COLUMNS = ("workflow", "state", "owner", "epoch", "tail", "updated")
COLOURS: dict[str, str] = {
    RunState.RUNNING: "cyan",
    RunState.WAITING: "yellow",
    RunState.DONE: "green",
    RunState.FAILED: "red",
    RunState.CANCELLED: "magenta",
    RunState.INTERRUPTED: "red",
    OwnerState.ONLINE: "green",
    OwnerState.LOST: "red",
}


def status(
    workflow: Workflow,
    broker: BrokerURL = None,
    as_json: Json = False,
    config: Config = None,
    root: Root = None,
    verbose: Verbose = 0,
) -> None:
    """Show the state of a run."""
    settings = prepare(config, verbose, broker=broker, root=root)
    found, fresh = complete(_status(settings, workflow))
    fields = _fields(found) | {"attempt": found.attempt}
    if found.detail is not None:
        fields["detail"] = found.detail
    if found.result is not None:
        fields["result"] = found.result
    if not fresh:
        fields["as_of"] = found.at
    if as_json:
        typer.echo(json.dumps(fields, ensure_ascii=False, default=str))
    else:
        _show(fields)


def ls(
    broker: BrokerURL = None, as_json: Json = False, config: Config = None, root: Root = None, verbose: Verbose = 0
) -> None:
    """List every run that the journal knows."""
    settings = prepare(config, verbose, broker=broker, root=root)
    rows = [_fields(row) for row in complete(_rows(settings))]
    if as_json:
        for row in rows:
            typer.echo(json.dumps(row, ensure_ascii=False))
    else:
        _table(rows)


async def _rows(settings: Settings) -> list[Row]:
    async with common.one_shot(settings) as client:
        return [row async for row in client.runs()]


async def _status(settings: Settings, workflow: str) -> tuple[Status, bool]:
    """The journal's word, or else the last one that the broker kept; and whether it is the journal's."""
    kept: list[Status] = []

    def hear(delivery: Delivery) -> None:
        if delivery.payload:
            kept.append(wire.decode_status(delivery.payload))

    async with common.one_shot(settings) as client:
        client.session.subscribe(client.topics.status(workflow), hear)
        try:
            return await client.status(workflow), True
        except NoJournal:
            if not kept:
                raise
            return kept[-1], False


def _fields(row: Status | Row) -> dict[str, object]:
    return {
        "workflow": row.workflow,
        "state": row.state.value,
        "owner": row.owner.value,
        "epoch": row.epoch,
        "tail": str(row.tail),
        "updated": row.updated,
    }


# ---- for a person


def _show(fields: dict[str, object]) -> None:
    lines = [(name.replace("_", " "), _word(name, value)) for name, value in fields.items()]
    if not sys.stdout.isatty():
        for name, word in lines:
            typer.echo(f"{name}: {word}")
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    for name, word in lines:
        console.print(Text(f"{name:>9}  ", style="dim").append(word, style=COLOURS.get(word, "default")))


def _table(rows: list[dict[str, object]]) -> None:
    """Columns; tabs between them where no person looks."""
    words = [[_word(name, row[name]) for name in COLUMNS] for row in rows]
    if sys.stdout.isatty():
        words = [[*line[:-1], _ago(float(str(row["updated"])) / 1000)] for line, row in zip(words, rows, strict=True)]
    else:
        for line in words:
            typer.echo("\t".join(line))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for name in COLUMNS:
        table.add_column(name, no_wrap=name != "workflow", overflow="fold")
    for line in words:
        table.add_row(*(Text(word, style=COLOURS.get(word, "")) for word in line))
    Console(highlight=False).print(table)


def _word(name: str, value: object) -> str:
    if name in ("updated", "as_of") and isinstance(value, int):
        if not value:
            return "never"
        moment = datetime.datetime.fromtimestamp(value / 1000).astimezone()
        if not sys.stdout.isatty():
            return moment.isoformat(timespec="seconds")
        return f"{moment.isoformat(' ', 'seconds')} ({_ago(value / 1000)})"
    return (
        value if isinstance(value, str) and value.isprintable() else json.dumps(value, ensure_ascii=False, default=str)
    )


def _ago(when: float) -> str:
    """How long ago, in the largest unit that fits."""
    if not when:
        return "never"
    age = max(0.0, time.time() - when)
    for seconds, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if age >= seconds:
            return f"{age / seconds:.0f} {unit} ago"
    return f"{age:.0f} s ago"
