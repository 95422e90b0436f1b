"""The store on disk alone: files, locks, damage, a full disk, what is synced when."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentmqtt.errors import StoreError, StoreFull, StoreGone, StoreInUse, StoreTooNew, StoreUnusable
from agentmqtt.store import open_store
from agentmqtt.store import sqlite as sqlite_store
from agentmqtt.store.base import Delete
from agentmqtt.store.sqlite import SQLiteStore
from tests.store.helpers import FIRST, LAST, everything, put, waiter, write


@contextlib.asynccontextmanager
async def opened(path: Path, *, commit_interval: float = 0) -> AsyncIterator[SQLiteStore]:
    store = SQLiteStore(path, commit_interval=commit_interval)
    try:
        yield store
    finally:
        await store.close()


async def fill(path: Path, records: int = 300) -> None:
    async with opened(path) as store:
        await write(store, *(put("a", n, body=os.urandom(700)) for n in range(records)))


# --- files ---------------------------------------------------------------------------------------


async def test_only_the_owner_can_read_the_files(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "x"
    async with opened(path) as store:
        await write(store, put("a"))
        assert path.parent.stat().st_mode & 0o777 == 0o700
        for file in path.parent.iterdir():
            assert file.stat().st_mode & 0o777 == 0o600, file
    assert sorted(file.name for file in path.parent.iterdir()) == ["x", "x.lock"]


async def test_records_outlive_the_process(tmp_path: Path) -> None:
    await fill(tmp_path / "x")
    async with opened(tmp_path / "x") as store:
        assert len(await everything(store)) == 300
        assert store.replaced is None


async def test_a_half_made_file_is_made_again(tmp_path: Path) -> None:
    (tmp_path / "x.new").write_bytes(b"half")
    async with opened(tmp_path / "x") as store:
        await write(store, put("a"))
        assert store.replaced is None
    assert not (tmp_path / "x.new").exists()


async def test_a_path_through_a_link_is_the_same_store(tmp_path: Path) -> None:
    await fill(tmp_path / "x", 1)
    (tmp_path / "link").symlink_to(tmp_path / "x")
    async with opened(tmp_path / "x"):
        with pytest.raises(StoreInUse):
            SQLiteStore(tmp_path / "link")


@pytest.mark.parametrize("path", ["", "file/x", "file/more/x", "/proc/none/x"])
def test_a_place_that_cannot_hold_a_store_is_named(tmp_path: Path, path: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreUnusable, match=re.escape(str((tmp_path / path).parent))):
        SQLiteStore(tmp_path / path)


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A directory that other users can reach, unlike pytest's."""
    place = Path(tempfile.mkdtemp())
    place.chmod(0o755)
    yield place
    shutil.rmtree(place)


@pytest.mark.parametrize(("directory", "file"), [(0o500, 0o600), (0o700, 0o400), (0o000, 0o600)])
async def test_a_place_that_this_user_may_not_write(open_place: Path, directory: int, file: int) -> None:
    """In a process of another user if this one is root, who may write everywhere."""
    home = open_place / "home"
    await fill(home / "x", 1)
    if os.geteuid() == 0:
        for target in (home, *home.iterdir()):
            os.chown(target, 65534, 65534)
    (home / "x").chmod(file)
    home.chmod(directory)
    script = """
        import os, sys
        from agentmqtt.errors import StoreUnusable
        from agentmqtt.store.sqlite import SQLiteStore
        if os.geteuid() == 0:
            os.setgid(65534), os.setuid(65534)
        try:
            SQLiteStore(sys.argv[1])
        except StoreUnusable as error:
            print(error)
    """
    said = await _child(script, str(home / "x"))
    home.chmod(0o700)
    assert str(home) in said
    assert f"uid {os.geteuid() or 65534}" in said


async def _child(script: str, *args: str) -> str:
    command = [sys.executable, "-c", textwrap.dedent(script), *args]
    return (await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True, text=True)).stdout


# --- one process ---------------------------------------------------------------------------------


async def test_a_second_opening_is_refused_and_names_the_holder(tmp_path: Path) -> None:
    async with opened(tmp_path / "x"):
        with pytest.raises(StoreInUse, match=f"process {os.getpid()}"):
            SQLiteStore(tmp_path / "x")
    async with opened(tmp_path / "x"):
        pass


