"""`agentmqtt journal`: the journal beside any broker."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentmqtt.cli import places, serving
from agentmqtt.cli.common import BrokerURL, Config, Root, Verbose, complete, prepare, transport

if TYPE_CHECKING:
    from agentmqtt.settings import Settings

State = Annotated[Path | None, typer.Option("--state", metavar="DIR", help="Where it keeps its history.")]


def journal(
    broker: BrokerURL = None, state: State = None, config: Config = None, root: Root = None, verbose: Verbose = 0
) -> None:
    """Run a journal beside a broker of any make. Prints `ready` when it answers."""
    settings = prepare(config, verbose, broker=broker, root=root)
    where = state or places.folder(settings) / "journal"
    complete(serving.anew(lambda: _serve(settings, where)))


async def _serve(settings: Settings, state: Path) -> None:
    from agentmqtt.journal import Journal

    async with (
        serving.journal_store(state, settings.commit_interval) as store,
        Journal(transport(settings), store, options=settings.journal_options()) as running,
    ):
        serving.ready()
        await serving.until_stopped(running)
