"""Real kill -9 of agent, watcher, journal and broker inside traffic: nothing receipted is lost or doubled."""

from __future__ import annotations

import pytest

from tests.rounds.harness import series


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("broker", ["bundled", "mosquitto"])
@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_receipted_is_lost_over_twenty_kills(broker: str, seed: int) -> None:
    verdict = series(broker, 20, seed)
    print(verdict)
    assert verdict.clean, (str(verdict), verdict.problems)
    assert verdict.kills.total() == 20
    assert verdict.receipted > 100


@pytest.mark.timeout(120)
def test_nothing_receipted_is_lost_over_two_kills() -> None:
    verdict = series("bundled", 2, 7)
    assert verdict.clean, (str(verdict), verdict.problems)
