"""Which positions are in the log: the chain against a list of all events (PROTOCOL §4.2, §6.4)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agentmqtt.core.chain import KEPT_EPOCHS, Chain
from agentmqtt.types import ORIGIN, Position
from tests.core import make
from tests.core.make import at


class Listed:
    """The log as a list of its events, and what came before each event that ever was."""

    def __init__(self) -> None:
        self.log: list[Position] = []
        self.parents: dict[int, Position] = {}
        self.base = ORIGIN

    def contains(self, place: Position) -> bool:
        return place == ORIGIN or place in self.log

    def tail(self) -> Position:
        return self.log[-1] if self.log else ORIGIN

    def ancestor(self, place: Position) -> Position:
        while not self.contains(place):
            place = Position(place.epoch, place.n - 1) if place.n > 1 else self.parents[place.epoch]
        return place

    def grant(self, parent: Position) -> None:
        self.parents[len(self.parents) + 1] = parent
        self.log = [event for event in self.log if event <= parent]
        self.base = min(self.base, parent)

    def append(self, count: int) -> None:
        epoch = len(self.parents)
        first = 1 + max((n for e, n in self.log if e == epoch), default=0)
        self.log += [Position(epoch, n) for n in range(first, first + count)]


@st.composite
def histories(draw: st.DrawFn) -> tuple[Chain, Listed]:
    """Both after the same random grants, appends and trims."""
    chain, model = Chain(), Listed()
    for _ in range(draw(st.integers(0, 12))):
        step = draw(st.sampled_from(["grant", "cut", "append", "append", "trim"]))
        if step in ("grant", "cut") or not model.parents:
            parent = draw(st.sampled_from([ORIGIN, *model.log])) if step == "cut" else model.tail()
            chain.grant(make.epoch(parent, cut=step == "cut"))
            model.grant(parent)
        elif step == "append":
            count = draw(st.integers(1, 4))
            chain.append(count)
            model.append(count)
        elif model.log:
            to = draw(st.sampled_from([event for event in model.log if event >= model.base]))
            chain.trim(to)
            model.base = to
    return chain, model


def _places(model: Listed) -> list[Position]:
    """Every event that may ever have been, and some that never were."""
    return [ORIGIN, *(Position(epoch, n) for epoch in model.parents for n in range(1, 16))]


@given(histories())
def test_agrees_with_a_list_of_all_events(both: tuple[Chain, Listed]) -> None:
    chain, model = both
    assert chain.tail == model.tail()
    assert chain.base == model.base
    assert [p for p in _places(model) if chain.contains(p)] == [p for p in _places(model) if model.contains(p)]


@given(histories())
def test_ancestor_is_the_newest_shared_position(both: tuple[Chain, Listed]) -> None:
    chain, model = both
    assert [chain.ancestor(p) for p in _places(model)] == [model.ancestor(p) for p in _places(model)]


@given(histories())
def test_comes_back_from_its_record(both: tuple[Chain, Listed]) -> None:
    chain, _ = both
    again = Chain.restore(make.through_disk(chain.snapshot()))
    assert vars(again) == vars(chain)


def test_begins_empty() -> None:
    chain = Chain()
    assert (chain.tail, chain.holder, chain.stored, chain.current) == (ORIGIN, None, 0, 0)
    assert chain.contains(ORIGIN)
    assert not chain.contains(at("1.1"))


def test_numbers_are_never_used_again_inside_an_epoch() -> None:
    chain = Chain()
    assert chain.grant(make.epoch()) == 1
    chain.append(3)
    assert chain.grant(make.epoch(at("1.1"))) == 2
    assert chain.last == {1: 3, 2: 0}
    assert chain.stored == 0
    chain.append(1)
    assert [*chain.segments] == [(1, 1), (2, 1)]


def test_a_reader_from_an_unknown_epoch_begins_at_the_origin() -> None:
    chain = Chain()
    chain.grant(make.epoch())
    chain.append(1)
    assert chain.ancestor(at("9.1")) == ORIGIN


def test_epochs_of_long_ago_are_unknown() -> None:
    chain = Chain()
    for _ in range(KEPT_EPOCHS + 5):
        chain.grant(make.epoch(chain.tail))
        chain.append(1)
    assert len(chain.epochs) == len(chain.last) == KEPT_EPOCHS
    assert min(chain.epochs) == 6
    assert not chain.contains(at("1.1"))
    chain.grant(make.epoch(chain.tail))
    assert len(chain.segments) == KEPT_EPOCHS
