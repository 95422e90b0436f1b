"""Owner and watchers meet on a name, and everybody sees the same (P2, P9)."""

from __future__ import annotations

import asyncio

import pytest

from agentmqtt import BadName, Cursor, Event, Position, UsageError
from tests.channels.site import Site, ended, fold, said, text, until


async def test_two_watchers_see_the_same_run(site: Site) -> None:
    async with site.connect("agent") as agent, site.connect("phone") as phone, site.connect("desk") as desk:
        async with phone.watch("report-42") as early, agent.own("report-42") as run:
            reading = asyncio.create_task(until(early, ended))
            for n in range(300):
                await run.emit("text", f"{n} ")
            async with desk.watch("report-42") as mid:
                also = asyncio.create_task(until(mid, ended))
                for n in range(300, 600):
                    await run.emit("text", f"{n} ")
                await run.end({"pages": 3})
                first, second = await reading, await also
    expected = "".join(f"{n} " for n in range(600))
    assert text(first) == expected
    assert text(second) == expected


async def test_a_watcher_after_the_end_gets_history_and_the_end(site: Site) -> None:
    async with site.connect("agent") as agent, agent.own("done-run") as run:
        for word in ("all ", "is ", "said"):
            await run.emit("text", word)
        await run.end({"ok": True})
    async with site.connect("late") as late, late.watch("done-run") as watched:
        items = await until(watched, ended)
    assert text(items) == "all is said"
    assert isinstance(items[0], Event)
    assert items[0].span == 3
    assert items[-1] == fold(items)[-1]


async def test_a_watcher_before_the_first_owner_waits(site: Site) -> None:
    async with site.connect("phone") as phone, phone.watch("not yet") as watched:
        reading = asyncio.create_task(until(watched, ended))
        await phone.status("not yet")
        async with site.connect("agent") as agent, agent.own("not yet") as run:
            await run.emit("text", "hello")
            await run.end()
        assert text(await reading) == "hello"


async def test_a_watcher_resumes_where_its_state_was(site: Site) -> None:
    async with site.connect("agent") as agent, agent.own("long") as run:
        for n in range(50):
            await run.emit("step", n)
        await run.flush()
        async with site.connect("phone") as phone, phone.watch("long") as watched:
            seen = await until(watched, said(19))
            watched.keep()
        for n in range(50, 60):
            await run.emit("step", n)
        await run.end()
        async with site.connect("phone") as phone, phone.watch("long") as watched:
            seen += await until(watched, ended)
    assert [event.data for event in fold(seen) if event.type == "step"] == list(range(60))


async def test_a_handled_event_does_not_come_again_and_an_unhandled_one_does(site: Site) -> None:
    async with site.connect("agent") as agent, agent.own("once") as run:
        for n in range(10):
            await run.emit("step", n)
        await run.flush()
        with pytest.raises(ZeroDivisionError):
            async with site.connect("phone") as phone, phone.watch("once") as watched:
                async for item in watched:
                    if said(4)(item):
                        raise ZeroDivisionError
        async with site.connect("phone") as phone, phone.watch("once") as watched:
            again = await until(watched, said(9))
    assert [event.data for event in fold(again)] == [4, 5, 6, 7, 8, 9]


async def test_from_end_shows_only_what_comes(site: Site) -> None:
    async with site.connect("agent") as agent, agent.own("tail") as run:
        await run.emit("step", "old")
        await run.flush()
        async with site.connect("phone") as phone, phone.watch("tail", start="end", resume=False) as watched:
            reading = asyncio.create_task(until(watched, said("new")))
            await phone.status("tail")
            while not reading.done():
                await run.emit("step", "new")
                await asyncio.sleep(0.05)
            assert {event.data for event in fold(await reading)} == {"new"}


async def test_from_a_cursor(site: Site) -> None:
    async with site.connect("agent") as agent, agent.own("cursor") as run:
        for n in range(10):
            await run.emit("step", n)
        await run.flush()
        start = Cursor.parse(Cursor(run.stored.inc, Position(1, 7)).token)
        async with site.connect("phone") as phone, phone.watch("cursor", start=start) as watched:
            items = await until(watched, said(9))
    assert [event.data for event in fold(items)] == [7, 8, 9]


