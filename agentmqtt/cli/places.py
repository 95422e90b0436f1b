"""Where the command line keeps its state: one folder per broker, files per use and name."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from agentmqtt.connecting import DEFAULT_URL, state_directory
from agentmqtt.errors import StoreInUse
from agentmqtt.names import encode_name, is_client_id
from agentmqtt.state import IDENTITY, new_client_id
from agentmqtt.store import open_store
from agentmqtt.store.base import Key, Put, Store
from agentmqtt.store.files import prepare
from agentmqtt.store.lock import FileLock, unusable
from agentmqtt.store.memory import MemoryStore
from agentmqtt.transport.url import parse

if TYPE_CHECKING:
    from agentmqtt.settings import Settings

SLOTS = 64
"""Processes on this machine that may do the same at the same time."""


def url(settings: Settings) -> str:
    """The broker of the settings, by default one on this machine."""
    return settings.broker or DEFAULT_URL


def home(settings: Settings) -> Path:
    """Where this user's state lives."""
    return settings.state_dir.expanduser() if settings.state_dir else state_directory()


def folder(settings: Settings) -> Path:
    """The folder of one broker and root: names on two brokers have nothing to do with each other."""
    place = parse(url(settings)).place
    name = re.sub(r"[^A-Za-z0-9.]+", "-", place).strip("-.")[:60]
    if not re.fullmatch(r"[\w.-]+:\d+", place) or settings.root != "agentmqtt/v1":
        name += "-" + hashlib.sha256(f"{place} {settings.root}".encode()).hexdigest()[:8]
    return home(settings) / name


def files(settings: Settings, kind: str, workflow: str, slots: int) -> list[Path]:
    """State files for one use of a name. Raises BadName."""
    level = encode_name(workflow)
    return [folder(settings) / kind / f"{level}{f'.{slot}' if slot > 1 else ''}.db" for slot in range(1, slots + 1)]


def first_free(paths: Iterable[Path]) -> Store:
    """The first store that no living process holds.

    Raises:
        StoreInUse: all are held; it names the process that holds the last one.
        StoreUnusable, StoreTooNew, StoreFull: the directory or a file cannot be used.
    """
    busy: StoreInUse | None = None
    for path in paths:
        try:
            return open_store(path)
        except StoreInUse as error:
            busy = error
    assert busy is not None
    raise busy


class Passport(MemoryStore):
    """A store that keeps one thing on disk: the client ID, so that brokers do not collect one per command.

    Raises:
        StoreInUse, StoreUnusable: as `first_free` does.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._lock, path = _first_lock(folder(settings) / "command")
        try:
            self.submit([Put(IDENTITY, Key("client"), _identity(path).encode())])
        except BaseException:
            self._lock.release()
            raise

    async def close(self) -> None:
        await super().close()
        self._lock.release()


def _first_lock(directory: Path) -> tuple[FileLock, Path]:
    busy: StoreInUse | None = None
    for slot in range(1, SLOTS + 1):
        path = directory / f"{slot}.id"
        prepare(path)
        lock = FileLock(path)
        try:
            lock.acquire()
        except StoreInUse as error:
            busy = error
        else:
            return lock, path
    assert busy is not None
    raise busy


def _identity(path: Path) -> str:
    try:
        known = path.read_text("ascii", "replace").strip() if path.exists() else ""
        if not is_client_id(known):
            known = new_client_id()
            path.write_text(f"{known}\n", "ascii")
    except OSError as error:
        raise unusable(path, "be read and written", error) from error
    return known
