"""S33, S35, S36: steering at every moment ends once; one approval wins; what is old does nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agentmqtt import CommandState, OwnedRun, ReceivedCommand, wire
from agentmqtt.frames import Command
from tests.channels.site import Site

LIMIT = 40.0


async def test_s33_sent_at_every_moment_and_each_is_told(site: Site) -> None:
    async with asyncio.timeout(LIMIT), site.connect("p") as phone:
        early = await phone.send("work", "before anybody")
        async with site.connect("a") as agent, agent.own("work") as run:
            assert [command.data for command in await _arrived(run, 1)] == ["before anybody"]
            within = await phone.send("work", "mid-step")
            await run.step("tool", asyncio.sleep, 0.05)
            (mid,) = await _arrived(run, 1)
            mid.rejected("busy")
        during = await phone.send("work", "between two owners")
        async with site.connect("b") as agent, agent.own("work") as run:
            assert [command.data for command in await _arrived(run, 1)] == ["between two owners"]
            unread = await phone.send("work", "in the last step", when="next_turn")
            await run.end()
        late = await phone.send("work", "after the end")
        receipts = [early, within, during, unread, late]
        wanted = [
            CommandState.APPLIED,
            CommandState.REJECTED,
            CommandState.APPLIED,
            CommandState.TOO_LATE,
            CommandState.TOO_LATE,
        ]
        assert [await receipt.outcome() for receipt in receipts] == wanted


async def _arrived(run: OwnedRun, count: int) -> list[ReceivedCommand]:
    found: list[ReceivedCommand] = []
    async for command in run.commands():
        found.append(command)
        if command.data != "mid-step":
            command.applied()
        if len(found) == count:
            return found
    return found


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_s35_two_devices_approve_at_the_same_instant(site: Site) -> None:
    """100 rounds: one is told `applied`, the other `superseded`; the log has one answer to each question."""
    async with site.connect("a") as agent, site.connect("p") as p, site.connect("q") as q, agent.own("work") as run:
        seen: set[str] = set()
        async with p.watch("work") as phone, q.watch("work") as tablet:
            for n in range(100):
                asking = asyncio.create_task(run.ask(f"Deploy {n % 3}?", choices=["yes", "no"]))
                async for item in phone:
                    if item.type == "am.ask":
                        break
                id_ = item.data["id"]
                assert id_ not in seen
                seen.add(id_)
                both = await asyncio.gather(phone.answer(id_, "yes"), tablet.answer(id_, "no"))
                states = [await receipt.outcome(30) for receipt in both]
                assert sorted(states) == [CommandState.APPLIED, CommandState.SUPERSEDED]
                assert await asking == ("yes" if states[0] is CommandState.APPLIED else "no")
        answers = [event.data["id"] async for event in run.history() if event.type == "am.answer"]
        assert len(answers) == len(set(answers)) == 100


async def test_s36_what_is_old_or_said_twice_does_nothing(site: Site) -> None:
    async with asyncio.timeout(LIMIT), site.connect("p") as phone:
        old = await phone.send("work", "go", expiry=0.2)
        assert await old.outcome() is CommandState.EXPIRED
        twice = [await phone.send("work", "once", id="c-1") for _ in range(2)]
        async with site.connect("a") as agent, agent.own("work") as run:
            assert await _taken(run, 1) == ["once"]
            assert [await receipt.outcome() for receipt in twice] == [CommandState.APPLIED] * 2


async def test_s36_a_retained_command_is_taken_once_at_most(site: Site) -> None:
    """To a subscriber that is there a broker does not say that a message is retained; to all others it does."""
    async with asyncio.timeout(LIMIT), site.connect("p") as phone, site.connect("a") as agent:
        async with agent.own("work") as run:
            topic = phone.topics.inbox("work", phone.client_id)
            await site_publish(site, topic, wire.encode(Command("kept", "work", "message", "by mistake")))
            assert await _taken(run, 1) == ["by mistake"]
            await run.flush()
        await site.stop_journal(lose=True)  # nobody remembers it but the broker, which delivers it again
        await site.start_journal()
        async with agent.own("work", takeover=True) as run:
            await phone.send("work", "after")
            assert await _taken(run, 1) == ["after"]


async def _taken(run: OwnedRun, count: int) -> list[Any]:
    found: list[Any] = []
    async for command in run.commands():
        command.applied()
        found.append(command.data)
        if len(found) == count:
            return found
    return found


async def site_publish(site: Site, topic: str, payload: bytes) -> None:
    """Somebody publishes with RETAIN."""
    import aiomqtt

    host, port = site.url.removeprefix("mqtt://").split(":")
    async with aiomqtt.Client(host, int(port)) as client:
        await client.publish(topic, payload, qos=1, retain=True)
