"""What a broker and a network do wrong, on command: each fault is a context manager of MemoryBus."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeAlias, TypedDict, Unpack

from agentmqtt.transport.topics import matches

IDLE = 0.01
"""Seconds after which `Reorder` lets go of what it holds, however little."""


@dataclasses.dataclass(frozen=True, slots=True)
class Message:
    """One message on its way to one session."""

    topic: str
    payload: bytes
    retain: bool = False


Deliver: TypeAlias = Callable[[Message], None]


class Aim(TypedDict, total=False):
    """Whom a fault strikes: `client` only (default: everybody), with probability `chance`, `count` times at most."""

    client: str | None
    chance: float
    count: int | None


class Fault:
    """Changes what reaches the sessions, from the moment the broker took a message. Active inside `with`.

    It strikes messages on topics of `filter_`, as `aim` says. `struck` counts.
    """

    def __init__(self, active: list[Fault], dice: random.Random, filter_: str, **aim: Unpack[Aim]) -> None:
        self._active, self._dice, self._filter = active, dice, filter_
        self._client, self._chance, self._count = aim.get("client"), aim.get("chance", 1.0), aim.get("count")
        self.struck = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        self._active.append(self)

    def stop(self) -> None:
        """Nothing that it held back stays back."""
        if self in self._active:
            self._active.remove(self)

    def strikes(self, message: Message, client: str) -> bool:
        """Whether this message, on its way to `client`, is hit."""
        if (
            (self._client is not None and client != self._client)
            or (self._count is not None and self.struck >= self._count)
            or not matches(self._filter, message.topic)
            or self._dice.random() >= self._chance
        ):
            return False
        self.struck += 1
        return True

    def apply(self, message: Message, deliver: Deliver) -> None:
        """Do to `message` what the fault does; `deliver` takes it on to its session."""
        raise NotImplementedError


class Drop(Fault):
    """The broker acknowledged it and never delivers it."""

    def apply(self, message: Message, deliver: Deliver) -> None:
        """Nothing follows."""


class Duplicate(Fault):
    """It arrives twice, as two messages."""

    def apply(self, message: Message, deliver: Deliver) -> None:
        deliver(message)
        deliver(message)


class Delay(Fault):
    """It arrives `seconds` later; what follows overtakes it."""

    def __init__(
        self, active: list[Fault], dice: random.Random, filter_: str, seconds: float, **aim: Unpack[Aim]
    ) -> None:
        super().__init__(active, dice, filter_, **aim)
        self._seconds = seconds

    def apply(self, message: Message, deliver: Deliver) -> None:
        asyncio.get_running_loop().call_later(self._seconds, deliver, message)


class Reorder(Fault):
    """It is held until `window` of them are there (or none came for IDLE seconds), and they leave shuffled."""

    def __init__(self, active: list[Fault], dice: random.Random, filter_: str, window: int, **aim: Unpack[Aim]) -> None:
        super().__init__(active, dice, filter_, **aim)
        self._window = window
        self._held: list[tuple[Message, Deliver]] = []
        self._timer: asyncio.TimerHandle | None = None

    def stop(self) -> None:
        super().stop()
        self._release()

    def apply(self, message: Message, deliver: Deliver) -> None:
        self._held.append((message, deliver))
        if self._timer is not None:
            self._timer.cancel()
        if len(self._held) >= self._window:
            self._release()
        else:
            self._timer = asyncio.get_running_loop().call_later(IDLE, self._release)

    def _release(self) -> None:
        held, self._held = self._held, []
        self._dice.shuffle(held)
        for message, deliver in held:
            deliver(message)
