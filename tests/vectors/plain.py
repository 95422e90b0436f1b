"""Messages as JSON that any language can compare: wire keys, defaults filled in, `$bytes` and `$float`."""

from __future__ import annotations

import enum
from typing import Any

from agentmqtt import schema
from agentmqtt.frames import Ack, Frame


def plain(value: Any) -> Any:
    """A value of the subset (§3.1): bytes become `{"$bytes": hex}`, floats `{"$float": text}`, all else itself."""
    match value:
        case bytes():
            return {"$bytes": value.hex()}
        case float():
            return {"$float": repr(value)}
        case enum.Enum():
            return value.value
        case list() | tuple():
            return [plain(part) for part in value]
        case dict():
            return {key: plain(part) for key, part in value.items()}
        case _:
            return value


def meaning(message: Any) -> Any:
    """A message by its wire keys; a field that was left out stands with its default."""
    if isinstance(message, Frame):
        entries = [[entry.type, plain(entry.data)] for entry in message.entries]
        head = {"inc": plain(message.inc), "epoch": message.epoch, "parent": plain(message.parent)}
        return {**head, "first": message.first, "time": message.time, "events": entries}
    if isinstance(message, Ack):
        return {"inc": plain(message.inc), "epoch": message.epoch, "n": message.n, "why": plain(message.why)}
    shape = schema.BY_CLASS[type(message)]
    fields = {field.key: plain(getattr(message, field.name)) for field in shape.fields}
    return {"kind": shape.kind, **fields} if shape is not schema.COMMAND else fields
