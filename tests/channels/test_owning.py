"""One owner at a time, and what becomes of the others' output (P4, P5, P6)."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from agentmqtt import (
    BadValue,
    Client,
    Ended,
    Event,
    Fenced,
    Gone,
    Owned,
    OwnerState,
    Rewound,
    RunState,
    TooLarge,
    UsageError,
)
from tests.channels.site import QUICK, Site, ended, fold, said, text, until


async def crash(client: Client, name: str, words: list[str], **how: object) -> None:
    """Own a name, say something, and vanish as a killed process does: nothing is released."""
    ready = asyncio.Event()

    async def work() -> None:
        async with client.own(name, **how) as run:  # type: ignore[arg-type]
            for word in words:
                await run.emit("text", word)
            await run.flush()
            ready.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await ready.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_second_owner_is_refused_while_the_first_lives(site: Site) -> None:
    async with site.connect("one") as one, site.connect("two") as two, one.own("mine") as run:
        with pytest.raises(Owned, match="takeover"):
            async with two.own("mine"):
                pass
        await run.emit("text", "still mine")
        await run.flush()


async def test_a_takeover_fences_the_first_owner(site: Site) -> None:
    async with site.connect("one") as one, site.connect("two") as two, site.connect("phone") as phone:
        async with phone.watch("taken") as watched:
            first = asyncio.create_task(own_until_cancelled(one, "taken", "one "))
            await until(watched, said("one "))
            async with two.own("taken", takeover=True) as second:
                with pytest.raises(Fenced) as caught:
                    await first
                await second.emit("text", "two")
                await second.end()
            assert caught.value.unsent == 0
        async with phone.watch("taken", resume=False) as watched:
            assert text(await until(watched, ended)) == "one two"


async def own_until_cancelled(client: Client, name: str, word: str) -> None:
    async with client.own(name) as run:
        await run.emit("text", word)
        await run.flush()
        await asyncio.Event().wait()


async def test_the_fenced_owner_cannot_emit(site: Site) -> None:
    async def work(client: Client) -> None:
        async with client.own("taken") as run:
            owned.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                with pytest.raises(Fenced):
                    await run.emit("text", "zombie")
                raise

    owned = asyncio.Event()
    async with site.connect("one") as one, site.connect("two") as two:
        first = asyncio.create_task(work(one))
        await owned.wait()
        async with two.own("taken", takeover=True):
            with pytest.raises(Fenced):
                await first


async def test_another_host_gets_the_name_after_the_lease(site: Site) -> None:
    async with site.connect("one") as one:
        await crash(one, "moved", ["first "])
    async with site.connect("two") as two, two.own("moved", wait=20) as run:
        await run.emit("text", "second")
        await run.end()
    async with site.connect("phone") as phone, phone.watch("moved") as watched:
        assert text(await until(watched, ended)) == "first second"


async def test_the_same_disk_resumes_at_once_and_continues(site: Site) -> None:
    async with site.connect("agent") as agent:
        await crash(agent, "resumed", ["a", "b"])
    async with site.connect("agent") as agent, agent.own("resumed") as run:
        assert run.epoch == 2
        assert run.attempt == 1
        await run.emit("text", "c")
        await run.end()
    async with site.connect("phone") as phone, phone.watch("resumed") as watched:
        assert text(await until(watched, ended)) == "abc"


async def test_a_retry_withdraws_the_broken_attempt_for_live_and_late_watchers(site: Site) -> None:
    async with site.connect("phone") as phone, phone.watch("retried") as live:
        async with site.connect("agent") as agent:
            await crash(agent, "retried", ["wrong ", "half "])
            seen = await until(live, said("half "))
        async with site.connect("agent") as agent, agent.own("retried", retry="withdraw_attempt") as run:
            assert run.attempt == 2
            await run.emit("text", "right")
            await run.end()
        seen += await until(live, ended)
    assert any(isinstance(item, Rewound) for item in seen)
    assert text(seen) == "right"
    async with site.connect("late") as late, late.watch("retried") as watched:
        items = await until(watched, ended)
    assert text(items) == "right"
    assert not any(isinstance(item, Rewound) for item in items)


async def test_a_live_withdraw_takes_back_to_a_cursor(site: Site) -> None:
    async with site.connect("agent") as agent, site.connect("phone") as phone:
        async with phone.watch("undo") as watched, agent.own("undo") as run:
            reading = asyncio.create_task(until(watched, ended))
            await run.emit("text", "keep ")
            await run.flush()
            here = run.stored
            await run.emit("text", "drop ")
            await run.flush()
            await run.withdraw(here)
            await run.emit("text", "new")
            await run.end()
            assert text(await reading) == "keep new"


async def test_a_withdraw_to_a_withdrawn_place_is_gone(site: Site) -> None:
    async with site.connect("agent") as agent, agent.own("undo twice") as run:
        await run.emit("text", "a")
        await run.flush()
        await run.emit("text", "b")
        await run.flush()
        later = run.stored
        await run.withdraw()
        with pytest.raises(Gone):
            await run.withdraw(later)
        await run.emit("text", "c")
        await run.end()
    async with site.connect("phone") as phone, phone.watch("undo twice") as watched:
        assert text(await until(watched, ended)) == "c"


async def test_an_ended_run_stays_ended_until_it_is_reopened(site: Site) -> None:
    async with site.connect("agent") as agent:
        async with agent.own("over") as run:
            await run.emit("text", "one")
            await run.end({"n": 1}, outcome="failed")
        with pytest.raises(Ended) as caught:
            async with agent.own("over"):
                pass
        assert (caught.value.outcome, caught.value.result) == ("failed", {"n": 1})
        async with agent.own("over", reopen=True) as run:
            await run.emit("text", "two")
            await run.end()
    async with site.connect("phone") as phone, phone.watch("over") as watched:
        assert text(await until(watched, ended)) == "two"


async def test_leaving_releases_and_leaving_by_an_error_says_why(site: Site) -> None:
    async with site.connect("one") as one, site.connect("two") as two:
        async with one.own("handed on") as run:
            await run.emit("text", "a")
        assert (await two.status("handed on")).state is RunState.INTERRUPTED
        assert (await two.status("handed on")).owner is OwnerState.NONE
        with pytest.raises(KeyError):
            async with two.own("handed on") as run:  # at once: nobody has it
                await run.emit("text", "b")
                raise KeyError("boom")
        status = await one.status("handed on")
        assert "boom" in status.result["error"]
        async with one.own("handed on") as run:
            await run.emit("text", "c")
            await run.end()
        async with two.watch("handed on") as watched:
            assert text(await until(watched, ended)) == "abc"


async def test_what_is_emitted_offline_goes_out_once_in_order(site: Site) -> None:
    await site.stop_journal()
    async with site.connect("agent") as agent:
        async with agent.own("offline", offline=True) as run:
            for n in range(100):
                await run.emit("text", f"{n} ")
            assert run.unsent == 100
            await site.start_journal()
            await run.flush(10)
            await run.end()
        async with agent.watch("offline") as watched:
            assert text(await until(watched, ended)) == "".join(f"{n} " for n in range(100))


async def test_an_outbox_of_a_dead_process_is_sent_by_the_next(site: Site) -> None:
    await site.stop_journal()
    async with site.connect("agent") as agent:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3), agent.own("left over", offline=True) as run:
                await run.emit("text", "before ")
                await asyncio.Event().wait()
    await site.start_journal()
    async with site.connect("agent") as agent, agent.own("left over") as run:
        await run.emit("text", "after")
        await run.end()
        assert run.unsent == 0
    async with site.connect("phone") as phone, phone.watch("left over") as watched:
        assert text(await until(watched, ended)) == "before after"


async def test_bad_events_are_refused_and_lose_nothing(site: Site) -> None:
    async with site.connect("agent") as agent, agent.own("bad input") as run:
        await run.emit("text", "good ")
        with pytest.raises(TooLarge, match="32768"):
            await run.emit("text", "x" * 40_000)
        with pytest.raises(BadValue):
            await run.emit("thing", object())
        with pytest.raises(BadValue):
            await run.emit("thing", 2**60)
        with pytest.raises(UsageError):
            await run.emit("am.end", {})
        await run.emit("text", "still good")
        await run.end()
        with pytest.raises(UsageError):
            await run.emit("text", "more")
    async with site.connect("phone") as phone, phone.watch("bad input") as watched:
        assert text(await until(watched, ended)) == "good still good"


async def test_status_tells_the_fold_and_the_owner(site: Site) -> None:
    async with site.connect("agent") as agent, site.connect("phone") as phone:
        status = await phone.status("states")
        assert (status.state, status.owner, status.epoch) == (RunState.NEW, OwnerState.NONE, 0)
        async with agent.own("states") as run:
            await run.state("searching", {"site": 3})
            await run.flush()
            status = await phone.status("states")
            assert (status.state, status.owner) == (RunState.RUNNING, OwnerState.ONLINE)
            assert status.detail == {"name": "searching", "detail": {"site": 3}}
            await run.end(outcome="cancelled")
        status = await phone.status("states")
        assert (status.state, status.owner) == (RunState.CANCELLED, OwnerState.NONE)


async def test_a_vanished_owner_is_lost_and_its_run_interrupted(site: Site) -> None:
    agent = site.connect("agent")
    await agent.__aenter__()
    run = agent.own("vanished")
    await run.__aenter__()
    await run.flush()
    await agent.session._connection.close(goodbye=False)  # type: ignore[union-attr]
    assert agent.session._task is not None
    agent.session._task.cancel()
    async with site.connect("phone") as phone:
        while (await phone.status("vanished")).owner is not OwnerState.LOST:
            await asyncio.sleep(0.05)
        while (await phone.status("vanished")).state is not RunState.INTERRUPTED:
            await asyncio.sleep(0.05)
    run._close()
    await agent.__aexit__(None, None, None)


@pytest.mark.slow
async def test_the_journal_restarts_and_loses_nothing(site: Site) -> None:
    async with site.connect("agent") as agent, site.connect("phone") as phone:
        async with phone.watch("restart") as watched, agent.own("restart") as run:
            reading = asyncio.create_task(until(watched, ended))
            for n in range(200):
                await run.emit("text", f"{n} ")
                if n == 100:
                    await site.stop_journal()
            await site.start_journal()
            await run.flush(10)
            assert run.epoch == 1
            await run.end()
            assert text(await reading) == "".join(f"{n} " for n in range(200))


async def test_the_journals_store_is_lost_and_everybody_says_so_and_goes_on(site: Site) -> None:
    async with site.connect("agent") as agent, site.connect("phone") as phone:
        async with phone.watch("amnesia") as watched, agent.own("amnesia") as run:
            await run.emit("text", "forgotten ")
            await run.flush()
            items = await until(watched, said("forgotten "))
            await site.stop_journal(lose=True)
            await run.emit("text", "kept ")
            await site.start_journal()
            reading = asyncio.create_task(until(watched, ended))
            await run.flush(10)
            await run.emit("text", "on")
            await run.end()
            items += await reading
    assert text(items) == "kept on"
    assert any(getattr(item, "reason", "") == "reset" for item in items)


@pytest.mark.slow
async def test_trimmed_history_is_said(site: Site) -> None:
    await site.stop_journal()
    await site.start_journal(history_events=50)
    async with site.connect("agent") as agent, site.connect("phone") as phone, agent.own("trimmed") as run:
        async with phone.watch("trimmed") as watched:
            await run.emit("step", 0)
            await until(watched, said(0))
        for n in range(1, 200):
            await run.emit("step", n)
            await run.flush()
        while (await phone.status("trimmed")).tail.n < 200:
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.5)
        async with phone.watch("trimmed") as watched:
            items = await until(watched, said(199))
    gap = next(item for item in items if not isinstance(item, Event))
    assert gap.reason == "trimmed"  # type: ignore[union-attr]
    shown = [event.data for event in fold(items)]
    assert shown == list(range(shown[0], 200))
    assert len(shown) <= 60


async def test_a_release_that_was_never_sent_does_not_end_the_next_process(site: Site) -> None:
    await site.stop_journal()
    impatient = dataclasses.replace(QUICK, goodbye=0.1)
    async with site.connect("agent", impatient) as agent, agent.own("left", offline=True) as run:
        await run.emit("text", "one ")
    await site.start_journal()
    async with site.connect("agent") as agent, agent.own("left") as run:
        await run.emit("text", "two")
        await run.end()
        async with agent.watch("left") as watched:
            assert text(await until(watched, ended)) == "one two"


async def test_an_end_that_was_never_sent_is_sent_by_the_next_process_and_not_paid_twice(site: Site) -> None:
    await site.stop_journal()
    async with site.connect("agent") as agent, agent.own("finished", offline=True) as run:
        await run.emit("text", "paid")
        with pytest.raises(TimeoutError):
            await run.end({"cost": 1}, timeout=0.1)
    await site.start_journal()
    async with site.connect("agent") as agent:
        with pytest.raises(Ended) as caught:
            async with agent.own("finished", retry="withdraw_attempt"):
                pass
        assert caught.value.result == {"cost": 1}
        async with agent.watch("finished") as watched:
            assert text(await until(watched, ended)) == "paid"
