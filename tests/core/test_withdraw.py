"""A command that its sender wants back: withdrawn or too late, and never both (PROTOCOL §7.5)."""

from __future__ import annotations

from typing import Any

import pytest

from agentmqtt.core.effects import SaveCommand, Tell
from agentmqtt.core.inbox import Inbox
from agentmqtt.core.mailbox import DAY, SLACK, Mailbox, Row
from agentmqtt.core.states import Pending
from agentmqtt.frames import Handed, Outcome, Recall, Withdraw
from agentmqtt.types import CommandState, When
from tests.core import channels, make
from tests.core.make import INC, NOW, OTHER, WF, command, handed, receipt, told


def box(state: str = "", **fields: Any) -> Mailbox:
    """A mailbox that holds `c1` of `sender` in a state, or nothing."""
    made = Mailbox(WF)
    if state:
        made.accept(command(), "sender", NOW, ended=False)
        row = made.rows["c1"]
        if state != Pending.PENDING:
            made.hand(INC, 1, "owner")
        for name, value in fields.items():
            setattr(row, name, value)
    return made


def states(effects: list[Any]) -> list[str]:
    return [effect.message.state for effect in effects if isinstance(effect, Tell)]


def test_one_that_waits_is_withdrawn() -> None:
    made = box(Pending.PENDING)
    assert states(made.withdraw("c1", "sender", 0, NOW)) == ["withdrawn"]
    assert not made.open
    assert states(made.accept(command(), "sender", NOW, ended=False)) == ["withdrawn"]


def test_one_that_an_owner_died_with_may_have_happened() -> None:
    made = box(Pending.PENDING, again=True)
    assert states(made.withdraw("c1", "sender", 0, NOW)) == ["unknown"]


def test_one_that_comes_later_finds_its_tombstone() -> None:
    made = box()
    assert states(made.withdraw("c1", "sender", 0, NOW)) == ["withdrawn"]
    assert states(made.accept(command(), "sender", NOW, ended=False)) == ["withdrawn"]
    assert made.hand(INC, 1, "owner") == []


def test_one_that_is_forgotten_is_unknown() -> None:
    made = box()
    effects = made.withdraw("c1", "sender", NOW - SLACK - 1, NOW)
    assert states(effects) == ["unknown"]
    assert not made.rows


def test_one_that_is_held_is_asked_for_at_its_owner_until_it_answers() -> None:
    made = box(Pending.HANDED)
    assert states(made.withdraw("c1", "sender", 0, NOW)) == ["accepted"]
    assert told(made.recalls("c1", INC, 1, "owner")) == [Recall(WF, INC, 1, "c1")]
    again = told(made.hand_again(INC, 1, "owner"))
    assert [type(message) for message in again] == [Handed, Recall]
    assert states(made.receipt(receipt("c1", "withdrawn").data, NOW)) == ["withdrawn"]
    assert made.recalls("c1", INC, 1, "owner") == []


def test_one_that_was_asked_for_does_not_come_again_with_a_new_owner() -> None:
    made = box(Pending.HANDED)
    made.withdraw("c1", "sender", 0, NOW)
    assert states(made.take_back(NOW)) == ["unknown"]
    assert made.hand(INC, 2, "owner") == []


@pytest.mark.parametrize("state", [Pending.PENDING, Pending.HANDED])
def test_nobody_takes_back_what_another_sent(state: str) -> None:
    made = box(state)
    effects = made.withdraw("c1", "thief", 0, NOW)
    assert [(effect.client, effect.message.state) for effect in effects if isinstance(effect, Tell)] == [
        ("thief", "accepted")
    ]
    assert made.rows["c1"].state == state
    assert made.recalls("c1", INC, 1, "owner") == []


def test_one_that_has_an_outcome_keeps_it() -> None:
    made = box(Pending.HANDED)
    made.receipt(receipt("c1").data, NOW)
    assert states(made.withdraw("c1", "sender", 0, NOW)) == ["applied"]


def test_a_recall_of_what_nobody_knows_is_nothing() -> None:
    assert box().recalls("c1", INC, 1, "owner") == []


def test_the_owner_says_that_it_has_it() -> None:
    made = box(Pending.HANDED)
    first, tell = made.received({"id": "c1"}, NOW)
    assert first == SaveCommand(1)
    assert tell == Tell("sender", Outcome(WF, "c1", CommandState.RECEIVED, None, NOW))
    assert states(made.accept(command(), "sender", NOW, ended=False)) == ["received"]
    kept = made.received({"id": "c1", "kept": True}, NOW)[1]
    assert isinstance(kept, Tell)
    assert isinstance(kept.message, Outcome)
    assert kept.message.reason == "kept"


@pytest.mark.parametrize("data", [{"id": "c1"}, {"id": "other"}, {}])
def test_only_what_is_held_can_be_had(data: dict[str, str]) -> None:
    assert box(Pending.PENDING).received(data, NOW) == []


def test_a_row_of_an_older_store_is_read() -> None:
    row = Row.unpack(3, ["c1", "x", None, "sender", NOW, "pending", False, None])
    assert (row.when, row.received, row.recalled) == (When.NOW, False, False)
    assert Row.unpack(3, row.pack()) == row


def test_when_reaches_the_owner() -> None:
    made = Mailbox(WF)
    made.accept(command(when=When.NEXT_TURN), "sender", NOW, ended=False)
    (message,) = told(made.hand(INC, 1, "owner"))
    assert message.when is When.NEXT_TURN


# ---- the ledger


def test_the_ledger_asks_an_owner_that_hears() -> None:
    ledger = channels.alive()
    ledger.on_command(command(), "sender", NOW, OTHER)
    assert Recall in {type(message) for message in told(ledger.on_withdraw(Withdraw(WF, "c1"), "sender", NOW, OTHER))}
    ledger.owner_lost()
    assert Recall not in {
        type(message) for message in told(ledger.on_withdraw(Withdraw(WF, "c1"), "sender", NOW, OTHER))
    }


def test_a_withdraw_can_be_the_first_word_about_a_name() -> None:
    ledger = channels.nobody()
    assert told(ledger.on_withdraw(Withdraw(WF, "c1", NOW + DAY), "sender", NOW, INC))
    assert ledger.inc == INC


def test_received_in_the_log_tells_the_sender() -> None:
    ledger = channels.alive()
    ledger.on_command(command(), "sender", NOW, OTHER)
    effects = ledger.on_frame(make.frame("1.5", (make.Entry("am.received", {"id": "c1"}),)), NOW)
    assert "received" in [message.state for message in told(effects) if isinstance(message, Outcome)]
    odd = ledger.on_frame(make.frame("1.6", (make.Entry("am.received", 7),)), NOW)
    assert not [message for message in told(odd) if isinstance(message, Outcome)]


# ---- the owner's inbox


def test_an_owner_gives_back_what_never_came() -> None:
    inbox = Inbox()
    assert inbox.on_recall("c1") == receipt("c1", "withdrawn")
    assert inbox.on_handed(handed()) == receipt("c1", "withdrawn")


def test_an_owner_does_not_give_back_what_it_has_or_answered() -> None:
    inbox = Inbox({"old": None})
    inbox.on_handed(handed())
    assert inbox.on_recall("c1") is None
    assert inbox.on_recall("old") is None
