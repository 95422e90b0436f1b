"""How an owner claims a name and gets its events stored, once and in order (PROTOCOL §5.3).

The shell passes in what was heard and the time; it gets back what to write and what to send. Rows go
out only after `committed`: an event is on disk before it is sent (§5.3, rule 1).
"""

from __future__ import annotations

import dataclasses
from collections import deque
from itertools import islice

from agentmqtt.core.outbox import ATTEMPT, Header, Intent, Outbox, Row
from agentmqtt.core.states import END, WRITER, Word, WriterState
from agentmqtt.frames import Ack, Claim, Frame, Grant, Refusal, Status, Why
from agentmqtt.types import Entry, Position, Value

KICKS = 3
"""Refusals after which a claimer that learned the current epoch gives up."""
DOUBTS = 3
"""Answers below the outbox, or below the grant, until the owner believes that the journal lost something."""


@dataclasses.dataclass(frozen=True, slots=True)
class Save:
    """Write the header (fsync it if `sync`) and the rows that changed, remove those that are gone: one transaction."""

    header: Header
    gone: tuple[Row, ...] = ()
    sync: bool = False
    changed: tuple[Row, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Identity:
    """Who claims: the process (`boot`), its connection, and what it asks for."""

    boot: bytes
    takeover: bool = False
    reopen: bool = False


class Writer:
    """One name on one owner's disk. `request` is a fresh request ID; `limit` bounds a frame's events in bytes."""

    def __init__(
        self,
        workflow: str,
        outbox: Outbox,
        identity: Identity,
        request: bytes,
        *,
        window: int = 64,
        limit: int = 48_000,
    ) -> None:
        self.workflow, self.outbox, self.state = workflow, outbox, WriterState.CLAIMING
        outbox.header.life += 1
        self._turn = 0
        self.request = self._ordered(request)
        self.left_unsent = 0
        self.ended: tuple[str, Value] | None = None
        self.refusal: Refusal | None = None
        self.stored = Position(0, 0)
        self.attempt = 0
        self._identity = identity
        self._replaces = outbox.header.epoch
        self._kicks = 0
        self._doubts = 0
        self._committed = outbox.next_seq - 1
        self._sent = 0
        self._flight: deque[int] = deque()
        self._window, self._window_now, self._limit = window, window, limit
        self._gap_at = -1

    # ---- what it stands for

    @property
    def owned(self) -> bool:
        """True while frames go out: the epoch is this process's own, and it wants no other."""
        return self.state is WriterState.OWNING

    @property
    def finished(self) -> bool:
        return self.state in (WriterState.FENCED, WriterState.ENDED, WriterState.REFUSED)

    @property
    def claiming(self) -> bool:
        return self.state in (WriterState.CLAIMING, WriterState.WITHDRAWING, WriterState.RECLAIMING)

    @property
    def drained(self) -> bool:
        return not self.outbox.rows

    def _move(self, word: Word) -> bool:
        target = WRITER.get((self.state, word))
        if target is None:
            return False
        self.state = target
        return True

    # ---- claiming (§5.1)

    def intend(self, intent: Intent) -> Save:
        """Ask for a withdraw with the first claim. The intent is on disk before the claim goes out (§5.5)."""
        self.outbox.header.intent, self.outbox.header.upto = intent, self.outbox.next_seq - 1
        return Save(self.outbox.header, sync=True)

    def withdraw(self, intent: Intent, request: bytes) -> Save | None:
        """Withdraw while owning: a new epoch whose parent is the cut (§5.5).

        None if the name is not owned, or if the cut is not known to be stored: a late copy of that claim
        could be granted after its refusal, when the log has reached the cut.
        """
        if isinstance(intent, Position) and intent > self.stored:
            return None
        if not self._move(Word.CUT):
            return None
        self._ask_again(request, self.outbox.header.epoch)
        return self.intend(intent)

    def claim(self, conn: int) -> Claim:
        """The claim to send, and to send again until it is answered."""
        header, who = self.outbox.header, self._identity
        return Claim(
            self.request,
            self.workflow,
            header.instance,
            who.boot,
            conn,
            header.epoch,
            self._replaces,
            header.inc,
            header.intent if isinstance(header.intent, Position) else None,
            header.intent == ATTEMPT,
            who.takeover and self.state is WriterState.CLAIMING,
            who.reopen,
        )

    def _ordered(self, request: bytes) -> bytes:
        """Request IDs of one disk rise: a late copy of an older claim shows by its first eight bytes (§5.1)."""
        self._turn += 1
        return (self.outbox.header.life << 20 | self._turn).to_bytes(8) + request

    def _ask_again(self, request: bytes, replaces: int) -> None:
        self.request, self._replaces = self._ordered(request), replaces
        self._sent = 0
        self._flight.clear()

    def on_grant(self, grant: Grant) -> Save | None:
        """The journal's yes. Returns what must be on disk (fsync) before the first frame."""
        if not self.claiming or grant.request != self.request or not self._move(Word.GRANT):
            return None
        header = self.outbox.header
        same = header.inc == grant.inc
        gone = self.outbox.drop_stored(grant.stored) if header.epoch and same else []
        changed: list[Row] = []
        if header.intent is not None and (same or header.intent == ATTEMPT or not header.epoch):
            withdrawn, changed = self.outbox.drop_withdrawn()
            gone += withdrawn
        gone += self.outbox.drop_released()
        self.outbox.renumber(grant.inc, grant.epoch, grant.parent)
        self.stored, self.attempt = grant.parent, grant.attempt
        self._sent, self._kicks, self._doubts, self._gap_at = 0, 0, 0, -1
        self._flight.clear()
        return Save(self.outbox.header, tuple(gone), sync=True, changed=tuple(changed))

    def on_refusal(self, refusal: Refusal, request: bytes, instance: bytes) -> Save | None:
        """The journal's no. `request` and `instance` are fresh IDs, in case the claim must change (§5.2)."""
        if not self.claiming or refusal.request != self.request:
            return None
        self.refusal = refusal
        if refusal.why is Why.ENDED:
            self.ended = (refusal.outcome, refusal.result)
            self._move(Word.ENDED)
            return None
        if refusal.why is Why.GONE:
            return self._give_up_cut(refusal, request, instance)
        if self.state is not WriterState.CLAIMING:
            return self._fence(Word.STALE, instance)
        if self._stale(refusal):
            return self._start_over(refusal, request, instance)
        self._learn(refusal, request)
        return None

    def _give_up_cut(self, refusal: Refusal, request: bytes, instance: bytes) -> Save | None:
        """The refusal names the current epoch: where it is another one, this owner has lost the name meanwhile.
        From another incarnation it says that the store was lost."""
        header = self.outbox.header
        if self.state is WriterState.WITHDRAWING and refusal.inc == header.inc and refusal.epoch != header.epoch:
            return self._fence(Word.STALE, instance)
        self._move(Word.GONE)
        header.intent = None
        self._ask_again(request, self._replaces)
        if refusal.inc != header.inc:
            self._void(request, refusal.epoch)
        return Save(header, sync=True)

    def _stale(self, refusal: Refusal) -> bool:
        """This disk held the name once, and the log went on without it (§5.2)."""
        header = self.outbox.header
        if header.epoch == refusal.epoch and header.inc == refusal.inc:
            return False
        return refusal.known or (header.epoch > 0 and header.inc == refusal.inc)

    def _start_over(self, refusal: Refusal, request: bytes, instance: bytes) -> Save:
        """Set aside what this disk still had, and claim as somebody new."""
        self.left_unsent += self.outbox.events
        gone = self.outbox.drop_all()
        top = self.outbox.next_seq - 1
        self.outbox.header = Header(instance, numbered=top, intent=self.outbox.header.intent, upto=top)
        self._ask_again(request, refusal.epoch)
        return Save(self.outbox.header, tuple(gone), sync=True)

    def _learn(self, refusal: Refusal, request: bytes) -> None:
        """A newcomer learns the current epoch and tries again; against a living owner only to take over."""
        self._kicks += 1
        blocked = refusal.live and not self._identity.takeover
        if blocked or self._kicks > KICKS:
            self._move(Word.OWNED)
            return
        self._ask_again(request, refusal.epoch)

    def _fence(self, word: Word, instance: bytes) -> Save | None:
        if not self._move(word):
            return None
        self.left_unsent += self.outbox.events
        gone = self.outbox.drop_all()
        self.outbox.header = Header(instance, numbered=self.outbox.next_seq - 1)
        return Save(self.outbox.header, tuple(gone), sync=True)

    def _void(self, request: bytes, replaces: int) -> None:
        """The journal does not know this epoch: claim again with what is here (§5.3)."""
        if self._move(Word.VOID):
            self._ask_again(request, replaces)

    # ---- emitting

    def append(self, entries: tuple[Entry, ...], size: int, time: int) -> Row:
        """Add an atomic group to the outbox. The shell writes the row, then says `committed`.

        It gets numbers while the epoch is this process's own, also while a withdraw is asked for: if that
        is refused, a copy of this disk must not find rows without numbers that were sent since.
        """
        holds = self.state in (WriterState.OWNING, WriterState.WITHDRAWING)
        return self.outbox.append(entries, size, time, owned=holds)

    def committed(self, seq: int) -> None:
        """Rows up to `seq` are on disk."""
        self._committed = max(self._committed, seq)

    def pump(self) -> list[Frame]:
        """Frames to send now. Nagle: at once while the window has room, larger ones when it has not (§4.4)."""
        frames: list[Frame] = []
        while self.owned and len(self._flight) < self._window_now:
            rows = self._next_rows()
            if not rows:
                break
            frames.append(self._frame(rows))
            self._sent = rows[-1].seq
            self._flight.append(rows[-1].last)
        return frames

    def _next_rows(self) -> list[Row]:
        rows: list[Row] = []
        size = 0
        for row in islice(self.outbox.rows, self._skip(), None):
            size += row.size
            if row.seq > self._committed or (rows and size > self._limit):
                break
            rows.append(row)
        return rows

    def _skip(self) -> int:
        """How many rows of the outbox are in flight: seqs are dense but for dropped ones."""
        rows = self.outbox.rows
        if not rows or self._sent < rows[0].seq:
            return 0
        guess = min(self._sent - rows[0].seq + 1, len(rows))
        while guess > 0 and rows[guess - 1].seq > self._sent:
            guess -= 1
        return guess

    def _frame(self, rows: list[Row]) -> Frame:
        header = self.outbox.header
        entries = tuple(entry for row in rows for entry in row.entries)
        return Frame(header.inc, header.epoch, header.parent, rows[0].first, rows[0].time, entries)

    def resend(self, *, probe: bool = True) -> list[Frame]:
        """Nobody answered, or there is a new link or journal: begin again at the first unreceipted row.

        Begins with a small window. Without rows an empty frame asks where the journal stands.
        """
        if not self.owned:
            return []
        self._sent = 0
        self._flight.clear()
        self._gap_at = -1
        self._window_now = max(1, self._window_now // 8)
        frames = self.pump()
        if frames or not probe:
            return frames
        header = self.outbox.header
        return [Frame(header.inc, header.epoch, header.parent, self.outbox.top + 1, 0, ())]

    # ---- what it hears (§5.3)

    def on_ack(self, ack: Ack, request: bytes, instance: bytes) -> Save | None:
        """A receipt or a refusal of frames. Believed only for this incarnation and epoch."""
        if self.state not in (WriterState.OWNING, WriterState.WITHDRAWING):
            return None
        header = self.outbox.header
        if ack.inc != header.inc:
            self._void(request, ack.epoch)
            return None
        if ack.epoch != header.epoch:
            return self._other_epoch(ack, request, instance)
        if ack.n > self.outbox.top:  # this disk was rolled back below what it had sent
            self._void(request, ack.epoch)
            return None
        gone = self.outbox.drop_stored(ack.n)
        self.stored = max(self.stored, Position(ack.epoch, ack.n)) if ack.n else self.stored
        if gone:
            return self._advance(ack, gone)
        if ack.why is Why.GAP:
            self._on_gap(ack, request)
        return None

    def _other_epoch(self, ack: Ack, request: bytes, instance: bytes) -> Save | None:
        if ack.epoch > self.outbox.header.epoch:
            return self._fence(Word.NEWER, instance)
        if ack.why is Why.VOID:  # about somebody's frame of long ago, or the journal forgot a grant
            self._doubt(request)
        return None

    def _doubt(self, request: bytes) -> None:
        """What the journal says cannot be: late copies are believed when they come again and again."""
        self._doubts += 1
        if self._doubts >= DOUBTS:
            self._void(request, self.outbox.header.epoch)

    def _advance(self, ack: Ack, gone: list[Row]) -> Save:
        self._doubts = 0
        while self._flight and self._flight[0] <= ack.n:
            self._flight.popleft()
            self._window_now = min(self._window, self._window_now + 1)
        for row in gone:
            for entry in row.entries:
                if entry.type == END:
                    self.ended = (entry.data["outcome"], entry.data.get("result"))
        return Save(self.outbox.header, tuple(gone))

    def _on_gap(self, ack: Ack, request: bytes) -> None:
        if ack.n < self.outbox.header.base:
            self._doubt(request)
        elif ack.n != self._gap_at:  # one gap is told once for every frame behind it
            self._gap_at = ack.n
            self._sent = 0
            self._flight.clear()

    def on_status(self, status: Status, request: bytes, instance: bytes) -> Save | None:
        """An owner reads the status too: a higher epoch fences it even when it is silent (§5.3)."""
        if self.state is not WriterState.OWNING or not status.inc:
            return None
        header = self.outbox.header
        if status.inc != header.inc:
            self._void(request, status.epoch)
            return None
        return self._fence(Word.NEWER, instance) if status.epoch > header.epoch else None
