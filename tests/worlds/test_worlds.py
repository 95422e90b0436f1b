"""The core keeps its promises in every world that a seed can make (P2 to P8), and the worlds reach what they name."""

from __future__ import annotations

import pytest

from tests.worlds.__main__ import judge, parallel, profile_of
from tests.worlds.faults import FAULTS, Fault
from tests.worlds.mended import ONCE, PINNED
from tests.worlds.mutate import ROOT, child
from tests.worlds.situations import SITUATIONS

QUICK = 400
ALL = 20_000
REACHED = 100
"""How often the 20,000 worlds have to meet each situation."""


@pytest.mark.parametrize("first", range(0, QUICK, 50))
def test_no_world_breaks_a_promise(first: int) -> None:
    found = {
        seed: violations
        for seed in range(first, first + 50)
        if (violations := judge(seed, profile_of(seed, "mixed"))[0])
    }
    assert not found


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_twenty_thousand_worlds_break_no_promise_and_reach_every_situation() -> None:
    found, hits = parallel(100_000, ALL, "mixed", jobs=2)
    assert not found
    rare = {name: hits[name] for name in SITUATIONS if hits[name] < REACHED}
    assert not rare
    assert set(SITUATIONS) <= set(hits)


@pytest.mark.parametrize("fault", ONCE, ids=lambda fault: fault.name)
def test_a_seed_that_found_a_fault_finds_it_no_more(fault: Fault) -> None:
    seed = PINNED[fault.name]
    assert judge(seed, profile_of(seed, fault.profile))[0] == []


@pytest.mark.slow
@pytest.mark.parametrize("fault", ONCE, ids=lambda fault: fault.name)
def test_a_pinned_seed_finds_its_fault_if_it_comes_back(fault: Fault) -> None:
    assert child(fault.name, 1, PINNED[fault.name]).kind


@pytest.mark.parametrize("fault", [*FAULTS, *ONCE], ids=lambda fault: fault.name)
def test_a_fault_can_be_planted(fault: Fault) -> None:
    source = (ROOT / "agentmqtt" / "core" / f"{fault.module}.py").read_text(encoding="utf-8")
    assert source.count(fault.old) == 1
    assert fault.old != fault.new