async def test_stored_and_paced_watchers_see_the_same(site: Site) -> None:
    async with site.connect("agent") as agent, site.connect("a") as a, site.connect("b") as b:
        async with (
            a.watch("modes", stored=True) as stored,
            b.watch("modes", pace=0.1) as paced,
            agent.own("modes") as run,
        ):
            readings = [asyncio.create_task(until(watched, ended)) for watched in (stored, paced)]
            for n in range(200):
                await run.emit("text", f"{n},")
                if n % 50 == 0:
                    await asyncio.sleep(0.05)
            await run.end()
            both = [text(items) for items in await asyncio.gather(*readings)]
    assert both == ["".join(f"{n}," for n in range(200))] * 2


@pytest.mark.slow
async def test_one_watcher_follows_fifty_names(site: Site) -> None:
    names = [f"run {n}" for n in range(50)]
    async with site.connect("agent") as agent, site.connect("phone") as phone:

        async def follow(name: str) -> str:
            async with phone.watch(name) as watched:
                return text(await until(watched, ended))

        async def work(name: str) -> None:
            async with agent.own(name) as run:
                for n in range(20):
                    await run.emit("text", f"{name}/{n} ")
                    await asyncio.sleep(0)
                await run.end()

        reading = [asyncio.create_task(follow(name)) for name in names]
        await asyncio.gather(*(work(name) for name in names))
        for name, task in zip(names, reading, strict=True):
            assert await task == "".join(f"{name}/{n} " for n in range(20))


@pytest.mark.slow
async def test_one_unread_name_does_not_starve_the_others(site: Site) -> None:
    """The name whose reader sleeps leaves live mode; the others go on, and it misses nothing (§6.6)."""
    from agentmqtt.options import ClientOptions

    small = ClientOptions(keepalive=4, buffer=50)
    async with (
        site.connect("agent") as agent,
        site.connect("phone", small) as phone,
        phone.watch("unread") as unread,
        phone.watch("read") as read,
        agent.own("unread") as noisy,
        agent.own("read") as calm,
    ):
        reading = asyncio.create_task(until(read, ended))
        for n in range(3000):
            await noisy.emit("step", n)
            if n % 100 == 0:
                await calm.emit("text", f"{n} ")
        await calm.end()
        await noisy.end()
        assert text(await reading) == "".join(f"{n} " for n in range(0, 3000, 100))
        assert len(unread._reader.buffer) <= 50
        items = await until(unread, ended)
    assert [event.data for event in fold(items) if event.type == "step"] == list(range(3000))


NAMES = ["a/b", "a+b", "#", "$x", "a.b", "two words", "🦊", "\u00e9", "e\u0301", "x" * 4000, "~", "%7E", "A", "a"]


async def test_names_are_exact_and_never_another_channels(site: Site) -> None:
    async with site.connect("agent") as agent, site.connect("phone") as phone:
        for number, name in enumerate(NAMES):
            async with agent.own(name) as run:
                await run.emit("text", str(number))
                await run.end()
        for number, name in enumerate(NAMES):
            async with phone.watch(name) as watched:
                assert text(await until(watched, ended)) == str(number)
        assert sorted([row.workflow async for row in phone.runs()]) == sorted(NAMES)


async def test_a_name_that_no_topic_can_carry_is_refused_at_creation(site: Site) -> None:
    async with site.connect("agent") as agent:
        for name in ("", "\ud800", "x" * 5000):
            with pytest.raises(BadName):
                agent.own(name)
            with pytest.raises(BadName):
                agent.watch(name)


async def test_an_unknown_start_is_refused(site: Site) -> None:
    async with site.connect("phone") as phone:
        with pytest.raises(UsageError, match="start"):
            phone.watch("x", start="middle")


async def test_a_cursor_that_no_log_reached_does_not_make_a_reader_ask_without_a_pause(site: Site) -> None:
    """Each answer was thrown away and asked for again at once: one reader took a third of a core of the journal."""
    asked: list[bytes] = []
    async with site.connect("agent") as agent, site.connect("phone") as phone, agent.own("ahead") as run:
        await run.emit("text", "x")
        await run.flush()
        inc = (await phone.status("ahead")).inc
        topic = phone.topics.req("ahead", phone.client_id)
        await agent.session.subscribe(topic, lambda delivery: asked.append(delivery.payload)).ready()
        async with phone.watch("ahead", start=Cursor(inc, Position(7, 42)), resume=False):
            await asyncio.sleep(1.0)
        assert 0 < len(asked) <= 8
