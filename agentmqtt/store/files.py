"""The files around a store: its directory, and what is set aside when it is damaged."""

from __future__ import annotations

import datetime
import os
from pathlib import Path

from agentmqtt.errors import StoreUnusable
from agentmqtt.store.lock import unusable

SIDE_FILES = ("-wal", "-shm", "-journal")


def prepare(path: Path) -> None:
    """Make the directory of a store if it is absent, readable for this user only.

    Raises:
        StoreUnusable: naming the path and the user.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        is_directory, existing_paths = path.is_dir(), [each for each in (path, path.parent) if each.exists()]
    except OSError as error:
        raise unusable(path.parent, "be made or entered", error) from error
    if is_directory:
        raise StoreUnusable(f"{path} is a directory; name a file in it")
    for existing in existing_paths:
        if not os.access(existing, os.R_OK | os.W_OK):
            raise StoreUnusable(
                f"{existing} cannot be read and written by uid {os.geteuid()}; "
                "choose a directory that this user may write, or change its owner"
            )


def side_files(path: Path) -> list[Path]:
    """What SQLite keeps beside a file and may read into it."""
    return [path.with_name(path.name + end) for end in SIDE_FILES]


def set_aside(path: Path) -> Path:
    """Rename a file and what lies beside it to `FILE.bad-YYYYMMDD-HHMMSS`; returns the new path.

    Raises:
        StoreUnusable: if the system refuses.
    """
    target = _free_name(path)
    try:
        # The main file last: until it has moved, the next start finds the same damage again.
        for side in side_files(path):
            if side.exists():
                side.rename(target.with_name(target.name + side.name[len(path.name) :]))
        if path.exists():
            path.rename(target)
        sync_directory(path.parent)
    except OSError as error:
        raise unusable(path, "be set aside", error) from error
    return target


def _free_name(path: Path) -> Path:
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%d-%H%M%S")
    first = path.with_name(f"{path.name}.bad-{stamp}")
    more = (path.with_name(f"{first.name}-{count}") for count in range(2, 1000))
    return next(name for name in (first, *more) if not name.exists())


def remove(path: Path) -> None:
    """Remove a half-made file and what lies beside it."""
    for file in (path, *side_files(path)):
        file.unlink(missing_ok=True)


def sync_directory(directory: Path) -> None:
    """Make renames in a directory survive power loss."""
    fd = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
