"""Answers to fetches, and how much history is kept (PROTOCOL §6.4, §9.4)."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections import OrderedDict
from typing import Protocol

from agentmqtt import wire
from agentmqtt.core.ledger import Ledger
from agentmqtt.core.pages import LogRow, compact
from agentmqtt.errors import StoreError
from agentmqtt.frames import Fetch, Page, PageKind
from agentmqtt.journal.batch import Batch
from agentmqtt.journal.shelf import Shelf
from agentmqtt.options import JournalOptions
from agentmqtt.store.base import Store
from agentmqtt.types import Entry, Position

log = logging.getLogger("agentmqtt.journal")

QUEUE = 10_000
"""Fetches that wait."""
READ_AHEAD = 4
"""Rows are read up to this multiple of a page: merging makes them smaller."""


class Answer(Protocol):
    def __call__(self, client: str, message: Page, *, deflate: bool) -> None: ...


class History:
    """Fetches in order of arrival, by a few workers, so that a large one does not hold up the loop."""

    def __init__(self, shelf: Shelf, batch: Batch, options: JournalOptions, answer: Answer) -> None:
        self._shelf, self._batch, self._options, self._answer = shelf, batch, options, answer
        self._asked: OrderedDict[tuple[str, str, int], Fetch] = OrderedDict()
        self._ready = asyncio.Semaphore(0)
        self._workers: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._workers = [
            asyncio.create_task(self._work(), name=f"agentmqtt-journal-fetch-{n}")
            for n in range(self._options.fetchers)
        ]

    async def stop(self) -> None:
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)

    def ask(self, client: str, fetch: Fetch) -> None:
        """Queue a fetch; a repetition counts once."""
        key = (client, fetch.workflow, fetch.request)
        if key in self._asked:
            self._asked[key] = fetch
        elif len(self._asked) < QUEUE:
            self._asked[key] = fetch
            self._ready.release()
        else:
            log.warning("%d fetches wait; one of %r for %r was left unanswered", QUEUE, client, fetch.workflow)

    async def _work(self) -> None:
        while True:
            await self._ready.acquire()
            (client, _, _), fetch = self._asked.popitem(last=False)
            try:
                await self._serve(client, fetch)
            except StoreError as error:
                log.warning("a fetch of %r was left unanswered: %s", fetch.workflow, error)
            except Exception:
                log.exception("a fetch of %r failed", fetch.workflow)

    async def _serve(self, client: str, fetch: Fetch) -> None:
        while True:
            await self._batch.durable()
            ledger = self._shelf.ledgers.get(fetch.workflow) or Ledger(fetch.workflow)
            generation = ledger.generation
            page = _page(ledger, fetch)
            if page.kind is not PageKind.AHEAD and fetch.limit > 0 and page.start < page.tail:
                page = await self._fill(page, fetch)
            current = self._shelf.ledgers.get(fetch.workflow)
            if current is None or (current is ledger and current.generation == generation):
                self._answer(client, page, deflate=fetch.deflate)
                return

    async def _fill(self, page: Page, fetch: Fetch) -> Page:
        limit = min(fetch.limit, self._options.page)
        rows = await self._shelf.log(page.workflow, page.start, limit * READ_AHEAD)
        return dataclasses.replace(page, items=compact(rows, page.start, page.tail, limit, _size))


def _page(ledger: Ledger, fetch: Fetch) -> Page:
    kind, start = ledger.plan(fetch)
    return Page(
        fetch.request,
        fetch.workflow,
        ledger.inc,
        ledger.epoch,
        ledger.parent,
        kind,
        fetch.position,
        start,
        ledger.chain.tail,
        (),
    )


def _size(entry: Entry) -> int:
    return wire.size_of((entry,))


class Retention:
    """Decides what is forgotten: by size and age of one log, and by the size of the store."""

    def __init__(self, shelf: Shelf, options: JournalOptions) -> None:
        self._shelf, self._options = shelf, options

    async def cut(self, ledger: Ledger) -> Position | None:
        """Up to where a log must be trimmed so that it is within its bounds again, or None."""
        name = ledger.workflow
        excess = sum(self._shelf.sizes.get(name, {}).values()) - self._options.history_bytes
        surplus = _events(ledger) - self._options.history_events if self._options.history_events else 0
        if excess <= 0 and surplus <= 0:
            return None
        gone: list[tuple[LogRow, int]] = []
        for row, size in await self._shelf.oldest(name, max(excess, 256 * 1024)):
            if excess <= 0 and surplus <= 0:
                break
            gone.append((row, size))
            excess -= size
            surplus -= len(row.entries)
        return self._end_of(ledger, gone)

    def _end_of(self, ledger: Ledger, gone: list[tuple[LogRow, int]]) -> Position | None:
        if not gone:
            return None
        last = gone[-1][0]
        to = Position(last.epoch, last.first + len(last.entries) - 1)
        if to >= ledger.chain.tail or not ledger.chain.contains(to):
            return None
        self._shelf.shrunk(ledger.workflow, gone)
        return to

    def expired(self, now: int) -> list[str]:
        """Finished runs that are older than the retention."""
        old = now - self._options.retention * 1000
        return [ledger.workflow for ledger in self._finished() if ledger.updated < old]

    async def over_quota(self, store: Store) -> list[str]:
        """Finished runs to forget, the oldest first, when the store is above 80 % of its quota."""
        excess = await store.size() - self._options.quota * 4 // 5
        names: list[str] = []
        for ledger in self._finished():
            if excess <= 0:
                break
            names.append(ledger.workflow)
            excess -= sum(self._shelf.sizes[ledger.workflow].values())
        return names

    def _finished(self) -> list[Ledger]:
        over = [ledger for ledger in self._shelf.ledgers.values() if ledger.fold.ended and not ledger.mailbox.open]
        return sorted(over, key=lambda ledger: ledger.updated)


def _events(ledger: Ledger) -> int:
    """Number of events that can still be read."""
    base = ledger.chain.base
    kept = (
        seg.upto - (base.n if seg.epoch == base.epoch else 0)
        for seg in ledger.chain.segments
        if seg.epoch >= base.epoch
    )
    return sum(kept)
