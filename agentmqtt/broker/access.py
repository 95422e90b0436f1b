"""Who gets in and what it may do, as amqtt's auth and topic plugins say. Asked before any effect."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from amqtt.contexts import Action as PluginAction
from amqtt.plugins.authentication import AnonymousAuthPlugin
from amqtt.plugins.manager import PluginManager
from amqtt.session import Session as PluginSession

from agentmqtt.broker.connection import Pipe
from agentmqtt.broker.conversation import Action, Identity
from agentmqtt.broker.packets import Connect

log = logging.getLogger("agentmqtt.broker")

_KNOWN = 2_048
_FRESH = 60.0
"""Seconds after which plugins are asked again."""


class Access:
    """The gate of a broker with amqtt plugins."""

    def __init__(self, plugins: PluginManager[Any]) -> None:
        self._plugins = plugins
        self._guarded = any(hasattr(plugin, "topic_filtering") for plugin in plugins.plugins)
        self.knows_users = any(hasattr(plugin, "authenticate") for plugin in plugins.plugins)
        """Whether a plugin decides about logins."""

    async def admit(self, connect: Connect, pipe: Pipe) -> Identity | None:
        """The identity of a login that no auth plugin refuses and at least one accepts.

        A user name that only the anonymous plugin accepted was never verified: it counts as none.
        """
        session = _plugin_session(connect, pipe)
        if session is None:
            return None
        try:
            answers = await self._plugins.map_plugin_auth(session=session)
        except Exception:
            log.exception("an auth plugin failed; the login of %r is refused", connect.username)
            return None
        given = {plugin: answer for plugin, answer in answers.items() if answer is not None}
        if not given or not all(given.values()):
            return None
        if all(isinstance(plugin, AnonymousAuthPlugin) for plugin in given):
            session.username = None
        session.is_anonymous = session.username is None
        return Guarded(self._plugins, session) if self._guarded else Unguarded(session.username)


def _plugin_session(connect: Connect, pipe: Pipe) -> PluginSession | None:
    """The login as amqtt's plugins know it, or None if its password is no text."""
    session = PluginSession()
    try:
        session.password = None if connect.password is None else connect.password.decode()
    except UnicodeDecodeError:
        return None
    session.client_id, session.username = connect.client_id, connect.username
    session.clean_session, session.keep_alive = connect.clean, connect.keepalive
    session.remote_address, session.remote_port = pipe.peer
    session.ssl_object = pipe.info("ssl_object")
    return session


class Unguarded:
    """There are no topic plugins: who got in may do everything."""

    def __init__(self, user: str | None) -> None:
        self.user = user

    def verdict(self, action: Action, topic: str) -> bool | None:
        return True

    async def ask(self, action: Action, topics: Sequence[str]) -> list[bool]:
        return [True for _ in topics]

    def flaw(self) -> str:
        return ""


class Guarded:
    """Topic plugins decide; their answers are remembered for a while so that messages do not wait for them."""

    def __init__(self, plugins: PluginManager[Any], session: PluginSession) -> None:
        self._plugins = plugins
        self._session = session
        self._known: dict[tuple[Action, str], bool] = {}
        self._until = 0.0
        self.user = session.username

    def verdict(self, action: Action, topic: str) -> bool | None:
        if asyncio.get_running_loop().time() > self._until:
            return None
        return self._known.get((action, topic))

    async def ask(self, action: Action, topics: Sequence[str]) -> list[bool]:
        return [await self._ask(action, topic) for topic in topics]

    def flaw(self) -> str:
        return ""

    async def _ask(self, action: Action, topic: str) -> bool:
        if (known := self.verdict(action, topic)) is not None:
            return known
        try:
            answers = await self._plugins.map_plugin_topic(
                session=self._session, topic=topic, action=PluginAction(action)
            )
        except Exception:
            log.exception("a topic plugin failed; %s of %r is refused", action, topic)
            answers = {}
        opinions = [answer for answer in answers.values() if answer is not None]
        allowed = bool(opinions) and all(opinions)
        if not allowed:
            log.warning("client %r (user %r) may not %s %r", self._session.client_id, self.user, action, topic)
        self._remember((action, topic), allowed=allowed)
        return allowed

    def _remember(self, question: tuple[Action, str], *, allowed: bool) -> None:
        now = asyncio.get_running_loop().time()
        if now > self._until or len(self._known) >= _KNOWN:
            self._known.clear()
            self._until = now + _FRESH
        self._known[question] = allowed
