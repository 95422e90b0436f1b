"""Every command ends once (PROTOCOL §7)."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmqtt.core.effects import DropCommand, Effect, SaveCommand, Tell
from agentmqtt.core.mailbox import DAY, HAND_WINDOW, PATIENCE, SLACK, Mailbox, Row
from agentmqtt.core.states import AT_DEADLINE, AT_END, FINAL, RECEIPTS, Pending
from agentmqtt.frames import Handed, Outcome
from agentmqtt.types import CommandState, Value
from tests import strategies
from tests.core import make
from tests.core.make import INC, NOW, WF, command, told

OPEN = list(itertools.product(Pending, [False, True]))


def accept(box: Mailbox, id_: str = "c1", *, now: int = NOW, ended: bool = False, **fields: Value) -> list[Effect]:
    return box.accept(command(id_, **fields), "sender", now, ended=ended)


def box_with(state: str = Pending.PENDING, *, again: bool = False, deadline: int = NOW) -> Mailbox:
    """A command table with one row."""
    box = Mailbox(WF)
    box.load(Row(1, "c1", "interrupt", {"x": 1}, "sender", deadline, state, again))
    return box


def outcome(state: CommandState, reason: Value = None, *, now: int = NOW, id_: str = "c1") -> Outcome:
    return Outcome(WF, id_, state, reason, now)


def saved(state: CommandState, *, now: int) -> list[Effect]:
    """One row was written, then its sender was told."""
    return [SaveCommand(1), Tell("sender", outcome(state, now=now))]


# ---- §7.1


def test_a_command_is_stored_before_it_is_accepted() -> None:
    box = Mailbox(WF)
    assert accept(box) == saved(CommandState.ACCEPTED, now=NOW)
    assert box.row(1).state == Pending.PENDING


def test_the_same_id_is_answered_with_its_state_to_whoever_asks() -> None:
    box = Mailbox(WF)
    accept(box)
    again = box.accept(command(kind="other"), "somebody else", NOW + 1, ended=False)
    assert again == [Tell("somebody else", outcome(CommandState.ACCEPTED, now=NOW + 1))]
    box.receipt({"id": "c1", "outcome": "rejected", "reason": "no"}, NOW + 2)
    assert told(accept(box, now=NOW + 3)) == [outcome(CommandState.REJECTED, "no", now=NOW + 3)]
    assert len(box.rows) == 1


@pytest.mark.parametrize(
    ("asked", "kept"), [(0, NOW + DAY), (NOW + 5, NOW + 5), (NOW, NOW), (NOW + 90 * DAY, NOW + 30 * DAY)]
)
def test_deadlines(asked: int, kept: int) -> None:
    box = Mailbox(WF)
    accept(box, deadline=asked)
    assert box.row(1).deadline == kept


@pytest.mark.parametrize(
    ("late", "state"),
    [(1, CommandState.EXPIRED), (SLACK, CommandState.EXPIRED), (SLACK + 1, CommandState.UNKNOWN)],
)
def test_a_command_that_comes_after_its_deadline_is_not_stored(late: int, state: CommandState) -> None:
    """Expired only while it is certain that nobody has forgotten another outcome."""
    box = Mailbox(WF)
    now = NOW + SLACK
    assert accept(box, deadline=now - late, now=now) == [Tell("sender", outcome(state, now=now))]
    assert not box.rows


def test_a_command_for_a_run_that_ended_is_too_late() -> None:
    box = Mailbox(WF)
    assert accept(box, ended=True) == saved(CommandState.TOO_LATE, now=NOW)


def test_without_room_a_command_is_queued_and_not_stored() -> None:
    box = Mailbox(WF, pending_limit=1)
    accept(box)
    assert told(accept(box, "c2")) == [outcome(CommandState.QUEUED, "full", id_="c2")]
    box.receipt({"id": "c1", "outcome": "applied"}, NOW)
    assert told(accept(box, "c2")) == [outcome(CommandState.ACCEPTED, id_="c2")]


# ---- §7.2


def test_commands_are_handed_in_order_and_only_so_many() -> None:
    box = Mailbox(WF)
    for n in range(HAND_WINDOW + 1):
        accept(box, str(n))
    effects = box.hand(INC, 3, "owner")
    assert [message.id for message in told(effects)] == [str(n) for n in range(HAND_WINDOW)]
    assert effects[0] == SaveCommand(1)
    assert effects[1] == Tell("owner", Handed(WF, INC, 3, "0", "interrupt", None, "sender", NOW + DAY, again=False))
    assert box.hand(INC, 3, "owner") == []
    box.receipt({"id": "5", "outcome": "applied"}, NOW)
    assert [message.id for message in told(box.hand(INC, 3, "owner"))] == [str(HAND_WINDOW)]


def test_what_is_handed_is_told_again_without_a_write() -> None:
    box = Mailbox(WF)
    accept(box)
    assert box.hand_again(INC, 1, "owner") == []
    box.hand(INC, 1, "owner")
    accept(box, "c2")
    effects = box.hand_again(INC, 1, "owner")
    assert [message.id for message in told(effects)] == ["c1"]
    assert len(effects) == 1


def test_a_newer_epoch_takes_back_what_was_handed() -> None:
    box = Mailbox(WF)
    accept(box)
    box.hand(INC, 1, "owner")
    accept(box, "c2")
    assert box.take_back(NOW) == [SaveCommand(1)]
    assert box.take_back(NOW) == []
    assert [(message.id, message.again) for message in told(box.hand(INC, 2, "next"))] == [("c1", True), ("c2", False)]


# ---- §7.3


@pytest.mark.parametrize("word", sorted(RECEIPTS))
@pytest.mark.parametrize("state", [*Pending])
def test_a_receipt_ends_a_command(state: str, word: str) -> None:
    box = box_with(state)
    effects = box.receipt({"id": "c1", "outcome": word, "reason": "why"}, NOW)
    assert effects == [SaveCommand(1), Tell("sender", outcome(CommandState(word), "why"))]
    assert box.row(1).data is None
    assert box.open == []


@pytest.mark.parametrize("first", sorted(FINAL))
def test_the_first_outcome_stays(first: str) -> None:
    box = box_with(first)
    assert box.receipt({"id": "c1", "outcome": "applied"}, NOW) == []
    assert box.end(NOW) == []
    assert box.hand(INC, 1, "owner") == box.hand_again(INC, 1, "owner") == box.take_back(NOW) == []
    assert box.row(1).state == first


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"id": "c1"},
        {"id": 1, "outcome": "applied"},
        {"id": "c1", "outcome": "unknown"},
        {"id": "c1", "outcome": []},
    ],
)
def test_a_receipt_that_is_none_is_ignored(data: Value) -> None:
    box = box_with(Pending.HANDED)
    assert box.receipt(data, NOW) == []
    assert box.row(1).state == Pending.HANDED


def test_a_receipt_for_an_unknown_command_waits_for_its_sender() -> None:
    box = Mailbox(WF)
    assert box.receipt({"id": "c1", "outcome": "applied", "reason": "did"}, NOW) == [SaveCommand(1)]
    assert told(accept(box)) == [outcome(CommandState.APPLIED, "did")]


# ---- §7.4


@pytest.mark.parametrize(("state", "again"), OPEN)
def test_at_the_end_of_the_run(state: Pending, again: bool) -> None:
    assert box_with(state, again=again).end(NOW) == saved(AT_END[state, again], now=NOW)


@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize(("state", "again"), OPEN)
def test_at_the_deadline(state: Pending, again: bool, live: bool) -> None:
    box = box_with(state, again=again)
    waits = 0 if state is Pending.PENDING else PATIENCE
    assert box.tick(NOW + waits, live=live) == []
    due = box.tick(NOW + waits + 1, live=live)
    if live and state is Pending.HANDED:
        assert due == []
    else:
        assert due == saved(AT_DEADLINE[state, again], now=NOW + waits + 1)


@pytest.mark.parametrize("state", sorted(FINAL))
def test_an_outcome_is_remembered_until_nobody_can_ask(state: str) -> None:
    box = box_with(state)
    assert box.tick(NOW + SLACK, live=True) == []
    assert box.tick(NOW + SLACK + 1, live=True) == [DropCommand(1)]
    assert not box.rows


# ---- disk

ROWS = st.builds(
    Row,
    seq=strategies.COUNTS,
    id=strategies.LABELS,
    kind=strategies.LABELS,
    data=strategies.VALUES,
    sender=strategies.LABELS,
    deadline=strategies.COUNTS,
    state=st.sampled_from([*Pending, *sorted(FINAL)]),
    again=st.booleans(),
    reason=strategies.VALUES,
)


@given(ROWS)
def test_a_row_comes_back_from_its_record(row: Row) -> None:
    assert Row.unpack(row.seq, make.through_disk(row.pack())) == row


def test_numbers_go_on_after_the_loaded_rows() -> None:
    box = box_with(CommandState.APPLIED)
    box.load(Row(7, "c7", "interrupt", None, "sender", NOW + DAY))
    assert [effect for effect in accept(box, "c8") if isinstance(effect, SaveCommand)] == [SaveCommand(8)]
    assert [row.id for row in box.open] == ["c7", "c8"]
