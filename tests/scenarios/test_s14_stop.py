"""S14, S15: stop really stops, whoever presses it; a viewer that disappears stops nothing."""

from __future__ import annotations

import asyncio
from typing import Any

from agentmqtt import Client, CommandState, Event
from tests.channels.site import Site

LIMIT = 30.0


async def produce(client: Client, name: str, ended: asyncio.Event, counts: list[int]) -> Any:
    """An agent that streams until it is stopped."""
    async with client.own(name) as run:
        async with run.interruptible() as block:
            try:
                while True:
                    counts.append(len(counts))
                    await run.emit("text", f"{len(counts)} ")
                    await asyncio.sleep(0.005)
            finally:
                ended.set()
        await run.end({"stopped": block.interrupted}, outcome="cancelled")


async def first_text(watched: Any) -> None:
    async for item in watched:
        if isinstance(item, Event) and item.type == "text":
            return


async def test_s14_a_stranger_to_the_start_stops_it(site: Site) -> None:
    async with asyncio.timeout(LIMIT), site.connect("a") as agent, site.connect("p") as phone:
        ended, counts = asyncio.Event(), []
        working = asyncio.create_task(produce(agent, "work", ended, counts))
        async with phone.watch("work") as watched:
            await first_text(watched)
            receipt = await watched.interrupt("stop pressed")
            seen = [receipt.state]
            assert await receipt.outcome() is CommandState.APPLIED
            assert ended.is_set()
            stopped = len(counts)
            await working
            assert len(counts) == stopped
            assert seen[0] in (CommandState.ACCEPTED, CommandState.RECEIVED, CommandState.APPLIED)
            assert (await phone.status("work")).state == "cancelled"


async def test_s15_a_viewer_that_disappears_stops_nothing(site: Site) -> None:
    async with asyncio.timeout(LIMIT), site.connect("a") as agent:
        runs = {}
        for name in ("watched", "stopped"):
            ended, counts = asyncio.Event(), []
            runs[name] = ended, counts, asyncio.create_task(produce(agent, name, ended, counts))
        async with site.connect("gone") as viewer, viewer.watch("watched") as watched:
            await first_text(watched)
        async with site.connect("p") as phone:
            assert await (await phone.send("stopped", "stop", kind="interrupt")).outcome() is CommandState.APPLIED
            before = len(runs["watched"][1])
            while len(runs["watched"][1]) < before + 20:
                await asyncio.sleep(0.01)
            assert not runs["watched"][0].is_set()
            await (await phone.send("watched", "stop", kind="interrupt")).outcome()
        await asyncio.gather(*(run[2] for run in runs.values()))
