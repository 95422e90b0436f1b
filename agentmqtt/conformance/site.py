"""Where a case happens: a broker with a journal, a proxy in front of it, owners, and the client under test."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

from agentmqtt.broker import Broker, BrokerSettings
from agentmqtt.client import Client
from agentmqtt.conformance.proxy import Proxy
from agentmqtt.conformance.speaker import Failed, Speaker
from agentmqtt.connecting import connect
from agentmqtt.journal import Journal
from agentmqtt.names import Topics
from agentmqtt.options import ClientOptions, JournalOptions
from agentmqtt.owner import OwnedRun
from agentmqtt.store import open_store
from agentmqtt.store.base import Store

KEEPALIVE = 2
ROOT = "agentmqtt/v1"
BRISK = JournalOptions(root=ROOT, status_delay=0.05, sweep=0.5, lease=6.0, grace=1.0, rehand=0.5)
QUICK = ClientOptions(root=ROOT, keepalive=KEEPALIVE, resend=0.5)
TOLD = 40
"""Lines of the client's stderr that are kept for a failure."""


class Site:
    """One case's broker, journal, proxy and folder."""

    def __init__(self, folder: Path, command: Sequence[str], journal: JournalOptions = BRISK) -> None:
        self.folder, self.command = folder, command
        self.options = journal
        self.complaints: list[str] = []
        self.proxy: Proxy
        self._broker: Broker
        self._store: Store
        self._journal: Journal
        self._stack = contextlib.AsyncExitStack()
        self._speakers: list[Speaker] = []
        self._numbers = itertools.count()

    # ---- the service

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Site]:
        """The service runs; at the end every process of the client is killed."""
        await self._serve("127.0.0.1:0")
        async with Proxy(str(self._broker.addresses[0])) as self.proxy:
            try:
                yield self
            finally:
                for speaker in self._speakers:
                    await speaker.kill()
                await self._stack.aclose()
                await self._close()

    async def _serve(self, listen: str) -> None:
        self._store = open_store(self.folder / "broker.db")
        settings = BrokerSettings(listen=(listen,), unqueued=(Topics(ROOT).all_out(),))
        self._broker = Broker(settings, store=self._store)
        self._journal = Journal(self._broker.transport(), self._store, options=self.options, alone=True)
        await self._journal.__aenter__()
        await self._broker.start()

    async def _close(self) -> None:
        await self._journal.__aexit__(None, None, None)
        await self._broker.stop()
        await self._store.close()

    async def restart(self, *, lose: bool = False) -> None:
        """Broker and journal end and start again; `lose`: without what they had stored."""
        where = str(self._broker.addresses[0])
        await self._close()
        if lose:
            for path in self.folder.glob("broker.db*"):
                path.unlink()
        await self._serve(where)

    # ---- owners and other clients

    async def client(self) -> Client:
        """A client of this library, straight at the broker."""
        path = self.folder / f"own-{next(self._numbers)}.db"
        where = str(self._broker.addresses[0])
        return await self._stack.enter_async_context(connect(where, state=path, options=QUICK))

    async def owner(self, name: str, **words: Any) -> OwnedRun:
        """Somebody owns the name until the case ends, or until the run is ended."""
        client = await self.client()
        return await self._stack.enter_async_context(client.own(name, **words))

    # ---- the client under test

    async def speaker(self, state: str = "client", **words: Any) -> Speaker:
        """A process of the client, connected through the proxy. The same `state` is the same installation."""
        speaker = Speaker(self.command, self._complain)
        self._speakers.append(speaker)
        await speaker.start()
        where = str(self.folder / state)
        await speaker.ask("connect", url=self.proxy.url, state=where, root=ROOT, keepalive=KEEPALIVE, **words)
        return speaker

    async def again(self, speaker: Speaker, state: str = "client") -> Speaker:
        """kill -9, and another process on the same installation."""
        await speaker.kill()
        return await self.speaker(state)

    def seen(self) -> str:
        """The newest lines of the newest process of the client."""
        if not self._speakers:
            return "nothing"
        last = self._speakers[-1]
        return str({name: items[-3:] for name, items in last.shown.items()} | {"outcomes": last.outcomes})[:600]

    def _complain(self, line: str) -> None:
        if len(self.complaints) < TOLD:
            self.complaints.append(line)


class Watch:
    """What the client shows of one run."""

    def __init__(self, speaker: Speaker, name: str) -> None:
        self.speaker, self.name = speaker, name

    async def begin(self, **words: Any) -> Watch:
        await self.speaker.ask("watch", name=self.name, **words)
        return self

    @property
    def items(self) -> list[dict[str, Any]]:
        return self.speaker.shown.get(self.name, [])

    def folded(self) -> list[dict[str, Any]]:
        """The events that count: withdrawn ones are gone, a reset begins anew."""
        return fold(self.items)

    @property
    def text(self) -> str:
        return "".join(item["data"] for item in self.folded() if item["event"] == "text")

    async def until(self, done: Callable[[], bool], what: str) -> None:
        """Wait for it. Raises Failed if the client is gone."""
        await self.speaker.until(done, what)

    async def reads(self, text: str) -> None:
        """Wait until the text that counts is `text`."""
        await self.until(lambda: len(self.text) >= len(text), f"{text[-40:]!r}")
        same(self.text, text, "the text")

    async def shows(self, data: object) -> None:
        """Wait until the newest event carries this."""
        await self.until(lambda: bool(self.items) and self.items[-1].get("data") == data, f"{data!r}")

    async def ends(self) -> dict[str, Any]:
        """Wait for the end of the run. Returns its data."""
        await self.until(lambda: bool(self.items) and self.items[-1].get("event") == "am.end", "am.end")
        data: dict[str, Any] = self.items[-1]["data"]
        return data


def fold(items: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Events that a reader keeps after Rewound and Gap."""
    kept: list[dict[str, Any]] = []
    for item in items:
        if item.get("rewound"):
            kept = [event for event in kept if _place(event) <= _place(item)]
        elif "gap" in item:
            kept = [] if item["gap"] == "reset" else kept
        else:
            kept.append(item)
    return kept


def _place(item: dict[str, Any]) -> tuple[int, ...]:
    return tuple(int(part) for part in str(item["at"]).split("."))


def same(found: object, wanted: object, what: str) -> None:
    """Raises Failed unless they are equal, types included."""
    if found != wanted or repr(found) != repr(wanted):
        raise Failed(f"{what} is {str(found)[:300]!r}, must be {str(wanted)[:300]!r}")
