"""A store that was brought back from a backup: its runs must not be taken for what they were (PROTOCOL §4.2)."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path

from agentmqtt import wire
from agentmqtt.journal.shelf import CHANNEL
from agentmqtt.store import open_store
from agentmqtt.store.base import MAX, Key, Put

_AT_ONCE = 500


def renew(path: Path) -> int:
    """Give every run of a store a new incarnation. Returns how many there are.

    What was stored after the backup is gone, and numbers would be given out a second time: under a new
    incarnation owners claim anew, and watchers are told Gap(reset).

    Raises:
        StoreError: the store cannot be used.
    """
    return asyncio.run(_renew(path))


async def _renew(path: Path) -> int:
    store = open_store(path)
    try:
        found, first = 0, Key("", 0, 0)
        while chunk := await store.scan(CHANNEL, first, Key("\U0010ffff", MAX, MAX), limit=_AT_ONCE):
            done = asyncio.get_running_loop().create_future()
            store.submit([Put(CHANNEL, key, _renewed(body)) for key, body in chunk], done.set_result)
            if (error := await done) is not None:
                raise error
            found += len(chunk)
            last = chunk[-1][0]
            first = Key(last.name, last.a, last.b + 1)
        return found
    finally:
        await store.close()


def _renewed(body: bytes) -> bytes:
    sizes, record = wire.unpack(body)
    version, _, *rest = record
    return wire.pack([sizes, [version, secrets.token_bytes(8), *rest]])
