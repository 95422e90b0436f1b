"""Short words for tests of stores."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from agentmqtt.store.base import MAX, Key, Put, Store, Write

FIRST = Key("", -MAX, -MAX)
LAST = Key("\U0010ffff", MAX, MAX)


def put(name: str, a: int = 0, b: int = 0, body: bytes = b"x", space: str = "s") -> Put:
    return Put(space, Key(name, a, b), body)


async def write(store: Store, *writes: Write, sync: bool = True) -> None:
    """Submit one call and wait until it is told; raises what it failed with."""
    await waiter(store, writes, sync=sync)


def waiter(store: Store, writes: Sequence[Write], *, sync: bool = True) -> asyncio.Future[None]:
    told: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def done(error: Exception | None) -> None:
        if error:
            told.set_exception(error)
        else:
            told.set_result(None)

    store.submit(writes, done, sync=sync)
    return told


async def everything(store: Store, space: str = "s") -> list[tuple[Key, bytes]]:
    return await store.scan(space, FIRST, LAST)
