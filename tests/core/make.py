"""Builders: one channel, its owners and its readers, with values that need not be said."""

from __future__ import annotations

from typing import Any

from agentmqtt import wire
from agentmqtt.core.chain import Epoch
from agentmqtt.core.effects import Effect, Tell
from agentmqtt.core.ledger import Ledger
from agentmqtt.core.outbox import Header, Outbox
from agentmqtt.core.writer import Identity, Writer
from agentmqtt.frames import (
    Ack,
    Claim,
    Command,
    Fetch,
    Frame,
    Grant,
    Handed,
    Item,
    Page,
    PageKind,
    Refusal,
    Status,
    Why,
)
from agentmqtt.types import ORIGIN, Entry, OwnerState, Position, RunState, Value

WF = "run"
INC, OTHER = b"inc-here", b"inc-else"
DISK_A, DISK_B = b"disk-a", b"disk-b"
FRESH = (b"again", DISK_B)
"""Request ID and instance for a claim that must change."""
BOOT_A, BOOT_A2, BOOT_B = b"boot-a", b"boot-a2", b"boot-b"
NOW = 1_000_000
END = Entry("am.end", {"outcome": "done", "result": 42})
RELEASE = Entry("am.release", None)


def at(text: str) -> Position:
    """`7.42` as a position."""
    epoch, n = text.split(".")
    return Position(int(epoch), int(n))


def texts(count: int, first: int = 1) -> tuple[Entry, ...]:
    return tuple(Entry("text", f"<{n}>") for n in range(first, first + count))


def tools(count: int) -> tuple[Entry, ...]:
    return tuple(Entry("tool", n) for n in range(count))


def ask(id_: str) -> Entry:
    return Entry("am.ask", {"id": id_})


def answer(id_: str) -> Entry:
    return Entry("am.answer", {"id": id_})


def receipt(id_: str, outcome: str = "applied", **more: Value) -> Entry:
    return Entry("am.receipt", {"id": id_, "outcome": outcome, **more})


def frame(
    place: str, entries: tuple[Entry, ...], *, parent: Position = ORIGIN, inc: bytes = INC, time: int = NOW
) -> Frame:
    """A frame whose first event stands at `place`."""
    return Frame(inc, at(place).epoch, parent, at(place).n, time, entries)


def ack(place: str, why: Why | None = None, inc: bytes = INC) -> Ack:
    return Ack(inc, at(place).epoch, at(place).n, why)


def status(tail: str, *, epoch: int = 1, parent: Position = ORIGIN, inc: bytes = INC) -> Status:
    return Status(WF, inc, epoch, parent, at(tail), RunState.RUNNING, OwnerState.ONLINE, NOW, NOW)


def claim(**changes: Any) -> Claim:
    """A newcomer's first claim, with `changes`."""
    fields: dict[str, Any] = {
        "request": b"req",
        "workflow": WF,
        "instance": DISK_A,
        "boot": BOOT_A,
        "conn": 1,
        "mine": 0,
        "replaces": 0,
        "inc": b"",
    }
    return Claim(**fields | changes)


def grant(writer: Writer, epoch: int, **changes: Any) -> Grant:
    """The journal's yes to what `writer` asks now."""
    fields: dict[str, Any] = {"inc": INC, "parent": ORIGIN, "stored": 0, "attempt": 1}
    return Grant(request=writer.request, workflow=WF, epoch=epoch, **fields | changes)


def refusal(writer: Writer, why: Why, **changes: Any) -> Refusal:
    """The journal's no to what `writer` asks now."""
    fields: dict[str, Any] = {"inc": INC, "epoch": 1, "live": False, "known": False}
    return Refusal(request=writer.request, workflow=WF, why=why, **fields | changes)


def page(request: int, asked: str, items: tuple[Item, ...] = (), **changes: Any) -> Page:
    """An `ok` answer that goes to the tail, with `changes`."""
    tail = Position(items[-1].epoch, items[-1].first + items[-1].span - 1) if items else at(asked)
    fields: dict[str, Any] = {
        "inc": INC,
        "epoch": 1,
        "parent": ORIGIN,
        "kind": PageKind.OK,
        "start": at(asked),
        "tail": tail,
    }
    return Page(request=request, workflow=WF, asked=at(asked), items=items, **fields | changes)


def item(place: str, data: Value = None, *, span: int = 1, kind: str = "text") -> Item:
    data = f"<{place}>" if data is None else data
    return Item(at(place).epoch, at(place).n, span, NOW, kind, data)


def items(epoch: int, first: int, last: int) -> tuple[Item, ...]:
    return tuple(item(f"{epoch}.{n}") for n in range(first, last + 1))


def fetch(place: str, inc: bytes = INC) -> Fetch:
    return Fetch(1, WF, inc, at(place))


def command(id_: str = "c1", **changes: Any) -> Command:
    fields: dict[str, Any] = {"workflow": WF, "kind": "interrupt", "data": None}
    return Command(id=id_, **fields | changes)


def handed(id_: str = "c1", epoch: int = 1, *, again: bool = False, inc: bytes = INC) -> Handed:
    return Handed(WF, inc, epoch, id_, "interrupt", None, "sender", NOW, again)


def epoch(parent: Position = ORIGIN, **changes: Any) -> Epoch:
    fields: dict[str, Any] = {
        "instance": DISK_A,
        "boot": BOOT_A,
        "client": "a",
        "request": b"req",
        "cut": False,
        "attempt": 1,
        "attempt_from": ORIGIN,
    }
    return Epoch(parent=parent, **fields | changes)


def ledger(*entries: Entry) -> Ledger:
    """A channel that disk A owns in epoch 1, in which `entries` are stored."""
    made = Ledger(WF)
    made.on_claim(claim(request=b"req-1"), "a", NOW, INC)
    if entries:
        made.on_frame(frame("1.1", entries), NOW)
    return made


def told(effects: list[Effect]) -> list[Any]:
    """The messages among effects, in order."""
    return [effect.message for effect in effects if isinstance(effect, Tell)]


def writer(header: Header | None = None, rows: Any = (), **options: Any) -> Writer:
    """An owner that has not been answered yet."""
    identity = Identity(BOOT_A, options.pop("takeover", False), options.pop("reopen", False))
    return Writer(WF, Outbox(header or Header(DISK_A), rows), identity, b"fresh-id", **options)


def owning(epoch: int = 1, **options: Any) -> Writer:
    """An owner with a grant."""
    made = writer(**options)
    assert made.on_grant(grant(made, epoch)) is not None
    return made


def emit(writer: Writer, *entries: Entry, size: int = 10) -> None:
    """One row per entry, on disk."""
    for entry in entries:
        writer.committed(writer.append((entry,), size, NOW).seq)


def through_disk(value: Value) -> Value:
    """A record as the store gives it back."""
    return wire.unpack(wire.pack(value))
