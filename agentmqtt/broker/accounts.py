"""The accounts file: users and devices, their argon2id hashes, roles and workflows (docs/SECURITY.md)."""

from __future__ import annotations

import dataclasses
import json
import os
import secrets
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from agentmqtt.broker.rights import Role
from agentmqtt.errors import StoreInUse, UsageError
from agentmqtt.store.lock import FileLock

Kind: TypeAlias = Literal["user", "device"]
PATIENCE = 10.0
"""Seconds to wait for somebody else who edits the file."""
GRACE = 60
"""Seconds that a token which has ended is still remembered as revoked."""
NAME = 128
"""Characters of an account's name."""
_HASHER = PasswordHasher(time_cost=3, memory_cost=19_456, parallelism=1)
"""19 MiB and about 40 ms on a small machine: a Raspberry Pi serves it beside everything else."""
_NOBODY = _HASHER.hash(secrets.token_hex(16))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """One login. `hash` is empty where only a client certificate lets it in. `client` pins its client ID."""

    name: str
    kind: Kind = "user"
    hash: str = ""
    role: Role = Role.WATCHER
    workflows: tuple[str, ...] = ("*",)
    client: str = ""
    certificate: bool = False
    revoked: bool = False
    made: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Accounts:
    """What an accounts file holds: accounts by name, and tokens that were revoked with the end of their life."""

    by_name: Mapping[str, Account] = dataclasses.field(default_factory=dict)
    revoked_tokens: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def get(self, name: str) -> Account | None:
        """The account of that name, unless it is revoked."""
        account = self.by_name.get(name)
        return None if account is None or account.revoked else account

    def with_account(self, account: Account) -> Accounts:
        return dataclasses.replace(self, by_name={**self.by_name, account.name: account})

    def without(self, name: str) -> Accounts:
        """Raises UsageError: there is no such account."""
        if name not in self.by_name:
            raise UsageError(f"there is no account {name!r}; `agentmqtt user ls` and `device ls` show those there are")
        return dataclasses.replace(self, by_name={key: value for key, value in self.by_name.items() if key != name})

    def with_revoked_token(self, token: str, until: int) -> Accounts:
        """A token's ID that counts no more. Those whose time is over are forgotten."""
        now = int(time.time())
        kept = {name: end for name, end in self.revoked_tokens.items() if end + GRACE > now}
        return dataclasses.replace(self, revoked_tokens={**kept, token: until})


def check_name(name: str) -> str:
    """Raises UsageError unless it can be the name of an account."""
    if not name or len(name) > NAME or not name.isprintable() or any(char in name for char in "/+#$: "):
        raise UsageError(f"{name!r} is no name of an account; use letters, digits, _ - . and @, at most {NAME}")
    return name


def hash_password(password: str) -> str:
    """An argon2id hash. Takes tens of milliseconds on purpose. Raises UsageError: the password is too short."""
    if len(password) < 8:
        raise UsageError("the password has less than 8 characters; take a longer one, or let one be generated")
    return _HASHER.hash(password)


def new_password() -> str:
    """128 random bits as text."""
    return secrets.token_urlsafe(16)


def verify(account: Account | None, password: str) -> bool:
    """Whether the password is right. Blocks; takes the same time for a name that does not exist."""
    known = account.hash if account is not None and account.hash else ""
    try:
        return _HASHER.verify(known or _NOBODY, password) and bool(known)
    except (VerificationError, InvalidHashError):
        return False


# --- the file ------------------------------------------------------------------------------------


def read(path: Path) -> Accounts:
    """The accounts of a file; none if it does not exist.

    Raises:
        UsageError: it cannot be read or is damaged.
    """
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        made = {name: _account(name, fields) for name, fields in raw["accounts"].items()}
        return Accounts(made, {str(name): int(end) for name, end in raw.get("revoked_tokens", {}).items()})
    except FileNotFoundError:
        return Accounts()
    except OSError as error:
        raise UsageError(f"accounts file {path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"accounts file {path} is damaged: {error}; restore it from a backup") from error


def _account(name: str, fields: Mapping[str, Any]) -> Account:
    workflows = fields.get("workflows", [])
    if not isinstance(workflows, list) or not all(isinstance(pattern, str) for pattern in workflows):
        raise ValueError(f"`workflows` of {name!r} is no list of texts")
    texts = [fields.get(key, "") for key in ("hash", "client", "kind")]
    flags = [fields.get(key, False) for key in ("certificate", "revoked")]
    if not all(isinstance(text, str) for text in texts) or not all(isinstance(flag, bool) for flag in flags):
        raise ValueError(f"a field of {name!r} is of the wrong type")
    given = {field.name: fields[field.name] for field in dataclasses.fields(Account) if field.name in fields}
    given |= {"name": name, "role": Role(fields["role"]), "workflows": tuple(workflows)}
    return Account(**given)


def edit(path: Path, change: Callable[[Accounts], Accounts]) -> Accounts:
    """Read the file, change it, write it; two that do so at once do it one after the other.

    Raises:
        UsageError: what `change` raises, or the file cannot be read or written, or somebody else edits it for long.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock, until = FileLock(path), time.monotonic() + PATIENCE
    while True:
        try:
            lock.acquire()
            break
        except StoreInUse as error:
            if time.monotonic() > until:
                raise UsageError(f"accounts file {path} is being edited: {error}") from error
            time.sleep(0.05)
    try:
        changed = change(read(path))
        write(path, changed)
        return changed
    finally:
        lock.release()


def write(path: Path, accounts: Accounts) -> None:
    """Replace the file as a whole, for its owner's eyes only.

    Raises:
        UsageError: the directory cannot be written.
    """
    rows = {}
    for name, account in sorted(accounts.by_name.items()):
        fields = dataclasses.asdict(account)
        del fields["name"]
        rows[name] = fields
    body = json.dumps({"v": 1, "accounts": rows, "revoked_tokens": dict(accounts.revoked_tokens)}, indent=1)
    replace(path, body.encode() + b"\n")


def replace(path: Path, data: bytes) -> None:
    """Write a file of secrets: mode 0600, as a whole or not at all, on disk when this returns. Raises UsageError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            _keep_owner(path, temporary)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error


def _keep_owner(path: Path, temporary: str) -> None:
    """root edits the file of the broker's user: it must stay readable for that one."""
    try:
        known = path.stat()
    except FileNotFoundError:
        known = path.parent.stat()
    if os.geteuid() == 0:
        os.chown(temporary, known.st_uid, known.st_gid)
