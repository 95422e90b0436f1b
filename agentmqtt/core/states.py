"""The state machines as tables, in one file that does not know which role reads it.

Tests, the documentation and the roles read these tables; nothing else decides a transition.
"""

from __future__ import annotations

import enum
from typing import Final

from agentmqtt.types import CommandState, RunState

# Reserved event types (PROTOCOL §4.5).
STATE: Final = "am.state"
MARK: Final = "am.mark"
RECEIPT: Final = "am.receipt"
RECEIVED: Final = "am.received"
STEP: Final = "am.step"
CHILD: Final = "am.child"
ASK: Final = "am.ask"
ANSWER: Final = "am.answer"
RELEASE: Final = "am.release"
END: Final = "am.end"

OUTCOMES: Final[dict[str, RunState]] = {
    "done": RunState.DONE,
    "failed": RunState.FAILED,
    "cancelled": RunState.CANCELLED,
}
"""How a run can end, and the state that says so (§8.1)."""


class WriterState(enum.StrEnum):
    """Where an owner stands with one name (§5.3)."""

    CLAIMING = "claiming"
    OWNING = "owning"
    WITHDRAWING = "withdrawing"
    RECLAIMING = "reclaiming"
    FENCED = "fenced"
    ENDED = "ended"
    REFUSED = "refused"


class Word(enum.StrEnum):
    """What an owner hears, as far as its state is concerned (§5.3)."""

    GRANT = "grant"
    OWNED = "owned"
    STALE = "stale"
    ENDED = "ended"
    GONE = "gone"
    NEWER = "newer"
    VOID = "void"
    CUT = "cut"


WRITER: Final[dict[tuple[WriterState, Word], WriterState]] = {
    (WriterState.CLAIMING, Word.GRANT): WriterState.OWNING,
    (WriterState.CLAIMING, Word.OWNED): WriterState.REFUSED,
    (WriterState.CLAIMING, Word.STALE): WriterState.CLAIMING,  # as somebody new (§5.3)
    (WriterState.CLAIMING, Word.ENDED): WriterState.ENDED,
    (WriterState.CLAIMING, Word.GONE): WriterState.CLAIMING,
    (WriterState.OWNING, Word.NEWER): WriterState.FENCED,
    (WriterState.OWNING, Word.VOID): WriterState.RECLAIMING,
    (WriterState.OWNING, Word.CUT): WriterState.WITHDRAWING,
    (WriterState.RECLAIMING, Word.GRANT): WriterState.OWNING,
    (WriterState.RECLAIMING, Word.OWNED): WriterState.FENCED,
    (WriterState.RECLAIMING, Word.GONE): WriterState.RECLAIMING,
    (WriterState.RECLAIMING, Word.STALE): WriterState.FENCED,
    (WriterState.RECLAIMING, Word.ENDED): WriterState.ENDED,
    (WriterState.WITHDRAWING, Word.GRANT): WriterState.OWNING,
    (WriterState.WITHDRAWING, Word.GONE): WriterState.OWNING,
    (WriterState.WITHDRAWING, Word.OWNED): WriterState.FENCED,
    (WriterState.WITHDRAWING, Word.STALE): WriterState.FENCED,
    (WriterState.WITHDRAWING, Word.ENDED): WriterState.ENDED,
    (WriterState.WITHDRAWING, Word.VOID): WriterState.RECLAIMING,
}
"""A pair that is not here changes nothing: while a claim is out, its answer alone says who owns the name.
A newer epoch may be the one that was asked for."""


class Pending(enum.StrEnum):
    """A command that has no outcome yet, as the journal keeps it (§7.2)."""

    PENDING = "pending"
    HANDED = "handed"


FINAL: Final[frozenset[str]] = frozenset(
    {
        CommandState.APPLIED,
        CommandState.REJECTED,
        CommandState.EXPIRED,
        CommandState.TOO_LATE,
        CommandState.WITHDRAWN,
        CommandState.SUPERSEDED,
        CommandState.UNKNOWN,
    }
)
"""Outcomes. The first durable one stays (§7.3)."""

RECEIPTS: Final[frozenset[str]] = frozenset(
    {
        CommandState.APPLIED,
        CommandState.REJECTED,
        CommandState.EXPIRED,
        CommandState.TOO_LATE,
        CommandState.WITHDRAWN,
        CommandState.SUPERSEDED,
    }
)
"""Outcomes that an owner can write in a receipt."""

AT_END: Final[dict[tuple[Pending, bool], CommandState]] = {
    (Pending.PENDING, False): CommandState.TOO_LATE,
    (Pending.PENDING, True): CommandState.UNKNOWN,
    (Pending.HANDED, False): CommandState.TOO_LATE,
    (Pending.HANDED, True): CommandState.UNKNOWN,
}
"""What becomes of a command (state, again) when the run ends (§7.4).

An owner writes a receipt for everything that it received before it ends: what is handed without one
never reached it.
"""

AT_DEADLINE: Final[dict[tuple[Pending, bool], CommandState]] = {
    (Pending.PENDING, False): CommandState.EXPIRED,
    (Pending.PENDING, True): CommandState.UNKNOWN,
    (Pending.HANDED, False): CommandState.UNKNOWN,
    (Pending.HANDED, True): CommandState.UNKNOWN,
}
"""What becomes of it at its deadline; a handed one only while no owner lives (§7.4)."""

AT_WITHDRAW: Final[dict[bool, CommandState]] = {False: CommandState.WITHDRAWN, True: CommandState.UNKNOWN}
"""What becomes of a waiting command (again) that its sender takes back: an owner that died may have begun it (§7.5)."""
