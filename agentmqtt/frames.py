"""The messages of the protocol as frozen values (PROTOCOL §4). `wire` turns them into bytes and back."""

from __future__ import annotations

import dataclasses
import enum
from typing import NamedTuple, TypeAlias

from agentmqtt.types import CommandState, Entry, OwnerState, Position, RunState, Value, When


class Why(enum.StrEnum):
    """Why the journal refuses a frame, a claim or a cursor (§4.3, §5.2)."""

    FENCED = "fenced"
    VOID = "void"
    GAP = "gap"
    ENDED = "ended"
    OWNED = "owned"
    GONE = "gone"
    FULL = "full"


class PageKind(enum.StrEnum):
    """How a fetch answer relates to the cursor that was asked for (§6.4)."""

    OK = "ok"
    AHEAD = "ahead"
    REWOUND = "rewound"
    TRIMMED = "trimmed"
    RESET = "reset"


@dataclasses.dataclass(frozen=True, slots=True)
class Frame:
    """Owner → everybody on `out`: consecutive events of one epoch (§4.1).

    `time` is milliseconds since 1970. A frame without entries asks the journal where it stands.
    """

    inc: bytes
    epoch: int
    parent: Position
    first: int
    time: int
    entries: tuple[Entry, ...]

    @property
    def last(self) -> int:
        return self.first + len(self.entries) - 1


@dataclasses.dataclass(frozen=True, slots=True)
class Ack:
    """Journal → everybody on `ack`: stored up to `n` of `epoch`; `why` refuses what was sent (§4.3)."""

    inc: bytes
    epoch: int
    n: int
    why: Why | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Claim:
    """Agent → journal on `own/{client}`: compare-and-set of the owner (§5.1).

    `attempt` withdraws back to where the current attempt began; `cut` back to a position.
    """

    request: bytes
    workflow: str
    instance: bytes
    boot: bytes
    conn: int
    mine: int
    replaces: int
    inc: bytes
    cut: Position | None = None
    attempt: bool = False
    takeover: bool = False
    reopen: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Grant:
    """Journal → claimer on `res`: the name is yours. `stored` is the stored tail of the claim's `mine` (§5.2)."""

    request: bytes
    workflow: str
    inc: bytes
    epoch: int
    parent: Position
    stored: int
    attempt: int


@dataclasses.dataclass(frozen=True, slots=True)
class Refusal:
    """Journal → claimer on `res`: the name is not yours (§5.2).

    `epoch` is the current one; `live` says whether its owner lives; `known` whether the claim's
    instance already held the name.
    """

    request: bytes
    workflow: str
    inc: bytes
    epoch: int
    why: Why
    live: bool
    known: bool
    outcome: str = ""
    result: Value = None


@dataclasses.dataclass(frozen=True, slots=True)
class Fetch:
    """Watcher → journal on `req/{client}`: what comes after `position`? (§6.3). `limit` in bytes.

    `deflate`: the answer may be compressed.
    """

    request: int
    workflow: str
    inc: bytes
    position: Position
    limit: int = 48 * 1024
    deflate: bool = False


class Item(NamedTuple):
    """One event of a page, or `span` merged text events that end at `first + span - 1`."""

    epoch: int
    first: int
    span: int
    time: int
    type: str
    data: Value


