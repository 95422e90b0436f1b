"""Hypothesis strategies for every message of the protocol."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from agentmqtt import frames as f
from agentmqtt.types import CommandState, Entry, OwnerState, Position, RunState, When

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
LABELS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
COUNTS = st.integers(0, 2**53 - 1)
POSITIONS = st.builds(Position, COUNTS, COUNTS)
INCS = st.binary(max_size=16)
IDS = st.binary(max_size=64)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**53) + 1, 2**53 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    TEXT,
    st.binary(),
)
VALUES = st.recursive(SCALARS, lambda part: st.lists(part, max_size=4) | st.dictionaries(TEXT, part, max_size=4))
ENTRIES = st.lists(st.builds(Entry, st.sampled_from(["text", "am.state", "tool"]) | LABELS, VALUES), max_size=8)


@st.composite
def items(draw: st.DrawFn) -> tuple[f.Item, ...]:
    """Pages as they come: runs that continue, sometimes with a jump."""
    made: list[f.Item] = []
    epoch, n, time = draw(st.integers(0, 5)), draw(st.integers(0, 9)), draw(st.integers(0, 2**45))
    for _ in range(draw(st.integers(0, 8))):
        span = draw(st.integers(1, 3))
        time = max(0, time + draw(st.integers(-5, 5)))
        made.append(f.Item(epoch, n, span, time, draw(st.sampled_from(["text", "tool"])), draw(VALUES)))
        n += span
        if draw(st.integers(0, 5)) == 0:
            epoch, n = epoch + 1, 1
    return tuple(made)


def build(cls: Any, **fields: Any) -> st.SearchStrategy[Any]:
    """One message class; what is not given follows from the field's name."""
    return st.builds(cls, **{name: fields.get(name, FIELDS[name]) for name in cls.__dataclass_fields__})


FIELDS: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(["request", "boot", "instance"], IDS),
    **dict.fromkeys(["epoch", "first", "time", "n", "conn", "mine", "replaces", "stored", "attempt"], COUNTS),
    **dict.fromkeys(["limit", "deadline", "now", "at", "updated", "frame_limit", "event_limit"], COUNTS),
    **dict.fromkeys(["parent", "position", "asked", "start", "tail"], POSITIONS),
    **dict.fromkeys(["takeover", "reopen", "live", "known", "again", "more", "online", "deflate"], st.booleans()),
    **dict.fromkeys(["id", "kind", "sender"], LABELS),
    **dict.fromkeys(["outcome", "after", "version"], TEXT),
    **dict.fromkeys(["data", "detail", "result", "reason"], VALUES),
    "inc": INCS,
    "workflow": LABELS,
    "entries": ENTRIES.map(tuple),
    "cut": st.none() | POSITIONS,
    "why": st.sampled_from(f.Why),
    "state": st.sampled_from(RunState),
    "owner": st.sampled_from(OwnerState),
    "names": st.lists(LABELS, max_size=4).map(tuple),
    "when": st.sampled_from(When),
    "items": items(),
    "lease": st.floats(0.1, 1e6),
    "rows": st.lists(
        st.builds(f.Row, LABELS, st.sampled_from(RunState), st.sampled_from(OwnerState), COUNTS, POSITIONS, COUNTS),
        max_size=4,
    ).map(tuple),
}
FRAMES = build(f.Frame)
ACKS = build(f.Ack, why=st.none() | st.sampled_from(f.Why))
COMMANDS = build(f.Command)
REQUESTS = st.one_of(
    build(f.Claim, attempt=st.booleans()),
    build(f.Fetch, request=COUNTS),
    build(f.Describe, request=COUNTS),
    build(f.Withdraw),
    build(f.ListCommands, request=COUNTS),
    build(f.ListWatchers, request=COUNTS),
    build(f.Watching, names=st.lists(LABELS, max_size=4).map(tuple)),
    build(f.Renew),
    build(f.ListRuns, request=COUNTS),
)
RESPONSES = st.one_of(
    build(f.Grant),
    build(f.Refusal),
    build(f.Page, request=COUNTS, kind=st.sampled_from(f.PageKind)),
    build(f.Handed),
    build(f.Recall),
    build(f.WatcherList, request=COUNTS, rows=st.lists(st.builds(f.WatcherRow, LABELS, COUNTS), max_size=4).map(tuple)),
    build(
        f.CommandList,
        request=COUNTS,
        rows=st.lists(
            st.builds(
                f.PendingCommand, LABELS, LABELS, LABELS, st.sampled_from(CommandState), COUNTS, st.sampled_from(When)
            ),
            max_size=4,
        ).map(tuple),
    ),
    build(f.Outcome, state=st.sampled_from(CommandState)),
    build(f.Status, request=COUNTS),
    build(f.Listing, request=COUNTS),
)
