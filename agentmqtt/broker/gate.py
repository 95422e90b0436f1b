"""Who gets in: accounts, tokens and client certificates first, then amqtt's plugins. Nothing takes effect before."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from agentmqtt.broker import accounts, tokens
from agentmqtt.broker.access import Access, Unguarded
from agentmqtt.broker.accounts import Account, Accounts
from agentmqtt.broker.bindings import Bindings
from agentmqtt.broker.connection import Pipe
from agentmqtt.broker.conversation import Action, Identity
from agentmqtt.broker.packets import Connect
from agentmqtt.broker.rights import ROLES, Rights, Role
from agentmqtt.broker.rules import RulesFile
from agentmqtt.broker.throttle import Throttle
from agentmqtt.errors import UsageError

log = logging.getLogger("agentmqtt.broker")

VERIFIERS = 2
"""Passwords that are checked at the same time, each in a thread."""
REMEMBERED = 10_000
"""Logins that were right and need no slow check the next time."""

T = TypeVar("T")


class Files(NamedTuple):
    """Where the gate reads what it knows; None is not used."""

    accounts: Path | None = None
    token_key: Path | None = None
    rules: Path | None = None


class Known:
    """An identity whose rights this broker knows by itself."""

    def __init__(self, user: str | None, rights: Rights, good: Callable[[], str]) -> None:
        self.user = user
        self._rights, self._good = rights, good

    def verdict(self, action: Action, topic: str) -> bool | None:
        if action == "publish":
            return self._rights.may_write(topic)
        return self._rights.may_read(topic)

    async def ask(self, action: Action, topics: Sequence[str]) -> list[bool]:
        return [bool(self.verdict(action, topic)) for topic in topics]

    def flaw(self) -> str:
        """Why this login counts no more; empty while it does."""
        return self._good()


class Open(Unguarded):
    """A stranger where nobody has an account yet."""

    def __init__(self, flaw: Callable[[], str]) -> None:
        super().__init__(None)
        self._flaw = flaw

    def flaw(self) -> str:
        return self._flaw()


class Gatekeeper:
    """The gate of a broker with accounts.

    Args:
        files: read at once, and again when they change (`review`) or at `reload`.
        root: first levels of agentmqtt's topics.
        plugins: asked about names that are no account, and about strangers.
        bindings: which client ID belongs to whom.
        anonymous: whether strangers get in; None lets them in where nobody could log in and all is `private`.
        private: only this machine can reach the broker.

    Raises:
        UsageError: a file cannot be used.
    """

    def __init__(
        self, files: Files, root: str, plugins: Access, bindings: Bindings, *, anonymous: bool | None, private: bool
    ) -> None:
        self._files, self._root, self._plugins, self._bindings = files, root, plugins, bindings
        self._anonymous, self._private = anonymous, private
        self._throttle = Throttle()
        self._turns = asyncio.Semaphore(VERIFIERS)
        self._salt = secrets.token_bytes(32)
        self._right: OrderedDict[bytes, None] = OrderedDict()
        self._accounts = Accounts()
        self._rules = RulesFile([])
        self._key: bytes | None = None
        self._closed = False
        self._read()

    # ---- its files

    def _read(self) -> None:
        self._seen = self._stamps()
        files = self._files
        known = accounts.read(files.accounts) if files.accounts else Accounts()
        rules = RulesFile.read(files.rules) if files.rules else RulesFile([])
        key = tokens.read_key(files.token_key) if files.token_key and files.token_key.exists() else None
        self._accounts, self._rules, self._key = known, rules, key
        there = files.accounts is not None and files.accounts.exists()
        self._closed = self._closed or there or bool(rules.lines or key)

    def _stamps(self) -> tuple[tuple[int, int] | None, ...]:
        return tuple(_stamp(path) for path in self._files)

    def reload(self) -> set[str]:
        """Read the files again; what cannot be used is said, and what was known stays.

        Returns the names that may not log in any more: what is kept for them can go.
        """
        before = {name for name in self._accounts.by_name if self._accounts.get(name)}
        try:
            self._read()
        except UsageError as error:
            log.warning("what was known of logins stays in force: %s", error)
        after = {name for name in self._accounts.by_name if self._accounts.get(name)}
        for name in before - after:
            self._bindings.free(name)
        return before - after

    def review(self) -> set[str]:
        """Read the files again if they changed; see `reload`."""
        return self.reload() if self._stamps() != self._seen else set()

    @property
    def _guarded(self) -> bool:
        """Whether anything here says who may do what, or ever did: a file that is gone opens nothing."""
        return self._closed

    @property
    def _open(self) -> bool:
        """Whether everybody gets in and may do everything, because nobody could log in."""
        strangers = self._private if self._anonymous is None else self._anonymous
        return strangers and not (self._guarded or self._plugins.knows_users)

    def may_leave(self, user: str | None, client_id: str, topic: str) -> bool:
        """Whether a will may be published after a restart: an account's rights of now, else those of its login."""
        if user is None or user not in self._accounts.by_name:
            return user is None or user.startswith("token:") or self._plugins.knows_users
        account = self._accounts.get(user)
        return account is not None and self._rights(account, client_id).may_write(topic)

    # ---- logins

    async def admit(self, connect: Connect, pipe: Pipe) -> Identity | None:
        """The identity behind a login, or None."""
        identity = await self._identify(connect, pipe)
        if identity is not None and not self._bindings.belongs(connect.client_id, identity.user):
            log.warning("client ID %r belongs to another user than %r", connect.client_id, identity.user)
            return None
        return identity

    async def _identify(self, connect: Connect, pipe: Pipe) -> Identity | None:
        name, password = connect.username, _text(connect.password)
        if (device := self._by_certificate(connect, pipe)) is not None:
            return self._identity(device, connect)
        if self._open:
            return Open(lambda: "" if self._open else "accounts are needed now")
        if name is None:
            return await self._stranger(connect, pipe)
        if password is not None and tokens.looks_like(password) and self._key is not None:
            return self._by_token(self._key, connect, password)
        if name not in self._accounts.by_name and self._plugins.knows_users:
            return await self._plugins.admit(connect, pipe)
        if password is None or not await self._by_password(name, password, pipe.peer[0]):
            return None
        account = self._accounts.get(name)
        return None if account is None else self._identity(account, connect)

    async def _stranger(self, connect: Connect, pipe: Pipe) -> Identity | None:
        """A client without a name: it may what the rules file says of everyone."""
        if self._plugins.knows_users:
            return await self._plugins.admit(connect, pipe)
        if not self._anonymous:
            return None
        rights = Rights(self._rules.of(None, Role.NONE), self._root, connect.client_id, ())
        return Known(None, rights, lambda: "")

    def _by_certificate(self, connect: Connect, pipe: Pipe) -> Account | None:
        """The account of the certificate that the TLS handshake verified; a login under another name is not its."""
        name = _common_name(pipe.info("peercert"))
        account = self._accounts.get(name) if name else None
        if account is None or not account.certificate:
            return None
        return account if connect.username in (None, account.name) and connect.password is None else None

    async def _by_password(self, name: str, password: str, address: str) -> bool:
        account = self._accounts.get(name)
        digest = self._digest(name, password, account.hash if account else "")
        if account is not None and digest in self._right:
            self._right.move_to_end(digest)
            return True
        keys = (f"address {address}", f"user {name} {address}")
        async with self._turns:
            now = asyncio.get_running_loop().time()
            # Asked here, in its turn: many at once are no way around it.
            if wait := max(self._throttle.wait(key, now) for key in keys):
                log.warning("too many wrong logins from %s; the next is looked at in %.0f s", address, wait)
                return False
            good = await asyncio.to_thread(accounts.verify, account, password)
        for key in keys:
            if good:
                self._throttle.succeeded(key)
            else:
                self._throttle.failed(key, now)
        if good:
            self._remember(digest)
        return good

    def _digest(self, *parts: str) -> bytes:
        return hmac.new(self._salt, "\0".join(parts).encode(), hashlib.sha256).digest()

    def _remember(self, digest: bytes) -> None:
        self._right[digest] = None
        if len(self._right) > REMEMBERED:
            self._right.popitem(last=False)

    def _by_token(self, key: bytes, connect: Connect, text: str) -> Identity | None:
        try:
            token = tokens.verify(key, text)
        except tokens.BadToken as error:
            log.warning("a token of user %r does not count: %s", connect.username, error)
            return None
        pinned = token.client in ("", connect.client_id)
        if token.id in self._accounts.revoked_tokens or connect.username != token.subject or not pinned:
            log.warning("token %s of %r is revoked, or belongs to another user or client", token.id, token.subject)
            return None
        user = f"token:{token.subject}"
        rules = [*ROLES[token.role], *self._rules.of(user, token.role)]
        rights = Rights(rules, self._root, connect.client_id, token.workflows)
        return Known(user, rights, lambda: self._token_flaw(token))

    def _token_flaw(self, token: tokens.Token) -> str:
        if token.id in self._accounts.revoked_tokens:
            return "its token was revoked"
        return "its token has ended" if time.time() > token.expires + tokens.LEEWAY else ""

    def _identity(self, account: Account, connect: Connect) -> Identity | None:
        if account.client not in ("", connect.client_id):
            log.warning("%r logs in as client %r, but is bound to %r", account.name, connect.client_id, account.client)
            return None
        rights = self._rights(account, connect.client_id)
        lines = self._rules.lines
        return Known(account.name, rights, lambda: self._account_flaw(account, lines))

    def _rights(self, account: Account, client_id: str) -> Rights:
        rules = [*ROLES[account.role], *self._rules.of(account.name, account.role)]
        return Rights(rules, self._root, client_id, account.workflows)

    def _account_flaw(self, account: Account, lines: object) -> str:
        if self._accounts.by_name.get(account.name) != account:
            return "its account was changed or revoked"
        return "the rules were changed" if self._rules.lines != lines else ""


def _stamp(path: Path | None) -> tuple[int, int] | None:
    try:
        found = path.stat() if path is not None else None
    except OSError:
        return None
    return None if found is None else (found.st_mtime_ns, found.st_size)


def _text(password: bytes | None) -> str | None:
    try:
        return None if password is None else password.decode()
    except UnicodeDecodeError:
        return None


def _common_name(certificate: object) -> str:
    """The subject's common name of a certificate as `ssl` tells it."""
    subject = certificate.get("subject", ()) if isinstance(certificate, dict) else ()
    return next((str(value) for part in subject for key, value in part if key == "commonName"), "")
