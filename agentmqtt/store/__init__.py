"""Where state is kept: one file, or memory."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentmqtt.store.base import Store

MEMORY = ":memory:"


def open_store(path: str | os.PathLike[str], *, commit_interval: float = 0) -> Store:
    """The store at `path`, made if it is absent; `:memory:` keeps nothing. It may block: the file is checked.

    `commit_interval`: seconds to collect writes before a commit, for SD cards.

    Raises:
        StoreInUse, StoreUnusable, StoreTooNew, StoreFull: see `SQLiteStore`.
    """
    if os.fspath(path) == MEMORY:
        from agentmqtt.store.memory import MemoryStore

        return MemoryStore()
    # Here and not above: clients that keep nothing must not load SQLite.
    from agentmqtt.store.sqlite import SQLiteStore

    return SQLiteStore(path, commit_interval=commit_interval)
