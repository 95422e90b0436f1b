"""`agentmqtt conformance`: does a client in any language keep the protocol?"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import shlex
import sys
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from agentmqtt.cli.common import say
from agentmqtt.errors import UsageError

if TYPE_CHECKING:
    from agentmqtt.conformance import Result

Command = Annotated[list[str] | None, typer.Argument(metavar="CLIENT-COMMAND", help="Starts the client's driver.")]
Chosen = Annotated[list[str] | None, typer.Option("--case", metavar="NAME", help="Only this case; may be repeated.")]
Json = Annotated[bool, typer.Option("--json", help="One object a line.")]
List = Annotated[bool, typer.Option("--list", help="Name the cases and end.")]


def conformance(command: Command = None, case: Chosen = None, json: Json = False, names: List = False) -> None:
    """Drive a client through the cases of docs/CONFORMANCE.md. Ends with 1 if it fails one.

    CLIENT-COMMAND is a program with its arguments, in one word or several; `python` as its first word is this one.
    """
    if names:
        _list()
        return
    if not command:
        raise UsageError("which client? give the command that starts its driver; docs/CONFORMANCE.md says what it does")
    words = shlex.split(command[0]) if len(command) == 1 else command
    words = [sys.executable, *words[1:]] if words[0] == "python" else words
    failed = asyncio.run(_run(words, case or (), machine=json))
    if failed:
        raise typer.Exit(1)


def _list() -> None:
    from agentmqtt.conformance import CASES

    for name, case in CASES.items():
        typer.echo(f"{name:20} {(case.__doc__ or '').strip().splitlines()[0]}")


async def _run(command: Sequence[str], cases: Collection[str], *, machine: bool) -> int:
    try:
        from agentmqtt.conformance import run
    except ImportError as error:
        raise UsageError(f"the cases need a broker and {error.name}; pip install 'agentmqtt[broker]'") from error
    passed = failed = 0
    async for result in run(command, cases):
        passed, failed = passed + result.passed, failed + (not result.passed)
        typer.echo(json.dumps(dataclasses.asdict(result)) if machine else _line(result))
        if not result.passed and not machine:
            for complaint in result.complaints:
                say(f"    {complaint}")
    if not machine:
        typer.echo(f"{passed} passed, {failed} failed")
    return failed


def _line(result: Result) -> str:
    word = "ok  " if result.passed else "FAIL"
    return f"{word} {result.case:20} {result.seconds:6.1f} s  {result.why or result.about}"
