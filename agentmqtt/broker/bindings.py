"""Client IDs belong to the login that used them first: nobody else can read their answers or speak as them."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from agentmqtt.store.base import MAX, Delete, Key, Put, Store

SPACE: Final = "identity"
EACH: Final = 256
"""Client IDs of one user; the one that was not used for the longest time is free again."""


class Bindings:
    """Which user a client ID belongs to, kept in the store if there is one."""

    def __init__(self, store: Store | None = None) -> None:
        self._store = store
        self._user_of: dict[str, str] = {}
        self._ids: dict[str, OrderedDict[str, None]] = {}

    async def load(self) -> None:
        """Take back what an earlier broker knew. Raises StoreError."""
        if self._store is not None:
            for key, user in await self._store.scan(SPACE, Key(""), Key("\U0010ffff" * 2, MAX, MAX)):
                self._keep(key.name, user.decode())

    def belongs(self, client_id: str, user: str | None) -> bool:
        """Whether this user may use the client ID; from now on nobody else may. Strangers bind nothing."""
        known = self._user_of.get(client_id)
        if known is not None:
            if known == user:
                self._ids[known].move_to_end(client_id)
            return known == user
        if user is not None:
            self._keep(client_id, user)
            self._write(Put(SPACE, Key(client_id), user.encode()))
        return True

    def free(self, user: str) -> None:
        """The user is gone: its client IDs are anybody's."""
        for client_id in self._ids.pop(user, ()):
            self._drop(client_id)

    def _keep(self, client_id: str, user: str) -> None:
        self._user_of[client_id] = user
        mine = self._ids.setdefault(user, OrderedDict())
        mine[client_id] = None
        if len(mine) > EACH:
            oldest, _ = mine.popitem(last=False)
            self._drop(oldest)

    def _drop(self, client_id: str) -> None:
        del self._user_of[client_id]
        self._write(Delete(SPACE, Key(client_id), Key(client_id)))

    def _write(self, change: Put | Delete) -> None:
        if self._store is not None:
            self._store.submit([change], sync=False)