async def test_a_killed_holder_leaves_the_store_free(tmp_path: Path) -> None:
    script = """if True:
        import signal, sys
        from agentmqtt.store.sqlite import SQLiteStore
        store = SQLiteStore(sys.argv[1])
        print("open", flush=True)
        signal.pause()
    """
    holder = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, str(tmp_path / "x"), stdout=asyncio.subprocess.PIPE
    )
    assert holder.stdout
    await holder.stdout.readline()
    with pytest.raises(StoreInUse, match=f"process {holder.pid}"):
        SQLiteStore(tmp_path / "x")
    holder.send_signal(signal.SIGKILL)
    await holder.wait()
    async with opened(tmp_path / "x") as store:
        assert store.replaced is None


async def test_a_failed_opening_lets_go_of_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_args: object) -> None:
        raise sqlite3.OperationalError("made up")

    with monkeypatch.context() as patch:
        patch.setattr(sqlite_store, "_use_wal", fail)
        with pytest.raises(StoreError, match="made up"):
            SQLiteStore(tmp_path / "x")
    async with opened(tmp_path / "x"):
        pass


async def test_a_file_that_was_removed_takes_no_more_writes(tmp_path: Path) -> None:
    async with opened(tmp_path / "x") as store:
        await write(store, put("a"))
        (tmp_path / "x").unlink()
        with pytest.raises(StoreGone):
            await write(store, put("b"))
        (tmp_path / "x").touch()
        with pytest.raises(StoreGone, match="replaced"):
            await write(store, put("b"))


# --- damage --------------------------------------------------------------------------------------


def _cut(size: Callable[[int], int]) -> Callable[[Path], None]:
    return lambda path: os.truncate(path, size(path.stat().st_size))


def _overwrite(at: int, data: bytes) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        with path.open("r+b") as file:
            file.seek(at)
            file.write(data)

    return damage


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def _foreign(path: Path) -> None:
    path.unlink()
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE theirs (a)")


def _sql(statement: str) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute(statement)

    return damage


def _stray_log(path: Path) -> None:
    path.rename(path.with_name(path.name + "-wal"))


