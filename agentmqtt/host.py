"""What an owner, a watcher or a sender may ask of the client that it lives in."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from agentmqtt.commands import Receipt
from agentmqtt.frames import Grant, Handed, Page, Recall, Refusal, Status, WatcherRow
from agentmqtt.names import Topics
from agentmqtt.options import ClientOptions
from agentmqtt.session import Session
from agentmqtt.state import State
from agentmqtt.types import CommandState, Cursor, Event, Value, When


class OwnerSide(Protocol):
    """An owned name, as its client sees it."""

    def on_response(self, message: Grant | Refusal | Handed | Recall) -> None: ...

    def resend(self) -> None: ...

    def tick(self, now: float) -> None: ...


class WatcherSide(Protocol):
    """A watched name, as its client sees it."""

    name: str

    def on_page(self, page: Page) -> None: ...

    def refresh(self) -> None: ...

    def tick(self, now: float) -> None: ...


class Host(Protocol):
    """The one connection of a process, shared by all its names."""

    options: ClientOptions
    topics: Topics
    state: State
    session: Session
    client_id: str
    boot: bytes
    owners: dict[str, OwnerSide]
    watchers: list[WatcherSide]

    def watching_changed(self) -> None:
        """Another name is watched, or one less."""
        ...

    async def watched_by(self, name: str) -> tuple[WatcherRow, ...]:
        """Who watches a name."""
        ...

    def publish(self, topic: str, payload: bytes) -> bool:
        """Send if there is a connection; False if there is none. Nothing is kept."""
        ...

    async def require_journal(self) -> None:
        """Raises NoJournal or LinkError unless a journal answers within `options.patience`."""
        ...

    async def status(self, name: str) -> Status:
        """The journal's word about a name, now."""
        ...

    async def send(
        self,
        name: str,
        data: Value = None,
        *,
        kind: str = "message",
        expiry: float | None = None,
        id: str | None = None,
        when: str = When.NOW,
    ) -> Receipt:
        """Send a command; returns when the journal has stored it."""
        ...

    async def read(self, name: str, upto: Cursor) -> list[Event]:
        """The stored log of a name up to a cursor, without what was withdrawn."""
        ...

    @property
    def own(self) -> Callable[..., AbstractAsyncContextManager[Any]]:
        """A run of this process."""
        ...

    async def withdraw(self, name: str, id: str, *, timeout: float | None = None) -> CommandState:
        """Take back a command."""
        ...
