"""amqtt's broker around our engine: its configuration, plugins and lifecycle, none of its data path."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import amqtt.broker
from amqtt.contexts import BrokerConfig, ListenerConfig, ListenerType
from amqtt.errors import PluginCoroError, PluginImportError, PluginInitError, PluginLoadError
from amqtt.session import Session
from websockets.asyncio.server import ServerConnection

from agentmqtt.broker.access import Access
from agentmqtt.broker.bindings import Bindings
from agentmqtt.broker.connection import Connection, Pipe
from agentmqtt.broker.engine import Engine
from agentmqtt.broker.gate import Files, Gatekeeper
from agentmqtt.broker.limits import BrokerSettings
from agentmqtt.broker.pipes import WebSocketPipe
from agentmqtt.broker.wills import Kept
from agentmqtt.errors import UsageError

_ANONYMOUS = "amqtt.plugins.authentication.AnonymousAuthPlugin"
_PASSWORDS = "agentmqtt.broker.passwords.PasswordFile"


class Shell(amqtt.broker.Broker):
    """Loads plugins, runs their lifecycle, and brings every connection to the engine."""

    def __init__(self, settings: BrokerSettings, engine: Engine, bindings: Bindings) -> None:
        _hush()
        try:
            super().__init__(_config(settings))
        except (PluginImportError, PluginInitError, PluginLoadError, PluginCoroError) as error:
            cause = error.__cause__ or error
            raise UsageError(f"a plugin of the broker cannot be used: {error}: {cause}") from error
        self._engine = engine
        files = Files(settings.accounts, settings.token_key, settings.rules)
        self._gate = Gatekeeper(
            files,
            settings.root,
            Access(self.plugins_manager),
            bindings,
            anonymous=settings.anonymous,
            private=settings.private,
        )
        self._nobody = asyncio.Event()
        self._nobody.set()
        self.connections: set[Connection] = set()

    async def end(self, grace: float) -> None:
        """Close every connection, cut those that take longer than `grace` seconds, and end the plugins."""
        for connection in list(self.connections):
            connection.stop()
        try:
            await asyncio.wait_for(self._nobody.wait(), grace)
        except TimeoutError:
            for connection in list(self.connections):
                connection.abort()
        if self.transitions.state == "started":
            await self.shutdown()

    def accept(self, pipe: Pipe) -> Connection | None:
        """A connection over `pipe`, or None if there are as many as there may be."""
        if len(self.connections) >= self._engine.limits.connections:
            self._engine.counters["refused"] += 1
            return None
        connection = Connection(self._engine, self._gate, pipe, self._left)
        self.connections.add(connection)
        self._nobody.clear()
        return connection

    def review(self, *, reload: bool = False) -> None:
        """See whether logins still count: files changed, tokens ended. Who lost its account loses its session."""
        gone = self._gate.reload() if reload else self._gate.review()
        for connection in list(self.connections):
            connection.review()
        for session in [session for session in self._engine.sessions.values() if session.user in gone]:
            self._engine.drop(session)

    def may_leave(self, kept: Kept) -> bool:
        """Whether a will of an earlier broker may still be published."""
        return self._gate.may_leave(kept.user, kept.client_id, kept.will.topic)

    def _left(self, connection: Connection) -> None:
        self.connections.discard(connection)
        if not self.connections:
            self._nobody.set()

    async def ws_connected(self, websocket: ServerConnection, listener_name: str) -> None:
        """A WebSocket whose handshake is done."""
        pipe = WebSocketPipe(websocket)
        connection = self.accept(pipe)
        if connection is not None:
            await pipe.run(connection)

    # -------------------------------------------------------------- what plugins call

    async def internal_message_broadcast(self, topic: str, data: bytes, qos: int | None = None) -> None:
        """A plugin publishes."""
        self._engine.publish(topic, bytes(data), qos or 0)

    async def retain_message(
        self,
        source_session: Session | None,
        topic_name: str | None,
        data: bytes | bytearray | None,
        qos: int | None = None,
    ) -> None:
        """A plugin publishes with RETAIN."""
        if topic_name:
            self._engine.publish(topic_name, bytes(data or b""), qos or 0, retain=True)


def _config(settings: BrokerSettings) -> BrokerConfig:
    """Our listeners are external to amqtt; its default plugins stay out."""
    listeners = {
        "default": ListenerConfig(type=ListenerType.EXTERNAL, bind=None),
        **{
            str(address): ListenerConfig(type=ListenerType.EXTERNAL, bind=f"{address.host}:{address.port}")
            for address in settings.listeners()
        },
    }
    plugins: dict[str, Any] = {}
    if settings.lets_strangers_in and (settings.password_file is not None or settings.plugins):
        plugins[_ANONYMOUS] = {"allow_anonymous": True}
    if settings.password_file is not None:
        plugins[_PASSWORDS] = {"password_file": str(settings.password_file)}
    return BrokerConfig(listeners=listeners, plugins=plugins | {name: dict(v) for name, v in settings.plugins.items()})


def _hush() -> None:
    """amqtt and the state machine under it tell every step at INFO; let only warnings through."""
    for name in ("amqtt", "transitions"):
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.WARNING)
