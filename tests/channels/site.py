"""A place to meet: a broker with a journal beside it, in the test's own event loop."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from agentmqtt import Client, Event, Gap, Rewound, connect
from agentmqtt.broker import Broker, BrokerSettings
from agentmqtt.journal import Journal
from agentmqtt.options import ClientOptions, JournalOptions
from agentmqtt.store import open_store
from agentmqtt.store.base import Store
from agentmqtt.transport.base import Transport
from agentmqtt.transport.mqtt import MqttTransport
from agentmqtt.watcher import WatchedRun
from tests.servers import mosquitto

BRISK = JournalOptions(status_delay=0.05, sweep=0.2, lease=3.0, grace=0.5, rehand=0.5)
QUICK = ClientOptions(keepalive=4, resend=0.5)


class Site:
    """Broker URL, and a journal that can be stopped, restarted and robbed of its store."""

    def __init__(self, url: str, transport: Callable[[], Transport], folder: Path, options: JournalOptions) -> None:
        self.url = url
        self.folder = folder
        self.options = options
        self.journal: Journal | None = None
        self.store: Store | None = None
        self._transport = transport

    async def start_journal(self, **changes: Any) -> None:
        import dataclasses

        self.options = dataclasses.replace(self.options, **changes)
        self.store = open_store(self.folder / "journal.db")
        self.journal = Journal(self._transport(), self.store, options=self.options)
        await self.journal.__aenter__()

    async def stop_journal(self, *, lose: bool = False) -> None:
        if self.journal is not None and self.store is not None:
            await self.journal.__aexit__(None, None, None)
            await self.store.close()
        self.journal = self.store = None
        if lose:
            for path in self.folder.glob("journal.db*"):
                path.unlink()

    def connect(self, who: str, options: ClientOptions = QUICK) -> Client:
        """A client with a state file of its own; the same name again is the same disk."""
        return connect(self.url, state=self.folder / f"{who}.db", options=options)


@contextlib.asynccontextmanager
async def bundled(folder: Path, options: JournalOptions = BRISK) -> AsyncIterator[Site]:
    async with Broker(BrokerSettings(listen=("127.0.0.1:0",), unqueued=("agentmqtt/v1/+/out",))) as broker:
        site = Site(str(broker.addresses[0]), broker.transport, folder, options)
        await site.start_journal()
        try:
            yield site
        finally:
            await site.stop_journal()


@contextlib.asynccontextmanager
async def external(folder: Path, options: JournalOptions = BRISK) -> AsyncIterator[Site]:
    with mosquitto() as server:
        site = Site(server.url, lambda: MqttTransport(server.url), folder, options)
        await site.start_journal()
        try:
            yield site
        finally:
            await site.stop_journal()


Shown = list[tuple[str, Any]]


def fold(items: list[Event | Gap | Rewound]) -> list[Event]:
    """What a reader shows in the end: withdrawn events are forgotten, a reset begins anew."""
    shown: list[Event] = []
    for item in items:
        match item:
            case Rewound(cursor):
                shown = [event for event in shown if event.cursor.position <= cursor.position]
            case Gap(reason="reset"):
                shown = []
            case Event():
                shown.append(item)
    return shown


async def until(run: WatchedRun, done: Callable[[Event | Gap | Rewound], bool]) -> list[Event | Gap | Rewound]:
    """Everything up to the item that is the last one wanted."""
    items: list[Event | Gap | Rewound] = []
    async for item in run:
        items.append(item)
        if done(item):
            break
    return items


def ended(item: object) -> bool:
    return isinstance(item, Event) and item.type == "am.end"


def said(data: object) -> Callable[[object], bool]:
    """Matches an event; text may have been merged with what was before it."""

    def match(item: object) -> bool:
        if not isinstance(item, Event):
            return False
        return item.data == data or (isinstance(data, str) and isinstance(item.data, str) and item.data.endswith(data))

    return match


def text(items: list[Event | Gap | Rewound]) -> str:
    return "".join(event.data for event in fold(items) if event.type == "text")
