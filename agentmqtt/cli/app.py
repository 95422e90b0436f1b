"""All commands, and how their errors are told: in one line, with a remedy."""

from __future__ import annotations

import os
import traceback
from collections.abc import Sequence
from typing import Annotated

import typer

from agentmqtt.cli import (
    accounts,
    broker,
    care,
    cert,
    conformance,
    install,
    journal,
    run,
    send,
    status,
    steer,
    token,
    watch,
)
from agentmqtt.cli.common import say
from agentmqtt.errors import AgentMQTTError, UsageError
from agentmqtt.version import VERSION

ClickUsageError = typer.BadParameter.__mro__[1]
"""Of click, which newer versions of typer bring along under another name."""

app = typer.Typer(
    name="agentmqtt",
    help="Channels by name over MQTT: agents and their watchers meet on a workflow ID, and both resume.",
    add_completion=False,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
care.register(broker.app)
broker.app.command("install")(install.install)
app.add_typer(broker.app, name="broker")
app.command("journal")(journal.journal)
app.command("run")(run.run)
app.command("watch")(watch.watch)
app.command("send")(send.send)
app.command("interrupt")(send.interrupt)
app.command("answer")(steer.answer)
app.command("withdraw")(steer.withdraw)
app.command("watchers")(steer.watchers)
app.command("inbox")(steer.inbox)
app.command("status")(status.status)
app.command("ls")(status.ls)
app.add_typer(accounts.group("user"), name="user")
app.add_typer(accounts.group("device"), name="device")
app.command("token")(token.token)
app.add_typer(cert.app, name="cert")
app.command("conformance")(conformance.conformance)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"agentmqtt {VERSION}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def execute(arguments: Sequence[str]) -> int:
    """Run one command. Returns the exit code."""
    try:
        return int(app(arguments, standalone_mode=False) or 0)
    except KeyboardInterrupt:
        return 130
    except SystemExit as stop:
        if isinstance(stop.__context__, BrokenPipeError):
            return 0  # whoever read the output has enough
        raise
    except Exception as error:
        if os.environ.get("AGENTMQTT_DEBUG") == "1":
            traceback.print_exc()
        say(_words(error))
        return 2 if isinstance(error, UsageError | ClickUsageError) else 1


def _words(error: Exception) -> str:
    if isinstance(error, ClickUsageError):
        context = getattr(error, "ctx", None)
        path = context.command_path if context else "agentmqtt"
        text = getattr(error, "format_message", lambda: str(error))()
        return f"{text.rstrip('.')}; see: {path} --help"
    if isinstance(error, AgentMQTTError):
        return str(error)
    if isinstance(error, OSError):
        return f"{error.filename or 'the output'}: {error.strerror or error}"
    return f"{type(error).__name__}: {error}; this is a fault of agentmqtt, AGENTMQTT_DEBUG=1 shows where"
