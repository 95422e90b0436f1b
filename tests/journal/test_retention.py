"""What a journal forgets, and what its users are told then (PROTOCOL §9.4, §9.5)."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path

from agentmqtt import CommandState, Event, Gap, RunState
from tests.channels.site import BRISK, Site, bundled, ended, said, text, until


async def finish(site: Site, name: str, words: str) -> None:
    async with site.connect("agent") as agent, agent.own(name) as run:
        await run.emit("text", words)
        await run.end()


async def until_gone(site: Site, name: str) -> None:
    async with site.connect("asking") as client:
        while (await client.status(name)).state is not RunState.NEW:
            await asyncio.sleep(0.05)


async def test_a_finished_run_is_forgotten_after_its_retention(tmp_path: Path) -> None:
    async with bundled(tmp_path, dataclasses.replace(BRISK, retention=0.3)) as site:
        async with site.connect("phone") as phone, phone.watch("old") as watched:
            reading = asyncio.create_task(until(watched, ended))
            await finish(site, "old", "said once")
            assert text(await reading) == "said once"
            watched.keep()
        await until_gone(site, "old")
        async with site.connect("agent") as agent, agent.own("old") as run:
            assert run.epoch == 1
            await run.emit("text", "anew")
            await run.flush()
            async with site.connect("phone") as phone, phone.watch("old") as watched:
                items = await until(watched, said("anew"))
            assert isinstance(items[0], Gap)
            assert items[0].reason == "reset"
            await run.end()


async def test_an_unfinished_run_is_kept(tmp_path: Path) -> None:
    async with bundled(tmp_path, dataclasses.replace(BRISK, retention=0.0)) as site:
        async with site.connect("agent") as agent, agent.own("open") as run:
            await run.emit("text", "still here")
            await run.flush()
        await finish(site, "done", "x")
        await until_gone(site, "done")
        async with site.connect("phone") as phone:
            assert (await phone.status("open")).tail.n == 2


async def test_the_oldest_finished_runs_go_when_the_quota_is_reached(tmp_path: Path) -> None:
    async with bundled(tmp_path, dataclasses.replace(BRISK, quota=100_000)) as site:
        for n in range(20):
            await finish(site, f"run {n:02}", "x" * 20_000)
        await until_gone(site, "run 00")
        async with site.connect("phone") as phone:
            left = [row.workflow async for row in phone.runs()]
        assert left == [f"run {n:02}" for n in range(20 - len(left), 20)]


async def test_a_log_is_trimmed_by_bytes_while_its_owner_writes(tmp_path: Path) -> None:
    async with bundled(tmp_path, dataclasses.replace(BRISK, history_bytes=50_000)) as site:
        async with site.connect("agent") as agent, agent.own("big") as run, site.connect("late") as late:
            for n in range(300):
                await run.emit("block", f"{n:04}" + "x" * 1000)
                if n % 20 == 0:
                    await run.flush()
            await run.flush()
            await asyncio.sleep(0.6)  # two sweeps
            async with late.watch("big", resume=False) as watched:
                items = await until(watched, lambda item: isinstance(item, Event) and item.data[:4] == "0299")
            assert isinstance(items[0], Gap)
            assert items[0].reason == "trimmed"
            assert len(items) < 100
            numbers = [int(item.data[:4]) for item in items if isinstance(item, Event)]
            assert numbers == list(range(numbers[0], 300))
            await run.end()


async def test_outcomes_are_remembered_over_a_restart(tmp_path: Path) -> None:
    async with bundled(tmp_path) as site:
        async with site.connect("phone") as phone, site.connect("agent") as agent, agent.own("kept") as run:
            receipt = await phone.send("kept", "once", id="one")
            async for command in run.commands():
                command.rejected("no")
                break
            assert await receipt.outcome(5) is CommandState.REJECTED
            await run.flush()
        await site.stop_journal()
        await site.start_journal()
        async with site.connect("other") as other:
            again = await other.send("kept", "once", id="one")
            assert await again.outcome(5) is CommandState.REJECTED
            assert again.reason == "no"


async def test_a_torn_store_is_set_aside_and_the_channels_begin_anew(tmp_path: Path) -> None:
    async with bundled(tmp_path) as site:
        async with site.connect("phone") as phone, phone.watch("torn") as watched:
            async with site.connect("agent") as agent, agent.own("torn") as run:
                await run.emit("text", "before ")
                await run.flush()
                items = await until(watched, said("before "))
                await site.stop_journal()
                for leftover in tmp_path.glob("journal.db-*"):
                    leftover.unlink()
                data = (tmp_path / "journal.db").read_bytes()
                (tmp_path / "journal.db").write_bytes(b"\0" * len(data))
                await site.start_journal()
                assert site.store is not None
                assert site.store.replaced is not None
                await run.emit("text", "after")
                await run.flush(10)
                await run.end()
            items += await until(watched, ended)
        assert text(items) == "after"
        assert any(isinstance(item, Gap) and item.reason == "reset" for item in items)
