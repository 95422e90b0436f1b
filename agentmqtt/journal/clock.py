"""Time for a journal: a wall clock that never steps back, and the monotonic one (PROTOCOL §5.4, §7.4)."""

from __future__ import annotations

import time


class Clock:
    """`now` is milliseconds since 1970 and never less than what was seen before, restarts included."""

    def __init__(self) -> None:
        self._high = 0

    def now(self) -> int:
        self._high = max(self._high, time.time_ns() // 1_000_000)
        return self._high

    def raise_to(self, high: int) -> None:
        """What the store remembers of an earlier run."""
        self._high = max(self._high, high)

    @staticmethod
    def monotonic() -> float:
        """Seconds for leases; comparable within this process only."""
        return time.monotonic()
