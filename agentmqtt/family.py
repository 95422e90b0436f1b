"""A run and its children, followed as one (PROTOCOL §6.7)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from types import TracebackType
from typing import NamedTuple, Self

from agentmqtt.core.reader import Delivered, Saved
from agentmqtt.core.states import CHILD
from agentmqtt.host import Host
from agentmqtt.types import Event
from agentmqtt.watcher import WatchedRun

log = logging.getLogger("agentmqtt.watcher")

MOST = 1_000
"""Runs of one family that are followed."""


class Told(NamedTuple):
    """An item, and whose it is."""

    run: str
    item: Delivered


class WatchedFamily:
    """A run and every run below it, inside `async with client.watch(name, children=True) as family`.

    Yields `Told`. The order is each run's own; a child follows the event that announces it. The kept cursors
    move past an item when the next one is asked for.
    """

    def __init__(self, host: Host, name: str, *, resume: bool, stored: bool, pace: float | None, buffer: int) -> None:
        self.name = name
        self._host = host
        self._resume, self._stored, self._pace, self._buffer = resume, stored, pace, buffer
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._offers: asyncio.Queue[tuple[Told, asyncio.Event]] = asyncio.Queue(maxsize=1)
        self._taken: asyncio.Event | None = None
        self._failed: asyncio.Future[BaseException]

    @property
    def runs(self) -> tuple[str, ...]:
        """The names that are followed."""
        return tuple(self._tasks)

    async def __aenter__(self) -> Self:
        self._failed = asyncio.get_running_loop().create_future()
        self._follow(self.name)
        if self._resume:  # children whose announcement was taken in an earlier life
            for name in await self._host.state.below(f"{self.name}/"):
                self._follow(name)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._taken is not None:
            self._taken.set()
            await asyncio.sleep(0)  # its cursor is kept
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Told:
        if self._taken is not None:
            self._taken.set()
        offer = asyncio.ensure_future(self._offers.get())
        try:
            await asyncio.wait((offer, self._failed), return_when=asyncio.FIRST_COMPLETED)
            if not offer.done():
                raise self._failed.result()
        finally:
            offer.cancel()
        told, self._taken = offer.result()
        return told

    def _follow(self, name: str) -> None:
        if name in self._tasks:
            return
        if len(self._tasks) >= MOST:
            log.warning("%r has more than %d runs below it; %r is not followed", self.name, MOST, name)
            return
        task = asyncio.create_task(self._read(name), name=f"agentmqtt family {name!r}")
        task.add_done_callback(self._ended)
        self._tasks[name] = task

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None and not self._failed.done():
            self._failed.set_result(error)

    async def _read(self, name: str) -> None:
        reading = WatchedRun(
            self._host,
            name,
            start="start",
            resume=self._resume,
            stored=self._stored,
            pace=self._pace,
            buffer=self._buffer,
        )
        async with reading as run:
            async for item in run:
                await self._announced(name, item)
                done = asyncio.Event()
                await self._offers.put((Told(name, item), done))
                await done.wait()

    async def _announced(self, parent: str, item: Delivered) -> None:
        """A child is known on this disk before its announcement counts as taken."""
        if not (isinstance(item, Event) and item.type == CHILD and isinstance(item.data, Mapping)):
            return
        child = str(item.data.get("wf", ""))
        if not child.startswith(f"{parent}/"):
            return
        if self._resume and await self._host.state.saved(child) is None:
            self._host.state.save(child, Saved())
        self._follow(child)
