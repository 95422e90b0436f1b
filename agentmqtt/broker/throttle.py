"""Wrong logins cost time: each address and each name is slowed down by its own failures. Pure."""

from __future__ import annotations

from collections import OrderedDict

FREE = 5
"""Failures that cost nothing."""
MOST = 60.0
"""Seconds that the next try has to wait at most."""
FORGET = 900.0
"""Seconds without a failure after which all is forgotten."""
KEPT = 10_000
"""Addresses and names that are remembered."""


class Throttle:
    """Failures by key. `now` is a monotonic clock in seconds."""

    def __init__(self) -> None:
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def wait(self, key: str, now: float) -> float:
        """Seconds until this key may try again; 0 if it may now."""
        count, last = self._failures.get(key, (0, now))
        if now - last > FORGET:
            del self._failures[key]
            return 0.0
        if count <= FREE:
            return 0.0
        return max(0.0, last + min(MOST, 2.0 ** (count - FREE - 1)) - now)

    def failed(self, key: str, now: float) -> None:
        """One more wrong login."""
        count, _ = self._failures.pop(key, (0, now))
        self._failures[key] = (count + 1, now)
        if len(self._failures) > KEPT:
            self._failures.popitem(last=False)

    def succeeded(self, key: str) -> None:
        """The right one: nothing is held against it any more."""
        self._failures.pop(key, None)
