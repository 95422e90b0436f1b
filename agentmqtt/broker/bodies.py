"""Message bodies on disk: one for all copies, counted exactly, gone with the last copy."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterator, Sequence

from agentmqtt.broker import records
from agentmqtt.broker.behind import WriteBehind
from agentmqtt.broker.messages import Message
from agentmqtt.broker.pad import Pad
from agentmqtt.broker.records import BadRecord
from agentmqtt.store.base import Key, Store

log = logging.getLogger("agentmqtt.broker")

_NEAR = 8
"""Numbers that far apart are read in one go, with what lies between."""


class Bodies:
    """Which stored messages are in memory, and whose count has changed.

    A body is on disk while it has references. One count is kept in memory while anybody holds the
    message, or its change is not on disk yet; otherwise it is in `share`, or 1.
    `number` gives a new number.
    """

    def __init__(self, store: Store, behind: WriteBehind, number: Callable[[], int]) -> None:
        self._store, self._behind, self._number = store, behind, number
        self._alive: weakref.WeakValueDictionary[int, Message] = weakref.WeakValueDictionary()
        self._changed: dict[int, Message] = {}
        self._committing: dict[int, Message] = {}

    def hold(self, message: Message) -> None:
        """One more copy is stored."""
        if not message.key:
            message.key, message.references = self._number(), 0
            self._alive[message.key] = message
            self._behind.pad.create(records.MESSAGE, Key("", message.key), records.pack_message(message))
        message.references += 1
        self._changed[message.key] = message

    def release(self, message: Message) -> None:
        """One copy less."""
        message.references -= 1
        self._changed[message.key] = message

    def prepare(self) -> None:
        """A commit is about to begin: note what became of the messages that changed."""
        pad = self._behind.pad
        for number, message in self._changed.items():
            self._note(pad, Key("", number), message)
        self._committing.update(self._changed)
        self._changed = {}

    def written(self) -> None:
        """That commit is on disk."""
        self._committing = {}

    def _note(self, pad: Pad, key: Key, message: Message) -> None:
        if message.references > 1:
            count = records.pack_count(message.references)
            (pad.put if message.shared else pad.create)(records.SHARE, key, count)
        elif message.shared:
            pad.delete(records.SHARE, key)
        message.shared = message.references > 1
        if not message.references:
            pad.delete(records.MESSAGE, key)
            del self._alive[message.key]
            message.key = 0

    # -------------------------------------------------------------- reading

    async def find(self, numbers: Sequence[int]) -> dict[int, Message]:
        """Those of the messages that there are. One reader at a time: two would count apart."""
        found = {number: message for number in numbers if (message := self._alive.get(number)) is not None}
        missing = sorted(set(numbers) - found.keys())
        bodies = await self._read(records.MESSAGE, missing)
        counts = await self._read(records.SHARE, missing)
        for number in missing:
            if number in bodies and (message := self._revive(number, bodies[number], counts.get(number))):
                found[number] = message
        return found

    def _revive(self, number: int, body: bytes, count: bytes | None) -> Message | None:
        try:
            message = records.unpack_message(body)
            message.references = 1 if count is None else records.unpack_count(count)
        except BadRecord as error:
            self._drop(number, error)
            return None
        message.key, message.shared = number, count is not None
        self._alive[number] = message
        return message

    def _drop(self, number: int, error: BadRecord) -> None:
        log.error("message %d in the store cannot be read and is dropped: %s", number, error)
        for space in (records.MESSAGE, records.SHARE):
            self._behind.pad.delete(space, Key("", number))
        self._behind.schedule()

    async def _read(self, space: str, numbers: Sequence[int]) -> dict[int, bytes]:
        wanted, found = set(numbers), dict[int, bytes]()
        for first, last in _runs(numbers):
            for key, body in await self._store.scan(space, Key("", first), Key("", last)):
                if key.a in wanted:
                    found[key.a] = body
        pending = ((number, self._behind.pending(space, Key("", number), found.get(number))) for number in numbers)
        return {number: body for number, body in pending if body is not None}


def _runs(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """First and last of each group of sorted numbers that lie close together."""
    if not numbers:
        return
    first = last = numbers[0]
    for number in numbers[1:]:
        if number - last > _NEAR:
            yield first, last
            first = number
        last = number
    yield first, last
