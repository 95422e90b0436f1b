"""Every bound and interval, with its default (design §5). Times in seconds, sizes in bytes."""

from __future__ import annotations

import dataclasses

KIB = 1024
MIB = 1024 * KIB
DAY = 24 * 3600.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """How an owner, watcher or sender behaves.

    `window` is the number of frames without a receipt; `linger` waits before a frame to make it
    larger; `outbox` bounds what waits on disk per name; `buffer` the events that wait for a reader.
    """

    root: str = "agentmqtt/v1"
    keepalive: int = 20
    session_expiry: int = 3600
    window: int = 64
    frame: int = 48 * KIB
    event: int = 32 * KIB
    linger: float = 0.0
    outbox: int = 64 * MIB
    buffer: int = 1000
    command_expiry: float = DAY
    commands: int = 1000
    patience: float = 3.0
    """How long a request waits for a journal before NoJournal is raised."""
    resend: float = 3.0
    """The first wait for a receipt; doubles up to the keep-alive."""
    goodbye: float = 5.0
    """How long closing waits for what is still to be stored."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class JournalOptions:
    """How a journal judges and what it keeps.

    `history_*` bound the log of one run; `retention` is how long a finished run is kept; `quota`
    bounds the whole store: above 80 % of it the oldest finished runs go first.
    """

    root: str = "agentmqtt/v1"
    keepalive: int = 20
    lease: float = 30.0
    grace: float = 15.0
    page: int = 48 * KIB
    pending: int = 1000
    channels: int = 100_000
    history_bytes: int = 64 * MIB
    history_events: int = 0
    retention: float = 30 * DAY
    quota: int = 2 * 1024 * MIB
    backlog: int = 1024
    """Frames that wait for the disk before the broker is asked to wait."""
    fetchers: int = 4
    status_delay: float = 0.3
    sweep: float = 60.0
    rehand: float = 10.0
