"""The tables are whole (PROTOCOL §5.3, §7.4)."""

from __future__ import annotations

import itertools

import pytest

from agentmqtt.core.states import (
    AT_DEADLINE,
    AT_END,
    AT_WITHDRAW,
    FINAL,
    OUTCOMES,
    RECEIPTS,
    WRITER,
    Pending,
    Word,
    WriterState,
)
from agentmqtt.types import CommandState, RunState

OVER = {WriterState.FENCED, WriterState.ENDED, WriterState.REFUSED}


@pytest.mark.parametrize("table", [AT_END, AT_DEADLINE], ids=["at end", "at deadline"])
def test_every_open_command_has_an_outcome(table: dict[tuple[Pending, bool], CommandState]) -> None:
    assert set(table) == set(itertools.product(Pending, [False, True]))
    assert set(table.values()) <= FINAL


def test_whoever_may_have_acted_leaves_an_unknown_outcome() -> None:
    """A flagged command may have had its effect already: nobody says that it had none."""
    flagged = [outcome for table in (AT_END, AT_DEADLINE) for (_, again), outcome in table.items() if again]
    assert set(flagged) == {CommandState.UNKNOWN}
    assert AT_DEADLINE[Pending.HANDED, False] is CommandState.UNKNOWN


def test_outcomes_are_the_last_seven_states() -> None:
    assert frozenset([*CommandState][3:]) == FINAL
    assert set(AT_WITHDRAW.values()) <= FINAL
    assert FINAL - {CommandState.UNKNOWN} == RECEIPTS


def test_runs_end_in_three_ways() -> None:
    assert {str(state): state for state in OUTCOMES.values()} == OUTCOMES
    assert set(OUTCOMES.values()) == {RunState.DONE, RunState.FAILED, RunState.CANCELLED}


def test_an_owner_that_is_over_hears_nothing() -> None:
    assert not OVER & {state for state, _ in WRITER}
    assert {state for state, _ in WRITER} | OVER == set(WriterState)


def test_every_state_is_reached_and_every_word_means_something() -> None:
    assert set(WRITER.values()) | {WriterState.CLAIMING} == set(WriterState)
    assert {word for _, word in WRITER} == set(Word)


def test_whoever_claims_can_hear_every_answer() -> None:
    for state in (WriterState.CLAIMING, WriterState.WITHDRAWING, WriterState.RECLAIMING):
        assert {Word.GRANT, Word.OWNED, Word.STALE, Word.ENDED} <= {word for at, word in WRITER if at is state}
