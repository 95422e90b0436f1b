"""`agentmqtt broker check`, `backup` and `restore`: look after a broker."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentmqtt.cli import broker, places
from agentmqtt.cli.common import Config, Json, prepare, say
from agentmqtt.errors import AgentMQTTError, StoreInUse, UsageError
from agentmqtt.store import copies

if TYPE_CHECKING:
    from agentmqtt.broker.limits import BrokerSettings
    from agentmqtt.settings import Settings

ROOM = 256 << 20
"""Bytes that should be free where the state is."""
SOON = 30.0
"""Days before its end at which a certificate is a finding."""


def register(app: typer.Typer) -> None:
    """Add the commands to those of the broker."""
    for command in (check, backup, restore):
        app.command(command.__name__)(command)


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. `good` is false where something is to be done: `text` says what."""

    what: str
    good: bool
    text: str


def check(state: broker.State = None, config: Config = None, json_lines: Json = False) -> int:
    """Look at configuration, ports, state, certificates, accounts and clock. Changes nothing; ends with 1 if
    something is to be done."""
    settings = prepare(config, 0)
    where = state or places.home(settings) / "broker"
    found = list(_findings(settings, where))
    for finding in found:
        if json_lines:
            typer.echo(json.dumps(dataclasses.asdict(finding)))
        else:
            typer.echo(f"{'ok  ' if finding.good else 'FAIL'} {finding.what:12} {finding.text}")
    return 0 if all(finding.good for finding in found) else 1


def _findings(settings: Settings, where: Path) -> Iterator[Finding]:
    try:
        server = broker.make(settings).settings
    except AgentMQTTError as error:
        yield Finding("config", False, str(error))
        return
    yield Finding("config", True, "every setting is known and fits")
    yield from _ports(server)
    yield from _state(where)
    yield from _certificate(server)
    yield from _accounts(server)
    now = time.time()
    good = now > 1_735_689_600
    text = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(now))
    yield Finding("clock", good, text if good else f"{text} is not plausible: tokens and certificates cannot be judged")


def _ports(server: BrokerSettings) -> Iterator[Finding]:
    from agentmqtt.broker.holder import holder_of

    for address in server.listeners():
        holder = holder_of(address.port) if address.port else None
        text = f"{holder} listens there; stop it or choose another port" if holder else "free"
        yield Finding("port", holder is None, f"{address}: {text}")


def _state(where: Path) -> Iterator[Finding]:
    place = where if where.exists() else next(parent for parent in where.absolute().parents if parent.exists())
    if not os.access(place, os.W_OK | os.X_OK):
        owner = place.stat().st_uid
        yield Finding("state", False, f"{place} cannot be written by uid {os.getuid()}; it belongs to uid {owner}")
        return
    free = shutil.disk_usage(place).free
    room = f"{free >> 20} MiB free at {place}"
    few = f"{room}; less than {ROOM >> 20}: receipts stop when it is full"
    yield Finding("state", free >= ROOM, room if free >= ROOM else few)
    file = where / "journal.db"
    if file.exists():
        yield Finding("store", *copies.sound(file))


def _certificate(server: BrokerSettings) -> Iterator[Finding]:
    from agentmqtt.broker.tls import ServerTLS

    if server.certfile is None:
        return
    try:
        tls = ServerTLS(server.certfile, server.keyfile, server.client_ca, required=server.require_certificate)
    except UsageError as error:
        yield Finding("certificate", False, str(error))
        return
    left = tls.days_left()
    good = left is None or left > SOON
    advice = "" if good else "; put a new one in its place"
    yield Finding("certificate", good, f"{server.certfile} ends in {left or 0:.0f} days{advice}")


def _accounts(server: BrokerSettings) -> Iterator[Finding]:
    from agentmqtt.broker import accounts, rules

    try:
        known = accounts.read(server.accounts) if server.accounts else accounts.Accounts()
        lines = rules.RulesFile.read(server.rules).lines if server.rules else []
    except UsageError as error:
        yield Finding("accounts", False, str(error))
        return
    living = sum(not account.revoked for account in known.by_name.values())
    who = "everybody on this machine gets in" if server.lets_strangers_in else f"{living} accounts, {len(lines)} rules"
    yield Finding("accounts", True, who)


def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to; must not exist.")],
    state: broker.State = None,
    config: Config = None,
) -> None:
    """Copy the history, sessions and queues into FILE, also while the broker runs: one moment, whole."""
    source = (state or places.home(prepare(config, 0)) / "broker") / "journal.db"
    if file.exists():
        raise UsageError(f"{file} exists; give a new name")
    if not source.exists():
        raise UsageError(f"there is no store {source}; --state says where the broker keeps its own")
    copies.copy(source, file)
    say(f"{file} holds {file.stat().st_size >> 10} KiB; bring it back with: agentmqtt broker restore {file}")


def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `backup` made.")],
    state: broker.State = None,
    config: Config = None,
) -> None:
    """Put a backup in the place of the store. The broker must not run; the store of now is set aside.

    Every run begins a new incarnation: owners send again what they hold, watchers are told Gap(reset).
    """
    from agentmqtt.journal.restoring import renew
    from agentmqtt.store.files import set_aside
    from agentmqtt.store.lock import FileLock

    good, why = copies.sound(file) if file.exists() else (False, f"there is no {file}")
    if not good:
        raise UsageError(f"{why}; nothing was changed")
    target = (state or places.home(prepare(config, 0)) / "broker") / "journal.db"
    target.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(target)
    try:
        lock.acquire()
    except StoreInUse as error:
        raise UsageError(f"{error}; stop the broker first") from error
    try:
        if target.exists():
            say(f"the store of before is {set_aside(target)}")
        shutil.copyfile(file, target)
        target.chmod(0o600)
    finally:
        lock.release()
    runs = renew(target)
    say(f"{runs} runs are back; start the broker")
