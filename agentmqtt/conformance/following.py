"""Cases of a reader: what it has to show, whatever happens to its link and to itself."""

from __future__ import annotations

import asyncio
import dataclasses

from agentmqtt.conformance.site import KEEPALIVE, Site, Watch, same
from agentmqtt.conformance.speaker import Failed

NAME = "report-42"
EDGES = {
    "integers": [0, 23, 24, 255, 256, 65_536, 2**32, 2**53 - 1, -1, -24, -25, -(2**53) + 1],
    "floats": [0.5, -1.25, 1e300, 0.1],
    "text": ["", "ä€🙂", "e\u0301", "\x00\n", "x" * 5000],
    "others": [None, True, False, b"", b"\x00\xff", {"": {}, "k": [[]]}],
}
HARD = ("a/b", "a+b", "#", "$x", " ", "🙂", "e\u0301", "\u00e9", "~", "x" * 500, "%41")


async def live(site: Site) -> None:
    """What is emitted while it watches arrives in order, each event once."""
    watch = await Watch(await site.speaker(), NAME).begin()
    run = await site.owner(NAME)
    for n in range(50):
        await run.emit("text", f"{n} ")
    await run.emit("tool", {"name": "search", "n": 1})
    await run.end({"pages": 3})
    same(await watch.ends(), {"outcome": "done", "result": {"pages": 3}}, "the end")
    same(watch.text, "".join(f"{n} " for n in range(50)), "the text")
    same([item["data"] for item in watch.folded() if item["event"] == "tool"], [{"name": "search", "n": 1}], "the tool")


async def late(site: Site) -> None:
    """A watcher that comes after the end gets everything and the end."""
    run = await site.owner(NAME)
    for n in range(200):
        await run.emit("text", f"{n} ")
    await run.end()
    watch = await Watch(await site.speaker(), NAME).begin()
    await watch.ends()
    same(watch.text, "".join(f"{n} " for n in range(200)), "the text")


async def long(site: Site) -> None:
    """A long history comes in pages: nothing is missing at their seams."""
    run = await site.owner(NAME)
    words = [f"{n:06} " + "x" * 3000 for n in range(150)]
    for word in words:
        await run.emit("line", word)
    await run.end()
    watch = await Watch(await site.speaker(), NAME).begin()
    await watch.ends()
    same([item["data"] for item in watch.folded() if item["event"] == "line"], words, "the lines")


async def from_the_end(site: Site) -> None:
    """`start: end` shows only what comes from now on."""
    run = await site.owner(NAME)
    await run.emit("text", "old")
    await run.flush()
    speaker = await site.speaker()
    watch = await Watch(speaker, NAME).begin(start="end")
    probe = await Watch(speaker, "other").begin()
    other = await site.owner("other")
    await other.emit("text", "x")
    await probe.reads("x")
    for n in range(100):  # until it has begun
        await run.emit("n", n)
        await asyncio.sleep(0.05)
        if watch.items:
            break
    if any(item.get("event") == "text" for item in watch.items) or not watch.items:
        raise Failed(f"it must show what comes now, and not what was; shown: {watch.items[:3]}")


async def values(site: Site) -> None:
    """Values at the edges of the subset arrive exactly (PROTOCOL §3)."""
    watch = await Watch(await site.speaker(), NAME).begin()
    run = await site.owner(NAME)
    for kind, value in EDGES.items():
        await run.emit(kind, value)
    await run.end()
    await watch.ends()
    found = {item["event"]: item["data"] for item in watch.folded()}
    for kind, value in EDGES.items():
        same(found.get(kind), value, kind)


async def names(site: Site) -> None:
    """Every workflow ID is its own channel, whatever it is made of (§2.1)."""
    speaker = await site.speaker()
    watches = [await Watch(speaker, name).begin() for name in HARD]
    for number, name in enumerate(HARD):
        await (await site.owner(name)).emit("text", f"{number}")
    for number, watch in enumerate(watches):
        await watch.reads(f"{number}")


async def killed(site: Site) -> None:
    """kill -9 and again: it goes on where it was a second ago. Only the item in hand may come twice."""
    speaker = await site.speaker()
    run = await site.owner(NAME)
    shown: list[str] = []
    for turn in range(3):
        watch = await Watch(speaker, NAME).begin()
        for n in range(10):
            await run.emit("n", turn * 10 + n)
        last = turn * 10 + 9
        await watch.shows(last)
        await asyncio.sleep(1.0)
        fresh = [item["at"] for item in watch.items]
        if shown and fresh and fresh[0] == shown[-1]:
            fresh = fresh[1:]
        shown += fresh
        speaker = await site.again(speaker)
    if len(set(shown)) != len(shown) or len(shown) != 30:
        raise Failed(f"30 events must be shown, each once; shown: {shown}")


async def flaky(site: Site) -> None:
    """The link breaks again and again while events flow."""
    watch = await Watch(await site.speaker(), NAME).begin()
    run = await site.owner(NAME)
    for n in range(60):
        await run.emit("text", f"{n} ")
        if n % 15 == 7:
            await site.proxy.drop()
        await asyncio.sleep(0.02)
    await run.end()
    await watch.ends()
    _each_once(watch)
    same(watch.text, "".join(f"{n} " for n in range(60)), "the text")


