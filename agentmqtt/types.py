"""Frozen values that every floor shares: positions, cursors, events and states."""

from __future__ import annotations

import dataclasses
import enum
import re
from typing import Any, NamedTuple, TypeAlias

Value: TypeAlias = Any
"""A value of the CBOR subset (PROTOCOL §3): None, bool, int, float, str, bytes, list, dict with str keys."""

NO_INC = b""
"""The incarnation of a channel that the journal does not know."""


class Position(NamedTuple):
    """A place in one incarnation's log: event `n` of `epoch`. Ordered inside the surviving log (§4)."""

    epoch: int
    n: int

    def __str__(self) -> str:
        return f"{self.epoch}.{self.n}"


ORIGIN = Position(0, 0)

_CURSOR = re.compile(r"(\d{1,18})\.(\d{1,18})(?:@([0-9a-f]{2,32}))?")


@dataclasses.dataclass(frozen=True, slots=True)
class Cursor:
    """A place in a channel's log, across incarnations. Shown as `7.42`, kept as `7.42@INC`."""

    inc: bytes
    position: Position

    def __str__(self) -> str:
        return str(self.position)

    @property
    def token(self) -> str:
        """The text that `parse` reads back without loss."""
        return f"{self.position}@{self.inc.hex()}" if self.inc else str(self.position)

    @classmethod
    def parse(cls, text: str) -> Cursor:
        """Read `7.42` or `7.42@INC`.

        Raises:
            ValueError: if `text` is neither.
        """
        match = _CURSOR.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is not a cursor; expected EPOCH.N such as 7.42")
        inc = bytes.fromhex(match[3]) if match[3] else NO_INC
        return cls(inc, Position(int(match[1]), int(match[2])))


class Entry(NamedTuple):
    """One event as its owner emitted it."""

    type: str
    data: Value


@dataclasses.dataclass(frozen=True, slots=True)
class Event:
    """One event of the log as a watcher gets it.

    `span` is the number of log events it stands for: more than 1 after text was merged on replay.
    `time` is milliseconds since 1970 by the owner's clock.
    """

    cursor: Cursor
    type: str
    data: Value
    time: int
    span: int = 1


@dataclasses.dataclass(frozen=True, slots=True)
class Gap:
    """History that cannot be shown: `reason` is `trimmed` or `reset`. What follows continues at `cursor`."""

    cursor: Cursor
    reason: str


@dataclasses.dataclass(frozen=True, slots=True)
class Rewound:
    """Everything after `cursor` was withdrawn: forget it."""

    cursor: Cursor


class RunState(enum.StrEnum):
    """State of a run in its status (§8)."""

    NEW = "new"
    RUNNING = "running"
    WAITING = "waiting"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"


class OwnerState(enum.StrEnum):
    """Liveness of a run's owner in its status (§8)."""

    NONE = "none"
    ONLINE = "online"
    LOST = "lost"


class When(enum.StrEnum):
    """When an owner is to take a command (§7.1): at once, between two steps, or between two turns."""

    NOW = "now"
    NEXT_STEP = "next_step"
    NEXT_TURN = "next_turn"


class CommandState(enum.StrEnum):
    """Life of a command (§7). The last seven are final; `queued` says that the journal has no room yet."""

    QUEUED = "queued"
    ACCEPTED = "accepted"
    RECEIVED = "received"
    APPLIED = "applied"
    REJECTED = "rejected"
    EXPIRED = "expired"
    TOO_LATE = "too_late"
    WITHDRAWN = "withdrawn"
    SUPERSEDED = "superseded"
    UNKNOWN = "unknown"
