"""Logins and rules through amqtt's own plugins, on real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path

import aiomqtt
import pytest
from amqtt.contexts import Action
from amqtt.plugins.base import BaseAuthPlugin, BasePlugin, BaseTopicPlugin
from amqtt.session import Session
from pwdlib import PasswordHash
from pwdlib.hashers.argon2 import Argon2Hasher

from agentmqtt.broker import Broker, BrokerSettings
from agentmqtt.errors import UsageError

HERE = __name__


class Rules(BaseTopicPlugin):
    """Everybody may do everything below their own name."""

    async def topic_filtering(
        self, *, session: Session | None = None, topic: str | None = None, action: Action | None = None
    ) -> bool | None:
        assert session
        assert topic
        if topic == "broken":
            raise RuntimeError("no database")
        return topic.startswith(f"{session.username}/")


class NoSecrets(BaseTopicPlugin):
    """Has an opinion about secrets only."""

    async def topic_filtering(
        self, *, session: Session | None = None, topic: str | None = None, action: Action | None = None
    ) -> bool | None:
        return False if topic == "ann/secret" else None


class Token(BaseAuthPlugin):
    """A password of `token` is enough, for any name."""

    async def authenticate(self, *, session: Session) -> bool | None:
        if session.password == "broken":
            raise RuntimeError("no database")
        return session.password == "token"


class Speaker(BasePlugin):
    """Publishes by amqtt's plugin API when the broker starts."""

    @dataclasses.dataclass
    class Config:
        topic: str = "plugin"

    async def on_broker_post_start(self) -> None:
        await self.context.retain_message(self.config.topic, b"hello")
        await self.context.broadcast_message("live", b"")


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Path:
    hasher = PasswordHash((Argon2Hasher(time_cost=1, memory_cost=64, parallelism=1),))
    path = tmp_path_factory.mktemp("users") / "users"
    path.write_text(f"# people\nann:{hasher.hash('secret')}\nold:$2b$12$unknown\n")
    return path


@contextlib.asynccontextmanager
async def running(**settings: object) -> AsyncIterator[Broker]:
    async with Broker(BrokerSettings(listen=("127.0.0.1:0",), **settings)) as broker:
        yield broker


@contextlib.asynccontextmanager
async def client(broker: Broker, user: str | None = None, password: str | None = None) -> AsyncIterator[aiomqtt.Client]:
    async with (
        aiomqtt.Client("127.0.0.1", broker.addresses[0].port, username=user, password=password) as connected,
        asyncio.timeout(10),
    ):
        yield connected


async def test_a_password_file(users: Path) -> None:
    async with running(password_file=users) as broker:
        for _ in range(2):
            async with client(broker, "ann", "secret") as ann:
                await ann.publish("t", b"", qos=1)
        for user, password in [("ann", "wrong"), ("ann", ""), ("eve", "secret"), ("old", "x"), (None, None)]:
            with pytest.raises(aiomqtt.MqttError, match=r"Bad user name or password|Not authorized"):
                async with client(broker, user, password):
                    pass


async def test_strangers_beside_a_password_file_only_without_a_name(users: Path) -> None:
    async with running(password_file=users, anonymous=True) as broker:
        async with client(broker), client(broker, "ann", "secret"):
            pass
        with pytest.raises(aiomqtt.MqttError, match="Bad user name or password"):
            async with client(broker, "ann", "wrong"):
                pass


async def test_a_name_that_nobody_verified_is_no_name() -> None:
    async with running(plugins={f"{HERE}.Rules": {}}, anonymous=True) as broker, client(broker, "ann", "x") as ann:
        assert (await ann.subscribe("ann/#", qos=1))[0].is_failure


async def test_topic_plugins_rule(caplog: pytest.LogCaptureFixture) -> None:
    plugins = {f"{HERE}.Token": {}, f"{HERE}.Rules": {}}
    async with running(plugins=plugins) as broker:
        async with client(broker, "ann", "token") as ann, client(broker, "bob", "token") as bob:
            await ann.subscribe("ann/+", qos=1)
            assert (await ann.subscribe("bob/+", qos=1))[0].is_failure
            await bob.publish("ann/x", b"from bob", qos=1)
            await bob.publish("broken", b"", qos=1)
            await ann.publish("ann/x", b"from ann", qos=1)
            assert (await anext(aiter(ann.messages))).payload == b"from ann"
        assert "client" in caplog.text
        assert "may not publish 'ann/x'" in caplog.text
        assert "a topic plugin failed; publish of 'broken' is refused" in caplog.text
        for password in ("wrong", "broken"):
            with pytest.raises(aiomqtt.MqttError, match="Bad user name or password"):
                async with client(broker, "ann", password):
                    pass
    assert "an auth plugin failed" in caplog.text


async def test_one_plugin_that_says_no_is_enough_and_one_without_an_opinion_is_not() -> None:
    plugins = {f"{HERE}.Token": {}, f"{HERE}.Rules": {}, f"{HERE}.NoSecrets": {}}
    async with running(plugins=plugins) as broker, client(broker, "ann", "token") as ann:
        codes = [(await ann.subscribe(topic))[0].is_failure for topic in ("ann/x", "ann/secret", "bob/x")]
        assert codes == [False, True, True]
    del plugins[f"{HERE}.Rules"]
    async with running(plugins=plugins) as broker, client(broker, "ann", "token") as ann:
        assert (await ann.subscribe("ann/x"))[0].is_failure


async def test_plugins_may_publish() -> None:
    plugins = {f"{HERE}.Speaker": {"topic": "said"}}
    async with running(plugins=plugins, anonymous=True) as broker, client(broker) as one:
        await one.subscribe("said")
        message = await anext(aiter(one.messages))
        assert (message.payload, message.retain) == (b"hello", True)


async def test_what_cannot_be_loaded_is_said(tmp_path: Path) -> None:
    for settings in (
        {"password_file": tmp_path / "missing"},
        {"plugins": {"no.such.Plugin": {}}},
        {"plugins": {f"{HERE}.Speaker": {"colour": "red"}}, "anonymous": True},
    ):
        with pytest.raises(UsageError, match=r"a plugin of the broker cannot be used: .*"):
            async with running(**settings):
                pass
