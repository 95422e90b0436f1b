"""Every test here runs against the bundled broker and against mosquitto."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.channels.site import Site, bundled, external


@pytest.fixture(params=["bundled", "mosquitto"])
async def site(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Site]:
    make = bundled if request.param == "bundled" else external
    async with make(tmp_path) as place:
        yield place
