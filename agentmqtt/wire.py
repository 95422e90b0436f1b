"""Messages as bytes and back (PROTOCOL §4): CBOR, and JSON where people type. The only user of cbor2.

A frame and an ack are arrays, everything else is a map with short keys. Map keys and trailing array
elements that this version does not know are skipped; a known field that does not fit is a WireError.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, NamedTuple, NoReturn, TypeAlias, cast

import cbor2

from agentmqtt import jsontext, schema
from agentmqtt import values as v
from agentmqtt.errors import WireError
from agentmqtt.frames import Ack, Alive, Command, Frame, JournalAlive, Page, Request, Response, Status, Why
from agentmqtt.types import Entry, Value
from agentmqtt.values import Misfit, check_type, check_value

__all__ = [
    "ANONYMOUS",
    "FRAME_HEAD",
    "MAX_MESSAGE",
    "Message",
    "check_type",
    "check_value",
    "decode_ack",
    "decode_alive",
    "decode_command",
    "decode_frame",
    "decode_journal",
    "decode_request",
    "decode_response",
    "decode_status",
    "encode",
    "pack",
    "size_of",
    "unpack",
]

MAX_MESSAGE: Final = 1024 * 1024
"""Bytes of a message, before and after inflating: it bounds what a bad one can cost."""
FRAME_HEAD: Final = 72
"""Most bytes that a frame adds to `size_of` its entries."""
ANONYMOUS: Final = "anon-"
"""How the ID of a command begins that came without one: a hash of sender, name, kind and data."""

Message: TypeAlias = Frame | Ack | Request | Response | Alive | JournalAlive

_MAX_NESTING: Final = v.MAX_DEPTH + 8
_DEFLATE_FROM: Final = 512


def _refuse_tag(*_args: object) -> NoReturn:
    raise ValueError("tags are not part of the protocol")


# Every tag that cbor2 would interpret by itself; any other goes to the tag hook.
_TAGS: Final[Mapping[int, Callable[[Any, bool], Any]]] = dict.fromkeys(
    (*range(6), 25, 28, 29, 30, 35, 36, 37, 52, 54, 100, 256, 258, 260, 261, 1004, 43000, 55799), _refuse_tag
)
_END: Final = os.urandom(8)
_END_BYTES: Final = cbor2.dumps(_END)


def pack(value: Value) -> bytes:
    """A record for the disk. The value must pass `check_value`."""
    return cbor2.dumps(value)


def unpack(data: bytes) -> Value:
    """What `pack` made.

    Raises:
        WireError: if the bytes are anything else than one value without tags.
    """
    try:
        # A pair with an end that no sender can guess: cbor2 alone would ignore bytes after the value.
        value, end = cbor2.loads(
            b"\x82" + data + _END_BYTES,
            tag_hook=_refuse_tag,
            semantic_decoders=_TAGS,
            max_depth=_MAX_NESTING,
            allow_indefinite=False,
            allow_duplicate_keys=False,
            strict_hashable_types=True,
        )
    except Exception as error:  # whatever the decoder says about foreign bytes is the sender's fault
        raise WireError(f"{v.show(bytes(data))} is not CBOR of the protocol: {error.__cause__ or error}") from error
    if end != _END:
        raise WireError(f"{v.show(bytes(data))} goes on after the end of the message")
    return value


def _bounded(data: bytes) -> bytes:
    if len(data) > MAX_MESSAGE:
        raise WireError(f"message of {len(data)} bytes is above the limit of {MAX_MESSAGE}")
    return data


# --- frames and acks -----------------------------------------------------------------------------


def size_of(entries: Sequence[Entry]) -> int:
    """Bytes that these entries add to a frame; the frame around them has at most FRAME_HEAD."""
    if len(entries) == 1 and type(entries[0][1]) is str:
        return 2 + _size_of_text(entries[0][0]) + _size_of_text(entries[0][1])
    return len(cbor2.dumps(_runs(entries))) - 1


def _size_of_text(text: str) -> int:
    size = len(text) if text.isascii() else len(text.encode())
    return size + (1 if size < 24 else 2 if size < 2**8 else 3 if size < 2**16 else 5)


def runs_of(entries: Sequence[Entry]) -> Value:
    """Entries as a packable value: consecutive ones of one type share a header (§4.1)."""
    return _runs(entries)


def entries_of(runs: Value) -> tuple[Entry, ...]:
    """The inverse of `runs_of`.

    Raises:
        WireError: if it is not what `runs_of` gives.
    """
    try:
        return _read_runs(runs)
    except Misfit as error:
        raise WireError(f"entries: {error}") from error


def _runs(entries: Sequence[Entry]) -> list[Any]:
    if len(entries) == 1:
        return [[entries[0][0], [entries[0][1]]]]
    return [[kind, [entry[1] for entry in run]] for kind, run in groupby(entries, itemgetter(0))]


def _encode_frame(frame: Frame) -> bytes:
    for kind, data in frame.entries:
        check_value(data, kind)
    parent = [frame.parent[0], frame.parent[1]]
    return cbor2.dumps([schema.VERSION, frame.inc, frame.epoch, parent, frame.first, frame.time, _runs(frame.entries)])


def _encode_ack(ack: Ack) -> bytes:
    return cbor2.dumps([schema.VERSION, ack.inc, ack.epoch, ack.n, ack.why and ack.why.value])


def _read_runs(value: Any) -> tuple[Entry, ...]:
    entries: list[Entry] = []
    for run in v.array(value):
        if type(run) is not list or len(run) < 2:
            raise Misfit(f"holds {v.show(run)}, not [type, [data, ...]]")
        kind = v.label(run[0])
        # Text from cbor2 is valid Unicode already: the token's fast path.
        entries += [Entry(kind, data if type(data) is str else v.any_value(data)) for data in v.array(run[1])]
    return tuple(entries)


class _Array(NamedTuple):
    """Fields of an array message, after the version."""

    what: str
    names: tuple[str, ...]
    readers: tuple[Callable[[Any], Any], ...]


_FRAME: Final = _Array(
    "frame",
    ("inc", "epoch", "parent", "first", "time", "runs"),
    (v.incarnation, v.count, v.position, v.count, v.count, _read_runs),
)
_ACK: Final = _Array("ack", ("inc", "epoch", "n", "why"), (v.incarnation, v.count, v.count, v.optional(v.one_of(Why))))


def decode_frame(data: bytes) -> Frame:
    """The payload of an `out` topic (§4.1).

    Raises:
        WireError: if it is not a frame.
    """
    return Frame(*_read_array(_FRAME, data))


def decode_ack(data: bytes) -> Ack:
    """The payload of an `ack` topic (§4.3).

    Raises:
        WireError: if it is not an ack.
    """
    return Ack(*_read_array(_ACK, data))


def _read_array(shape: _Array, data: bytes) -> list[Any]:
    parts = unpack(_bounded(data))
    if type(parts) is not list or not parts:
        raise WireError(f"{shape.what}: is {v.show(parts)}, not an array")
    schema.check_version(shape.what, parts[0])
    if len(parts) <= len(shape.names):
        raise WireError(f"{shape.what}: {shape.names[len(parts) - 1]} is missing")
    fields: list[Any] = []
    try:
        for read, part in zip(shape.readers, parts[1:], strict=False):
            fields.append(read(part))
    except Misfit as error:
        raise WireError(f"{shape.what}: {shape.names[len(fields)]} {error}") from error
    return fields


# --- maps ----------------------------------------------------------------------------------------


def encode(message: Message, *, deflate: bool = False) -> bytes:
    """A message as bytes. `deflate` compresses the items of a page where that saves an eighth.

    Raises:
        BadValue: if it carries a value that some client could not read.
    """
    if type(message) is Frame:
        return _encode_frame(message)
    if type(message) is Ack:
        return _encode_ack(message)
    raw = schema.write(schema.BY_CLASS[type(message)], message)
    if deflate and type(message) is Page:
        _deflate(raw)
    return cbor2.dumps(raw)


def decode_request(data: bytes, *, workflow: str = "") -> Request:
    """The payload of `own`, `req` and a client's own `req`: CBOR, or JSON with bytes as hex (§4.6).

    `workflow` is the name in the topic, empty where the topic has none or only its hash.

    Raises:
        WireError: if it is no request, or names another workflow than the topic.
    """
    raw, shape = _read_map(data, schema.REQUESTS, typed=True)
    _settle_workflow(raw, workflow)
    return cast("Request", schema.read(shape, raw))


def decode_command(data: bytes, *, workflow: str, sender: str, now: int | None = None) -> Command:
    """The payload of an `in` topic: CBOR or JSON such as `{"kind":"interrupt"}` (§7.1).

    Without an ID it gets one that begins with `anon-` and is the same for an identical command of
    the same sender. `expires` (seconds from `now`, milliseconds since 1970; None asks the clock)
    becomes the deadline; without either the deadline is 0.

    Raises:
        WireError: if it is no command, or names another workflow than the topic.
    """
    raw = _as_map(data, typed=True)
    _settle_workflow(raw, workflow)
    anonymous = raw.get("id") is None
    if anonymous:
        raw["id"] = ANONYMOUS
    if raw.get("deadline") is None and raw.get("expires") is not None:
        raw["deadline"] = _deadline(raw["expires"], now)
    command = cast("Command", schema.read(schema.COMMAND, raw))
    return dataclasses.replace(command, id=_anonymous_id(command, sender)) if anonymous else command


def decode_response(data: bytes) -> Response:
    """The payload of a client's `res` topic (§4.6).

    Raises:
        WireError: if it is no answer of a journal.
    """
    raw, shape = _read_map(data, schema.RESPONSES)
    if shape is schema.PAGE and "z" in raw:
        raw["items"] = _inflate(raw["z"])
    return cast("Response", schema.read(shape, raw))


def decode_status(data: bytes) -> Status:
    """The payload of a `status` topic (§8).

    Raises:
        WireError: if it is no status.
    """
    return cast("Status", _read_one(data, schema.STATUS))


def decode_alive(data: bytes) -> Alive:
    """The payload of an `alive` topic (§5.4).

    Raises:
        WireError: if it is no presence.
    """
    return cast("Alive", _read_one(data, schema.ALIVE))


def decode_journal(data: bytes) -> JournalAlive:
    """The payload of the `journal` topic (§9.1).

    Raises:
        WireError: if it is no journal's presence.
    """
    return cast("JournalAlive", _read_one(data, schema.JOURNAL))


def _read_one(data: bytes, shape: schema.Map) -> Any:
    raw, _ = _read_map(data, {shape.kind: shape})
    return schema.read(shape, raw)


def _read_map(
    data: bytes, shapes: Mapping[str, schema.Map], *, typed: bool = False
) -> tuple[dict[str, Any], schema.Map]:
    raw = _as_map(data, typed=typed)
    kind = raw.get("kind")
    shape = shapes.get(kind) if type(kind) is str else None
    if shape is None:
        raise WireError(f"kind {v.show(kind)} is unknown here; this version knows {', '.join(shapes)}")
    if jsontext.is_json(data):
        jsontext.hex_to_bytes(raw, shape)
    return raw, shape


def _as_map(data: bytes, *, typed: bool) -> dict[str, Any]:
    """The map of a message. `typed`: where people may have typed it, JSON is read as well."""
    _bounded(data)
    raw = jsontext.parse(data) if typed and jsontext.is_json(data) else unpack(data)
    if type(raw) is not dict:
        raise WireError(f"message is {v.show(raw)}, not a map")
    schema.check_version("message", raw.get("v", schema.VERSION))
    return raw


def _settle_workflow(raw: dict[str, Any], workflow: str) -> None:
    """The topic decides: who may write there was decided by its name."""
    if workflow and raw.setdefault("wf", workflow) != workflow:
        raise WireError(f"message names the workflow {v.show(raw['wf'])} on the topic of {v.show(workflow)}")


def _deadline(expires: Any, now: int | None) -> int:
    try:
        after = v.seconds(expires)
    except Misfit as error:
        raise WireError(f"command: expires {error}") from error
    return (time.time_ns() // 1_000_000 if now is None else now) + int(after * 1000)


def _anonymous_id(command: Command, sender: str) -> str:
    """The same for identical commands, so that the journal can drop a repeat (§7.1)."""
    said = pack([sender, command.workflow, command.kind, command.data])
    return ANONYMOUS + hashlib.sha256(said).hexdigest()[:32]


# --- compression ---------------------------------------------------------------------------------


def _deflate(raw: dict[str, Any]) -> None:
    plain = cbor2.dumps(raw["items"])
    if len(plain) < _DEFLATE_FROM:
        return
    small = zlib.compress(plain, 1)
    if len(small) * 8 <= len(plain) * 7:
        del raw["items"]
        raw["z"] = small


def _inflate(data: Any) -> Any:
    inflater = zlib.decompressobj()
    try:
        plain = inflater.decompress(data, MAX_MESSAGE)
    except (zlib.error, TypeError) as error:
        raise WireError(f"page: z does not inflate: {error}") from error
    if not inflater.eof:
        raise WireError(f"page: z is cut short or inflates to more than {MAX_MESSAGE} bytes")
    return unpack(plain)
