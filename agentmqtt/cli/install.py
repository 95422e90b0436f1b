"""`agentmqtt broker install`: units, configuration and first accounts for systemd (docs/SYSTEMD.md)."""

from __future__ import annotations

import shutil
import socket
import sys
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from agentmqtt.cli.common import say
from agentmqtt.errors import UsageError

UNITS = (
    "agentmqtt-broker.service",
    "agentmqtt-broker.socket",
    "agentmqtt-journal.service",
    "agentmqtt-agent@.service",
)
_CONFIG = """# The bundled broker. Every setting: broker_config/server.toml of the project, docs/OPERATIONS.md.
[server]
listen = ["0.0.0.0:1883"]
accounts = "/etc/agentmqtt/accounts.json"
token_key = "/etc/agentmqtt/token.key"
"""


class Change(NamedTuple):
    """A file that is to be there. `keep`: one that exists was edited by somebody and stays."""

    path: Path
    text: str
    keep: bool


def install(
    root: Annotated[Path, typer.Option("--root", metavar="DIR", help="Write below DIR instead of /.")] = Path("/"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be written.")] = False,
) -> None:
    """Write systemd units and a configuration, make the first agent and watcher accounts, and say what to type.

    Twice is as once: what was edited stays, and accounts are made only if there are none.
    """
    executable = _executable(root)
    for change in _changes(root, executable):
        word = "keeps" if change.keep and change.path.exists() else "writes"
        say(f"{word} {change.path}")
        if word == "writes" and not dry_run:
            _write(change)
    if not dry_run:
        _accounts(root / "etc/agentmqtt/accounts.json")
    say(
        "next: systemd-sysusers && systemd-tmpfiles --create && systemctl daemon-reload"
        " && systemctl enable --now agentmqtt-broker"
    )


def unit(name: str) -> str:
    """The text of a unit, from the package or from the checkout."""
    packaged = resources.files("agentmqtt") / "systemd" / name
    source = packaged if packaged.is_file() else Path(__file__).parents[2] / "systemd" / name
    return source.read_text(encoding="utf-8")


def _changes(root: Path, executable: str) -> Iterator[Change]:
    for name in UNITS:
        yield Change(root / "etc/systemd/system" / name, unit(name).replace("@EXEC@", executable), keep=False)
    for kind in ("sysusers", "tmpfiles"):
        yield Change(root / f"etc/{kind}.d/agentmqtt.conf", unit(f"agentmqtt.{kind}.conf"), keep=False)
    yield Change(root / "etc/agentmqtt/broker.toml", _CONFIG, keep=True)


def _write(change: Change) -> None:
    try:
        change.path.parent.mkdir(parents=True, exist_ok=True)
        change.path.write_text(change.text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{change.path} cannot be written: {error.strerror}; run this as root") from error


def _executable(root: Path) -> str:
    """The command that the units start. Raises UsageError: the unit's user could not read it."""
    found = shutil.which("agentmqtt", path=str(Path(sys.executable).parent)) or shutil.which("agentmqtt")
    if found is None:
        raise UsageError("there is no command agentmqtt beside this Python; pip install 'agentmqtt[all]' there first")
    real = Path(found).absolute()
    hidden = [home for home in ("/home", "/root", "/run/user") if real.is_relative_to(home)]
    if hidden and root == Path("/"):
        raise UsageError(
            f"{real} lies below {hidden[0]}, which the units cannot read; "
            "install it with: python3 -m venv /opt/agentmqtt && /opt/agentmqtt/bin/pip install 'agentmqtt[all]'"
        )
    return str(real)


def _accounts(path: Path) -> None:
    """The first agent and watcher, if nobody has an account yet; their passwords are shown once."""
    from agentmqtt.broker import accounts
    from agentmqtt.broker.rights import Role

    known = accounts.read(path)
    if known.by_name:
        return
    host = socket.gethostname()
    for name, role in (("agent", Role.AGENT), ("watcher", Role.WATCHER)):
        password = accounts.new_password()
        made = accounts.Account(name=name, hash=accounts.hash_password(password), role=role)
        known = known.with_account(made)
        typer.echo(
            f"export AGENTMQTT_BROKER=mqtt://{host}:1883 AGENTMQTT_USERNAME={name} AGENTMQTT_PASSWORD={password}"
        )
    accounts.write(path, known)
    say("type one of these on each other device: the first where agents run, the second where they are watched")
