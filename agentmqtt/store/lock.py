"""One process per store file: a lock that the kernel releases when its holder dies."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from agentmqtt.errors import StoreInUse, StoreUnusable


class FileLock:
    """An exclusive lock on `FILE.lock`, which holds the PID of its holder.

    The file stays when the lock goes: removing it would let two processes lock two files of one name.
    """

    def __init__(self, file: Path) -> None:
        self._path = file.with_name(file.name + ".lock")
        self._file = file
        self._fd = -1

    def acquire(self) -> None:
        """Take the lock at once or not at all.

        Raises:
            StoreInUse: naming the living process that has it (also if that is this one).
            StoreUnusable: if the lock file cannot be made or locked.
        """
        fd = self._open()
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
            os.close(fd)
            raise StoreInUse(
                f"store {self._file} is in use by {f'process {holder}' if holder else 'another process'}; "
                "stop that one or use another file"
            ) from error
        except OSError as error:
            os.close(fd)
            raise unusable(self._path, "be locked", error) from error
        try:
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{os.getpid()}\n".encode("ascii"), 0)
        except OSError:
            # A full disk: the lock holds all the same, only its holder stays unnamed.
            os.ftruncate(fd, 0)
        self._fd = fd

    def _open(self) -> int:
        try:
            return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise unusable(self._path, "be opened", error) from error

    def release(self) -> None:
        """Let go; nothing happens if it was never taken."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def unusable(path: Path, verb: str, error: OSError) -> StoreUnusable:
    """The error for a path that this user cannot use, with the reason of the system."""
    return StoreUnusable(
        f"{path} cannot {verb} by uid {os.geteuid()}: {error.strerror}; "
        "choose a directory that this user may write, or change its owner"
    )