async def tunnel(site: Site) -> None:
    """No link for a while; what was emitted meanwhile follows."""
    watch = await Watch(await site.speaker(), NAME).begin()
    run = await site.owner(NAME)
    await run.emit("text", "before ")
    await watch.reads("before ")
    await site.proxy.cut()
    await run.emit("text", "meanwhile ")
    await run.flush()
    await site.proxy.heal()
    await run.emit("text", "after")
    await watch.reads("before meanwhile after")
    _each_once(watch)


async def half_open(site: Site) -> None:
    """The link is dead and nobody says so: it notices by itself, within twice its keep-alive and a reconnect."""
    watch = await Watch(await site.speaker(), NAME).begin()
    run = await site.owner(NAME)
    await run.emit("text", "before ")
    await watch.reads("before ")
    dead = site.proxy.links
    site.proxy.freeze()
    await run.emit("text", "after")
    await asyncio.wait(dead, timeout=8 * KEEPALIVE)
    if not all(link.done() for link in dead):
        raise Failed(f"a dead link is kept for more than {8 * KEEPALIVE} s at a keep-alive of {KEEPALIVE} s")
    await site.proxy.heal()
    await watch.reads("before after")
    _each_once(watch)


def _each_once(watch: Watch) -> None:
    places = [item["at"] for item in watch.items if "event" in item]
    if len(set(places)) != len(places):
        raise Failed(f"an event is shown twice: {places}")


async def withdrawn(site: Site) -> None:
    """A failed attempt is withdrawn: Rewound, and then what counts."""
    watch = await Watch(await site.speaker(), NAME).begin()
    run = await site.owner(NAME)
    await run.emit("text", "wrong")
    await run.flush()
    await watch.reads("wrong")
    await run.withdraw()
    await run.emit("text", "right")
    await run.end()
    await watch.ends()
    same(watch.text, "right", "the text")
    if not any(item.get("rewound") for item in watch.items):
        raise Failed("nobody said Rewound, though output was withdrawn")


async def withdrawn_meanwhile(site: Site) -> None:
    """An attempt is withdrawn while the reader has no link."""
    watch = await Watch(await site.speaker(), NAME).begin()
    run = await site.owner(NAME)
    await run.emit("text", "wrong")
    await run.flush()
    await watch.reads("wrong")
    await site.proxy.cut()
    await run.withdraw()
    await run.emit("text", "right")
    await run.end()
    await site.proxy.heal()
    await watch.ends()
    same(watch.text, "right", "the text")


async def trimmed(site: Site) -> None:
    """History that is not kept any more is said: Gap."""
    site.options = dataclasses.replace(site.options, history_events=20)
    await site.restart()
    run = await site.owner(NAME)
    for n in range(100):
        await run.emit("n", n)
        await run.flush()  # a frame of its own: the journal trims whole frames
    await asyncio.sleep(1.5)  # it sweeps every half second
    watch = await Watch(await site.speaker(), NAME).begin()
    await run.end()
    await watch.ends()
    gaps = [item["gap"] for item in watch.items if "gap" in item]
    same(gaps, ["trimmed"], "the gaps")


async def lost(site: Site) -> None:
    """The journal lost its store: Gap(reset), then the new history."""
    watch = await Watch(await site.speaker(), NAME).begin()
    run = await site.owner(NAME)
    await run.emit("text", "old")
    await run.flush()
    await watch.reads("old")
    await site.restart(lose=True)
    await run.emit("text", "new")
    await run.end()
    await watch.ends()
    same(watch.text, "new", "the text")
    same([item["gap"] for item in watch.items if "gap" in item], ["reset"], "the gaps")


async def restarted(site: Site) -> None:
    """Broker and journal are restarted: nothing is lost, nothing comes twice."""
    watch = await Watch(await site.speaker(), NAME).begin()
    run = await site.owner(NAME)
    await run.emit("text", "before ")
    await watch.reads("before ")
    await site.restart()
    await run.emit("text", "after")
    await run.end()
    await watch.ends()
    _each_once(watch)
    same(watch.text, "before after", "the text")


async def moved(site: Site) -> None:
    """Another owner takes over: the reader follows the name."""
    watch = await Watch(await site.speaker(), NAME).begin()
    first = await site.client()
    async with first.own(NAME) as run:
        await run.emit("text", "one ")
    second = await site.owner(NAME)
    await second.emit("text", "two")
    await second.end()
    await watch.ends()
    same(watch.text, "one two", "the text")


async def stored(site: Site) -> None:
    """`stored: true` shows what the journal has, and shows all of it."""
    watch = await Watch(await site.speaker(), NAME).begin(stored=True)
    run = await site.owner(NAME)
    for n in range(20):
        await run.emit("text", f"{n} ")
    await run.end()
    await watch.ends()
    _each_once(watch)
    same(watch.text, "".join(f"{n} " for n in range(20)), "the text")
