"""The seam to what survives a restart: the engine notes every change here before it acknowledges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from agentmqtt.broker.messages import Message, Outgoing
from agentmqtt.broker.sessions import Bounds, Origin, Session


class Kept(NamedTuple):
    """What was remembered. Nobody is connected; `offline_since` is a time of the engine's clock."""

    sessions: list[Session]
    retained: list[Message]


class Keeper(Protocol):
    """Remembers persistent sessions and retained messages.

    Notes are taken in order and never wait. `then` runs a call once all notes before it are safe:
    every acknowledgement goes through it (persist, then acknowledge). Clean sessions are not noted.
    """

    @property
    def spills(self) -> bool:
        """Whether queued copies can be read back, so that they need not stay in memory."""

    @property
    def trouble(self) -> Exception | None:
        """Why nothing can be made safe at present."""

    def opened(self, session: Session) -> None:
        """A session was made or connected to."""

    def closed(self, session: Session) -> None:
        """Its connection ended; `offline_since` is set."""

    def dropped(self, session: Session) -> None:
        """It goes with everything that it still has."""

    def subscribed(self, session: Session, pattern: str, qos: int) -> None:
        """A filter has this QoS now; whether its retained messages are `due` may have changed."""

    def unsubscribed(self, session: Session, pattern: str) -> None: ...

    def queued(self, session: Session, copy: Outgoing) -> None:
        """A copy that lasts waits for the session or is about to be sent."""

    def progressed(self, session: Session, copy: Outgoing) -> None:
        """A copy is in flight under its packet ID, or its PUBREC came."""

    def settled(self, session: Session, copy: Outgoing) -> None:
        """A copy was acknowledged to the end or given up."""

    def inbound(self, session: Session, packet_id: int) -> None:
        """A QoS 2 message was taken; repeats must be recognised until `released`."""

    def released(self, session: Session, packet_id: int) -> None: ...

    def retained(self, topic: str, message: Message | None) -> None: ...

    def then(self, call: Callable[..., None], *args: Any) -> None:
        """Run `call(*args)` on the event loop, in order of `then`, at once if nothing is unsafe."""

    def delays(self, origin: Origin) -> bool:
        """Whether what needs the disk has to wait; `origin` is then held until it may go on."""

    def fetch(self, session: Session) -> None:
        """Bring copies that are on disk only into the session's queue soon, then wake its link."""

    async def load(self, bounds: Bounds) -> Kept:
        """What an earlier process noted. Call it once, before anything is noted; later ones find nothing."""

    async def end(self) -> None:
        """Wait a little until everything is safe, then rest until the next `load`."""


class InMemory:
    """Keeps nothing beyond the process: everything is as safe as it will ever be."""

    spills = False
    trouble = None

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

    def delays(self, origin: Origin) -> bool:
        return False

    def fetch(self, session: Session) -> None: ...

    async def load(self, bounds: Bounds) -> Kept:
        return Kept([], [])

    async def end(self) -> None: ...
