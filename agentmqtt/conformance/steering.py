"""Cases of a sender: its commands arrive once, and it learns what became of each."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from agentmqtt.conformance.following import EDGES, NAME
from agentmqtt.conformance.plain import to_json
from agentmqtt.conformance.site import KEEPALIVE, Site, Watch, same
from agentmqtt.conformance.speaker import Failed, Speaker
from agentmqtt.owner import OwnedRun
from agentmqtt.received import ReceivedCommand


class Office:
    """An owner that writes down every command that it gets, and answers `no` with a refusal."""

    def __init__(self, run: OwnedRun) -> None:
        self.run = run
        self.got: list[ReceivedCommand] = []

    async def work(self) -> None:
        async for command in self.run.commands():
            self.got.append(command)
            if command.data == "no":
                command.rejected({"why": "busy"})


@contextlib.asynccontextmanager
async def office(site: Site, name: str = NAME) -> AsyncIterator[Office]:
    """The owner works until the block ends."""
    made = Office(await site.owner(name))
    task = asyncio.create_task(made.work(), name="agentmqtt conformance owner")
    try:
        yield made
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _outcome(speaker: Speaker, id_: str) -> dict[str, Any]:
    await speaker.until(lambda: id_ in speaker.outcomes, f"the outcome of command {id_}")
    return speaker.outcomes[id_]


async def applied(site: Site) -> None:
    """A command arrives once, with its data, and the sender hears `applied`."""
    speaker = await site.speaker()
    async with office(site) as owner:
        for kind, value in EDGES.items():
            await speaker.ask("send", name=NAME, command=f"c-{kind}", kind="message", data=to_json(value))
            same((await _outcome(speaker, f"c-{kind}"))["state"], "applied", "the outcome")
        same([command.data for command in owner.got], list(EDGES.values()), "what the owner got")


async def rejected(site: Site) -> None:
    """The owner says no, and why."""
    speaker = await site.speaker()
    async with office(site):
        await speaker.ask("send", name=NAME, command="c-1", kind="message", data="no")
        outcome = await _outcome(speaker, "c-1")
        same((outcome["state"], outcome.get("reason")), ("rejected", {"why": "busy"}), "the outcome")


async def waits_for_the_first_owner(site: Site) -> None:
    """A command to a name that nobody ever owned waits for its first owner."""
    speaker = await site.speaker()
    await speaker.ask("send", name=NAME, command="c-1", kind="message", data="early")
    async with office(site) as owner:
        same((await _outcome(speaker, "c-1"))["state"], "applied", "the outcome")
        same([command.data for command in owner.got], ["early"], "what the owner got")


async def offline(site: Site) -> None:
    """Sent without a link, killed twice, then a link: the commands arrive once each, in order."""
    speaker = await site.speaker()
    async with office(site) as owner:
        await site.proxy.cut()
        for n in range(3):
            await speaker.ask("send", name=NAME, command=f"c-{n}", kind="message", data=n)
        speaker = await site.again(speaker)
        await speaker.ask("send", name=NAME, command="c-3", kind="message", data=3)
        speaker = await site.again(speaker)
        await site.proxy.heal()
        for n in range(4):  # asked for again under its ID, as an application does that was restarted
            await speaker.ask("send", name=NAME, command=f"c-{n}", kind="message", data=n)
            same((await _outcome(speaker, f"c-{n}"))["state"], "applied", "the outcome")
        same([command.data for command in owner.got], [0, 1, 2, 3], "what the owner got")


async def same_id(site: Site) -> None:
    """The same command ID again is the same command: one effect, the same outcome."""
    speaker = await site.speaker()
    async with office(site) as owner:
        for _ in range(3):
            await speaker.ask("send", name=NAME, command="c-1", kind="message", data="once")
            same((await _outcome(speaker, "c-1"))["state"], "applied", "the outcome")
            speaker.outcomes.clear()
        speaker = await site.again(speaker)
        await speaker.ask("send", name=NAME, command="c-1", kind="message", data="once")
        same((await _outcome(speaker, "c-1"))["state"], "applied", "the outcome after a restart")
        same(len(owner.got), 1, "the number of effects")


async def interrupt(site: Site) -> None:
    """An interrupt reaches the owner with its reason."""
    speaker = await site.speaker()
    run = await site.owner(NAME)
    async with asyncio.timeout(20), run.interruptible() as block:
        await speaker.ask("interrupt", name=NAME, command="c-1", reason="stop pressed")
        await asyncio.Event().wait()
    same((await _outcome(speaker, "c-1"))["state"], "applied", "the outcome")
    if not block.interrupted or "stop pressed" not in repr(block.reason):
        raise Failed(f"the reason is {block.reason!r}")


async def too_late(site: Site) -> None:
    """A command to a run that has ended is `too_late`."""
    speaker = await site.speaker()
    run = await site.owner(NAME)
    await run.end()
    await speaker.ask("send", name=NAME, command="c-1", kind="message", data="late")
    same((await _outcome(speaker, "c-1"))["state"], "too_late", "the outcome")


async def refused_locally(site: Site) -> None:
    """What cannot be sent is refused at once, and what comes after it passes."""
    speaker = await site.speaker()
    async with office(site) as owner:
        await speaker.refuses("send", name=NAME, command="c-1", kind="message", data="x" * 40_000)
        await speaker.refuses("send", name=NAME, command="c-2", kind="message", data=2**53)
        await speaker.refuses("send", name=NAME, command="c-3", kind="", data=1)
        await speaker.ask("send", name=NAME, command="c-4", kind="message", data="small")
        same((await _outcome(speaker, "c-4"))["state"], "applied", "the outcome")
        same([command.id for command in owner.got], ["c-4"], "what the owner got")


async def status(site: Site) -> None:
    """The status tells state and owner, also of a name that nobody knows."""
    speaker = await site.speaker()
    same((await speaker.ask("status", name=NAME))["state"], "new", "the state of an unknown run")
    run = await site.owner(NAME)
    await run.emit("text", "a")
    await run.flush()
    told = await speaker.ask("status", name=NAME)
    same((told["state"], told["owner"]), ("running", "online"), "the status")
    await run.end(outcome="failed")
    same((await speaker.ask("status", name=NAME))["state"], "failed", "the state after the end")


async def leaves(site: Site) -> None:
    """`stop` ends the program with code 0, and what it kept works on for the next one."""
    speaker = await site.speaker()
    watch = await Watch(speaker, NAME).begin()
    run = await site.owner(NAME)
    await run.emit("text", "one ")
    await watch.reads("one ")
    await speaker.stop()
    watch = await Watch(await site.speaker(), NAME).begin()
    await run.emit("text", "two")
    await watch.reads("two")


async def second_process(site: Site) -> None:
    """Two processes of one installation do not fight: each works, or says why it stopped or did not start."""
    first = await site.speaker()
    await first.ask("watch", name=NAME)
    speakers = [first]
    with contextlib.suppress(Failed):  # the second may be refused at its start
        speakers.append(await site.speaker())
        await speakers[1].ask("watch", name=NAME)
    run = await site.owner(NAME)
    await asyncio.sleep(2 * KEEPALIVE)
    await run.emit("text", "hello")
    for speaker in speakers:
        await _shows_or_stopped(speaker)
    if all(speaker.closed for speaker in speakers):
        raise Failed("both processes stopped; one has to go on")


async def _shows_or_stopped(speaker: Speaker) -> None:
    await speaker.until(lambda: bool(speaker.closed or speaker.shown.get(NAME)), "the run, or why it stopped")
