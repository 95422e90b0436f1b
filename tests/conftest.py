"""What every test has: a free port, and a guard against tasks that outlive their test."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator

import hypothesis
import pytest

from tests import servers

GRACE = 0.5
"""Seconds that tasks may take to end after a test."""


# A busy machine is no bug: how long an example takes is judged by bench/, not here.
hypothesis.settings.register_profile("agentmqtt", deadline=None)
hypothesis.settings.load_profile("agentmqtt")


@pytest.fixture
def free_port() -> int:
    """A loopback TCP port that nobody uses at this moment."""
    return servers.free_port()


@pytest.fixture(autouse=True)
def _guard(request: pytest.FixtureRequest) -> None:
    # Asked for by name: an async fixture for all would start a loop for every plain test too.
    if isinstance(request.node, pytest.Function) and inspect.iscoroutinefunction(request.node.function):
        request.getfixturevalue("no_task_left")


@pytest.fixture
async def no_task_left() -> AsyncIterator[None]:
    """Fails a test that leaves tasks running: every task has an owner that ends it."""
    yield
    left = asyncio.all_tasks() - {asyncio.current_task()}
    if left:
        _, left = await asyncio.wait(left, timeout=GRACE)
    if left:
        names = ", ".join(sorted(task.get_name() for task in left))
        pytest.fail(f"tasks are still running: {names}")
