"""JSON where people type: `mosquitto_pub -m '{"kind":"interrupt"}'` (PROTOCOL §4.5)."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from agentmqtt import values as v
from agentmqtt.errors import WireError
from agentmqtt.schema import Map


def is_json(data: bytes) -> bool:
    """Whether a payload is meant as a JSON object: no message in CBOR begins like one."""
    return data.lstrip()[:1] == b"{"


def parse(data: bytes) -> Any:
    """A JSON text as a value.

    Raises:
        WireError: if it is not JSON, holds NaN, or names a key twice in one object.
    """
    try:
        return json.loads(data.decode(), parse_constant=_refuse_constant, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise WireError(f"{v.show(bytes(data))} is not JSON of the protocol: {error}") from error


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number that every client can read")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return members


def hex_to_bytes(raw: dict[str, Any], shape: Map) -> None:
    """Turn the fields that are bytes from hex, in place.

    Raises:
        WireError: naming the field that is not hex.
    """
    for field in shape.fields:
        text = raw.get(field.key)
        if field.read in (v.blob, v.incarnation) and type(text) is str:
            try:
                raw[field.key] = bytes.fromhex(text)
            except ValueError as error:
                raise WireError(f"{shape.kind}: {field.key} {v.show(text)} is not hex") from error
