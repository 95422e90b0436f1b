"""S16: an interrupt at any moment around the end. One terminal state, the same for everybody; the late side is told."""

from __future__ import annotations

import asyncio
import random

import pytest

from agentmqtt import Client, CommandState, Event
from tests.channels.site import Site

ROUNDS = 100


async def work(client: Client, name: str) -> str:
    """Some steps, then done; or cancelled, if the interrupt came first."""
    async with client.own(name) as run:
        async with run.interruptible() as block:
            for n in range(5):
                await run.emit("n", n)
                await asyncio.sleep(0.004)
        outcome = "cancelled" if block.interrupted else "done"
        await run.end(outcome=outcome)
    return outcome


async def last(client: Client, name: str) -> str:
    async with client.watch(name, resume=False) as run:
        async for item in run:
            if isinstance(item, Event) and item.type == "am.end":
                return str(item.data["outcome"])
    raise AssertionError("it never ended")


async def one(agent: Client, phone: Client, name: str, offset: float) -> CommandState:
    """One round: returns what became of the interrupt."""
    working = asyncio.create_task(work(agent, name))
    await asyncio.sleep(offset)
    receipt = await phone.send(name, "stop", kind="interrupt")
    ended = await working
    outcome = await receipt.outcome(30)
    assert {await last(agent, name), await last(phone, name), (await phone.status(name)).state} == {ended}
    assert (outcome is CommandState.TOO_LATE) or ended == "cancelled" or outcome is CommandState.APPLIED
    assert not (ended == "cancelled" and outcome is CommandState.TOO_LATE)
    return outcome


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_s16_one_terminal_state_whenever_it_is_pressed(site: Site) -> None:
    dice = random.Random(16)
    async with site.connect("a") as agent, site.connect("p") as phone:
        found = [await one(agent, phone, f"work-{n}", dice.uniform(0.0, 0.06)) for n in range(ROUNDS)]
    assert {CommandState.APPLIED, CommandState.TOO_LATE} <= set(found), "both sides of the race have to be reached"
