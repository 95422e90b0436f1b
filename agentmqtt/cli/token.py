"""`agentmqtt token`: a signed token for the bundled broker, with a role, workflows and an end."""

from __future__ import annotations

import json
import re
import secrets
from pathlib import Path
from typing import Annotated

import typer

from agentmqtt.cli.accounts import accounts_file, role_of, token_key_file
from agentmqtt.cli.common import Config, Json, prepare, say
from agentmqtt.errors import UsageError

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def token(
    role: Annotated[str, typer.Option("--role", help="agent, watcher or observer.")] = "watcher",
    workflow: Annotated[
        list[str] | None, typer.Option("--workflow", metavar="PATTERN", help="What it may see; may be repeated.")
    ] = None,
    ttl: Annotated[str, typer.Option("--ttl", metavar="TIME", help="How long it counts: 90s, 15m, 1h, 7d.")] = "1h",
    name: Annotated[str, typer.Option("--name", help="The user name that goes with it.  [default: a new one]")] = "",
    client: Annotated[str, typer.Option("--client", metavar="ID", help="The only client ID that may use it.")] = "",
    revoke: Annotated[
        str | None, typer.Option("--revoke", metavar="TOKEN", help="Make this token, or that ID, void.")
    ] = None,
    key: Annotated[Path | None, typer.Option("--key", metavar="FILE", help="The broker's token key.")] = None,
    accounts: Annotated[Path | None, typer.Option("--accounts", metavar="FILE", help="For --revoke.")] = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Print a token: the password of the user NAME until it ends. The broker need not run."""
    settings = prepare(config, 0)
    if revoke is not None:
        _revoke(accounts_file(settings, accounts), revoke)
        return
    if not workflow:
        raise UsageError("for which workflows? --workflow 'report-*', or --workflow '*' for all")
    try:
        from agentmqtt.broker import tokens
    except ImportError as error:
        raise UsageError(f"tokens need {error.name}; install it with: pip install 'agentmqtt[broker]'") from error
    name = name or f"guest-{secrets.token_hex(4)}"
    path = token_key_file(settings, key)
    text = tokens.issue(tokens.read_key(path, make=True), name, role_of(role), tuple(workflow), seconds(ttl), client)
    if json:
        _show(name, text, tokens.unverified(text))
    else:
        typer.echo(text)
        say(f"log in as user {name} with this as the password; it ends after {ttl}")


def _show(name: str, text: str, facts: tuple[str, int]) -> None:
    id_, expires = facts
    typer.echo(json.dumps({"username": name, "password": text, "id": id_, "expires": expires}))


def _revoke(path: Path, text: str) -> None:
    from agentmqtt.broker import accounts, tokens

    id_, expires = tokens.unverified(text)
    accounts.edit(path, lambda known: known.with_revoked_token(id_, expires))
    say(f"token {id_} counts no more")


def seconds(text: str) -> float:
    """`90s`, `15m`, `1h` or `7d` as seconds. Raises UsageError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text)
    if match is None:
        raise UsageError(f"{text!r} is no time; write 90s, 15m, 1h or 7d")
    return float(match[1]) * _UNITS[match[2]]
