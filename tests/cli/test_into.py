"""The file that is its own cursor store."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from agentmqtt import Cursor, Event, Gap, Position, Rewound, StoreFull, StoreInUse, StoreUnusable, UsageError
from agentmqtt.cli.into import LinesFile

INC = bytes.fromhex("c0ffee")


def event(n: int, data: object = "text") -> Event:
    return Event(Cursor(INC, Position(1, n)), "text", data, 1000)


async def written(path: Path, *items: Event | Gap | Rewound) -> None:
    file = LinesFile(path)
    for item in items:
        await file.put(item)
    file.close()


def reopened(path: Path) -> Cursor | None:
    file = LinesFile(path)
    file.close()
    return file.cursor


async def test_it_resumes_after_its_last_line(tmp_path: Path) -> None:
    path = tmp_path / "file"
    assert reopened(path) is None
    await written(path, event(1), event(2))
    assert reopened(path) == Cursor(INC, Position(1, 2))
    await written(path, Rewound(Cursor(INC, Position(1, 1))))
    assert reopened(path) == Cursor(INC, Position(1, 1))
    await written(path, Gap(Cursor(b"\x01", Position(3, 4)), "reset"))
    assert reopened(path) == Cursor(b"\x01", Position(3, 4))
    assert [json.loads(line)["at"] for line in path.read_text().splitlines()] == [
        "1.1@c0ffee",
        "1.2@c0ffee",
        "1.1@c0ffee",
        "3.4@01",
    ]


async def test_a_torn_last_line_is_cut_off_wherever_it_tore(tmp_path: Path) -> None:
    path = tmp_path / "file"
    await written(path, event(1), event(2, "x" * 70_000))
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for length in [*range(0, first + 20, 7), first, first + 65_536, len(whole) - 1]:
        path.write_bytes(whole[:length])
        assert reopened(path) == (Cursor(INC, Position(1, 1)) if length >= first else None)
        assert path.stat().st_size == (first if length >= first else 0)


@pytest.mark.parametrize("content", ["hello\n", "hello", '{"a": 1}\n', '{"at": "7"}\n', "[]\n", '{"at": 5}\n'])
def test_a_file_of_something_else_is_left_alone(tmp_path: Path, content: str) -> None:
    path = tmp_path / "file"
    path.write_text(content)
    with pytest.raises(UsageError, match="name a new file"):
        LinesFile(path)
    assert path.read_text() == content


def test_two_watchers_cannot_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    first = LinesFile(path)
    with pytest.raises(StoreInUse):
        LinesFile(path)
    first.close()
    assert reopened(path) is None


def test_a_file_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreUnusable, match="absent"):
        LinesFile(tmp_path / "absent" / "file")
    with pytest.raises(StoreUnusable):
        LinesFile(tmp_path)


async def test_a_full_disk_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    file = LinesFile(path)
    await file.put(event(1))
    size, write = path.stat().st_size, os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:10]))
    with pytest.raises(StoreFull, match="no room"):
        await file.put(event(2))
    assert path.stat().st_size == size
    monkeypatch.undo()
    await file.put(event(2))
    file.close()
    assert reopened(path) == Cursor(INC, Position(1, 2))
