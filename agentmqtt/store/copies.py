"""Copies of a store file: whole, of one moment, also while somebody writes."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from agentmqtt.errors import StoreUnusable

_PAGES = 1024
"""Pages that are copied before writers have their turn."""


def sound(file: Path) -> tuple[bool, str]:
    """Whether a store is whole, and a sentence about it. Changes nothing."""
    try:
        with sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=5) as connection:
            word = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.Error as error:
        return False, f"{file} cannot be read: {error}; the broker would set it aside and begin anew"
    size = file.stat().st_size >> 10
    return word == "ok", f"{file} is whole, {size} KiB" if word == "ok" else f"{file}: {word}"


def copy(source: Path, target: Path) -> None:
    """Copy a store into a new file, on disk when this returns; a copy that fails leaves nothing.

    Raises:
        StoreUnusable: it could not be read or written.
    """
    part = target.with_name(f".{target.name}.part")
    part.unlink(missing_ok=True)
    try:
        part.touch(0o600)
        with sqlite3.connect(f"file:{source}?mode=ro", uri=True) as here, sqlite3.connect(part) as there:
            here.backup(there, pages=_PAGES)
            there.execute("PRAGMA journal_mode=DELETE")
        with part.open("rb+") as whole:
            os.fsync(whole.fileno())
        part.rename(target)
    except (sqlite3.Error, OSError) as error:
        raise StoreUnusable(f"{source} could not be copied to {target}: {error}") from error
    finally:
        part.unlink(missing_ok=True)
