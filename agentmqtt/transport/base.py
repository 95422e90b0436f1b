"""The seam between the link and the network: what a transport must do, and nothing more."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Sequence
from typing import Protocol


@dataclasses.dataclass(frozen=True, slots=True)
class Will:
    """What the broker publishes (QoS 1, retained) when the connection dies without a goodbye."""

    topic: str
    payload: bytes


@dataclasses.dataclass(slots=True, eq=False)
class Delivery:
    """One message from the broker. `ack` is a no-op at QoS 0 and once its connection is gone."""

    topic: str
    payload: bytes
    retain: bool
    dup: bool
    ack: Callable[[], None]


@dataclasses.dataclass(frozen=True, slots=True)
class Hello:
    """Who connects, and how.

    `on_message` runs on the event loop, in order, and must not block; redeliveries of a resumed
    session may come before `connect` returns.
    `session_expiry` is seconds the broker keeps the session after the connection; 0 asks for a
    session that ends with it.
    """

    client_id: str
    keepalive: int
    on_message: Callable[[Delivery], None]
    will: Will | None = None
    session_expiry: int = 3600


class Connection(Protocol):
    """One connection to a broker. It never comes back: after `lost` is done, get a new one."""

    lost: asyncio.Future[Exception]
    """Done with the reason when the connection has ended: LinkLost, TakenOver or Refused."""

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> asyncio.Future[None]:
        """Send at QoS 1, in order. The future is done at the PUBACK, or fails with LinkLost or Refused."""
        ...

    async def subscribe(self, filters: Sequence[str]) -> None:
        """Subscribe at QoS 1. Raises LinkLost, or Refused naming the filters that were not granted."""
        ...

    async def unsubscribe(self, filters: Sequence[str]) -> None:
        """Raises LinkLost."""
        ...

    async def close(self, *, goodbye: bool = True) -> None:
        """End the connection. Without `goodbye` the broker publishes the will. Never raises."""
        ...


class Transport(Protocol):
    """Makes connections to one broker."""

    async def connect(self, hello: Hello) -> Connection:
        """One attempt. Returns after CONNACK.

        Raises:
            Unreachable: nobody answers in time, or the address does not resolve.
            Refused: the broker said no; trying again with the same credential is useless.
        """
        ...

    def describe(self) -> str:
        """The broker's URL without its secret, for messages to people."""
        ...
