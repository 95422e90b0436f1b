"""kill -9 of a real broker process under load. 100 rounds by hand: `python -m tests.broker.kill`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker.kill import rounds


async def test_nothing_acknowledged_is_lost_when_the_process_is_killed(tmp_path: Path) -> None:
    assert await rounds(2, 1, tmp_path) > 100


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_20_kills(tmp_path: Path) -> None:
    assert await rounds(20, 2, tmp_path) > 1_000
