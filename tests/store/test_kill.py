"""kill -9 in the middle of writes: what was told is there, what is there is a prefix (P3, S45)."""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path

import pytest

from agentmqtt.store.base import MAX, Key, Store
from agentmqtt.store.sqlite import SQLiteStore


async def _write_and_kill(path: Path, lines: int) -> int:
    """Let a child write, kill it after some lines; returns the last number that it was told."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.store.writer", str(path), stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout
    told = -1
    for _ in range(lines):
        told = int(await child.stdout.readline())
    child.kill()
    rest = (await child.stdout.read()).split(b"\n")
    await child.wait()
    # The last piece may be half a number.
    return max([told, *(int(line) for line in rest[:-1])])


async def _numbers(store: Store) -> list[int]:
    records = await store.scan("s", Key("n", 0), Key("n", MAX))
    for key, body in records:
        assert body == bytes([key.a % 256]) * (key.a * 37 % 9000)
    return [key.a for key, _ in records]


async def _rounds(path: Path, rounds: int) -> None:
    for _ in range(rounds):
        told = await _write_and_kill(path, random.randrange(1, 300))
        store = SQLiteStore(path)
        assert store.replaced is None
        numbers = await _numbers(store)
        assert numbers == list(range(len(numbers)))
        assert len(numbers) > told
        for half in ("left", "right"):
            pairs = await store.scan("pair", Key(half, 0), Key(half, MAX))
            assert [key.a for key, _ in pairs] == numbers
        await store.close()


async def test_what_was_told_survives_kill_9_and_what_survives_is_a_prefix(tmp_path: Path) -> None:
    await _rounds(tmp_path / "killed", 10)


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_200_kills(tmp_path: Path) -> None:
    await _rounds(tmp_path / "killed", 200)


async def test_a_file_without_wal_survives_kill_9_too(tmp_path: Path, no_wal: None) -> None:
    """The child writes with a log; what it leaves is read and written on without one, and back."""
    path = tmp_path / "killed"
    told = await _write_and_kill(path, 50)
    store = SQLiteStore(path)
    assert store.replaced is None
    assert len(await _numbers(store)) > told
    await store.close()
