"""What `broker` and `journal` share: a store, signals, and the word `ready`."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from agentmqtt.cli.common import say
from agentmqtt.errors import StoreGone
from agentmqtt.store import open_store

if TYPE_CHECKING:
    from agentmqtt.journal import Journal
    from agentmqtt.store.base import Store


SOUND = 2.0
"""Seconds that a store must have worked for it to be worth another try."""


@contextlib.asynccontextmanager
async def journal_store(directory: Path, commit_interval: float) -> AsyncIterator[Store]:
    """The journal's store in `directory`. Raises StoreError."""
    store = open_store(directory / "journal.db", commit_interval=commit_interval)
    if store.replaced is not None:
        say(f"WARNING: the history in {directory} could not be used and starts anew; the old file is {store.replaced}")
    try:
        yield store
    finally:
        await store.close()


async def anew(serve: Callable[[], Awaitable[None]]) -> None:
    """Serve; when the history is removed or damaged meanwhile, begin anew with what is left of it.

    Everybody is told: the channels get new incarnations, owners send again what they hold (§9.5).
    """
    clock = asyncio.get_running_loop().time
    while True:
        began = clock()
        try:
            return await serve()
        except StoreGone:
            if clock() - began < SOUND:
                raise
            say("WARNING: the history was lost; it starts anew")


def ready(*words: object) -> None:
    """Tell who started this process that it works."""
    typer.echo(" ".join(["ready", *map(str, words)]))


async def until_stopped(journal: Journal, reload: Callable[[], None] = lambda: None) -> None:
    """Return at SIGTERM or SIGINT; a second one ends the process at once. SIGHUP calls `reload`.

    Raises why the journal stopped.
    """
    loop = asyncio.get_running_loop()
    asked: asyncio.Future[None] = loop.create_future()

    def stop() -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)
        asked.set_result(None)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    loop.add_signal_handler(signal.SIGHUP, reload)
    await asyncio.wait((asked, journal.stopped), return_when=asyncio.FIRST_COMPLETED)
    if not asked.done():
        raise journal.stopped.result()
