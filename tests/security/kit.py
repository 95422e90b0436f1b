"""A real broker with accounts, and the packets that a client says to it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from agentmqtt.broker import Broker, BrokerSettings
from agentmqtt.broker import accounts as acc
from agentmqtt.broker.accounts import Account
from agentmqtt.broker.rights import Role
from agentmqtt.store import open_store
from tests.broker import wire

PASSWORD = "correct horse"
HASH = acc.hash_password(PASSWORD)
LIMIT = 20.0


class Caller:
    """A client that speaks MQTT byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def at(cls, broker: Broker) -> Caller:
        address = broker.addresses[0]
        return cls(*await asyncio.open_connection(address.host, address.port))

    async def packet(self) -> bytes:
        """The next packet (of at most 127 bytes), or nothing at the end of the connection."""
        async with asyncio.timeout(LIMIT):
            try:
                head = await self.reader.readexactly(2)
                return head + await self.reader.readexactly(head[1])
            except (asyncio.IncompleteReadError, ConnectionError):
                return b""

    async def ask(self, packet: bytes) -> bytes:
        self.writer.write(packet)
        return await self.packet()

    def close(self) -> None:
        self.writer.transport.abort()

    async def end(self) -> None:
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()


class Place:
    """A broker over an accounts file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "accounts.json"
        self.key = folder / "token.key"
        self.rules = folder / "rules"
        self.broker: Broker
        self._callers: list[Caller] = []

    def account(self, name: str, **fields: Any) -> None:
        """Make or change one."""
        fields = {"hash": HASH, "role": Role.WATCHER} | fields
        acc.write(self.file, acc.read(self.file).with_account(Account(name=name, **fields)))

    @contextlib.asynccontextmanager
    async def running(self, **settings: Any) -> AsyncIterator[Place]:
        files = {"accounts": self.file, "token_key": self.key}
        if self.rules.exists():
            files["rules"] = self.rules
        store = open_store(self.folder / "broker.db")
        try:
            settings = {"listen": ("127.0.0.1:0",)} | files | settings
            async with Broker(BrokerSettings(**settings), store=store) as self.broker:
                yield self
        finally:
            for caller in self._callers:
                await caller.end()
            await store.close()

    async def login(self, name: str | None, password: str | None = PASSWORD, client: str = "c", **more: Any) -> Caller:
        """A client whose CONNECT was sent; its CONNACK is the next packet."""
        caller = await Caller.at(self.broker)
        self._callers.append(caller)
        secret = None if password is None else password.encode()
        caller.writer.write(wire.connect(client, user=name, password=secret, **more))
        return caller
