"""A process that writes until it is killed: `python -m tests.store.writer FILE`.

Call number `a` of the space `s` puts a record of its own and one half of a pair; what was told is printed.
"""

from __future__ import annotations

import asyncio
import functools
import sys

from agentmqtt.store import open_store
from agentmqtt.store.base import MAX, Key, Put

IN_FLIGHT = 64


async def main(path: str) -> None:
    store = open_store(path)
    stored = await store.scan("s", Key("n", 0), Key("n", MAX))
    number = stored[-1][0].a + 1 if stored else 0
    room = asyncio.Semaphore(IN_FLIGHT)

    def told(number: int, error: Exception | None) -> None:
        if error:
            raise error
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()
        room.release()

    while True:
        await room.acquire()
        body = bytes([number % 256]) * (number * 37 % 9000)
        writes = [
            Put("s", Key("n", number), body),
            Put("pair", Key("left", number), b""),
            Put("pair", Key("right", number), b""),
        ]
        store.submit(writes, functools.partial(told, number), sync=number % 5 > 0)
        number += 1


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
