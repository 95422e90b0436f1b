"""`agentmqtt answer`, `withdraw` and `inbox`: what a run asks, and what waits for it."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentmqtt.cli import common
from agentmqtt.cli.common import BrokerURL, Config, Json, Root, Verbose, Workflow, complete, prepare, say
from agentmqtt.cli.send import BECAUSE
from agentmqtt.core.states import ANSWER, ASK
from agentmqtt.errors import UsageError
from agentmqtt.received import ANSWER as ANSWER_KIND
from agentmqtt.types import CommandState, Cursor

if TYPE_CHECKING:
    from agentmqtt.client import Client
    from agentmqtt.settings import Settings

Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="[ID] VALUE", help="The answer, after the question's ID if several are open."),
]


def answer(
    workflow: Workflow,
    words: Words = None,
    broker: BrokerURL = None,
    json: Json = False,
    config: Config = None,
    root: Root = None,
    verbose: Verbose = 0,
) -> int:
    """Answer a question of a run. Without VALUE: show the questions that are open.

    VALUE is read as JSON where the question's choices or schema want something else than text.
    """
    settings = prepare(config, verbose, broker=broker, root=root)
    return complete(_answer(settings, workflow, words or [], machine=json))


def withdraw(
    workflow: Workflow,
    id: Annotated[str, typer.Argument(metavar="ID", help="Of the command, as `send --json` or `inbox` shows it.")],
    broker: BrokerURL = None,
    config: Config = None,
    root: Root = None,
    verbose: Verbose = 0,
) -> int:
    """Take back a command that this user sent. Prints `withdrawn`, or what became of it."""
    settings = prepare(config, verbose, broker=broker, root=root)
    return complete(_withdraw(settings, workflow, id))


def inbox(
    workflow: Workflow,
    broker: BrokerURL = None,
    json: Json = False,
    config: Config = None,
    root: Root = None,
    verbose: Verbose = 0,
) -> None:
    """Show the commands of a run that have no outcome yet."""
    complete(_inbox(prepare(config, verbose, broker=broker, root=root), workflow, machine=json))


def watchers(
    workflow: Workflow,
    broker: BrokerURL = None,
    json: Json = False,
    config: Config = None,
    root: Root = None,
    verbose: Verbose = 0,
) -> None:
    """Show who watches a run now: client IDs, and for how long."""
    complete(_watchers(prepare(config, verbose, broker=broker, root=root), workflow, machine=json))


async def _watchers(settings: Settings, workflow: str, *, machine: bool) -> None:
    async with common.one_shot(settings) as client:
        rows = await client.watched_by(workflow)
    for row in rows:
        if machine:
            typer.echo(json.dumps(row._asdict()))
        else:
            typer.echo(f"{row.client}  for {max(0, time.time() - row.since / 1000):.0f} s")


async def _withdraw(settings: Settings, workflow: str, id_: str) -> int:
    async with common.one_shot(settings) as client:
        await client.require_journal()
        state = await common.unless_fatal(client, client.withdraw(workflow, id_))
    typer.echo(state)
    if state is CommandState.RECEIVED:
        say("too late: its owner has begun it")
    return 0 if state is CommandState.WITHDRAWN else 1


async def _inbox(settings: Settings, workflow: str, *, machine: bool) -> None:
    async with common.one_shot(settings) as client:
        rows = await client.commands(workflow)
    for row in rows:
        if machine:
            typer.echo(json.dumps(row._asdict()))
        else:
            left = max(0, row.deadline / 1000 - time.time())
            typer.echo(f"{row.id}  {row.kind:12} {row.state:9} {row.when:9} expires in {left:.0f} s  from {row.sender}")


async def _answer(settings: Settings, workflow: str, words: list[str], *, machine: bool) -> int:
    async with common.one_shot(settings) as client:
        await client.require_journal()
        asked = await _questions(client, workflow)
        if not words:
            for question in asked.values():
                typer.echo(json.dumps(question, ensure_ascii=False) if machine else _line(question))
            return 0
        question, value = _chosen(workflow, asked, words)
        data = {"ask": question["id"], "value": _value(question, value)}
        receipt = await client.send(workflow, data, kind=ANSWER_KIND)
        state = await common.unless_fatal(client, receipt.outcome())
    typer.echo(json.dumps({"id": question["id"], "state": state}) if machine else state)
    why = receipt.reason if receipt.reason is not None else BECAUSE.get(state)
    if why is not None:
        say(str(why))
    return 0 if state is CommandState.APPLIED else 1


async def _questions(client: Client, workflow: str) -> dict[str, dict[str, Any]]:
    """The open questions of a run by ID, in the order in which they were asked."""
    status = await client.status(workflow)
    found: dict[str, dict[str, Any]] = {}
    for event in await client.read(workflow, Cursor(status.inc, status.tail)):
        if isinstance(event.data, Mapping) and event.type == ASK:
            found[str(event.data.get("id"))] = dict(event.data)
        elif isinstance(event.data, Mapping) and event.type == ANSWER:
            found.pop(str(event.data.get("id")), None)
    return found


def _chosen(workflow: str, asked: dict[str, dict[str, Any]], words: list[str]) -> tuple[dict[str, Any], str]:
    """The question and the text of its answer. Raises UsageError: there is none, or which one?"""
    if not asked:
        raise UsageError(f"{workflow!r} has no open question")
    if words[0] in asked and len(words) > 1:
        return asked[words[0]], " ".join(words[1:])
    if len(asked) > 1:
        raise UsageError(f"{workflow!r} has {len(asked)} open questions; name one: {', '.join(asked)}")
    return next(iter(asked.values())), " ".join(words)


def _value(question: dict[str, Any], text: str) -> Any:
    """The answer as the question wants it: a choice by its text, JSON where it is not text, else the text."""
    choices = question.get("choices")
    for choice in choices or ():
        if text == choice or (not isinstance(choice, str) and text == json.dumps(choice)):
            return choice
    if choices is None and "schema" in question:
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text


def _line(question: dict[str, Any]) -> str:
    choices = question.get("choices")
    shown = f"  [{' / '.join(map(str, choices))}]" if choices else ""
    return f"{question['id']}  {question.get('question')}{shown}"
