"""What happened in a world, as plain data. The checker sees this and nothing else."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict

Place = tuple[bytes, int, int]
"""Incarnation, epoch, number."""


@dataclasses.dataclass(slots=True)
class GrantFact:
    """A grant that the journal made durable. `asked` is what the claim wanted to withdraw back to."""

    inc: bytes
    epoch: int
    parent: tuple[int, int]
    boot: bytes
    instance: bytes
    request: bytes
    claimed_inc: bytes
    mine: int
    replaces: int
    asked: tuple[int, int] | str | None
    takeover: bool
    reopen: bool
    holder_alive: bool


@dataclasses.dataclass(slots=True)
class AppendFact:
    """Events that the journal made durable."""

    inc: bytes
    epoch: int
    first: int
    ids: tuple[int, ...]


@dataclasses.dataclass(slots=True)
class TrimFact:
    inc: bytes
    upto: tuple[int, int]


@dataclasses.dataclass(slots=True)
class DropFact:
    """Rows that an owner removed from its outbox, and why: `ack`, `stored`, `withdrawn` or `left`."""

    why: str
    boot: bytes
    inc: bytes
    epoch: int
    rows: tuple[tuple[int, tuple[int, ...]], ...]


@dataclasses.dataclass(slots=True)
class WatcherFacts:
    """The life of one watcher, in order.

    `e` inc epoch last span ids · `g` inc position reason · `r` inc position · `b` inc position (began there)
    · `t` inc epoch parent (was told) · `s` saved · `c` crashed back to the last save.
    """

    name: str
    stored: bool
    story: list[tuple[object, ...]] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(slots=True)
class OwnerFact:
    """An owner at the end."""

    name: str
    boot: bytes
    state: str
    inc: bytes
    epoch: int
    linked: bool
    waiting: tuple[int, ...]
    left_unsent: int


@dataclasses.dataclass(slots=True)
class StatusFact:
    inc: bytes
    epoch: int
    tail: tuple[int, int]
    state: str
    owner: str


@dataclasses.dataclass(slots=True)
class Facts:
    """Everything the checker may look at."""

    history: list[GrantFact | AppendFact | TrimFact | None] = dataclasses.field(default_factory=list)
    """Commits of the journal; None is the loss of its store."""
    disk: list[tuple[int, int, int]] = dataclasses.field(default_factory=list)
    """The log on the journal's disk at the end: epoch, number, id."""
    inc: bytes = b""
    base: tuple[int, int] = (0, 0)
    kinds: dict[int, str] = dataclasses.field(default_factory=dict)
    """Event type of every id, with the outcome of an end and the name of an ask."""
    emitted: dict[int, tuple[str, bytes]] = dataclasses.field(default_factory=dict)
    """The disk and the process that emitted an id."""
    groups: list[tuple[int, ...]] = dataclasses.field(default_factory=list)
    committed: dict[int, None] = dataclasses.field(default_factory=dict)
    rolled_back: set[int] = dataclasses.field(default_factory=set)
    sent: dict[Place, tuple[bytes, int]] = dataclasses.field(default_factory=dict)
    reused: list[Place] = dataclasses.field(default_factory=list)
    dropped: list[DropFact] = dataclasses.field(default_factory=list)
    withdraws: dict[bytes, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    """Per request: what its owner wanted to withdraw from its own outbox."""
    gone: set[bytes] = dataclasses.field(default_factory=set)
    """Withdraws that the journal refused."""
    disk_of: dict[bytes, str] = dataclasses.field(default_factory=dict)
    """The disk of every process."""
    restored: set[str] = dataclasses.field(default_factory=set)
    """Disks that somebody put back to an older copy."""
    fences: list[tuple[bytes, bytes, int, int]] = dataclasses.field(default_factory=list)
    """Boot, incarnation and epoch of owners that were told to stop, and how long the history was then."""
    counts: list[tuple[bytes, int, int]] = dataclasses.field(default_factory=list)
    """Boot, events an owner was told were left, events that it left."""
    disks: list[tuple[int, ...]] = dataclasses.field(default_factory=list)
    owners: list[OwnerFact] = dataclasses.field(default_factory=list)
    watchers: list[WatcherFacts] = dataclasses.field(default_factory=list)
    told: dict[str, list[str]] = dataclasses.field(default_factory=lambda: defaultdict(list))
    effects: dict[str, list[bool]] = dataclasses.field(default_factory=lambda: defaultdict(list))
    log_effects: dict[int, str] = dataclasses.field(default_factory=dict)
    refused: set[str] = dataclasses.field(default_factory=set)
    handed: set[str] = dataclasses.field(default_factory=set)
    forgotten: set[str] = dataclasses.field(default_factory=set)
    """Commands whose sender asks hours later what became of them."""
    waiting: list[str] = dataclasses.field(default_factory=list)
    rewinds: list[tuple[int, bytes, tuple[int, int], tuple[int, int]]] = dataclasses.field(default_factory=list)
    """Answers that a cursor is void: length of the history, incarnation, cursor, where to go on from."""
    rogue: set[int] = dataclasses.field(default_factory=set)
    status: StatusFact | None = None
    lies: list[str] = dataclasses.field(default_factory=list)
    hits: Counter[str] = dataclasses.field(default_factory=Counter)
