"""The seam to what survives a restart: the engine notes every change here before it acknowledges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from agentmqtt.broker.messages import Message, Outgoing
from agentmqtt.broker.sessions import Session


class Keeper(Protocol):
    """Remembers persistent sessions and retained messages.

    Notes are taken in order and never wait. `then` runs a call once all notes before it are safe:
    every acknowledgement goes through it (persist, then acknowledge). Clean sessions are not noted.
    """

    def opened(self, session: Session) -> None:
        """A session was made or connected to."""

    def closed(self, session: Session) -> None:
        """Its connection ended; `offline_since` is set."""

    def dropped(self, session: Session) -> None:
        """It is gone with everything it had."""

    def subscribed(self, session: Session, pattern: str, qos: int) -> None: ...

    def unsubscribed(self, session: Session, pattern: str) -> None: ...

    def queued(self, session: Session, copy: Outgoing) -> None:
        """A copy above QoS 0 waits for the session or is about to be sent."""

    def progressed(self, session: Session, copy: Outgoing) -> None:
        """A QoS 2 copy is in flight under its packet ID, or its PUBREC came."""

    def settled(self, session: Session, copy: Outgoing) -> None:
        """A copy was acknowledged to the end or given up."""

    def inbound(self, session: Session, packet_id: int) -> None:
        """A QoS 2 message was taken; repeats must be recognised until `released`."""

    def released(self, session: Session, packet_id: int) -> None: ...

    def retained(self, topic: str, message: Message | None) -> None: ...

    def then(self, call: Callable[..., None], *args: Any) -> None:
        """Run `call(*args)` on the event loop, in order of `then`, at once if nothing is unsafe."""


class InMemory:
    """Keeps nothing beyond the process: everything is as safe as it will ever be."""

    def opened(self, session: Session) -> None: ...
    def closed(self, session: Session) -> None: ...
    def dropped(self, session: Session) -> None: ...
    def subscribed(self, session: Session, pattern: str, qos: int) -> None: ...
    def unsubscribed(self, session: Session, pattern: str) -> None: ...
    def queued(self, session: Session, copy: Outgoing) -> None: ...
    def progressed(self, session: Session, copy: Outgoing) -> None: ...
    def settled(self, session: Session, copy: Outgoing) -> None: ...
    def inbound(self, session: Session, packet_id: int) -> None: ...
    def released(self, session: Session, packet_id: int) -> None: ...
    def retained(self, topic: str, message: Message | None) -> None: ...

    def then(self, call: Callable[..., None], *args: Any) -> None:
        call(*args)
