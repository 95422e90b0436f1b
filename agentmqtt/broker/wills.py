"""Wills of connected clients, kept on disk: a client that dies together with the broker is still reported gone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from agentmqtt import wire
from agentmqtt.broker.packets import LastWill
from agentmqtt.errors import WireError
from agentmqtt.store.base import MAX, Delete, Key, Put, Store

log = logging.getLogger("agentmqtt.broker")

SPACE: Final = "will"
LEAST, MOST = 10.0, 600.0
"""Seconds that a client has to come back after a restart, whatever its keep-alive says."""


class Kept(NamedTuple):
    """A will and whose it is. `keepalive` is seconds, 0 for none."""

    client_id: str
    user: str | None
    will: LastWill
    keepalive: int

    @property
    def patience(self) -> float:
        """Seconds that its client has to come back after a restart of the broker."""
        return min(MOST, max(LEAST, 1.5 * self.keepalive)) if self.keepalive else MOST


class Wills:
    """Which wills are out. Without a store they die with the process, as its clients' connections do."""

    def __init__(self, store: Store | None = None) -> None:
        self._store = store
        self._kept: dict[str, Kept] = {}
        self._waiting: dict[str, asyncio.TimerHandle] = {}

    def keep(self, kept: Kept, done: Callable[[], None]) -> None:
        """Note a will; `done` is called when it is safe. It takes the place of an earlier one of this client."""
        self._wait_no_more(kept.client_id)
        self._kept[kept.client_id] = kept
        if self._store is None:
            done()
            return
        will = kept.will
        record = [1, kept.user, will.topic, will.payload, will.qos, will.retain, kept.keepalive]
        self._store.submit([Put(SPACE, Key(kept.client_id), wire.pack(record))], lambda error: _told(error, done))

    def void(self, kept: Kept) -> None:
        """It was published, or its client said goodbye. A newer one of the same client stays."""
        if self._kept.get(kept.client_id) is kept:
            self.forget(kept.client_id)

    def forget(self, client_id: str) -> None:
        """Its client came back without one."""
        self._wait_no_more(client_id)
        if self._kept.pop(client_id, None) is not None:
            self._drop(client_id)

    def _drop(self, client_id: str) -> None:
        if self._store is not None:
            self._store.submit([Delete(SPACE, Key(client_id), Key(client_id))], sync=False)

    async def load(self, publish: Callable[[Kept], None]) -> None:
        """Wills that an earlier broker left: `publish` gets each whose client does not come back, and voids it.

        Raises:
            StoreError: they cannot be read.
        """
        if self._store is None:
            return
        loop = asyncio.get_running_loop()
        for key, body in await self._store.scan(SPACE, Key(""), Key("\U0010ffff" * 2, MAX, MAX)):
            kept = _read(key.name, body)
            if kept is None:
                self._drop(key.name)
            else:
                self._kept[key.name] = kept
                self._waiting[key.name] = loop.call_later(kept.patience, self._publish, kept, publish)

    def _publish(self, kept: Kept, publish: Callable[[Kept], None]) -> None:
        log.info("client %r did not come back after the restart; its will is published", kept.client_id)
        self._waiting.pop(kept.client_id, None)
        publish(kept)

    def _wait_no_more(self, client_id: str) -> None:
        waiting = self._waiting.pop(client_id, None)
        if waiting is not None:
            waiting.cancel()

    def stop(self) -> None:
        """The broker ends. What is kept stays for the next one."""
        for client_id in list(self._waiting):
            self._wait_no_more(client_id)


def _read(client_id: str, body: bytes) -> Kept | None:
    try:
        version, user, topic, payload, qos, retain, keepalive = wire.unpack(body)
    except (WireError, ValueError, TypeError) as error:
        log.warning("the will of client %r cannot be read and is dropped: %s", client_id, error)
        return None
    if version != 1:
        log.error("the will of client %r was written by another version and is dropped", client_id)
        return None
    return Kept(client_id, user, LastWill(topic, payload, qos, retain), keepalive)


def _told(error: Exception | None, done: Callable[[], None]) -> None:
    """A disk that fails keeps the login waiting; the login's own time limit ends it."""
    if error is None:
        done()
