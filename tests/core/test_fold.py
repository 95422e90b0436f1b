"""The state of a run as the fold of its log (PROTOCOL §4.5, §8.1)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmqtt.core.fold import FOLDED, KEPT_ASKS, KEPT_STATES, Fold
from agentmqtt.core.states import ANSWER, ASK, END, MARK, RECEIPT, RELEASE, STATE
from agentmqtt.types import ORIGIN, Entry, Position, RunState, Value
from tests.core import make

IDS = st.sampled_from(["p", "q", "r"])
SPOKEN = st.one_of(
    IDS.map(make.ask),
    IDS.map(make.answer),
    st.integers(0, 9).map(lambda n: Entry("am.state", {"name": str(n)})),
    st.just(Entry("text", "x")),
)
RUNS = st.lists(SPOKEN, max_size=14)


def folded(entries: list[Entry] | tuple[Entry, ...]) -> Fold:
    fold = Fold()
    for n, entry in enumerate(entries, 1):
        fold.add(Position(1, n), entry)
    return fold


@given(RUNS)
def test_waits_while_the_last_word_of_some_question_is_the_question(entries: list[Entry]) -> None:
    last = {entry.data["id"]: entry.type for entry in entries if entry.type in (ASK, ANSWER)}
    states = [entry.data for entry in entries if entry.type == STATE]
    fold = folded(entries)
    assert fold.state is (RunState.WAITING if ASK in last.values() else RunState.RUNNING)
    assert fold.detail == (states[-1] if states else None)


@given(RUNS, st.integers(0, 14))
def test_a_cut_is_the_fold_of_what_is_left(entries: list[Entry], n: int) -> None:
    fold, left = folded(entries), folded(entries[:n])
    fold.cut(Position(1, n))
    assert (fold.state, fold.detail) == (left.state, left.detail)


@given(RUNS)
def test_comes_back_from_its_record(entries: list[Entry]) -> None:
    fold = folded([*entries, make.END])
    assert vars(Fold.restore(make.through_disk(fold.snapshot()))) == vars(fold)


@pytest.mark.parametrize(
    ("data", "state", "result"),
    [
        ({"outcome": "done", "result": 7}, RunState.DONE, 7),
        ({"outcome": "failed"}, RunState.FAILED, None),
        ({"outcome": "cancelled", "result": "x"}, RunState.CANCELLED, "x"),
        ({"outcome": "strange"}, RunState.FAILED, None),  # whatever it meant, it did not say done
        ({"outcome": 3}, RunState.FAILED, None),
        ("no map", RunState.FAILED, None),
    ],
)
def test_an_end_says_how(data: Value, state: RunState, result: Value) -> None:
    fold = folded((Entry(END, data),))
    assert (fold.ended, fold.state, fold.result) == (True, state, result)


def test_a_release_keeps_its_word_until_a_new_owner_begins() -> None:
    fold = folded((Entry(RELEASE, {"error": "boom"}),))
    assert (fold.released, fold.ended, fold.result) == (True, False, {"error": "boom"})
    fold.cut(Position(1, 1))
    assert (fold.released, fold.result) == (False, None)


def test_a_cut_takes_an_end_back() -> None:
    fold = folded((make.ask("q"), make.END))
    fold.cut(Position(1, 1))
    assert (fold.ended, fold.state, fold.result) == (False, RunState.WAITING, None)
    fold.cut(ORIGIN)
    assert fold.state is RunState.RUNNING


def test_only_the_last_states_are_kept() -> None:
    fold = folded([Entry(STATE, n) for n in range(KEPT_STATES + 4)])
    assert len(fold.states) == KEPT_STATES
    fold.cut(Position(1, 4))
    assert fold.detail is None


def test_an_open_question_outlives_many_answered_ones() -> None:
    pairs = [entry for n in range(KEPT_ASKS) for entry in (make.ask(str(n)), make.answer(str(n)))]
    fold = folded([make.ask("open"), *pairs])
    assert len(fold.asks) == KEPT_ASKS
    assert fold.state is RunState.WAITING
    fold.add(Position(2, 1), make.answer("open"))
    assert fold.state is RunState.RUNNING


def test_open_questions_are_bounded() -> None:
    fold = folded([make.ask(str(n)) for n in range(KEPT_ASKS + 3)])
    assert len(fold.asks) == KEPT_ASKS
    assert fold.state is RunState.WAITING


@pytest.mark.parametrize("data", [None, "q", {"id": 4}, {}])
def test_a_question_without_an_id_is_one_question(data: Value) -> None:
    fold = folded((Entry(ASK, data),))
    assert fold.state is RunState.WAITING
    fold.add(Position(1, 2), Entry(ANSWER, data))
    assert fold.state is RunState.RUNNING


def test_other_types_change_nothing() -> None:
    assert frozenset({STATE, ASK, ANSWER, RELEASE, END}) == FOLDED
    fold = folded((Entry(MARK, {"name": "m"}), Entry(RECEIPT, {"id": "c"}), Entry("text", "x")))
    assert vars(fold) == vars(Fold())
