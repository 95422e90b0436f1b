"""A bundled broker with a journal in the test's own loop."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.channels.site import Site, bundled


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with bundled(tmp_path) as place:
        yield place
