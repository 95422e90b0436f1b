"""Who may own a name (PROTOCOL §5.2)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from agentmqtt.core.effects import Restate, SaveChannel, SaveCommand, Tell, Truncate
from agentmqtt.core.ledger import Ledger
from agentmqtt.frames import Grant, Handed, Refusal, Why
from agentmqtt.types import ORIGIN, Position
from tests.core.channels import (
    alive,
    empty,
    ended,
    granted,
    lost,
    moved,
    nobody,
    released,
    restarted,
    survived,
    survived_empty,
    trimmed,
    withdrawn,
)
from tests.core.make import (
    BOOT_A,
    BOOT_A2,
    BOOT_B,
    DISK_A,
    DISK_B,
    INC,
    NOW,
    OTHER,
    WF,
    at,
    claim,
    command,
    frame,
    texts,
    told,
)

A: dict[str, Any] = {"inc": INC, "boot": BOOT_A}
A2: dict[str, Any] = {"inc": INC, "boot": BOOT_A2, "mine": 1, "replaces": 1}
B: dict[str, Any] = {"inc": INC, "instance": DISK_B, "boot": BOOT_B}
FAR: dict[str, Any] = {"inc": OTHER, "instance": DISK_B, "boot": BOOT_B, "mine": 3, "replaces": 3}


class Case(NamedTuple):
    """`answer` is the parent of the new epoch, or why there is none."""

    rule: int
    world: Callable[[], Ledger]
    claim: dict[str, Any]
    answer: Position | Why


CLAIMS = [
    Case(1, alive, {"request": b"req-1"}, ORIGIN),
    Case(1, ended, {"request": b"req-1"}, ORIGIN),
    Case(1, moved, {"request": b"req-1"}, Why.FENCED),
    Case(1, withdrawn, {"request": b"req-2", "boot": BOOT_A2, "mine": 1}, at("1.2")),
    Case(2, lost, A2 | {"cut": at("1.5")}, Why.GONE),
    Case(2, withdrawn, A2 | {"cut": at("1.3")}, Why.GONE),
    Case(2, trimmed, A2 | {"cut": at("1.1")}, Why.GONE),
    Case(2, trimmed, A2 | {"cut": ORIGIN}, Why.GONE),
    Case(2, trimmed, A2 | {"cut": at("1.2")}, at("1.2")),
    Case(2, lost, FAR | {"cut": at("1.2")}, Why.GONE),
    Case(2, nobody, {"cut": at("1.2")}, Why.GONE),
    Case(2, ended, A2 | {"cut": at("9.9"), "reopen": True}, Why.GONE),
    Case(3, survived, FAR | {"mine": 4}, Why.FENCED),
    Case(3, survived, FAR | {"mine": 4, "takeover": True}, Why.FENCED),
    Case(3, survived, FAR | {"mine": 5}, at("1.1")),
    Case(4, ended, A2, Why.ENDED),
    Case(4, ended, B | {"replaces": 1, "takeover": True}, Why.ENDED),
    Case(4, ended, A2 | {"cut": at("1.2")}, Why.ENDED),
    Case(4, ended, A2 | {"reopen": True}, Why.ENDED),
    Case(4, ended, A2 | {"cut": at("1.2"), "reopen": True}, at("1.2")),
    Case(4, ended, A2 | {"attempt": True, "reopen": True}, ORIGIN),
    Case(4, ended, B | {"replaces": 1, "cut": at("1.4"), "reopen": True}, at("1.4")),
    Case(5, nobody, {}, ORIGIN),
    Case(5, nobody, FAR, ORIGIN),
    Case(5, nobody, {"attempt": True}, ORIGIN),
    Case(5, nobody, {"cut": ORIGIN}, ORIGIN),
    Case(6, lost, FAR, at("1.4")),
    Case(6, released, FAR, at("1.4")),
    Case(6, alive, FAR, Why.OWNED),
    Case(6, alive, FAR | {"takeover": True}, at("1.4")),
    Case(6, lost, FAR | {"attempt": True}, at("1.4")),
    Case(6, lost, FAR | {"instance": DISK_A}, Why.FENCED),
    Case(6, survived_empty, FAR | {"instance": DISK_A, "mine": 5}, ORIGIN),
    Case(7, alive, A | {"mine": 1, "replaces": 1, "cut": at("1.2")}, at("1.2")),
    Case(7, alive, A | {"mine": 1, "replaces": 1, "attempt": True}, ORIGIN),
    Case(7, released, A | {"mine": 1, "replaces": 1}, at("1.4")),
    Case(7, released, A | {"instance": DISK_B, "replaces": 1}, at("1.4")),
    Case(7, alive, A | {"mine": 1, "replaces": 1}, at("1.4")),
    Case(8, alive, A2, at("1.4")),
    Case(8, lost, A2, at("1.4")),
    Case(8, lost, A2 | {"cut": at("1.1")}, at("1.1")),
    Case(8, lost, A2 | {"mine": 0, "replaces": 0}, Why.FENCED),
    Case(8, empty, A2 | {"mine": 0, "replaces": 0}, ORIGIN),
    Case(8, restarted, A2 | {"boot": b"third"}, at("1.4")),
    Case(8, withdrawn, A2 | {"boot": b"third", "cut": at("1.2")}, at("1.2")),
    Case(8, withdrawn, A2 | {"boot": b"third"}, Why.FENCED),
    Case(8, withdrawn, A2 | {"boot": b"third", "cut": at("1.1")}, Why.FENCED),
    Case(8, moved, A2, Why.FENCED),
    Case(9, lost, B | {"replaces": 1}, at("1.4")),
    Case(9, lost, B | {"replaces": 1, "inc": b""}, at("1.4")),
    Case(9, released, B | {"replaces": 1}, at("1.4")),
    Case(9, alive, B | {"replaces": 1, "takeover": True}, at("1.4")),
    Case(9, alive, B | {"replaces": 1, "takeover": True, "cut": at("1.3")}, at("1.3")),
    Case(9, moved, B | {"instance": DISK_A, "replaces": 2, "boot": BOOT_A2, "takeover": True}, Why.OWNED),
    Case(10, alive, B, Why.OWNED),
    Case(10, alive, B | {"replaces": 1}, Why.OWNED),
    Case(10, alive, B | {"takeover": True}, Why.OWNED),
    Case(10, lost, B, Why.FENCED),
    Case(10, lost, B | {"replaces": 1, "mine": 1}, Why.FENCED),
]


@pytest.mark.parametrize("case", CLAIMS, ids=lambda case: f"rule {case.rule}-{case.world.__name__}")
def test_the_first_rule_that_fits_decides(case: Case) -> None:
    ledger = case.world()
    before = ledger.epoch
    effects = ledger.on_claim(claim(**case.claim), "claimer", NOW, INC)
    (answer,) = told(effects)
    if isinstance(case.answer, Why):
        assert isinstance(answer, Refusal)
        assert (answer.why, answer.epoch, answer.inc) == (case.answer, before, INC)
        assert ledger.epoch == before
    else:
        assert isinstance(answer, Grant)
        assert (answer.parent, answer.epoch) == (case.answer, before + (case.rule != 1))
        assert case.rule == 1 or ledger.chain.tail == case.answer


@pytest.mark.parametrize(
    ("world", "fields"),
    [(moved, B | {"instance": b"disk-c", "boot": b"boot-c", "replaces": 1}), (alive, A2 | {"mine": 0, "replaces": 0})],
    ids=["a newcomer that read an old status", "a holder's disk that was set back"],
)
def test_a_refusal_names_the_current_epoch(world: Callable[[], Ledger], fields: dict[str, Any]) -> None:
    ledger = world()
    (answer,) = told(ledger.on_claim(claim(**fields), "claimer", NOW, INC))
    assert isinstance(answer, Refusal)
    assert (answer.epoch, answer.live) == (ledger.epoch, True)


# ---- claims, beside the rules


def test_a_claim_mints_the_incarnation_once() -> None:
    ledger = nobody()
    effects = ledger.on_claim(claim(), "a", NOW, INC)
    assert effects == [
        SaveChannel(),
        Tell("a", Grant(b"req", WF, INC, 1, ORIGIN, 0, 1)),
        Restate(urgent=True),
    ]
    assert granted(ledger, boot=BOOT_A2, mine=1, replaces=1).inc == INC


def test_a_refused_claim_mints_too() -> None:
    effects = nobody().on_claim(claim(cut=at("1.1")), "a", NOW, INC)
    assert effects == [
        SaveChannel(),
        Restate(urgent=False),
        Tell("a", Refusal(b"req", WF, INC, 0, Why.GONE, live=False, known=False)),
    ]


def test_a_grant_says_what_is_stored_of_the_claimers_epoch() -> None:
    for world, fields, stored in [(lost, A2, 4), (lost, FAR, 0), (moved, A | {"request": b"req-1"}, None)]:
        (answer, *_) = told(world().on_claim(claim(**fields), "a", NOW, INC))
        assert getattr(answer, "stored", None) == stored


def test_a_repeated_claim_hears_what_was_stored_meanwhile() -> None:
    ledger = alive()
    (answer,) = told(ledger.on_claim(claim(request=b"req-1", inc=OTHER), "a", NOW, INC))
    assert answer == Grant(b"req-1", WF, INC, 1, ORIGIN, 0, 1)
    (answer,) = told(ledger.on_claim(claim(request=b"req-1", mine=1), "a", NOW, INC))
    assert answer.stored == 4


def test_a_withdraw_goes_in_the_same_transaction_before_its_answer() -> None:
    ledger = alive()
    effects = ledger.on_claim(claim(**A, mine=1, replaces=1, cut=at("1.2")), "a", NOW, INC)
    assert effects[:2] == [Truncate(at("1.2")), SaveChannel()]
    assert told(effects) == [Grant(b"req", WF, INC, 2, at("1.2"), 4, 2)]
    assert Truncate(at("2.0")) not in lost().on_claim(claim(**A2), "a", NOW, INC)


def test_attempts_are_counted_and_begin_at_their_cut() -> None:
    ledger = alive()
    ledger.on_claim(claim(**A, mine=1, replaces=1, cut=at("1.2")), "a", NOW, INC)
    ledger.on_frame(frame("2.1", texts(3), parent=at("1.2")), NOW)
    (answer, *_) = told(ledger.on_claim(claim(**A, request=b"x", mine=2, replaces=2, attempt=True), "a", NOW, INC))
    assert (answer.parent, answer.attempt) == (at("1.2"), 3)
    assert ledger.status(NOW).attempt == 3


def test_a_refusal_after_the_end_says_how_it_ended() -> None:
    (answer,) = told(ended().on_claim(claim(**A2), "a", NOW, INC))
    assert (answer.outcome, answer.result, answer.live, answer.known) == ("done", 42, False, True)


def test_a_late_copy_of_an_older_claim_is_fenced() -> None:
    """Request IDs of one disk rise by their first eight bytes."""
    first, second = ((turn).to_bytes(8) + b"12345678" for turn in (1, 2))
    ledger = nobody()
    ledger.on_claim(claim(request=second, inc=INC), "a", NOW, INC)
    (answer,) = told(ledger.on_claim(claim(request=first, inc=INC, boot=BOOT_A2), "a", NOW, INC))
    assert answer.why is Why.FENCED
    (answer,) = told(ledger.on_claim(claim(request=b"short", inc=INC, boot=BOOT_A2), "a", NOW, INC))
    assert answer.epoch == 2


def test_a_new_epoch_hands_again_what_the_old_one_held() -> None:
    ledger = alive()
    ledger.on_command(command(), "sender", NOW, INC)
    ledger.owner_lost()
    effects = ledger.on_claim(claim(**A2), "a2", NOW, INC)
    grant, handed = told(effects)
    assert isinstance(grant, Grant)
    assert isinstance(handed, Handed)
    assert (handed.epoch, handed.again) == (2, True)
    assert effects.count(SaveCommand(1)) == 2


def test_a_late_copy_of_its_own_claim_does_not_lock_a_process_out_of_a_new_store() -> None:
    """World 14513 of the profile `amnesia`: it had become another instance since, and the copy had been it before."""
    ledger = nobody()
    ledger.on_claim(claim(request=b"late", instance=DISK_A, boot=BOOT_A), "a", NOW, INC)
    assert ledger.holder == ("a", BOOT_A)
    again = claim(request=b"now", instance=DISK_B, boot=BOOT_A, mine=3, replaces=3, inc=OTHER)
    (answer,) = told(ledger.on_claim(again, "a", NOW, INC))
    assert isinstance(answer, Grant)
    ledger.on_frame(frame("2.1", texts(1)), NOW)
    (answer,) = told(ledger.on_claim(dataclasses.replace(again, request=b"later"), "a", NOW, INC))
    assert isinstance(answer, Refusal)
