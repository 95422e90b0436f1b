"""`agentmqtt user` and `agentmqtt device`: who may log in to the bundled broker."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from agentmqtt.cli import places
from agentmqtt.cli.common import Config, Json, prepare, say
from agentmqtt.errors import UsageError

if TYPE_CHECKING:
    from agentmqtt.broker.accounts import Account, Accounts
    from agentmqtt.broker.rights import Role
    from agentmqtt.settings import Settings

Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False, help="What it logs in as.")]
File = Annotated[Path | None, typer.Option("--accounts", metavar="FILE", help="The broker's accounts file.")]
RoleName = Annotated[str | None, typer.Option("--role", help="agent, watcher, observer, journal, admin or none.")]
Patterns = Annotated[
    list[str] | None,
    typer.Option("--workflow", metavar="PATTERN", help="Workflows it may see, such as 'report-*'; may be repeated."),
]
Client = Annotated[str, typer.Option("--client", metavar="ID", help="The only client ID that it may use.")]
Certificate = Annotated[bool, typer.Option("--certificate", help="It logs in by its client certificate.")]
Stdin = Annotated[bool, typer.Option("--password-stdin", help="Read the password from stdin instead of making one.")]


def accounts_file(settings: Settings, given: Path | None = None) -> Path:
    """The accounts file of the broker that these settings run."""
    return _file(settings, "accounts", given, "accounts.json")


def token_key_file(settings: Settings, given: Path | None = None) -> Path:
    """The token key of the broker that these settings run."""
    return _file(settings, "token_key", given, "token.key")


def _file(settings: Settings, name: str, given: Path | None, default: str) -> Path:
    if given is not None:
        return given
    chosen = settings.server.get(name)
    return Path(str(chosen)) if chosen else places.home(settings) / "broker" / default


def group(kind: Literal["user", "device"]) -> typer.Typer:
    """The commands of one kind of account."""
    app = typer.Typer(help=f"Who may log in to the bundled broker: {kind}s.")

    @app.callback()
    def installed() -> None:
        if importlib.util.find_spec("argon2") is None:
            raise UsageError("accounts need argon2; install it with: pip install 'agentmqtt[broker]'")

    _making(app, kind)
    _ending(app, kind)
    return app


def _making(app: typer.Typer, kind: Literal["user", "device"]) -> None:
    @app.command("add")
    def add(
        name: Name,
        role: RoleName = None,
        workflow: Patterns = None,
        client: Client = "",
        certificate: Certificate = False,
        password_stdin: Stdin = False,
        file: File = None,
        config: Config = None,
        json: Json = False,
    ) -> None:
        """Make an account. Its password is made for it and shown once, unless it comes from stdin."""
        path = accounts_file(prepare(config, 0), file)
        _add(path, kind, name, role, workflow, client, certificate, password_stdin, machine=json)

    @app.command("passwd")
    def passwd(
        name: Name, password_stdin: Stdin = False, file: File = None, config: Config = None, json: Json = False
    ) -> None:
        """Give an account another password. Who is connected with the old one is cut off."""
        from agentmqtt.broker import accounts

        password = _password(stdin=password_stdin)
        digest = accounts.hash_password(password)

        def changed(known: Accounts) -> Accounts:
            account = _known(known, kind, name)
            return known.with_account(dataclasses.replace(account, hash=digest, revoked=False))

        after = accounts.edit(accounts_file(prepare(config, 0), file), changed)
        _tell(after.by_name[name], None if password_stdin else password, machine=json)


def _ending(app: typer.Typer, kind: str) -> None:
    @app.command("ls")
    def ls(file: File = None, config: Config = None, json: Json = False) -> None:
        """Show the accounts."""
        _ls(accounts_file(prepare(config, 0), file), kind, machine=json)

    @app.command("rm")
    def rm(name: Name, file: File = None, config: Config = None) -> None:
        """Remove an account. Its connections end within seconds; its sessions are forgotten."""
        from agentmqtt.broker import accounts

        def removed(known: Accounts) -> Accounts:
            _known(known, kind, name)
            return known.without(name)

        accounts.edit(accounts_file(prepare(config, 0), file), removed)

    @app.command("revoke")
    def revoke(name: Name, file: File = None, config: Config = None) -> None:
        """Lock an account out, and keep its name from being used again."""
        from agentmqtt.broker import accounts

        def revoked(known: Accounts) -> Accounts:
            return known.with_account(dataclasses.replace(_known(known, kind, name), revoked=True))

        accounts.edit(accounts_file(prepare(config, 0), file), revoked)


def _known(known: Accounts, kind: str, name: str) -> Account:
    account = known.by_name.get(name)
    if account is None or account.kind != kind:
        raise UsageError(f"there is no {kind} {name!r}; `agentmqtt {kind} ls` shows those there are")
    return account


def _add(
    path: Path,
    kind: Literal["user", "device"],
    name: str,
    role: str | None,
    workflows: list[str] | None,
    client: str,
    certificate: bool,
    password_stdin: bool,
    *,
    machine: bool,
) -> None:
    from agentmqtt.broker import accounts

    password = "" if certificate and not password_stdin else _password(stdin=password_stdin)
    account = accounts.Account(
        name=accounts.check_name(name),
        kind=kind,
        hash=accounts.hash_password(password) if password else "",
        role=role_of(role or "watcher"),
        workflows=tuple(workflows or ("*",)),
        client=client,
        certificate=certificate,
        made=int(time.time()),
    )
    accounts.edit(path, lambda known: _with_new(known, kind, account))
    _tell(account, None if password_stdin else password or None, machine=machine)


def _with_new(known: Accounts, kind: str, account: Account) -> Accounts:
    name = account.name
    if name in known.by_name:
        raise UsageError(f"there is an account {name!r} already; `agentmqtt {kind} passwd {name}` changes its password")
    return known.with_account(account)


def role_of(name: str) -> Role:
    """Raises UsageError: there is no such role."""
    from agentmqtt.broker.rights import Role

    try:
        return Role(name)
    except ValueError:
        raise UsageError(f"there is no role {name!r}; there are {', '.join(Role)}") from None


def _password(*, stdin: bool) -> str:
    from agentmqtt.broker import accounts

    if not stdin:
        return accounts.new_password()
    if sys.stdin.isatty():
        return str(typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))
    return sys.stdin.readline().rstrip("\n")


def _tell(account: Account, password: str | None, *, machine: bool) -> None:
    if machine:
        shown = {"name": account.name, "role": account.role.value, "workflows": list(account.workflows)}
        typer.echo(json.dumps(shown | ({"password": password} if password else {})))
    elif password:
        typer.echo(password)
        say(f"this is the password of {account.name}; it is not shown again")


def _ls(path: Path, kind: str, *, machine: bool) -> None:
    from agentmqtt.broker import accounts

    for account in accounts.read(path).by_name.values():
        if account.kind != kind:
            continue
        fields = dataclasses.asdict(account)
        has_password = bool(fields.pop("hash"))
        if machine:
            typer.echo(json.dumps(fields | {"password": has_password}))
        else:
            state = "revoked" if account.revoked else "certificate" if account.certificate else "password"
            typer.echo(f"{account.name:24} {account.role.value:9} {state:12} {' '.join(account.workflows)}")
