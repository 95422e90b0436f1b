"""A broker process over a store: `python -m tests.broker.serve FILE PORT`. Says `ready`.

Without a name for FILE it keeps everything in memory.
"""

from __future__ import annotations

import asyncio
import sys

from agentmqtt.broker import Broker, BrokerSettings, Limits
from agentmqtt.store import open_store


async def main(path: str, port: str) -> None:
    store = open_store(path) if path else None
    limits = Limits(queue=1_000_000, queue_bytes=1 << 30)
    async with Broker(BrokerSettings(listen=(f"127.0.0.1:{port}",), limits=limits), store=store):
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
