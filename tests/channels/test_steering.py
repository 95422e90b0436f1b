"""Commands: accepted, then one outcome (P7)."""

from __future__ import annotations

import asyncio

import pytest

from agentmqtt import BadValue, CommandState, Event, TooLarge, UsageError, wire
from agentmqtt.frames import Command, Outcome
from agentmqtt.transport.base import Delivery
from tests.channels.site import Site, ended, until


async def test_commands_arrive_once_in_order_and_are_applied(site: Site) -> None:
    async with site.connect("agent") as agent, site.connect("phone") as phone, agent.own("steered") as run:
        async with phone.watch("steered") as watched:
            receipts = [await watched.send(f"turn {n}") for n in range(20)]
        heard = []
        async for command in run.commands():
            heard.append(command.data)
            if len(heard) == 20:
                break
        await run.end()
        assert heard == [f"turn {n}" for n in range(20)]
        assert [await receipt.outcome(5) for receipt in receipts] == [CommandState.APPLIED] * 20


async def test_commands_sent_before_any_owner_wait_for_the_first(site: Site) -> None:
    async with site.connect("phone") as phone, site.connect("agent") as agent:
        receipt = await phone.send("early", "hello")
        assert receipt.state is CommandState.ACCEPTED
        async with agent.own("early") as run:
            async for command in run.commands():
                assert (command.data, command.again) == ("hello", False)
                command.applied()
                break
            assert await receipt.outcome(5) is CommandState.APPLIED


async def test_a_rejection_carries_its_reason(site: Site) -> None:
    async with site.connect("phone") as phone, site.connect("agent") as agent, agent.own("strict") as run:
        receipt = await phone.send("strict", "impossible")
        async for command in run.commands():
            command.rejected("no such page")
            break
        assert await receipt.outcome(5) is CommandState.REJECTED
        assert receipt.reason == "no such page"


async def test_the_same_id_again_is_the_same_command(site: Site) -> None:
    async with site.connect("phone") as phone, site.connect("agent") as agent, agent.own("idempotent") as run:
        first = await phone.send("idempotent", "once", id="pay-17")
        async for command in run.commands():
            command.applied()
            break
        assert await first.outcome(5) is CommandState.APPLIED
        second = await phone.send("idempotent", "once", id="pay-17")
        assert await second.outcome(5) is CommandState.APPLIED
        await run.end()
    async with site.connect("late") as late, late.watch("idempotent") as watched:
        items = await until(watched, ended)
    assert sum(isinstance(item, Event) and item.type == "am.receipt" for item in items) == 1


async def test_expired_before_an_owner_came(site: Site) -> None:
    async with site.connect("phone") as phone:
        receipt = await phone.send("nobody", "go", expiry=0.3)
        assert await receipt.outcome(5) is CommandState.EXPIRED


async def test_too_late_after_the_end_and_for_what_was_never_taken(site: Site) -> None:
    async with site.connect("phone") as phone, site.connect("agent") as agent:
        async with agent.own("short") as run:
            untaken = await phone.send("short", "never looked at")
            await run.end()
        assert await untaken.outcome(5) is CommandState.TOO_LATE
        after = await phone.send("short", "hello?")
        assert await after.outcome(5) is CommandState.TOO_LATE


async def test_an_interrupt_cancels_the_block_and_the_reason_reaches_the_code(site: Site) -> None:
    async with site.connect("phone") as phone, site.connect("agent") as agent, agent.own("long") as run:
        async with phone.watch("long") as watched:
            pressing = asyncio.create_task(watched.interrupt("user pressed stop"))
            async with run.interruptible() as scope:
                await asyncio.Event().wait()
            assert scope.interrupted
            assert scope.reason == "user pressed stop"
            assert await (await pressing).outcome(5) is CommandState.APPLIED
        await run.end(outcome="cancelled")


async def test_an_interrupt_before_the_block_cancels_it(site: Site) -> None:
    async with site.connect("phone") as phone, site.connect("agent") as agent:
        await phone.send("waiting", "now", kind="interrupt")
        async with agent.own("waiting") as run:
            async with asyncio.timeout(5), run.interruptible() as scope:
                await asyncio.Event().wait()
            assert scope.interrupted


