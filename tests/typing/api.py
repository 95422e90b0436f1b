"""The public API as its users write it. Never run: mypy and pyright check it in strict mode."""

from __future__ import annotations

import agentmqtt
from agentmqtt import CommandState, Cursor, Event, Gap, Receipt, Rewound, RunState, Status
from agentmqtt.broker import Broker, BrokerSettings
from agentmqtt.journal import Journal
from agentmqtt.store import open_store
from agentmqtt.transport.mqtt import MqttTransport


async def agent() -> None:
    async with agentmqtt.connect("mqtt://edge@gateway.example", state="agent.db") as client:
        async with client.own("report-42", retry="withdraw_attempt", wait=30) as run:
            await run.emit("text", "Looking at Q3 ")
            await run.state("searching", {"site": 3})
            async for command in run.commands():
                kind: str = command.kind
                if kind == "stop":
                    command.rejected("not now")
                command.applied()
            async with run.interruptible() as scope:
                await run.flush(timeout=5)
            stopped: bool = scope.interrupted
            stored: Cursor = run.stored
            await run.withdraw(stored)
            await run.end({"stopped": stopped}, outcome="cancelled")


async def phone() -> None:
    options = agentmqtt.ClientOptions(keepalive=30)
    async with agentmqtt.connect("wss://phone@gateway.example/mqtt", state="phone.db", options=options) as client:
        async with client.watch("report-42", stored=True, pace=1.0) as run:
            async for item in run:
                match item:
                    case Event(cursor=cursor, type=kind, data=data):
                        text: str = f"{cursor} {kind} {data!r}"
                    case Gap(reason=reason):
                        text = reason
                    case Rewound(cursor=back):
                        text = back.token
                print(text)
            receipt: Receipt = await run.send("focus on Q4")
            outcome: CommandState = await receipt.outcome(timeout=60)
            await run.interrupt(f"after {outcome}")
            status: Status = await run.status()
            over: bool = status.state is RunState.DONE
            print(over)
        async for row in client.runs():
            print(row.workflow, row.owner)


async def journal() -> None:
    async with Broker(BrokerSettings(listen=("127.0.0.1:0",))) as broker:
        url: str = str(broker.addresses[0])
        async with Journal(broker.transport(), open_store("journal.db")) as inside:
            await inside.stopped
        async with Journal(MqttTransport(url), open_store(":memory:")):
            pass