DAMAGES: dict[str, Callable[[Path], None]] = {
    "emptied": _cut(lambda _size: 0),
    "a few bytes left": _cut(lambda _size: 7),
    "header only": _cut(lambda _size: 100),
    "half": _cut(lambda size: size // 2),
    "a page short": _cut(lambda size: size - 4096),
    "a byte short": _cut(lambda size: size - 1),
    "zeroed": lambda path: _write(path, bytes(path.stat().st_size)),
    "first page zeroed": _overwrite(0, bytes(4096)),
    "second page zeroed": _overwrite(4096, bytes(4096)),
    "a page in the middle zeroed": _overwrite(4096 * 20, bytes(4096)),
    "noise in the middle": _overwrite(4096 * 20, os.urandom(4096)),
    "text": lambda path: _write(path, b"not a store\n" * 1000),
    "noise": lambda path: _write(path, os.urandom(9000)),
    "a database of somebody else": _foreign,
    "no version": _sql("DELETE FROM meta"),
    "no meta": _sql("DROP TABLE meta"),
    "a log without its file": _stray_log,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
async def test_a_damaged_file_is_set_aside_and_said(
    tmp_path: Path, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "x"
    await fill(path)
    damage(path)
    before = path.read_bytes() if path.exists() else None
    async with opened(path) as store:
        assert store.replaced is not None
        assert re.fullmatch(r"x\.bad-\d{8}-\d{6}", store.replaced.name)
        assert await everything(store) == []
        await write(store, put("new"))
        records = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
        assert any(str(path) in said and str(store.replaced) in said for said in records)
        if before is not None and b"meta" not in before:
            assert store.replaced.read_bytes() == before
    async with opened(path) as store:
        assert store.replaced is None
        assert len(await everything(store)) == 1


async def test_the_log_is_set_aside_with_its_file(tmp_path: Path) -> None:
    path, copy = tmp_path / "x", tmp_path / "copy"
    async with opened(path) as store:
        await write(store, put("a"))
        for end in ("", "-wal", "-shm"):
            shutil.copy(f"{path}{end}", f"{copy}{end}")
    copy.write_bytes(bytes(4096))
    async with opened(copy) as store:
        assert store.replaced
        for end in ("-wal", "-shm"):
            assert store.replaced.with_name(store.replaced.name + end).exists()


async def test_two_damages_in_one_second_keep_both_files(tmp_path: Path) -> None:
    path = tmp_path / "x"
    kept: set[Path | None] = set()
    for _ in range(3):
        path.write_text("damaged")
        async with opened(path) as store:
            kept.add(store.replaced)
    assert len(kept) == 3


async def test_a_torn_log_loses_its_end_and_nothing_else(tmp_path: Path) -> None:
    path, copy = tmp_path / "x", tmp_path / "copy"
    async with opened(path) as store:
        for n in range(50):
            await write(store, put("a", n, body=b"x" * 500))
        for end in ("", "-wal"):
            shutil.copy(f"{path}{end}", f"{copy}{end}")
    log = copy.with_name("copy-wal")
    os.truncate(log, log.stat().st_size * 2 // 3 + 17)
    async with opened(copy) as store:
        assert store.replaced is None
        left = [key.a for key, _ in await everything(store)]
        assert left == list(range(len(left)))
        assert 0 < len(left) < 50


async def test_damage_found_while_running_is_set_aside_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check at the start is bounded in time and may miss it; the next one is not."""
    path = tmp_path / "x"
    await fill(path, 3000)
    _overwrite(4096 * 20, bytes(4096 * 20))(path)
    monkeypatch.setattr(sqlite_store, "_quick_check", _missing(sqlite_store._quick_check))
    async with opened(path) as store:
        assert store.replaced is None
        with pytest.raises(StoreError, match="damaged"):
            await everything(store)
    async with opened(path) as store:
        assert store.replaced is not None
    assert not (tmp_path / "x.suspect").exists()


def _missing(check: Callable[..., str]) -> Callable[..., str]:
    def missed(db: sqlite3.Connection, path: Path, *, whole: bool) -> str:
        return check(db, path, whole=whole) if whole else "ok"

    return missed


async def test_the_check_at_the_start_is_bounded_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Endless:
        """A file so large that its check ends only by the interrupt."""

        def __init__(self) -> None:
            self.interrupted = threading.Event()
            self.interrupt = self.interrupted.set

        def execute(self, _statement: str) -> None:
            self.interrupted.wait()
            with contextlib.closing(sqlite3.connect(":memory:")) as db:
                db.set_progress_handler(lambda: 1, 1)
                db.execute("SELECT 1")

    monkeypatch.setattr(sqlite_store, "CHECK_SECONDS", 0.01)
    caplog.set_level(logging.INFO)
    endless: Any = Endless()
    assert sqlite_store._quick_check(endless, tmp_path / "x", whole=False) == "ok"
    assert "the rest is taken as it is" in caplog.text


# --- versions ------------------------------------------------------------------------------------


async def test_a_newer_file_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "x"
    await fill(path, 3)
    _sql("UPDATE meta SET value = 99 WHERE key = 'version'")(path)
    for _ in range(2):
        with pytest.raises(StoreTooNew, match="version 99"):
            SQLiteStore(path)
    _sql("UPDATE meta SET value = 1 WHERE key = 'version'")(path)
    async with opened(path) as store:
        assert store.replaced is None
        assert len(await everything(store)) == 3


async def test_an_older_file_is_brought_up_step_by_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x"
    await fill(path, 3)
    steps = {
        1: lambda db: db.execute("ALTER TABLE space_s RENAME TO space_t"),
        2: lambda db: db.execute("DELETE FROM space_t WHERE a = 0"),
    }
    monkeypatch.setattr(sqlite_store, "MIGRATIONS", steps)
    monkeypatch.setattr(sqlite_store, "VERSION", 3)
    for _ in range(2):
        async with opened(path) as store:
            assert [key.a for key, _ in await everything(store, "t")] == [1, 2]


# --- a full disk ---------------------------------------------------------------------------------


async def _fill_up_and_recover(store: SQLiteStore, make_room: Callable[[], None]) -> None:
    kept = 0
    with pytest.raises(StoreFull, match="room"):
        while True:
            await write(store, put("a", kept, body=os.urandom(20_000)))
            kept += 1
    assert kept > 3
    before = [key.a for key, _ in await everything(store)]
    assert before == list(range(kept))
    make_room()
    await write(store, put("b"))
    assert len(await everything(store)) == kept + 1


async def test_a_full_file_fails_its_writes_until_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = [60]
    connect = sqlite_store._connect

    def limited(path: Path) -> sqlite3.Connection:
        db = connect(path)
        db.execute(f"PRAGMA max_page_count = {limit[0]}")
        return db

    monkeypatch.setattr(sqlite_store, "_connect", limited)
    async with opened(tmp_path / "x") as store:
        await _fill_up_and_recover(store, lambda: limit.__setitem__(0, 100_000))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = shutil.which("mount")
    done = (
        mount
        and subprocess.run([mount, "-t", "tmpfs", "-o", "size=2m", "tmpfs", place], capture_output=True).returncode
    )
    if done != 0:
        pytest.skip("no right to mount a small file system")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


async def test_a_full_disk_fails_its_writes_until_there_is_room(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(1024 * 1024))
    async with opened(small_disk / "x") as store:
        await _fill_up_and_recover(store, ballast.unlink)
    async with opened(small_disk / "x") as store:
        assert store.replaced is None


async def test_a_store_that_cannot_open_on_a_full_disk_is_left_as_it_is(small_disk: Path) -> None:
    """SQLite needs room for its index of the log; a start without it must not look like damage."""
    await fill(small_disk / "x", 100)
    with contextlib.suppress(OSError), (small_disk / "ballast").open("wb") as ballast:
        while True:
            ballast.write(bytes(4096))
            ballast.flush()
    with pytest.raises(StoreFull):
        SQLiteStore(small_disk / "x")
    (small_disk / "ballast").unlink()
    async with opened(small_disk / "x") as store:
        assert store.replaced is None
        assert len(await everything(store)) == 100


def test_a_store_that_cannot_be_made_on_a_full_disk_says_so(small_disk: Path) -> None:
    with contextlib.suppress(OSError), (small_disk / "ballast").open("wb") as ballast:
        while True:
            ballast.write(bytes(4096))
            ballast.flush()
    with pytest.raises(StoreFull):
        SQLiteStore(small_disk / "x")
    (small_disk / "ballast").unlink()
    asyncio.run(fill(small_disk / "x", 1))


# --- commits -------------------------------------------------------------------------------------


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What SQLite is told, in order."""
    seen: list[str] = []
    connect = sqlite_store._connect

    def traced(path: Path) -> sqlite3.Connection:
        db = connect(path)
        db.set_trace_callback(seen.append)
        return db

    monkeypatch.setattr(sqlite_store, "_connect", traced)
    return seen


async def test_what_waits_becomes_one_transaction(tmp_path: Path, statements: list[str]) -> None:
    async with opened(tmp_path / "x") as store:
        statements.clear()
        await asyncio.gather(*(waiter(store, [put("a", n)]) for n in range(1000)))
        assert statements.count("COMMIT") < 20


async def test_commits_are_synced_when_one_call_asks(tmp_path: Path, statements: list[str]) -> None:
    async with opened(tmp_path / "x", commit_interval=0.02) as store:
        statements.clear()
        await write(store, put("a"), sync=False)
        assert [said for said in statements if "synchronous" in said] == ["PRAGMA synchronous = NORMAL"]
        statements.clear()
        await asyncio.gather(waiter(store, [put("a")], sync=False), waiter(store, [put("b")]))
        assert [said for said in statements if "synchronous" in said] == ["PRAGMA synchronous = FULL"]


async def test_a_barrier_takes_earlier_commits_to_the_disk(tmp_path: Path, statements: list[str]) -> None:
    """SQLite syncs nothing in a transaction that changes nothing."""
    async with opened(tmp_path / "x") as store:
        await write(store, put("a"), sync=False)
        statements.clear()
        await write(store)
        assert any("'syncs'" in said for said in statements)
        statements.clear()
        await write(store)
        await write(store, put("a"))
        assert not any("'syncs'" in said for said in statements)


async def test_the_interval_collects_calls(tmp_path: Path, statements: list[str]) -> None:
    async with opened(tmp_path / "x", commit_interval=0.3) as store:
        statements.clear()
        told = []
        for n in range(5):
            told.append(waiter(store, [put("a", n)]))
            await asyncio.sleep(0.01)
        assert "COMMIT" not in statements
        await asyncio.gather(*told)
        assert statements.count("COMMIT") == 1


async def test_a_failed_commit_fails_what_was_built_on_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls that were submitted before anybody could know are not written; later ones are."""
    async with opened(tmp_path / "x") as store:
        entered, leave = threading.Event(), threading.Event()
        transact = store._transact

        def stuck(*args: object, **options: object) -> set[str]:
            entered.set()
            leave.wait()
            monkeypatch.setattr(store, "_transact", transact)
            raise sqlite3.OperationalError("made up")

        monkeypatch.setattr(store, "_transact", stuck)
        first = waiter(store, [put("a")])
        await asyncio.to_thread(entered.wait)
        later = [waiter(store, [put("b")]), waiter(store, [put("c")])]
        retried: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        first.add_done_callback(lambda _: store.submit([put("again")], retried.set_result))
        leave.set()
        for one in (first, *later):
            with pytest.raises(StoreError, match="made up"):
                await one
        assert await retried is None
        assert [key.name for key, _ in await everything(store)] == ["again"]


async def test_more_than_may_wait_is_refused_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_store, "MAX_WAITING", 10_000)
    async with opened(tmp_path / "x", commit_interval=0.05) as store:
        told = [waiter(store, [put("a", n, body=b"x" * 2000)]) for n in range(10)]
        results = await asyncio.gather(*told, return_exceptions=True)
        stored = [key.a for key, _ in await everything(store)]
        assert [n for n, result in enumerate(results) if result is None] == stored == list(range(len(stored)))
        assert 0 < len(stored) < 10
        assert all(isinstance(result, StoreFull) for result in results if result)
        await write(store, put("b", body=b"x" * 20_000))


async def test_the_log_stays_bounded_while_it_is_read(tmp_path: Path) -> None:
    async with opened(tmp_path / "x") as store:
        most = 0
        for n in range(60):
            told = [waiter(store, [put("a", n % 20 * 20 + k, body=os.urandom(20_000))], sync=False) for k in range(20)]
            await asyncio.gather(store.scan("s", FIRST, LAST, limit=100), *told)
            most = max(most, (tmp_path / "x-wal").stat().st_size)
        assert most < 2 * sqlite_store.WAL_LIMIT


async def test_a_long_read_does_not_hold_up_the_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(tmp_path / "x") as store:
        entered, leave = threading.Event(), threading.Event()

        def long() -> int:
            entered.set()
            leave.wait()
            return 0

        monkeypatch.setattr(store, "_size", long)
        reading = asyncio.create_task(store.size())
        await asyncio.to_thread(entered.wait)
        await write(store, put("a"))
        leave.set()
        await reading


async def test_results_of_a_dead_loop_do_not_kill_the_writer(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = SQLiteStore(tmp_path / "x", commit_interval=0.2)

    async def leave() -> None:
        store.submit([put("a")], lambda _: None)

    await asyncio.to_thread(asyncio.run, leave())
    await write(store, put("b"))
    assert {key.name for key, _ in await everything(store)} == {"a", "b"}
    await store.close()


async def test_threads_carry_names_and_end(tmp_path: Path) -> None:
    async with opened(tmp_path / "x") as store:
        await everything(store)
        names = [thread.name for thread in threading.enumerate() if "agentmqtt-store" in thread.name]
        assert any("read" in name for name in names)
        assert len([name for name in names if str(tmp_path) in name or "read-x" in name]) == 2
    assert not [thread for thread in threading.enumerate() if str(tmp_path) in thread.name]


async def test_open_store_picks_by_path(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "x"))
    assert isinstance(store, SQLiteStore)
    await write(store, put("a"), Delete("s", FIRST, LAST))
    await store.close()
