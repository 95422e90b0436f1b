"""One bundled broker for all tests of a worker; every test has names of its own."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.kit import Inside, Tool


@pytest.fixture(scope="session")
def broker_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    tool = Tool(tmp_path_factory.mktemp("broker"))
    try:
        yield tool.start("broker", "--listen", "127.0.0.1:0").line().split()[1]
    finally:
        tool.end()


@pytest.fixture
def tool(tmp_path: Path, broker_url: str) -> Iterator[Tool]:
    """A user of the shared broker."""
    with_broker = Tool(tmp_path, broker_url)
    yield with_broker
    with_broker.end()


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Tool]:
    """A user without a broker."""
    without = Tool(tmp_path)
    yield without
    without.end()


@pytest.fixture
def inside(alone: Tool, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[Inside]:
    """`agentmqtt` in this process, as the user `alone`."""
    for variable in [variable for variable in os.environ if variable.startswith("AGENTMQTT_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("AGENTMQTT_STATE_DIR", str(alone.state))
    root, loggers = logging.getLogger(), [logging.getLogger(f"agentmqtt{part}") for part in ("", ".session")]
    before = root.handlers[:], root.level, [logger.level for logger in loggers]
    yield Inside(capfd)
    root.handlers[:], root.level = before[:2]
    for logger, level in zip(loggers, before[2], strict=True):
        logger.setLevel(level)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A workflow that no other test has."""
    return f"{request.node.name} ünd/so+#"
