"""One suite for every store: in memory, on disk, and on a disk without a write-ahead log."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentmqtt.store import open_store
from agentmqtt.store import sqlite as sqlite_store
from agentmqtt.store.base import Store


@pytest.fixture(params=["memory", "sqlite", "sqlite without WAL"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    if request.param.endswith("WAL"):
        request.getfixturevalue("no_wal")
    made = open_store(":memory:" if request.param == "memory" else tmp_path / "test.store")
    yield made
    await made.close()


@pytest.fixture
def no_wal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system where SQLite refuses the write-ahead log."""
    monkeypatch.setattr(sqlite_store, "_use_wal", lambda db, _path: db.execute("PRAGMA journal_mode = DELETE"))
