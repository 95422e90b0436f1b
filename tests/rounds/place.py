"""Broker and journal as real processes on a fixed port, to be killed and started again.

    python -m tests.rounds.place bundled PORT DIR     broker with the journal in its process
    python -m tests.rounds.place journal PORT DIR     a journal beside an external broker

Prints `ready`. The same parts as `agentmqtt broker` and `agentmqtt journal`, with short leases.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from agentmqtt.broker import Broker, BrokerSettings
from agentmqtt.journal import Journal
from agentmqtt.options import JournalOptions
from agentmqtt.store import open_store
from agentmqtt.transport.mqtt import MqttTransport

OPTIONS = JournalOptions(lease=6.0, grace=1.0)


async def main(kind: str, port: str, folder: Path) -> None:
    store = open_store(folder / "journal.db")
    if kind == "journal":
        async with Journal(MqttTransport(f"mqtt://127.0.0.1:{port}"), store, options=OPTIONS) as journal:
            print("ready", flush=True)
            raise await journal.stopped
    settings = BrokerSettings(listen=(f"127.0.0.1:{port}",), unqueued=("agentmqtt/v1/+/out",))
    async with Broker(settings, store=store) as broker:
        async with Journal(broker.transport(), store, options=OPTIONS) as journal:
            print("ready", flush=True)
            raise await journal.stopped


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
