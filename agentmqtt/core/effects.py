"""What a decision asks its shell to do. Writes first; everything else only after they are durable (§5)."""

from __future__ import annotations

import dataclasses
from typing import TypeAlias

from agentmqtt.frames import Ack, Response
from agentmqtt.types import Entry, Position


@dataclasses.dataclass(frozen=True, slots=True)
class Append:
    """Add entries to the log: events `first`… of `epoch`, emitted at `time`."""

    epoch: int
    first: int
    time: int
    entries: tuple[Entry, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Truncate:
    """Remove what lies after `after` from the log."""

    after: Position


@dataclasses.dataclass(frozen=True, slots=True)
class Trim:
    """Remove what lies up to `upto` from the log."""

    upto: Position


@dataclasses.dataclass(frozen=True, slots=True)
class SaveCommand:
    """Write one row of the command table."""

    seq: int


@dataclasses.dataclass(frozen=True, slots=True)
class DropCommand:
    """Forget one row of the command table."""

    seq: int


@dataclasses.dataclass(frozen=True, slots=True)
class SaveChannel:
    """Write the channel's record."""


@dataclasses.dataclass(frozen=True, slots=True)
class Receipt:
    """Publish on `ack`."""

    ack: Ack


@dataclasses.dataclass(frozen=True, slots=True)
class Tell:
    """Send to one client's `res`."""

    client: str
    message: Response


@dataclasses.dataclass(frozen=True, slots=True)
class Restate:
    """The status changed; `urgent` if more than its tail did."""

    urgent: bool


Effect: TypeAlias = Append | Truncate | Trim | SaveCommand | DropCommand | SaveChannel | Receipt | Tell | Restate