async def test_a_block_that_fails_or_is_cancelled_from_outside_is_not_swallowed(site: Site) -> None:
    async with site.connect("agent") as agent, agent.own("failing") as run:
        with pytest.raises(ZeroDivisionError):
            async with run.interruptible():
                raise ZeroDivisionError
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01), run.interruptible():
                await asyncio.Event().wait()


async def test_a_handed_command_comes_again_flagged_after_a_crash(site: Site) -> None:
    async with site.connect("phone") as phone:
        receipt = await phone.send("crashing", "risky")
        async with site.connect("agent") as agent:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1), agent.own("crashing") as run:
                    async for _ in run.commands():
                        await asyncio.Event().wait()
        async with site.connect("agent") as agent, agent.own("crashing") as run:
            async for command in run.commands():
                assert command.again
                command.applied()
                break
            assert await receipt.outcome(5) is CommandState.APPLIED


async def test_a_value_that_cannot_be_sent_is_refused(site: Site) -> None:
    async with site.connect("phone") as phone:
        with pytest.raises(BadValue):
            await phone.send("x", {1: 2})


async def test_json_from_a_plain_mqtt_client(site: Site) -> None:
    from agentmqtt.transport.base import Hello
    from agentmqtt.transport.mqtt import MqttTransport

    async with site.connect("agent") as agent, agent.own("plain") as run:
        connection = await MqttTransport(site.url).connect(
            Hello("A" * 23, 20, lambda delivery: delivery.ack(), session_expiry=0)
        )
        await connection.publish(agent.topics.inbox("plain", "A" * 23), b'{"kind":"message","data":"typed"}')
        await connection.publish(agent.topics.inbox("plain", "A" * 23), b'{"kind":"message","data":"typed"}')
        async for command in run.commands():
            assert (command.kind, command.data, command.sender) == ("message", "typed", "A" * 23)
            break
        await connection.close()
        await run.end()


async def test_a_command_that_no_broker_takes_is_refused_at_the_sender(site: Site) -> None:
    """It stayed in the outbox, and each time that it was sent the broker closed the link of the whole client."""
    async with site.connect("phone") as phone:
        with pytest.raises(TooLarge, match="'steered' takes 3000015 bytes; the limit is 32768"):
            await phone.send("steered", "x" * 3_000_000)
        with pytest.raises(BadValue, match="id: "):
            await phone.send("steered", "x", id="i" * 129)
        assert (await phone.send("steered", "small")).state is CommandState.ACCEPTED


@pytest.mark.parametrize("expiry", [float("inf"), 1e300, 1e9])
async def test_an_expiry_beyond_all_bounds_is_the_longest_one(site: Site, expiry: float) -> None:
    """The journal could not read the deadline, and the sender was told that there is no journal."""
    async with site.connect("phone") as phone:
        assert (await phone.send("steered", "x", expiry=expiry)).state is CommandState.ACCEPTED


@pytest.mark.parametrize("expiry", [float("nan"), 0.0, -1.0])
async def test_an_expiry_that_is_no_time_is_refused(site: Site, expiry: float) -> None:
    async with site.connect("phone") as phone:
        with pytest.raises(UsageError, match="is no time"):
            await phone.send("steered", "x", expiry=expiry)


async def test_a_large_command_of_a_foreign_client_is_rejected_and_not_kept(site: Site) -> None:
    async with site.connect("phone") as phone:
        heard: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

        def hear(delivery: Delivery) -> None:
            answer = wire.decode_response(delivery.payload)
            if isinstance(answer, Outcome) and not heard.done():
                heard.set_result(answer)

        await phone.session.subscribe(phone.topics.client_res(phone.client_id), hear).ready()
        large = wire.encode(Command("big", "steered", "message", "x" * 60_000, 0))
        phone.publish(phone.topics.inbox("steered", phone.client_id), large)
        async with asyncio.timeout(5):
            answer = await heard
        assert (answer.id, answer.state) == ("big", CommandState.REJECTED)
        assert (await phone.status("steered")).inc == b""
