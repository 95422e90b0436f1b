"""The Python client under the cases: `agentmqtt conformance -- python -m agentmqtt.conformance.driver`.

Also an example of a driver: orders come as JSON lines on stdin, what happens goes as JSON lines to stdout.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from agentmqtt.client import Client
from agentmqtt.commands import Receipt
from agentmqtt.conformance.plain import from_json, to_json
from agentmqtt.connecting import connect
from agentmqtt.errors import AgentMQTTError, NoJournal
from agentmqtt.options import ClientOptions
from agentmqtt.types import Event, Gap, Rewound

PATIENCE = 1.0
"""Seconds after which a command counts as kept, though no journal answered."""


def tell(**line: Any) -> None:
    """One line, out at once."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


class Driver:
    """Does the orders of one process."""

    def __init__(self) -> None:
        self._stack = contextlib.AsyncExitStack()
        self._tasks: set[asyncio.Task[None]] = set()
        self._client: Client

    async def connect(self, url: str, state: str, root: str, keepalive: int, **login: str) -> None:
        options = ClientOptions(root=root, keepalive=keepalive, patience=PATIENCE, resend=0.5)
        client = connect(url, state=f"{state}.db", options=options, **login)
        self._client = await self._stack.enter_async_context(client)
        self._go(self._until_closed(), "closed")

    async def _until_closed(self) -> None:
        tell(closed=str(await asyncio.shield(self._client.session.fatal)))

    async def watch(self, name: str, start: str = "start", stored: bool = False) -> None:
        self._go(self._show(name, start, stored), f"watch {name!r}")

    async def _show(self, name: str, start: str, stored: bool) -> None:
        async with self._client.watch(name, start=start, stored=stored) as run:
            async for item in run:
                tell(show={"name": name, "at": str(item.cursor), **_said(item)})

    async def send(self, name: str, command: str, kind: str, data: Any = None) -> dict[str, Any]:
        return await self._send(name, command, kind, from_json(data))

    async def interrupt(self, name: str, command: str, reason: str = "") -> dict[str, Any]:
        return await self._send(name, command, "interrupt", reason)

    async def _send(self, name: str, command: str, kind: str, data: Any) -> dict[str, Any]:
        try:
            receipt = await self._client.send(name, data, kind=kind, id=command)
        except NoJournal:
            return {"command": command}  # it is on the disk and goes out with the link
        self._go(self._outcome(receipt), f"command {command}")
        return {"command": command}

    async def _outcome(self, receipt: Receipt) -> None:
        state = await receipt.outcome()
        tell(command={"id": receipt.id, "state": state.value, "reason": to_json(receipt.reason)})

    async def status(self, name: str) -> dict[str, Any]:
        found = await self._client.status(name)
        return {"state": found.state.value, "owner": found.owner.value, "tail": str(found.tail)}

    def _go(self, work: Any, name: str) -> None:
        task: asyncio.Task[None] = asyncio.create_task(work, name=f"agentmqtt driver {name}")
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            sys.stderr.write(f"{task.get_name()}: {error!r}\n")

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._stack.aclose()


def _said(item: Event | Gap | Rewound) -> dict[str, Any]:
    match item:
        case Event():
            return {"event": item.type, "data": to_json(item.data), "span": item.span}
        case Gap():
            return {"gap": item.reason}
        case Rewound():
            return {"rewound": True}


async def _order(driver: Driver, order: dict[str, Any]) -> None:
    number, do = order.pop("id"), order.pop("do")
    orders: dict[str, Callable[..., Awaitable[Any]]] = {
        "connect": driver.connect,
        "watch": driver.watch,
        "send": driver.send,
        "interrupt": driver.interrupt,
        "status": driver.status,
    }
    try:
        tell(id=number, ok=await orders[do](**order) or {})
    except (AgentMQTTError, KeyError, TypeError) as error:
        tell(id=number, error=f"{type(error).__name__}: {error}")


async def main() -> None:
    """Orders until stdin ends or says stop."""
    reader = asyncio.StreamReader(limit=8 << 20)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    driver = Driver()
    try:
        while line := await reader.readline():
            order = json.loads(line)
            if order["do"] == "stop":
                break
            await _order(driver, order)
    finally:
        await driver.close()


if __name__ == "__main__":
    asyncio.run(main())
