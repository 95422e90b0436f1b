"""The store on disk: SQLite with a write-ahead log. The only user of sqlite3."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import re
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from agentmqtt.errors import StoreError, StoreFull, StoreGone, StoreTooNew, StoreUnusable
from agentmqtt.store import files
from agentmqtt.store.base import Done, Key, Put, Write
from agentmqtt.store.commits import Call, Committer
from agentmqtt.store.lock import FileLock, unusable

logger = logging.getLogger(__name__)

APPLICATION_ID = 0x61676D71
VERSION = 1
MIGRATIONS: dict[int, Callable[[sqlite3.Connection], None]] = {}
"""From a version to the next one; each runs inside the transaction that also notes the new version."""
CHECK_SECONDS = 2.0
"""How long the check at the start may take. A damage found later makes the next start check everything."""
BUSY_SECONDS = 30.0
MAX_WAITING = 64 * 1024 * 1024
"""Bytes that may wait for the writer."""
WAL_LIMIT = 16 * 1024 * 1024
"""Bytes that the log may keep once it has been copied back."""

_SPACE = re.compile("[a-z][a-z0-9_]{0,40}")


_BETWEEN = "(name, a, b) >= (?, ?, ?) AND (name, a, b) <= (?, ?, ?)"

T = TypeVar("T")


class SQLiteStore:
    """A `Store` in one file, held by one process. Make it anywhere, use it on one event loop.

    `commit_interval`: seconds to collect writes before a commit; 0 commits at once.
    `replaced` is where a damaged or foreign file was put; None if there was none.

    Raises:
        StoreInUse: another living process has the file.
        StoreUnusable: the directory or file cannot be read and written.
        StoreTooNew: a newer version of agentmqtt wrote the file; it is left as it is.
        StoreFull: there is no room to make the file.
    """

    def __init__(self, path: str | os.PathLike[str], *, commit_interval: float = 0) -> None:
        files.prepare(Path(path).absolute())
        self.path = Path(path).resolve()
        self._lock = FileLock(self.path)
        self._lock.acquire()
        with contextlib.ExitStack() as undo:
            undo.callback(self._lock.release)
            self.replaced = _make_sound(self.path)
            with _translated(self.path):
                self._reader = _connect(self.path)
            undo.pop_all()
        self._inode = self.path.stat().st_ino
        self._writer: sqlite3.Connection | None = None
        self._unsynced = False
        self._spaces: set[str] = set()
        self._pool = ThreadPoolExecutor(1, f"agentmqtt-store-read-{self.path.name}")
        self._committer = Committer(
            self._commit, name=str(self.path), interval=commit_interval, max_waiting=MAX_WAITING
        )
        self._ending: asyncio.Task[None] | None = None

    def submit(self, writes: Sequence[Write], done: Done | None = None, *, sync: bool = True) -> None:
        """See `Store.submit`."""
        self._committer.submit(writes, done, sync=sync)

    async def scan(
        self, space: str, first: Key, last: Key, *, limit: int | None = None, max_bytes: int | None = None
    ) -> list[tuple[Key, bytes]]:
        """See `Store.scan`."""
        return await self._read(lambda: self._scan(space, (*first, *last), limit, max_bytes))

    async def size(self) -> int:
        """Bytes of the pages in use; what was deleted does not count."""
        return await self._read(self._size)

    async def close(self) -> None:
        """Commit what waits, then release the file. Later calls wait for the same end."""
        if self._ending is None:
            self._ending = asyncio.create_task(self._end(), name=f"agentmqtt-store-close-{self.path.name}")
        await asyncio.shield(self._ending)

    async def _end(self) -> None:
        try:
            await self._committer.close()
        finally:
            await asyncio.to_thread(self._release)

    def _release(self) -> None:
        self._pool.shutdown()
        self._reader.close()
        self._drop_writer()
        self._lock.release()

    # --- in the writer's thread ------------------------------------------------------------------

    def _commit(self, calls: Sequence[Call]) -> None:
        """One transaction, or nothing and a StoreError."""
        sync = any(call.sync for call in calls)
        if not any(call.writes for call in calls) and not (sync and self._unsynced):
            return
        try:
            with _translated(self.path):
                self._check_file()
                known = self._transact(calls, sync=sync)
        except BaseException:
            self._drop_writer()
            raise
        self._spaces = known
        self._unsynced = not sync

    def _check_file(self) -> None:
        # A file that was removed can be written for ever; nobody will find again what is in it.
        if not self.path.exists() or self.path.stat().st_ino != self._inode:
            raise StoreGone(f"store {self.path} was removed or replaced while it was open; restart this process")

    def _transact(self, calls: Sequence[Call], *, sync: bool) -> set[str]:
        db = self._writer = self._writer or _connect(self.path)
        known = set(self._spaces)
        db.execute(f"PRAGMA synchronous = {'FULL' if sync else 'NORMAL'}")
        db.execute("BEGIN IMMEDIATE")
        for call in calls:
            for write in call.writes:
                if write.space not in known:
                    _make_table(db, write.space)
                    known.add(write.space)
                _apply(db, write)
        if sync and self._unsynced:
            # SQLite syncs only after a write: a changed page takes the commits before it to the disk too.
            db.execute("UPDATE meta SET value = value + 1 WHERE key = 'syncs'")
        db.execute("COMMIT")
        return known

    def _drop_writer(self) -> None:
        """Close, which rolls back: after an error a connection may be in any state."""
        db, self._writer = self._writer, None
        if db:
            with contextlib.suppress(sqlite3.Error):  # the error that led here is the one to tell
                db.close()

    # --- in the reader's thread ------------------------------------------------------------------

    async def _read(self, work: Callable[[], T]) -> T:
        if self._ending:
            raise StoreError(f"store {self.path} is closed; nothing more can be read")
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def _scan(
        self, space: str, bounds: tuple[object, ...], limit: int | None, max_bytes: int | None
    ) -> list[tuple[Key, bytes]]:
        found: list[tuple[Key, bytes]] = []
        size = 0
        query = f"SELECT name, a, b, body FROM {_table(space)} WHERE {_BETWEEN} ORDER BY name, a, b LIMIT ?"
        with _translated(self.path), contextlib.closing(self._reader.cursor()) as rows:
            if not self._has(space):
                return found
            for name, a, b, body in rows.execute(query, (*bounds, -1 if limit is None else limit)):
                size += len(body)
                if found and max_bytes is not None and size > max_bytes:
                    break
                found.append((Key(name, a, b), body))
        return found

    def _has(self, space: str) -> bool:
        query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
        return self._reader.execute(query, (_table(space),)).fetchone() is not None

    def _size(self) -> int:
        with _translated(self.path):
            pages, free, size = (_pragma(self._reader, name) for name in ("page_count", "freelist_count", "page_size"))
            return (pages - free) * size


# --- statements ----------------------------------------------------------------------------------


def _table(space: str) -> str:
    if not _SPACE.fullmatch(space):
        raise StoreError(f"space {space!r} is no name for a table; use a-z, 0-9 and _")
    return f"space_{space}"


def _make_table(db: sqlite3.Connection, space: str) -> None:
    db.execute(
        f"CREATE TABLE IF NOT EXISTS {_table(space)} (name TEXT NOT NULL, a INTEGER NOT NULL, b INTEGER NOT NULL,"
        " body BLOB NOT NULL, PRIMARY KEY (name, a, b)) WITHOUT ROWID"
    )


def _apply(db: sqlite3.Connection, write: Write) -> None:
    if isinstance(write, Put):
        db.execute(f"INSERT OR REPLACE INTO {_table(write.space)} VALUES (?, ?, ?, ?)", (*write.key, write.body))
    else:
        db.execute(f"DELETE FROM {_table(write.space)} WHERE {_BETWEEN}", (*write.first, *write.last))


def _pragma(db: sqlite3.Connection, name: str) -> int:
    return int(db.execute(f"PRAGMA {name}").fetchone()[0])


def _connect(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(
        f"{path.as_uri()}?mode=rw", uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )
    try:
        _use_wal(db, path)
        # Without these macOS answers before the disk has it.
        db.execute("PRAGMA fullfsync = 1")
        db.execute("PRAGMA checkpoint_fullfsync = 1")
        db.execute(f"PRAGMA journal_size_limit = {WAL_LIMIT}")
    except BaseException:
        db.close()
        raise
    return db


def _use_wal(db: sqlite3.Connection, path: Path) -> None:
    mode = db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        logger.warning("store %s: this file system has no write-ahead log (mode %s); commits are slower", path, mode)


# --- a sound file --------------------------------------------------------------------------------


def _make_sound(path: Path) -> Path | None:
    """See that a file of this version is there; returns where a bad one was put."""
    fresh = path.with_name(path.name + ".new")
    suspect = _suspect(path)
    replaced = None
    with _translated(path):
        files.remove(fresh)
        if any(map(Path.exists, (path, *files.side_files(path)))):
            problem = _problem(path, whole=suspect.exists())
            if problem is None:
                suspect.unlink(missing_ok=True)
                return None
            replaced = files.set_aside(path)
            logger.error("store %s %s: set aside as %s; an empty one takes its place", path, problem, replaced)
        _create(fresh)
        fresh.rename(path)
        files.sync_directory(path.parent)
        suspect.unlink(missing_ok=True)
    return replaced


def _suspect(path: Path) -> Path:
    """Its presence makes the next start check the whole file."""
    return path.with_name(path.name + ".suspect")


def _create(path: Path) -> None:
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    with contextlib.closing(_connect(path)) as db:
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute("BEGIN")
        db.execute("CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL)")
        db.execute("INSERT INTO meta VALUES ('version', ?), ('syncs', 0)", (VERSION,))
        db.execute("COMMIT")


def _problem(path: Path, *, whole: bool) -> str | None:
    """Why a file cannot be used; None if it can."""
    if not path.exists() or not path.stat().st_size:
        return "is missing or empty beside its log" if path.exists() else "is missing beside its log"
    try:
        foreign = _foreign(path)
        if foreign:
            return foreign
        with contextlib.closing(_connect(path)) as db:
            return _damage(db, path, whole=whole) or _outdated(db, path)
    except sqlite3.DatabaseError as error:
        if _code(error) in _DAMAGED:
            return f"is damaged ({error})"
        raise


def _foreign(path: Path) -> str | None:
    # Read by hand: SQLite would change a file of somebody else before it says whose it is.
    with path.open("rb") as file:
        header = file.read(100)
    if not header.startswith(b"SQLite format 3\0"):
        return "is damaged or something else: it does not begin like a store"
    return None if header[68:72] == APPLICATION_ID.to_bytes(4, "big") else "was not made by agentmqtt"


def _damage(db: sqlite3.Connection, path: Path, *, whole: bool) -> str | None:
    answer = _quick_check(db, path, whole=whole)
    if answer != "ok":
        return f"is damaged ({answer.splitlines()[-1]})"
    with contextlib.suppress(sqlite3.OperationalError):  # a full disk: what is in the log stays there
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    wal = files.side_files(path)[0]
    pages = _pragma(db, "page_count") * _pragma(db, "page_size")
    if not (wal.exists() and wal.stat().st_size) and path.stat().st_size < pages:
        return "is cut short"
    return None


def _quick_check(db: sqlite3.Connection, path: Path, *, whole: bool) -> str:
    # An interrupt and not a progress handler: the walk over the pages looks at nothing else.
    limit = threading.Timer(CHECK_SECONDS, db.interrupt)
    if not whole:
        limit.start()
    try:
        return str(db.execute("PRAGMA quick_check(1)").fetchone()[0])
    except sqlite3.OperationalError as error:
        if _code(error) != sqlite3.SQLITE_INTERRUPT:
            raise
        logger.info("store %s: no damage found in %s s; the rest is taken as it is", path, CHECK_SECONDS)
        return "ok"
    finally:
        limit.cancel()
        if not whole:
            limit.join()


def _outdated(db: sqlite3.Connection, path: Path) -> str | None:
    try:
        row = db.execute("SELECT value FROM meta WHERE key = 'version'").fetchone()
    except sqlite3.OperationalError as error:
        if _code(error) != sqlite3.SQLITE_ERROR:
            raise
        row = None
    if row is None:
        return "holds no version"
    if row[0] > VERSION:
        raise StoreTooNew(
            f"store {path} has version {row[0]}, this agentmqtt knows {VERSION}; update it, or use another file"
        )
    for version in range(row[0], VERSION):
        db.execute("BEGIN IMMEDIATE")
        MIGRATIONS[version](db)
        db.execute("UPDATE meta SET value = ? WHERE key = 'version'", (version + 1,))
        db.execute("COMMIT")
    return None


# --- errors --------------------------------------------------------------------------------------

_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_FORBIDDEN = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH)
_FULL = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)


def _code(error: sqlite3.Error) -> int:
    """The primary result code; extended ones only say where it happened."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


@contextlib.contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise _translate(path, error) from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            raise StoreFull(f"store {path}: {error.strerror}; make room on the disk") from error
        raise unusable(path, "be used", error) from error


def _translate(path: Path, error: sqlite3.Error) -> StoreError:
    code = _code(error)
    if code in _FULL:
        return StoreFull(f"store {path}: {error}; nothing of this was written, make room on the disk")
    if code in _DAMAGED:
        with contextlib.suppress(OSError):
            _suspect(path).touch()
        return StoreGone(f"store {path} is damaged ({error}); restart this process, which sets the file aside")
    if code in _FORBIDDEN:
        return StoreUnusable(f"store {path} cannot be used by uid {os.geteuid()}: {error}; look at owner and mode")
    return StoreError(f"store {path}: {error}; nothing of this was written")
