"""The core keeps its promises in every world that a seed can make (P2 to P8), and the worlds reach what they name."""

from __future__ import annotations

import pytest

from tests.worlds.__main__ import judge, parallel, profile_of
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
