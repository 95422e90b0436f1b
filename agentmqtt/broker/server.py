"""The bundled broker as one object: start it, connect to it, stop it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from agentmqtt.broker.activation import Inherited
from agentmqtt.broker.bindings import Bindings
from agentmqtt.broker.connection import Connection
from agentmqtt.broker.engine import Engine
from agentmqtt.broker.figures import Figures
from agentmqtt.broker.limits import Address, BrokerSettings
from agentmqtt.broker.listeners import Listeners
from agentmqtt.broker.local import LocalTransport
from agentmqtt.broker.metrics import Metrics
from agentmqtt.broker.shell import Shell
from agentmqtt.broker.store_keeper import StoreKeeper
from agentmqtt.broker.wills import Kept, Wills
from agentmqtt.errors import UsageError
from agentmqtt.names import Topics
from agentmqtt.store.base import Store

_SWEEP = 30.0
_REVIEW = 1.0
"""Seconds between looks at files that may have changed and logins that may have ended."""
_FAREWELL = 1.0
"""Seconds that connections have to end by themselves when the broker stops."""


class Broker:
    """An MQTT 3.1.1 broker in this process.

    `async with Broker(settings, store=open_store(path)) as broker:` listens until the block ends.
    Persistent sessions and retained messages live in the store, which a journal may share and the
    caller closes; without one they live as long as this object. `start` after `stop` goes on with them.
    `inherited` are sockets that systemd opened.
    """

    def __init__(
        self,
        settings: BrokerSettings | None = None,
        *,
        store: Store | None = None,
        inherited: Sequence[Inherited] = (),
    ) -> None:
        self.settings: BrokerSettings = settings or BrokerSettings()
        keeper = StoreKeeper(store) if store is not None else None
        self._engine = Engine(self.settings.limits, unqueued=self.settings.unqueued, keeper=keeper, wills=Wills(store))
        self._bindings = Bindings(store)
        self._restoring: asyncio.Task[None] | None = None
        self._shell: Shell | None = None
        self._listeners: Listeners | None = None
        self._inherited = inherited
        self._sweeper: asyncio.TimerHandle | None = None
        self._reviewer: asyncio.TimerHandle | None = None
        self._sayer: asyncio.TimerHandle | None = None
        self._metrics: Metrics | None = None
        self._figures = Figures(self._engine, lambda: self.counters["connections"], self._certificate_days)

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Where it listens now, with the ports that were really bound."""
        return self._listeners.addresses if self._listeners else ()

    @property
    def trouble(self) -> str:
        """Why it cannot do its work at present; empty if it can."""
        trouble = self._engine.keeper.trouble
        return "" if trouble is None else f"the store fails: {trouble}"

    @property
    def counters(self) -> dict[str, int]:
        """Counts since the start, by name: published, dropped, evicted, refused, not_retained;
        and the present numbers of connections and sessions.
        """
        now = {
            "connections": len(self._shell.connections) if self._shell else 0,
            "sessions": len(self._engine.sessions),
        }
        return dict(self._engine.counters) | now

    @property
    def metrics_port(self) -> int:
        """Where metrics are served; 0 if they are not."""
        return 0 if self._metrics is None else self._metrics.port

    def _certificate_days(self) -> float | None:
        return None if self._listeners is None else self._listeners.certificate_days()

    def may_see(self, client_id: str, workflow: str) -> bool:
        """Whether the client that is connected under this ID may read the status of a run."""
        session = self._engine.sessions.get(client_id)
        link = session.link if session is not None else None
        topic = Topics(self.settings.root).status(workflow)
        return link is not None and (not isinstance(link, Connection) or link.may_read(topic))

    def transport(self) -> LocalTransport:
        """Connections to this broker without a socket. They may be made before `start`, so that nothing is missed."""
        return LocalTransport(self._engine, self._restored)

    async def start(self) -> None:
        """Listen.

        Raises:
            ListenError: an address is taken; nothing is listening then.
            UsageError: a plugin, password file or certificate cannot be used, or it runs already.
            StoreError: the sessions cannot be read.
        """
        if self._shell is not None:
            raise UsageError("this broker runs already")
        self._shell = Shell(self.settings, self._engine, self._bindings)
        self._listeners = Listeners(self.settings, self._shell.accept, self._shell.ws_connected, self._inherited)
        try:
            await self._restored()
            await self._shell.start()
            await self._listeners.open()
            await self._tell()
        except BaseException:
            await self.stop()
            raise
        self._sweep()
        self._review()

    async def _tell(self) -> None:
        """Begin to say how it is."""
        if self.settings.metrics:
            metrics = Metrics(self.settings.metrics, self._figures.text, lambda: self.trouble)
            await metrics.start()
            self._metrics = metrics
        self._figures.lag.start()
        if self.settings.sys_interval:
            self._say()

    def _say(self) -> None:
        self._figures.publish()
        self._sayer = asyncio.get_running_loop().call_later(self.settings.sys_interval, self._say)

    async def stop(self) -> None:
        """Close every connection, without wills, and stop listening. Takes a few seconds at most."""
        shell, self._shell = self._shell, None
        listeners, self._listeners = self._listeners, None
        self._figures.lag.stop()
        metrics, self._metrics = self._metrics, None
        if metrics is not None:
            await metrics.stop()
        for timer in (self._sweeper, self._reviewer, self._sayer):
            if timer is not None:
                timer.cancel()
        if shell is not None and listeners is not None:
            await self._close(shell, listeners)
        self._engine.wills.stop()
        await self._engine.keeper.end()
        self._restoring = None

    async def _close(self, shell: Shell, listeners: Listeners) -> None:
        listeners.stop()
        await shell.end(_FAREWELL)
        for session in list(self._engine.sessions.values()):
            if session.link is not None:
                session.link.stop()
        await listeners.close()

    async def _restored(self) -> None:
        """Wait until the engine has what an earlier run kept."""
        if self._restoring is None or (self._restoring.done() and self._restoring.exception() is not None):
            self._restoring = asyncio.create_task(self._restore(), name="agentmqtt broker restore")
        await asyncio.shield(self._restoring)

    async def _restore(self) -> None:
        self._engine.restore(await self._engine.keeper.load(self.settings.limits))
        await self._bindings.load()
        await self._engine.wills.load(self._late_will)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def reload(self) -> None:
        """Read accounts, keys, rules and certificates again, now. They are also looked at every second."""
        if self._shell is not None and self._listeners is not None:
            self._shell.review(reload=True)
            self._listeners.reload()

    def _review(self) -> None:
        if self._shell is not None and self._listeners is not None:
            self._shell.review()
            self._listeners.review()
        self._reviewer = asyncio.get_running_loop().call_later(_REVIEW, self._review)

    def _late_will(self, kept: Kept) -> None:
        """A client did not come back after the restart; it may have lost its rights meanwhile."""
        will = kept.will
        if self._shell is None or self._shell.may_leave(kept):
            self._engine.publish(will.topic, will.payload, will.qos, retain=will.retain)
        self._engine.keeper.then(self._engine.wills.void, kept)

    def _sweep(self) -> None:
        self._engine.sweep()
        self._sweeper = asyncio.get_running_loop().call_later(_SWEEP, self._sweep)
