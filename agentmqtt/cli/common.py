"""What every command needs: its options, its settings, its log, its client."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Awaitable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from agentmqtt.cli import places
from agentmqtt.client import Client
from agentmqtt.names import encode_name

if TYPE_CHECKING:
    from agentmqtt.options import ClientOptions
    from agentmqtt.settings import Settings
    from agentmqtt.transport.mqtt import MqttTransport

T = TypeVar("T")

PATIENCE = 2.5
"""Seconds for a journal to answer a command of the command line: with its start, less than 3."""


def _named(workflow: str) -> str:
    """The name, before anything else is tried with it. Raises BadName."""
    encode_name(workflow)
    return workflow


Workflow = Annotated[
    str, typer.Argument(metavar="WORKFLOW", help="The workflow ID: any text.", show_default=False, callback=_named)
]
BrokerURL = Annotated[
    str | None,
    typer.Option(
        "--broker", "-b", metavar="URL", help="mqtt:// mqtts:// ws:// wss:// unix://; default: $AGENTMQTT_BROKER."
    ),
]
Config = Annotated[Path | None, typer.Option("--config", metavar="FILE", help="TOML file with settings.")]
Root = Annotated[
    str | None, typer.Option("--root", metavar="ROOT", help="First levels of all topics.  [default: agentmqtt/v1]")
]
Verbose = Annotated[
    int, typer.Option("--verbose", "-v", count=True, show_default=False, help="Say more on stderr, -vv even more.")
]
Json = Annotated[bool, typer.Option("--json", help="JSON, one object a line.")]


def prepare(config: Path | None, verbose: int, **flags: Any) -> Settings:
    """Logging, then the settings. Raises UsageError."""
    _log(verbose)
    from agentmqtt.settings import load  # pydantic is loaded when it is needed

    return load(config, **flags)


_said: deque[str] = deque(maxlen=1)
"""The last line, so that a warning does not come again as the error."""


def say(text: str) -> None:
    """One line for a person, on stderr, unless the last lines said the same."""
    line = " ".join(text.split())
    if not _said or _said[-1] != line:
        typer.echo(f"agentmqtt: {line}", err=True)


class _OneLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        text = " ".join(record.getMessage().split())
        _said.append(text)
        if record.exc_info and os.environ.get("AGENTMQTT_DEBUG") != "1":
            text += f" ({record.exc_info[0].__name__}: {record.exc_info[1]})" if record.exc_info[0] else ""
        elif record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return f"agentmqtt: {text}"


def _log(verbose: int) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(_OneLine())
    logging.basicConfig(level=logging.ERROR, handlers=[handler], force=True)
    logging.getLogger("agentmqtt").setLevel((logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)])


def transport(settings: Settings) -> MqttTransport:
    """How to reach the broker of the settings. Raises BadURL, UsageError."""
    from agentmqtt.transport.mqtt import MqttTransport  # aiomqtt is loaded when it is needed

    return MqttTransport(
        places.url(settings),
        username=settings.username,
        password=settings.password.get_secret_value() if settings.password else None,
        tls_ca=_text(settings.tls_ca),
        tls_cert=_text(settings.tls_cert),
        tls_key=_text(settings.tls_key),
    )


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def client(settings: Settings, kind: str, workflow: str, *, slots: int = 1) -> Client:
    """A client with a state file for `kind` of use of one name; the first of `slots` files that is free.

    Entering it raises StoreInUse if none is free, StoreUnusable.
    """
    files = places.files(settings, kind, workflow, slots)
    return Client(transport(settings), lambda: places.first_free(files), options=_options(settings))


def one_shot(settings: Settings) -> Client:
    """A client that keeps nothing but who it is: a command that is not accepted in time is not sent later."""
    options = settings.client_options(patience=PATIENCE, session_expiry=0)
    return Client(transport(settings), lambda: places.Passport(settings), options=options)


def _options(settings: Settings) -> ClientOptions:
    return settings.client_options(patience=PATIENCE)


def tell_reconnects(client: Client) -> None:
    """The link says when it is lost; say when it is back."""

    def up(_conn: int) -> None:
        if client.session.last_error is not None:
            say("connected")

    client.session.on_up.append(up)


async def unless_fatal(client: Client, work: Coroutine[Any, Any, T]) -> T:
    """Do `work`, but end with the reason when the link has stopped for good."""
    task = asyncio.create_task(work)
    try:
        await asyncio.wait((task, client.session.fatal), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
            await asyncio.wait((task,))
            raise client.session.fatal.result()
        return task.result()
    finally:
        await end(task)


async def end(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks and wait until they are over."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def complete(work: Awaitable[T]) -> T:
    """Run a command's coroutine."""

    async def main() -> T:
        return await work

    return asyncio.run(main())
