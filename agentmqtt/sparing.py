"""A log that whoever publishes garbage cannot fill."""

from __future__ import annotations

import logging
import time


class Sparing:
    """Warnings of one kind: at most `most` in `span` seconds, the others are counted and told later."""

    def __init__(self, log: logging.Logger, *, most: int = 10, span: float = 30.0) -> None:
        self._log, self._most, self._span = log, most, span
        self._until = 0.0
        self._said = 0

    def warning(self, text: str, *values: object) -> None:
        now = time.monotonic()
        if now >= self._until:
            if self._said > self._most:
                self._log.warning("%d more warnings like the last one were left out", self._said - self._most)
            self._until, self._said = now + self._span, 0
        self._said += 1
        if self._said <= self._most:
            self._log.warning(text, *values)
        elif self._said == self._most + 1:
            self._log.warning("more warnings like the last one are counted for %g s and not shown", self._span)
