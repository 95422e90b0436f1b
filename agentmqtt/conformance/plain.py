"""Values as JSON and back: bytes as `{"$bytes": hex}`, floats as `{"$float": text}` (docs/CONFORMANCE.md)."""

from __future__ import annotations

from typing import Any

from agentmqtt.types import Value


def to_json(value: Value) -> Any:
    """A value of PROTOCOL §3 as JSON that no reader rounds."""
    match value:
        case bytes():
            return {"$bytes": value.hex()}
        case float():
            return {"$float": repr(value)}
        case list() | tuple():
            return [to_json(part) for part in value]
        case dict():
            return {key: to_json(part) for key, part in value.items()}
        case _:
            return value


def from_json(raw: Any) -> Value:
    """The inverse of `to_json`; a plain JSON fraction is a float too.

    Raises:
        ValueError: `$bytes` or `$float` holds something else.
    """
    if isinstance(raw, list):
        return [from_json(part) for part in raw]
    if not isinstance(raw, dict):
        return raw
    if raw.keys() == {"$bytes"}:
        return bytes.fromhex(raw["$bytes"])
    if raw.keys() == {"$float"}:
        return float(raw["$float"])
    return {key: from_json(part) for key, part in raw.items()}
