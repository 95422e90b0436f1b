"""Logins from a password file: amqtt's FileAuthPlugin, with the slow hash off the event loop."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from collections import OrderedDict

from amqtt.broker import BrokerContext
from amqtt.plugins.authentication import FileAuthPlugin
from amqtt.session import Session
from pwdlib.exceptions import UnknownHashError

_REMEMBERED = 10_000


class PasswordFile(FileAuthPlugin):
    """`user:hash` lines, argon2 (`amqtt` writes them). A login that succeeded once is remembered by digest,
    so that a thousand clients that come back at once do not wait for a thousand slow hashes.
    """

    def __init__(self, context: BrokerContext) -> None:
        super().__init__(context)
        self._turn = asyncio.Semaphore(1)
        self._key = secrets.token_bytes(32)
        self._good: OrderedDict[bytes, None] = OrderedDict()
        self._nobody = self.pwd_hasher.hash(secrets.token_hex(16))

    async def authenticate(self, *, session: Session) -> bool | None:
        """True or False for a user name; None where none was given: another plugin decides."""
        if not session.username:
            return None
        known = self._users.get(session.username)
        digest = self._digest(session.username, session.password or "", known or "")
        if digest in self._good:
            self._good.move_to_end(digest)
            return True
        async with self._turn:  # one at a time: a storm of logins must not starve the loop of its processor
            # A name that does not exist costs as much time as a wrong password.
            good = await asyncio.to_thread(self._verify, session.password or "", known or self._nobody)
        if not good or known is None:
            return False
        self._good[digest] = None
        if len(self._good) > _REMEMBERED:
            self._good.popitem(last=False)
        return True

    def _verify(self, password: str, known: str) -> bool:
        try:
            return bool(self.pwd_hasher.verify(password, known))
        except UnknownHashError:
            self.context.logger.warning("the password file has a hash that is not argon2")
            return False

    def _digest(self, *parts: str) -> bytes:
        text = "\0".join(parts).encode()
        return hmac.new(self._key, text, hashlib.sha256).digest()