@dataclasses.dataclass(frozen=True, slots=True)
class Page:
    """Journal → watcher on `res`: the log from `start` on (§6.4). Used only if it answers the last question."""

    request: int
    workflow: str
    inc: bytes
    epoch: int
    parent: Position
    kind: PageKind
    asked: Position
    start: Position
    tail: Position
    items: tuple[Item, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Command:
    """Anybody → journal on `in/{client}` (§7.1). `deadline` is milliseconds since 1970; 0 takes the default."""

    id: str
    workflow: str
    kind: str
    data: Value
    deadline: int = 0
    when: When = When.NOW


@dataclasses.dataclass(frozen=True, slots=True)
class Withdraw:
    """Anybody → journal on `req/{client}`: take back a command of one's own (§7.5). `deadline` is the command's."""

    workflow: str
    id: str
    deadline: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Recall:
    """Journal → owner on `res`: the sender wants this command back, if nobody has begun it (§7.5)."""

    workflow: str
    inc: bytes
    epoch: int
    id: str


@dataclasses.dataclass(frozen=True, slots=True)
class Handed:
    """Journal → owner on `res`: a stored command for `epoch` (§7.2). `again`: an earlier owner may have acted on it."""

    workflow: str
    inc: bytes
    epoch: int
    id: str
    kind: str
    data: Value
    sender: str
    deadline: int
    again: bool
    when: When = When.NOW


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """Journal → sender on `res`: where a command is (§7.3). `now` is the journal's clock in milliseconds."""

    workflow: str
    id: str
    state: CommandState
    reason: Value
    now: int


@dataclasses.dataclass(frozen=True, slots=True)
class Describe:
    """Anybody → journal on `req/{client}`: the status, now (§8.3)."""

    request: int
    workflow: str


@dataclasses.dataclass(frozen=True, slots=True)
class Status:
    """Journal → everybody on `status`, retained, and on `res` (§8). Times are milliseconds since 1970.

    `request` is 0 unless it answers a Describe. `at` is when it was true, `updated` the newest event's.
    """

    workflow: str
    inc: bytes
    epoch: int
    parent: Position
    tail: Position
    state: RunState
    owner: OwnerState
    at: int
    updated: int
    attempt: int = 0
    detail: Value = None
    result: Value = None
    request: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class ListCommands:
    """Anybody → journal on `req/{client}`: which commands of a run have no outcome yet? (§8.5)"""

    request: int
    workflow: str


class PendingCommand(NamedTuple):
    """A command without an outcome. `deadline` is milliseconds since 1970."""

    id: str
    kind: str
    sender: str
    state: CommandState
    deadline: int
    when: When


@dataclasses.dataclass(frozen=True, slots=True)
class CommandList:
    """Journal → client on `res`: commands in the order in which they were accepted, at most 200 (§8.5)."""

    request: int
    workflow: str
    rows: tuple[PendingCommand, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Renew:
    """Agent → journal on `~/{client}/req`: every name of this boot lives (§5.4)."""

    boot: bytes
    conn: int


@dataclasses.dataclass(frozen=True, slots=True)
class Watching:
    """Watcher → journal on `~/{client}/req`: what this process watches, each half keep-alive (§6.8)."""

    boot: bytes
    conn: int
    names: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class ListWatchers:
    """Anybody → journal on `req/{client}`: who watches this run? (§6.8)"""

    request: int
    workflow: str


class WatcherRow(NamedTuple):
    """A client that watches, and since when in milliseconds since 1970."""

    client: str
    since: int


@dataclasses.dataclass(frozen=True, slots=True)
class WatcherList:
    """Journal → client on `res`: at most 200 watchers of a run (§6.8)."""

    request: int
    workflow: str
    rows: tuple[WatcherRow, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class ListRuns:
    """Anybody → journal on `~/{client}/req`: the runs after `after` by name (§8.4)."""

    request: int
    after: str = ""
    limit: int = 100


class Row(NamedTuple):
    """One run of a listing."""

    workflow: str
    state: RunState
    owner: OwnerState
    epoch: int
    tail: Position
    updated: int


@dataclasses.dataclass(frozen=True, slots=True)
class Listing:
    """Journal → client on `res`: runs in order of name; `more` if there are others (§8.4)."""

    request: int
    rows: tuple[Row, ...]
    more: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Alive:
    """Client and its will on `~/{client}/alive`, retained: presence of one process (§5.4)."""

    boot: bytes
    conn: int
    online: bool


@dataclasses.dataclass(frozen=True, slots=True)
class JournalAlive:
    """Journal and its will on `~/journal`, retained (§9.1). `lease` in seconds.

    `conn` counts its connections: two journals that fight for one identity write ever new messages.
    """

    online: bool
    version: str
    boot: bytes
    conn: int = 0
    lease: float = 30.0
    frame_limit: int = 48 * 1024
    event_limit: int = 32 * 1024


AboutName: TypeAlias = Claim | Fetch | Describe | Command | Withdraw | ListCommands | ListWatchers
Request: TypeAlias = AboutName | Watching | Renew | ListRuns
Response: TypeAlias = Grant | Refusal | Page | Handed | Recall | Outcome | Status | Listing | CommandList | WatcherList
