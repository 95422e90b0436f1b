"""`agentmqtt broker`: the bundled broker with its journal."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentmqtt.cli import places, serving
from agentmqtt.cli.accounts import accounts_file, token_key_file
from agentmqtt.cli.common import Config, Root, Verbose, complete, end, prepare
from agentmqtt.errors import StoreInUse, UsageError
from agentmqtt.names import Topics

if TYPE_CHECKING:
    from agentmqtt.broker import Broker
    from agentmqtt.broker.activation import Inherited
    from agentmqtt.broker.notify import Notifier
    from agentmqtt.settings import Settings
    from agentmqtt.store.base import Store

Listen = Annotated[
    list[str] | None,
    typer.Option(
        "--listen", metavar="HOST:PORT", help="mqtt://, mqtts://, ws:// or wss:// too.  [default: 127.0.0.1:1883]"
    ),
]
State = Annotated[
    Path | None, typer.Option("--state", metavar="DIR", help="Where the history and the sessions are kept.")
]


app = typer.Typer(help="Run the bundled broker and its journal, or look after it.", invoke_without_command=True)


@app.callback()
def broker(
    context: typer.Context,
    state: State = None,
    listen: Listen = None,
    config: Config = None,
    root: Root = None,
    verbose: Verbose = 0,
) -> None:
    """Run a broker and its journal. Prints `ready URL` when clients can connect."""
    if context.invoked_subcommand is not None:
        return
    server = {"listen": listen} if listen else None
    settings = prepare(config, verbose, root=root, server=server)
    where = state or places.home(settings) / "broker"
    bound: list[str] = []
    complete(serving.anew(lambda: _serve(settings, where, bound)))


def make(
    settings: Settings, store: Store | None = None, listen: Sequence[str] = (), inherited: Sequence[Inherited] = ()
) -> Broker:
    """The broker of the settings; what the journal serves by cursor is not queued too. Raises UsageError."""
    from agentmqtt.settings import build

    try:
        from agentmqtt.broker import Broker, BrokerSettings
    except ImportError as error:
        raise UsageError(
            f"the bundled broker needs {error.name}; install it with: pip install 'agentmqtt[broker]'"
        ) from error
    unqueued = (Topics(settings.root).all_out(),)
    files = {"accounts": accounts_file(settings), "token_key": token_key_file(settings)}
    defaults = {"unqueued": unqueued, "root": settings.root, **files}
    table = {**defaults, **settings.server, **({"listen": listen} if listen else {})}
    return Broker(build(BrokerSettings, table, "server"), store=store, inherited=inherited)


async def _serve(settings: Settings, state: Path, bound: list[str]) -> None:
    """`bound` is where it listened before: clients look there again, also if the system had chosen the port."""
    from agentmqtt.broker.activation import inherited
    from agentmqtt.broker.notify import Notifier
    from agentmqtt.journal import Journal

    notify, given = Notifier(), inherited()
    _allow_many_connections()
    logging.getLogger("agentmqtt.session").setLevel(logging.ERROR)  # the journal's link does not leave this process
    async with _store(state, make(settings), settings.commit_interval) as store, contextlib.AsyncExitStack() as stack:
        server = make(settings, store, bound, given)
        options = settings.journal_options()
        journal = Journal(server.transport(), store, options=options, alone=True, visible=server.may_see)
        await stack.enter_async_context(journal)  # before the sockets, so that it misses nothing
        async with server, stack.pop_all():  # and its end before theirs
            bound[:] = map(str, server.addresses)
            for address in bound:
                serving.ready(address)
            notify.ready(f"listening on {', '.join(bound)}")
            beating = asyncio.create_task(notify.beat(lambda: server.trouble), name="agentmqtt broker beat")
            try:
                await serving.until_stopped(journal, lambda: _reload(server, notify, bound))
            finally:
                notify.stopping()
                await end(beating)


def _reload(server: Broker, notify: Notifier, bound: Sequence[str]) -> None:
    """SIGHUP: accounts, keys, rules and certificates are read again."""
    notify.reloading()
    server.reload()
    notify.ready(f"listening on {', '.join(bound)}")


@contextlib.asynccontextmanager
async def _store(state: Path, server: Broker, commit_interval: float) -> AsyncIterator[Store]:
    try:
        async with serving.journal_store(state, commit_interval) as store:
            yield store
    except StoreInUse:
        async with server:  # most often a second broker: then the taken port tells more, and this raises
            raise


def _allow_many_connections() -> None:
    """Each connection takes a file descriptor, and many systems begin with 1,024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
