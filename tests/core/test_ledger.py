"""What the journal decides about one channel: frames, commands, status, history (PROTOCOL §4.3, §6.4, §7, §8.1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmqtt.core.effects import Append, Receipt, Restate, SaveChannel, SaveCommand, Trim
from agentmqtt.core.ledger import Ledger
from agentmqtt.frames import Ack, Handed, PageKind, Why
from agentmqtt.types import Entry, OwnerState, Position, RunState
from tests.core import make
from tests.core.channels import (
    alive,
    ended,
    granted,
    lost,
    moved,
    nobody,
    released,
    survived,
    trimmed,
    withdrawn,
)
from tests.core.make import BOOT_A2, END, INC, NOW, OTHER, RELEASE, WF, at, claim, command, frame, texts, told

# ---- frames (§4.3): the log goes to 2.3, its parent is 1.4


class Sent(NamedTuple):
    """`stored` are the numbers of the new events."""

    what: str
    frame: Any
    why: Why | None
    stored: range = range(0)


def second(first: int, count: int, **changes: Any) -> Any:
    return frame(f"2.{first}", texts(count, first), parent=at("1.4"), **changes)


FRAMES = [
    Sent("another incarnation", second(4, 1, inc=OTHER), Why.VOID),
    Sent("a later epoch", frame("3.1", texts(1)), Why.VOID),
    Sent("an earlier epoch", frame("1.5", texts(1)), Why.FENCED),
    Sent("an earlier epoch, repeated", frame("1.1", texts(4)), Why.FENCED),
    Sent("a gap", second(5, 1), Why.GAP),
    Sent("a probe above", second(5, 0), Why.GAP),
    Sent("repeats", second(1, 3), None),
    Sent("a part of it", second(2, 1), None),
    Sent("a probe", second(4, 0), None),
    Sent("a probe below", second(2, 0), None),
    Sent("continues", second(4, 2), None, range(4, 6)),
    Sent("overlaps", second(2, 4), None, range(4, 6)),
]
SEALED = [
    Sent("only repeats", second(1, 4), None),
    Sent("a probe", second(5, 0), None),
    Sent("more", second(5, 1), Why.ENDED),
    Sent("repeats and more", second(4, 2), Why.ENDED),
    Sent("a gap", second(7, 1), Why.ENDED),
    Sent("an earlier epoch", frame("1.1", texts(1)), Why.FENCED),
    Sent("another incarnation", second(5, 1, inc=OTHER), Why.VOID),
]


def in_second_epoch() -> Ledger:
    ledger = granted(lost(), boot=BOOT_A2, mine=1, replaces=1)
    ledger.on_frame(second(1, 3), NOW)
    return ledger


@pytest.mark.parametrize("sent", FRAMES, ids=lambda sent: sent.what)
def test_a_frame_is_stored_as_far_as_it_is_new_and_next(sent: Sent) -> None:
    ledger = in_second_epoch()
    effects = ledger.on_frame(sent.frame, NOW + 1)
    stored = [effect for effect in effects if isinstance(effect, Append)]
    assert [range(one.first, one.first + len(one.entries)) for one in stored] == ([sent.stored] if sent.stored else [])
    assert all(one.entries == texts(len(sent.stored), sent.stored.start) for one in stored)
    top = max([3, *sent.stored])
    assert effects[-1] == Receipt(Ack(INC, 2, top, sent.why))
    assert ledger.chain.tail == Position(2, top)
    assert ledger.updated == (NOW + 1 if stored else NOW)


@pytest.mark.parametrize("last", [END, RELEASE], ids=["end", "release"])
@pytest.mark.parametrize("sent", SEALED, ids=lambda sent: sent.what)
def test_nothing_is_stored_in_a_sealed_epoch(sent: Sent, last: Entry) -> None:
    ledger = in_second_epoch()
    ledger.on_frame(frame("2.4", (last,)), NOW)
    assert ledger.on_frame(sent.frame, NOW) == [Receipt(Ack(INC, 2, 4, sent.why))]


@pytest.mark.parametrize("last", [END, RELEASE], ids=["end", "release"])
def test_what_follows_the_last_word_in_its_frame_does_not_count(last: Entry) -> None:
    ledger = alive()
    effects = ledger.on_frame(frame("1.5", (*texts(1), last, *texts(2))), NOW)
    assert effects[0] == Append(1, 5, NOW, (*texts(1), last))
    assert effects[-1] == Receipt(Ack(INC, 1, 6))
    assert Restate(urgent=True) in effects


def test_a_frame_is_written_before_it_is_receipted() -> None:
    effects = alive().on_frame(frame("1.5", texts(1)), NOW)
    assert [type(effect) for effect in effects] == [Append, SaveChannel, Restate, Receipt]
    assert Restate(urgent=False) in effects


def test_a_frame_is_a_sign_of_life() -> None:
    ledger = lost()
    ledger.grace_ended()
    assert (ledger.owner, ledger.state) == (OwnerState.LOST, RunState.INTERRUPTED)
    ledger.on_frame(frame("1.1", texts(1)), NOW)
    assert (ledger.owner, ledger.state) == (OwnerState.ONLINE, RunState.RUNNING)


def test_a_refused_frame_is_none() -> None:
    ledger = lost()
    ledger.on_frame(frame("1.9", texts(1)), NOW)
    assert ledger.owner is OwnerState.LOST


# ---- commands (§7)


def test_a_command_waits_for_the_first_owner() -> None:
    ledger = nobody()
    effects = ledger.on_command(command(), "sender", NOW, INC)
    assert effects[:3] == [SaveChannel(), Restate(urgent=False), SaveCommand(1)]
    assert ledger.hand() == ledger.hand_again() == []
    _, handed = told(ledger.on_claim(claim(), "a", NOW, OTHER))
    assert handed == Handed(WF, INC, 1, "c1", "interrupt", None, "sender", handed.deadline, again=False)
    assert told(ledger.hand_again()) == [handed]


def test_a_stored_receipt_settles_and_makes_room() -> None:
    ledger = alive()
    for n in range(65):
        ledger.on_command(command(str(n)), "sender", NOW, INC)
    effects = ledger.on_frame(frame("1.5", (make.receipt("3"), Entry("am.receipt", "none"))), NOW)
    assert [message.id for message in told(effects)] == ["3", "64"]


def test_the_end_settles_what_is_left() -> None:
    ledger = alive()
    ledger.on_command(command(), "sender", NOW, INC)
    effects = ledger.on_frame(frame("1.5", (END,)), NOW)
    assert [message.state for message in told(effects)] == ["too_late"]
    assert [message.state for message in told(ledger.on_command(command("c2"), "sender", NOW, INC))] == ["too_late"]


def test_a_handed_command_expires_only_with_a_dead_owner() -> None:
    late = NOW + 100 * 24 * 3600 * 1000
    ledger = alive()
    ledger.on_command(command(), "sender", NOW, INC)
    assert ledger.tick(late) == []
    ledger.owner_lost()
    assert [message.state for message in told(ledger.tick(late))] == ["unknown"]


def test_only_an_owner_that_was_heard_is_handed_to() -> None:
    ledger = Ledger.restore(WF, alive().snapshot())
    assert (ledger.owner, ledger.online) == (OwnerState.LOST, False)
    assert told(ledger.on_command(command(), "sender", NOW, INC))[1:] == []
    ledger.owner_seen()
    assert [message.id for message in told(ledger.tick(NOW))] == ["c1"]


# ---- status (§8.1)

STATES = [
    (nobody, RunState.NEW, OwnerState.NONE),
    (alive, RunState.RUNNING, OwnerState.ONLINE),
    (lost, RunState.RUNNING, OwnerState.LOST),
    (released, RunState.INTERRUPTED, OwnerState.NONE),
    (ended, RunState.DONE, OwnerState.NONE),
    (withdrawn, RunState.RUNNING, OwnerState.ONLINE),
    (lambda: make.ledger(make.ask("q")), RunState.WAITING, OwnerState.ONLINE),
]


@pytest.mark.parametrize(("world", "state", "owner"), STATES)
def test_the_status_says_how_it_is(world: Callable[[], Ledger], state: RunState, owner: OwnerState) -> None:
    ledger = world()
    status = ledger.status(NOW + 5, 9)
    assert (status.state, status.owner, status.at, status.request) == (state, owner, NOW + 5, 9)
    assert (status.epoch, status.parent, status.tail) == (ledger.epoch, ledger.parent, ledger.chain.tail)
    assert status.attempt == (0 if world is nobody else 1 + (world is withdrawn))


def test_the_status_of_a_run_that_ended_keeps_its_result() -> None:
    ledger = make.ledger(Entry("am.state", {"name": "busy"}), END)
    ledger.grace_ended()
    status = ledger.status(NOW)
    assert (status.state, status.detail, status.result) == (RunState.DONE, {"name": "busy"}, 42)


def test_only_news_of_an_owner_are_news() -> None:
    ledger = alive()
    assert not ledger.owner_seen()
    ledger.owner_lost()
    assert ledger.owner_seen()
    ledger.grace_ended()
    assert ledger.owner_seen()


# ---- history (§6.4)

PLANS = [
    (alive, "1.4", INC, PageKind.OK, "1.4"),
    (alive, "0.0", INC, PageKind.OK, "0.0"),
    (alive, "0.0", b"", PageKind.OK, "0.0"),
    (nobody, "0.0", b"", PageKind.OK, "0.0"),
    (alive, "1.9", INC, PageKind.AHEAD, "1.9"),
    (withdrawn, "2.1", INC, PageKind.AHEAD, "2.1"),
    (withdrawn, "1.2", INC, PageKind.OK, "1.2"),
    (withdrawn, "1.3", INC, PageKind.REWOUND, "1.2"),
    (moved, "1.9", INC, PageKind.REWOUND, "1.4"),
    (alive, "7.1", INC, PageKind.REWOUND, "0.0"),
    (trimmed, "1.1", INC, PageKind.TRIMMED, "1.2"),
    (trimmed, "0.0", INC, PageKind.TRIMMED, "1.2"),
    (trimmed, "1.2", INC, PageKind.OK, "1.2"),
    (alive, "1.1", OTHER, PageKind.RESET, "0.0"),
    (trimmed, "1.4", OTHER, PageKind.RESET, "1.2"),
]


@pytest.mark.parametrize(("world", "asked", "inc", "how", "start"), PLANS)
def test_how_a_page_relates_to_what_was_asked(
    world: Callable[[], Ledger], asked: str, inc: bytes, how: PageKind, start: str
) -> None:
    assert world().plan(make.fetch(asked, inc)) == (how, at(start))


def test_a_log_is_trimmed_to_a_place_that_is_in_it() -> None:
    ledger = alive()
    assert ledger.trim(at("1.2")) == [Trim(at("1.2")), SaveChannel(), Restate(urgent=False)]
    for to in ("1.2", "1.1", "1.5", "2.1", "0.0"):
        assert ledger.trim(at(to)) == []


# ---- disk

STEPS = st.sampled_from(["grow", "ask", "state", "next", "cut", "far", "release", "end", "trim", "grace"])
ENTRIES = {"ask": make.ask("q"), "state": Entry("am.state", 3), "release": RELEASE, "end": END, "grow": texts(1)[0]}


def driven(steps: list[str]) -> Ledger:
    """A ledger after any history, refusals included."""
    ledger = nobody()
    for n, step in enumerate(["next", *steps]):
        ledger.owner_lost()
        mine = {"request": str(n).encode(), "mine": ledger.epoch, "replaces": ledger.epoch, "inc": INC}
        if step in ENTRIES:
            ledger.on_frame(frame(f"{ledger.epoch}.{ledger.chain.stored + 1}", (ENTRIES[step],)), NOW + n)
        elif step == "trim":
            ledger.trim(ledger.chain.tail)
        elif step == "grace":
            ledger.grace_ended()
        else:
            more: dict[str, Any] = {"attempt": True, "reopen": True} if step == "cut" else {}
            far: dict[str, Any] = {"inc": OTHER, "instance": b"%d" % n} if step == "far" else {}
            ledger.on_claim(claim(**mine | more | far), "a", NOW + n, INC)
    return ledger


@given(st.lists(STEPS, max_size=12))
def test_a_ledger_comes_back_from_its_record(steps: list[str]) -> None:
    ledger = driven(steps)
    again = Ledger.restore(WF, make.through_disk(ledger.snapshot()))
    assert again.snapshot() == ledger.snapshot()
    assert again.holder == ledger.holder
    assert not again.online
    # Liveness is not on disk: whoever owned has one lease to come back, and is lost until it is heard.
    ledger.live, ledger.heard = again.live, False
    assert again.status(NOW) == ledger.status(NOW)
    for place in ("0.0", "1.1", "2.1", "9.9"):
        assert again.plan(make.fetch(place)) == ledger.plan(make.fetch(place))


def test_a_restart_gives_the_owner_a_lease_and_keeps_evidence() -> None:
    again = Ledger.restore(WF, lost().snapshot())
    assert (again.live, again.heard) == (True, False)
    assert not Ledger.restore(WF, ended().snapshot()).live
    again = Ledger.restore(WF, survived().snapshot())
    far = claim(inc=OTHER, instance=make.DISK_B, boot=make.BOOT_B, mine=4, replaces=4)
    (answer,) = told(again.on_claim(far, "b", NOW, INC))
    assert (answer.why, answer.known) == (Why.FENCED, True)
