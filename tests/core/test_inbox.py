"""Each command reaches the application once (PROTOCOL §7.2, §7.3)."""

from __future__ import annotations

import pytest

from agentmqtt.core.inbox import REMEMBERED, Inbox, receipt
from agentmqtt.frames import Handed
from agentmqtt.types import CommandState, Entry
from tests.core import make
from tests.core.make import handed

APPLIED = Entry("am.receipt", {"id": "c1", "outcome": "applied"})


def test_a_receipt_has_a_reason_only_if_there_is_one() -> None:
    assert receipt("c1", CommandState.APPLIED) == APPLIED
    rejected = receipt("c1", CommandState.REJECTED, "no")
    assert rejected.data == {"id": "c1", "outcome": "rejected", "reason": "no"}
    assert type(rejected.data["outcome"]) is str


def test_a_command_is_given_once() -> None:
    inbox = Inbox()
    assert inbox.on_handed(handed()) == handed()
    assert inbox.on_handed(handed()) is None
    assert inbox.on_handed(handed(epoch=2, again=True)) is None
    assert inbox.unsettled == ["c1"]


def test_a_settled_command_waits_for_its_receipt_to_be_stored() -> None:
    inbox = Inbox()
    inbox.on_handed(handed())
    assert inbox.settle("c1", CommandState.APPLIED) == APPLIED
    assert inbox.unsettled == []
    assert inbox.on_handed(handed()) is None


@pytest.mark.parametrize("newer", [handed(epoch=2, again=True), handed(inc=make.OTHER)])
def test_a_newer_epoch_gets_the_receipt_once_more_and_no_effect(newer: Handed) -> None:
    inbox = Inbox()
    inbox.on_handed(handed())
    inbox.settle("c1", CommandState.APPLIED)
    assert inbox.on_handed(newer) == APPLIED
    assert inbox.on_handed(newer) is None


def test_receipts_that_an_earlier_process_left_are_on_their_way() -> None:
    left: dict[str, Entry | None] = {"c1": None}
    inbox = Inbox(left)
    assert inbox.on_handed(handed()) is None
    left.clear()  # the outbox was set aside, and the receipt with it
    assert inbox.on_handed(handed()) == handed()


def test_a_receipt_that_was_stored_in_a_lost_store_is_given_again() -> None:
    left: dict[str, Entry | None] = {"c1": None}
    inbox = Inbox(left)
    left["c1"] = APPLIED  # it left the outbox
    assert inbox.on_handed(handed()) == APPLIED
    assert inbox.on_handed(handed()) is None  # repeated before the journal saw it


def test_what_is_remembered_is_bounded_but_open_commands_stay() -> None:
    inbox = Inbox()
    inbox.on_handed(handed("open"))
    for n in range(REMEMBERED + 10):
        inbox.on_handed(handed(str(n)))
        inbox.settle(str(n), CommandState.APPLIED)
    assert len(inbox._known) == REMEMBERED
    assert len(inbox._answered_in) == REMEMBERED
    assert inbox.unsettled == ["open"]
    assert inbox.on_handed(handed("0")) == handed("0")


def test_open_commands_alone_may_be_more() -> None:
    inbox = Inbox()
    for n in range(REMEMBERED + 2):
        inbox.on_handed(handed(str(n)))
    assert len(inbox.unsettled) == REMEMBERED + 2
