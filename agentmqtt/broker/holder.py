"""Who listens on a TCP port of this machine, as far as /proc tells."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

_LISTENING = "0A"


def holder_of(port: int) -> str | None:
    """`PID 123 (name)`, or None where it cannot be seen: another user's process, or no /proc."""
    sockets = {f"socket:[{inode}]" for inode in _inodes(port)}
    if not sockets:
        return None
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if any(str(link.readlink()) in sockets for link in (process / "fd").iterdir()):
                return f"PID {process.name} ({(process / 'comm').read_text().strip()})"
    return None


def _inodes(port: int) -> Iterator[str]:
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                    yield fields[9]
