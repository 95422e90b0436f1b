"""An owner's state, claims and withdraws (PROTOCOL §5.1, §5.3, §5.5)."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from agentmqtt.core.outbox import ATTEMPT, Header, Row
from agentmqtt.core.states import WRITER, Word, WriterState
from agentmqtt.core.writer import KICKS, Save, Writer
from agentmqtt.frames import Why
from agentmqtt.types import ORIGIN
from tests.core import make
from tests.core.make import (
    DISK_A,
    DISK_B,
    FRESH,
    INC,
    OTHER,
    RELEASE,
    ack,
    at,
    emit,
    grant,
    owning,
    refusal,
    texts,
    writer,
)


def reach(state: WriterState) -> Writer:
    """A writer in `state` that still has one row, if its disk has not been set aside."""
    made = writer()
    emit(made, *texts(1))
    match state:
        case WriterState.REFUSED:
            made.on_refusal(refusal(made, Why.OWNED, live=True), *FRESH)
        case WriterState.ENDED:
            made.on_refusal(refusal(made, Why.ENDED, outcome="done"), *FRESH)
        case WriterState.CLAIMING:
            pass
        case _:
            made.on_grant(grant(made, 1))
            if state is WriterState.WITHDRAWING:
                made.withdraw(ORIGIN, b"cut")
            elif state is not WriterState.OWNING:
                made.on_ack(ack("2.0") if state is WriterState.FENCED else ack("1.0", Why.VOID, OTHER), *FRESH)
    assert made.state is state
    return made


HEARD: list[tuple[Word, Callable[[Writer], Any]]] = [
    (Word.GRANT, lambda w: w.on_grant(grant(w, 9))),
    (Word.OWNED, lambda w: w.on_refusal(refusal(w, Why.OWNED, live=True), *FRESH)),
    (Word.STALE, lambda w: w.on_refusal(refusal(w, Why.FENCED, epoch=7, known=True), *FRESH)),
    (Word.ENDED, lambda w: w.on_refusal(refusal(w, Why.ENDED, outcome="done"), *FRESH)),
    (Word.GONE, lambda w: w.on_refusal(refusal(w, Why.GONE), *FRESH)),
    (Word.NEWER, lambda w: w.on_ack(ack("2.0"), *FRESH)),
    (Word.VOID, lambda w: w.on_ack(ack("1.0", Why.VOID, OTHER), *FRESH)),
    (Word.CUT, lambda w: w.withdraw(ORIGIN, b"cut")),
]
SET_ASIDE = (WriterState.CLAIMING, Word.STALE)
"""The disk claims as somebody new (§5.3, rule 7); see its own test."""


PAIRS = [(state, word, say) for state in WriterState for word, say in HEARD if (state, word) != SET_ASIDE]


@pytest.mark.parametrize(("state", "word", "say"), PAIRS, ids=[f"{state} hears {word}" for state, word, _ in PAIRS])
def test_a_word_moves_as_the_table_says(state: WriterState, word: Word, say: Callable[[Writer], Any]) -> None:
    made = reach(state)
    before = made.outbox.header.pack(), list(made.outbox.rows), made.claim(1)
    answer = say(made)
    assert made.state is WRITER.get((state, word), state)
    if (state, word) not in WRITER:
        assert answer is None
        assert (made.outbox.header.pack(), list(made.outbox.rows), made.claim(1)) == before


def test_every_pair_is_tried() -> None:
    assert {(state, word) for state, word, _ in PAIRS} | {SET_ASIDE} == set(itertools.product(WriterState, Word))


@pytest.mark.parametrize("state", [*WriterState])
def test_only_an_owner_sends(state: WriterState) -> None:
    made = reach(state)
    emit(made, *texts(1))
    assert bool(made.pump()) == bool(made.resend()) == made.owned == (state is WriterState.OWNING)
    assert made.claiming + made.owned + made.finished == 1


@pytest.mark.parametrize("state", [*WriterState])
def test_an_answer_to_an_older_claim_means_nothing(state: WriterState) -> None:
    made = reach(state)
    yes, no = grant(made, 9), refusal(made, Why.ENDED)
    assert made.on_grant(dataclasses.replace(yes, request=b"old")) is None
    assert made.on_refusal(dataclasses.replace(no, request=b"old"), *FRESH) is None
    assert made.state is state


@pytest.mark.parametrize("state", [state for state in WriterState if state is not WriterState.OWNING])
def test_whoever_does_not_own_is_not_moved_by_a_status(state: WriterState) -> None:
    made = reach(state)
    for status in (make.status("2.0", epoch=2), make.status("1.0", inc=OTHER)):
        assert made.on_status(status, *FRESH) is None
        assert made.state is state


# ---- claims


def test_a_claim_says_what_is_on_disk() -> None:
    header = Header(DISK_A, INC, 4, at("3.2"), intent=at("4.1"))
    made = writer(header, takeover=True, reopen=True)
    claim = made.claim(7)
    assert (claim.instance, claim.inc, claim.mine, claim.replaces, claim.conn) == (DISK_A, INC, 4, 4, 7)
    assert (claim.cut, claim.attempt, claim.takeover, claim.reopen) == (at("4.1"), False, True, True)
    assert made.claim(8).request == claim.request
    header.intent = ATTEMPT
    assert (made.claim(7).cut, made.claim(7).attempt) == (None, True)


def test_only_the_first_claim_takes_over() -> None:
    made = owning(takeover=True)
    made.withdraw(ORIGIN, b"cut")
    assert not made.claim(1).takeover


def test_request_ids_of_a_disk_rise_also_over_its_processes() -> None:
    header = Header(DISK_A)
    requests = []
    for _ in range(2):
        made = writer(header)
        requests.append(made.request)
        made.on_grant(grant(made, 1))
        made.withdraw(ORIGIN, b"cut")
        requests.append(made.request)
        header = Header.unpack(made.outbox.header.pack())
    assert [request[:8] for request in requests] == sorted({request[:8] for request in requests})


def test_a_grant_is_synced_and_drops_what_is_stored() -> None:
    header = Header(DISK_A, INC, 1, base=2, numbered=2)
    rows = [Row(n, 0, texts(1), 10) for n in (1, 2, 3)]
    made = writer(header, rows)
    save = made.on_grant(grant(made, 5, parent=at("4.4"), stored=4, attempt=3))
    assert save is not None
    assert (save.sync, [row.seq for row in save.gone], save.changed) == (True, [1, 2], ())
    assert (made.stored, made.attempt) == (at("4.4"), 3)
    assert [(frame.epoch, frame.parent, frame.first) for frame in made.pump()] == [(5, at("4.4"), 1)]


def test_another_incarnation_has_stored_nothing_of_it() -> None:
    header = Header(DISK_A, INC, 1, numbered=1)
    made = writer(header, [Row(1, 0, texts(1), 10)])
    save = made.on_grant(grant(made, 1, inc=OTHER, stored=1))
    assert save is not None
    assert save.gone == ()
    assert [frame.inc for frame in made.pump()] == [OTHER]


@pytest.mark.parametrize(
    ("intent", "epoch", "inc", "withdrawn"),
    [
        (at("1.1"), 1, INC, True),
        (ATTEMPT, 1, INC, True),
        (at("1.1"), 1, OTHER, False),
        (ATTEMPT, 1, OTHER, True),
        (ORIGIN, 0, OTHER, True),
        (None, 1, INC, False),
    ],
)
def test_what_an_intent_withdraws_of_the_outbox(intent: Any, epoch: int, inc: bytes, withdrawn: bool) -> None:
    rows = [Row(1, 0, texts(1), 10), Row(2, 0, (*texts(1), make.receipt("c")), 10)]
    made = writer(Header(DISK_A, INC, epoch), rows)
    assert made.intend(intent) == Save(made.outbox.header, sync=True)
    emit(made, *texts(1))
    save = made.on_grant(grant(made, 2, inc=inc))
    assert save is not None
    assert [row.seq for row in save.gone] == ([1] if withdrawn else [])
    assert [row.seq for row in save.changed] == ([2] if withdrawn else [])
    assert made.outbox.header.intent is None
    assert [row.seq for row in made.outbox.rows] == ([2, 3] if withdrawn else [1, 2, 3])


def test_a_grant_drops_a_release_that_an_earlier_process_left() -> None:
    made = writer(rows=[Row(1, 0, (RELEASE,), 10)])
    save = made.on_grant(grant(made, 2))
    assert save is not None
    assert [row.seq for row in save.gone] == [1]
    assert made.drained


def test_a_newcomer_asks_again_with_the_epoch_it_learned() -> None:
    made = writer()
    first = made.request
    for n in range(KICKS):
        made.on_refusal(refusal(made, Why.FENCED, epoch=3 + n), *FRESH)
        assert made.claim(1).replaces == 3 + n
    assert made.request > first
    made.on_refusal(refusal(made, Why.FENCED, epoch=9), *FRESH)
    assert made.state is WriterState.REFUSED


def test_a_taker_asks_again_against_a_living_owner() -> None:
    made = writer(takeover=True)
    made.on_refusal(refusal(made, Why.OWNED, epoch=3, live=True), *FRESH)
    assert (made.state, made.claim(1).replaces, made.claim(1).takeover) == (WriterState.CLAIMING, 3, True)


@pytest.mark.parametrize(
    ("header", "known"), [(Header(DISK_A, INC, 2, numbered=1), False), (Header(DISK_A, OTHER, 2, numbered=1), True)]
)
def test_a_disk_that_others_went_on_without_claims_as_somebody_new(header: Header, known: bool) -> None:
    header.intent = at("2.1")
    made = writer(header, [Row(1, 0, texts(3), 10)])
    save = made.on_refusal(refusal(made, Why.FENCED, epoch=4, known=known), b"again", DISK_B)
    assert save is not None
    assert (save.sync, [row.seq for row in save.gone]) == (True, [1])
    claim = made.claim(1)
    assert (made.state, made.left_unsent) == (WriterState.CLAIMING, 3)
    assert (claim.instance, claim.mine, claim.replaces, claim.inc, claim.cut) == (DISK_B, 0, 4, b"", at("2.1"))
    assert made.append(texts(1), 10, 0).seq == 2


def test_the_disk_of_the_current_epoch_is_not_stale() -> None:
    made = writer(Header(DISK_A, INC, 4), [Row(1, 0, texts(3), 10)])
    assert made.on_refusal(refusal(made, Why.FENCED, epoch=4, known=True), *FRESH) is None
    assert (made.state, made.left_unsent) == (WriterState.CLAIMING, 0)


def test_a_run_that_ended_says_how() -> None:
    made = writer()
    made.on_refusal(refusal(made, Why.ENDED, outcome="failed", result="why"), *FRESH)
    assert made.ended == ("failed", "why")
    assert made.refusal is not None


# ---- withdraw (§5.5)


def test_a_withdraw_drops_only_what_was_emitted_before_it() -> None:
    made = owning()
    emit(made, *texts(2))
    save = made.withdraw(ORIGIN, b"cut")
    assert save is not None
    assert (save.sync, save.header.intent, save.header.upto) == (True, ORIGIN, 2)
    emit(made, *texts(1, 3))
    assert made.pump() == []
    assert (made.claim(1).mine, made.claim(1).replaces, made.claim(1).cut) == (1, 1, ORIGIN)
    save = made.on_grant(grant(made, 2))
    assert save is not None
    assert [row.seq for row in save.gone] == [1, 2]
    assert [(frame.first, frame.entries) for frame in made.pump()] == [(1, texts(1, 3))]


def test_a_cut_must_be_known_to_be_stored() -> None:
    made = owning()
    emit(made, *texts(3))
    made.pump()
    made.on_ack(ack("1.2"), *FRESH)
    assert made.withdraw(at("1.3"), b"cut") is None
    assert made.state is WriterState.OWNING
    assert made.withdraw(at("1.2"), b"cut") is not None


def test_a_cut_that_is_gone_leaves_the_rows_and_their_numbers() -> None:
    made = owning()
    emit(made, *texts(1))
    made.withdraw(ORIGIN, b"cut")
    emit(made, *texts(1, 2))
    assert made.on_refusal(refusal(made, Why.GONE), *FRESH) == Save(made.outbox.header, sync=True)
    assert made.outbox.header.intent is None
    assert [(frame.epoch, frame.first, len(frame.entries)) for frame in made.pump()] == [(1, 1, 2)]


def test_a_cut_that_another_store_refuses_claims_that_store() -> None:
    made = reach(WriterState.WITHDRAWING)
    assert made.on_refusal(refusal(made, Why.GONE, inc=OTHER, epoch=4), *FRESH) is not None
    claim = made.claim(1)
    assert (made.state, claim.cut, claim.replaces, claim.mine) == (WriterState.RECLAIMING, None, 4, 1)
    assert not made.drained


def test_a_claim_whose_cut_is_gone_goes_on_without_it() -> None:
    made = writer(Header(DISK_A, INC, 1))
    made.intend(at("1.1"))
    asked = made.request
    assert made.on_refusal(refusal(made, Why.GONE), *FRESH) is not None
    assert (made.state, made.claim(1).cut, made.request > asked) == (WriterState.CLAIMING, None, True)


def test_a_refused_withdraw_that_names_another_epoch_fences_its_owner() -> None:
    made = reach(WriterState.WITHDRAWING)
    save = made.on_refusal(refusal(made, Why.GONE, epoch=2), *FRESH)
    assert save is not None
    assert (made.state, made.left_unsent, save.header.instance) == (WriterState.FENCED, 1, DISK_B)


def test_receipts_count_while_a_withdraw_is_asked_for() -> None:
    made = reach(WriterState.WITHDRAWING)
    save = made.on_ack(ack("1.1"), *FRESH)
    assert save is not None
    assert made.drained
