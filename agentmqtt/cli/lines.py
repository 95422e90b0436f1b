"""A program's output as pieces of text that fit into events."""

from __future__ import annotations

import codecs
from collections.abc import Iterator

PIECE = 8000
"""Characters of one piece: at most 4 bytes each, which stays below the event limit of 32 KiB."""


class Lines:
    """Bytes in, lines out, each with its newline. A longer line comes in pieces, wherever the reads fell.

    Bytes that are not UTF-8 become U+FFFD. With `whole=False` nothing waits for its newline.
    """

    def __init__(self, *, whole: bool = True, piece: int = PIECE) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._whole, self._piece = whole, piece
        self._rest = ""

    def feed(self, data: bytes) -> Iterator[str]:
        """What is complete now. Empty `data` is the end: then everything is."""
        text = self._rest + self._decoder.decode(data, final=not data)
        start = 0
        while (end := self._end(text, start)) > start:
            yield text[start:end]
            start = end
        self._rest = text[start:]
        if self._rest and not (data and self._whole):
            rest, self._rest = self._rest, ""
            yield rest

    def _end(self, text: str, start: int) -> int:
        """Where the piece that begins at `start` ends; `start` if it is not complete."""
        limit = start + self._piece
        newline = text.find("\n", start, limit)
        if newline >= 0:
            return newline + 1
        return limit if len(text) >= limit else start
