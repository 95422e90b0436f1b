"""The two ends of a benchmark, each in a process of its own: a source of tokens and a reader.

    python -m bench.roles SIDE ROLE URL STATE NAME COUNT RATE

SIDE is ours (owner and watcher), stored (a watcher of stored events) or raw (one QoS 1 message a
token). A source prints the seconds until everything was acknowledged; a reader prints `ready`, then
one JSON line of latencies in microseconds and the seconds from the first to the last token.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator

import agentmqtt
from agentmqtt import Event
from agentmqtt.state import new_client_id
from agentmqtt.transport.base import Delivery, Hello
from agentmqtt.transport.mqtt import MqttTransport

WINDOW = 64


def stamp() -> str:
    """A token of about 20 bytes that says when it was made (CLOCK_MONOTONIC, shared by processes)."""
    return f"{time.monotonic_ns():020d}"


async def ticks(count: int, rate: float) -> AsyncIterator[None]:
    """`count` turns, `rate` a second; as fast as they are taken if it is 0."""
    begin = time.monotonic()
    for n in range(count):
        if rate and (wait := begin + n / rate - time.monotonic()) > 0:
            await asyncio.sleep(wait)
        yield


async def own_source(url: str, state: str, name: str, count: int, rate: float) -> float:
    async with agentmqtt.connect(url, state=state) as client, client.own(name) as run:
        begin = time.monotonic()
        async for _ in ticks(count, rate):
            await run.emit("token", stamp())
        await run.flush()
        seconds = time.monotonic() - begin
        await run.end()
        return seconds


async def raw_source(url: str, _state: str, name: str, count: int, rate: float) -> float:
    hello = Hello(new_client_id(), 20, lambda delivery: delivery.ack(), session_expiry=0)
    connection = await MqttTransport(url).connect(hello)
    begin = time.monotonic()
    flight: list[asyncio.Future[None]] = []
    async for _ in ticks(count, rate):
        flight.append(connection.publish(f"bench/{name}", stamp().encode()))
        if len(flight) >= WINDOW:
            await flight.pop(0)
    await asyncio.gather(*flight)
    seconds = time.monotonic() - begin
    await connection.close()
    return seconds


async def own_reader(url: str, state: str, name: str, count: int, *, stored: bool) -> list[tuple[int, int]]:
    seen: list[tuple[int, int]] = []
    async with agentmqtt.connect(url, state=state) as client:
        async with client.watch(name, stored=stored, resume=False) as run:
            await client.status(name)
            print("ready", flush=True)
            async for item in run:
                if isinstance(item, Event) and item.type == "token":
                    seen.append((time.monotonic_ns(), int(item.data)))
                if len(seen) == count:
                    return seen
    return seen


async def raw_reader(url: str, name: str, count: int) -> list[tuple[int, int]]:
    seen: list[tuple[int, int]] = []
    done = asyncio.Event()

    def on_message(delivery: Delivery) -> None:
        seen.append((time.monotonic_ns(), int(delivery.payload)))
        delivery.ack()
        if len(seen) == count:
            done.set()

    connection = await MqttTransport(url).connect(Hello(new_client_id(), 20, on_message, session_expiry=0))
    await connection.subscribe([f"bench/{name}"])
    print("ready", flush=True)
    await done.wait()
    await connection.close()
    return seen


async def main(side: str, role: str, url: str, state: str, name: str, count: int, rate: float) -> None:
    if role == "source":
        source = raw_source if side == "raw" else own_source
        print(await source(url, state, name, count, rate), flush=True)
        return
    seen = await (
        raw_reader(url, name, count) if side == "raw" else own_reader(url, state, name, count, stored=side == "stored")
    )
    latencies = sorted((heard - made) // 1000 for heard, made in seen)
    print(json.dumps({"latencies": latencies, "seconds": (seen[-1][0] - seen[0][0]) / 1e9}), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:6], int(sys.argv[6]), float(sys.argv[7])))  # type: ignore[call-arg, arg-type]
