"""A broker inside the process, for tests and for trying things out: it does wrong only what it is told to.

`with bus.drop("jobs/+/out", count=1):` loses one message after its acknowledgement; `bus.cut("client-1")`
breaks a connection, so that its will is published; inside `with bus.partition("client-1"):` both ends stay open
and hear nothing; `bus.restart(keep_sessions=False)` is a broker without a disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
from collections.abc import Iterator, Sequence
from typing import Unpack

from agentmqtt.errors import LinkLost, Refused, TakenOver, Unreachable
from agentmqtt.transport.base import Hello
from agentmqtt.transport.faults import Aim, Delay, Drop, Duplicate, Fault, Message, Reorder
from agentmqtt.transport.memory_link import Account, MemoryConnection
from agentmqtt.transport.topics import matches


class MemoryBus:
    """A small broker: `+` and `#`, retained messages, sessions with a bounded queue, wills, takeover by client ID.

    Everything happens in an order that depends on `seed` and the calls only. `queue_limit` messages wait for a
    client that is absent or slow; what comes then is dropped and counted in `overflowed`. With
    `announce_takeover` the loser learns it (MQTT 5); without, its connection just ends (3.1.1).
    """

    def __init__(self, *, seed: int = 0, queue_limit: int = 1000, announce_takeover: bool = True) -> None:
        self._dice = random.Random(seed)
        self._limit, self._announce = queue_limit, announce_takeover
        self._accounts: dict[str, Account] = {}
        self._faults: list[Fault] = []
        self._partitioned: dict[str, asyncio.Event] = {}
        self._running = True
        self.retained: dict[str, bytes] = {}
        self.refused_clients: set[str] = set()
        self.refused_filters: set[str] = set()

    # -- faults -----------------------------------------------------------------------------------------

    def drop(self, filter_: str, **aim: Unpack[Aim]) -> Drop:
        """Lose messages after their acknowledgement."""
        return Drop(self._faults, self._dice, filter_, **aim)

    def duplicate(self, filter_: str, **aim: Unpack[Aim]) -> Duplicate:
        """Deliver messages twice."""
        return Duplicate(self._faults, self._dice, filter_, **aim)

    def delay(self, filter_: str, seconds: float, **aim: Unpack[Aim]) -> Delay:
        """Deliver messages later than those that follow."""
        return Delay(self._faults, self._dice, filter_, seconds, **aim)

    def reorder(self, filter_: str, *, window: int = 4, **aim: Unpack[Aim]) -> Reorder:
        """Deliver messages in another order."""
        return Reorder(self._faults, self._dice, filter_, window, **aim)

    def cut(self, client_id: str) -> None:
        """Break the client's connection; both ends notice, and its will is published."""
        connection = self._connection(client_id)
        if connection is not None:
            connection.end(LinkLost("the connection to the bus was cut"))
            connection.part(will=True)

    @contextlib.contextmanager
    def partition(self, client_id: str) -> Iterator[None]:
        """Inside the block nothing passes in either direction; afterwards what was under way goes on."""
        healed = self._partitioned[client_id] = asyncio.Event()
        connection = self._connection(client_id)
        if connection is not None:
            connection.silence()
        try:
            yield
        finally:
            del self._partitioned[client_id]
            if connection is not None:
                connection.heal()
            healed.set()

    def stop(self) -> None:
        """As if killed: connections end, and no will is published."""
        self._running = False
        for account in self._accounts.values():
            if account.connection is not None:
                account.connection.kick(LinkLost("the bus has stopped"), will=False)

    def start(self, *, keep_sessions: bool = True, keep_retained: bool = True) -> None:
        """Come back, with or without what was kept."""
        if not keep_sessions:
            self._accounts.clear()
        if not keep_retained:
            self.retained.clear()
        self._running = True

    def restart(self, *, keep_sessions: bool = True, keep_retained: bool = True) -> None:
        """`stop` and `start`."""
        self.stop()
        self.start(keep_sessions=keep_sessions, keep_retained=keep_retained)

    # -- to look at -----------------------------------------------------------------------------------

    @property
    def clients(self) -> frozenset[str]:
        """Who is connected."""
        return frozenset(item.client_id for item in self._accounts.values() if item.connection is not None)

    @property
    def overflowed(self) -> int:
        """Messages dropped because a queue was full."""
        return sum(account.overflowed for account in self._accounts.values())

    def filters(self, client_id: str) -> frozenset[str]:
        """What a client is subscribed to."""
        account = self._accounts.get(client_id)
        return frozenset(account.filters) if account else frozenset()

    # -- the broker -----------------------------------------------------------------------------------

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Take a message from a client, or from a test, and send it on."""
        if retain and payload:
            self.retained[topic] = payload
        elif retain:
            self.retained.pop(topic, None)
        message = Message(topic, payload)
        for account in tuple(self._accounts.values()):
            if account.wants(topic):
                self._route(message, account, tuple(self._faults))

    def subscribe(self, account: Account, granted: Sequence[str]) -> None:
        """For a connection: remember what was granted, and send what is retained there."""
        account.filters.update(dict.fromkeys(granted))
        for topic, payload in tuple(self.retained.items()):
            if any(matches(item, topic) for item in granted):
                self._route(Message(topic, payload, True), account, tuple(self._faults))

    def unsubscribe(self, account: Account, filters: Sequence[str]) -> None:
        """For a connection."""
        for item in filters:
            account.filters.pop(item, None)

    async def connect(self, hello: Hello, timeout: float) -> MemoryConnection:
        """For MemoryTransport."""
        if (healed := self._partitioned.get(hello.client_id)) is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(healed.wait(), timeout)
        await asyncio.sleep(0)
        if hello.client_id in self._partitioned:
            raise Unreachable(f"the bus did not answer within {timeout:g} s")
        if not self._running:
            raise Unreachable("the bus is stopped; start it again")
        if hello.client_id in self.refused_clients:
            raise Refused(f"the bus refuses client {hello.client_id!r}")
        return self._admit(hello)

    def _admit(self, hello: Hello) -> MemoryConnection:
        self._oust(hello.client_id)
        account = self._accounts.get(hello.client_id)
        if account is None or hello.session_expiry == 0 or asyncio.get_running_loop().time() >= account.ends:
            account = self._accounts[hello.client_id] = Account(hello.client_id, self._limit)
        connection = MemoryConnection(self, account, hello)
        account.resume(connection)
        return connection

    def _oust(self, client_id: str) -> None:
        old = self._connection(client_id)
        if old is not None:
            taken = TakenOver(f"another process connected to the bus as {client_id!r}; this one has stopped")
            old.kick(taken if self._announce else LinkLost("the bus ended the connection"), will=True)

    def _connection(self, client_id: str) -> MemoryConnection | None:
        account = self._accounts.get(client_id)
        return account.connection if account else None

    def _route(self, message: Message, account: Account, faults: Sequence[Fault]) -> None:
        """Through the faults, the oldest first, and then to the account."""
        for i, fault in enumerate(faults):
            if fault.strikes(message, account.client_id):
                fault.apply(message, functools.partial(self._route, account=account, faults=faults[i + 1 :]))
                return
        account.deliver(message)


class MemoryTransport:
    """Connects to a MemoryBus (see transport.base.Transport). `connect_timeout` is seconds, for partitions."""

    def __init__(self, bus: MemoryBus, *, connect_timeout: float = 1.0) -> None:
        self._bus, self._timeout = bus, connect_timeout

    def describe(self) -> str:
        return "memory://bus"

    async def connect(self, hello: Hello) -> MemoryConnection:
        return await self._bus.connect(hello, self._timeout)
