"""Messages as bytes and back: exact, compact, strict against a peer, lenient to a newer one (PROTOCOL §3, §4)."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import json
import zlib
from collections.abc import Callable
from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmqtt import frames as f
from agentmqtt import schema, wire
from agentmqtt.errors import BadValue, WireError
from agentmqtt.types import Entry, OwnerState, Position, RunState
from tests import strategies as some

FRAME = f.Frame(b"12345678", 7, Position(6, 10), 42, 1_700_000_000_000, (Entry("text", "hello"),))
STATUS = f.Status(
    "wf", b"i", 3, Position(2, 9), Position(3, 4), RunState.RUNNING, OwnerState.ONLINE, 1_000, 900, detail={"a": [1]}
)
PAGE = f.Page(
    request=5,
    workflow="wf",
    inc=b"i",
    epoch=3,
    parent=Position(2, 9),
    kind=f.PageKind.OK,
    asked=Position(2, 7),
    start=Position(2, 7),
    tail=Position(3, 2),
    items=(
        f.Item(2, 8, 1, 100, "text", "a"),
        f.Item(2, 9, 1, 103, "text", "b"),
        f.Item(3, 1, 2, 103, "text", "cd"),
    ),
)
DECODERS: list[Callable[[bytes], object]] = [
    wire.decode_frame,
    wire.decode_ack,
    wire.decode_request,
    wire.decode_response,
    wire.decode_status,
    wire.decode_alive,
    wire.decode_journal,
    lambda data: wire.decode_command(data, workflow="wf", sender="me"),
    wire.unpack,
]


def _with(message: Any, **changes: Any) -> bytes:
    """The bytes of a map message with some keys set, or removed where the value is Ellipsis."""
    raw = {**cbor2.loads(wire.encode(message)), **changes}
    return cbor2.dumps({key: value for key, value in raw.items() if value is not ...})


# --- round trips ---------------------------------------------------------------------------------


@given(some.FRAMES)
def test_frames_come_back(frame: f.Frame) -> None:
    assert wire.decode_frame(wire.encode(frame)) == frame


@given(some.ACKS)
def test_acks_come_back(ack: f.Ack) -> None:
    assert wire.decode_ack(wire.encode(ack)) == ack


@given(some.REQUESTS)
def test_requests_come_back(request: f.Request) -> None:
    assert wire.decode_request(wire.encode(request)) == request


@given(some.COMMANDS)
def test_commands_come_back(command: f.Command) -> None:
    assert wire.decode_command(wire.encode(command), workflow=command.workflow, sender="me") == command


@given(some.RESPONSES, st.booleans())
def test_responses_come_back(response: f.Response, deflate: bool) -> None:
    assert wire.decode_response(wire.encode(response, deflate=deflate)) == response


@given(some.build(f.Status, request=st.just(0)), some.build(f.Alive), some.build(f.JournalAlive))
def test_retained_messages_come_back(status: f.Status, alive: f.Alive, journal: f.JournalAlive) -> None:
    assert wire.decode_status(wire.encode(status)) == status
    assert wire.decode_alive(wire.encode(alive)) == alive
    assert wire.decode_journal(wire.encode(journal)) == journal


@given(some.VALUES)
def test_values_survive_without_a_change_of_type(value: Any) -> None:
    wire.check_value(value)
    assert repr(wire.unpack(wire.pack(value))) == repr(value)


@pytest.mark.parametrize("cls", list(schema.BY_CLASS))
def test_the_tables_name_every_field_once(cls: Any) -> None:
    fields = schema.BY_CLASS[cls].fields
    assert {field.name for field in fields} == {field.name for field in dataclasses.fields(cls)}
    assert len({field.key for field in fields}) == len(fields)
    assert not {"v"} & {field.key for field in fields}


# --- exact bytes ---------------------------------------------------------------------------------


def test_a_frame_is_the_documented_array() -> None:
    assert cbor2.loads(wire.encode(FRAME)) == [
        1,
        b"12345678",
        7,
        [6, 10],
        42,
        1_700_000_000_000,
        [["text", ["hello"]]],
    ]


def test_consecutive_entries_of_one_type_share_a_header() -> None:
    entries = (Entry("text", "a"), Entry("text", "b"), Entry("tool", {"x": 1}), Entry("text", "c"))
    frame = dataclasses.replace(FRAME, entries=entries)
    assert cbor2.loads(wire.encode(frame))[6] == [["text", ["a", "b"]], ["tool", [{"x": 1}]], ["text", ["c"]]]
    more = dataclasses.replace(FRAME, entries=(*FRAME.entries, Entry("text", " Q3")))
    assert len(wire.encode(more)) == len(wire.encode(FRAME)) + len(" Q3") + 1


def test_an_ack_is_the_documented_array() -> None:
    assert cbor2.loads(wire.encode(f.Ack(b"i", 7, 42))) == [1, b"i", 7, 42, None]
    assert cbor2.loads(wire.encode(f.Ack(b"i", 7, 42, f.Why.FENCED))) == [1, b"i", 7, 42, "fenced"]


def test_a_status_is_the_documented_map() -> None:
    assert cbor2.loads(wire.encode(STATUS)) == {
        "v": 1,
        "kind": "status",
        "wf": "wf",
        "inc": b"i",
        "epoch": 3,
        "par": [2, 9],
        "tail": [3, 4],
        "state": "running",
        "owner": "online",
        "at": 1_000,
        "upd": 900,
        "detail": {"a": [1]},
    }


def test_items_of_a_page_are_grouped() -> None:
    assert cbor2.loads(wire.encode(PAGE))["items"] == [
        [2, 8, "text", ["a", "b"], [100, 3]],
        [3, 1, "text", ["cd"], 103, [2]],
    ]


def test_a_page_is_deflated_where_that_saves_an_eighth() -> None:
    long = dataclasses.replace(PAGE, items=tuple(f.Item(3, n, 1, 100 + n, "text", f"word {n} ") for n in range(1, 400)))
    plain, small = wire.encode(long), wire.encode(long, deflate=True)
    assert len(small) * 2 < len(plain)
    assert wire.decode_response(small) == wire.decode_response(plain) == long
    assert wire.encode(PAGE, deflate=True) == wire.encode(PAGE)


@given(some.ENTRIES)
def test_size_of_is_what_entries_add(entries: list[Entry]) -> None:
    frame = dataclasses.replace(FRAME, entries=tuple(entries))
    rest = len(wire.encode(dataclasses.replace(FRAME, entries=())))
    assert len(wire.encode(frame)) == rest + wire.size_of(entries)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=3), st.sampled_from([0, 20, 24, 250, 256, 70_000]))
def test_size_of_one_text_needs_no_encoding(text: str, padding: int) -> None:
    entries = [Entry("text", text + "x" * padding)]
    assert wire.size_of(entries) == len(cbor2.dumps([["text", [entries[0].data]]])) - 1


def test_the_head_of_a_frame_is_bounded() -> None:
    most = 2**53 - 1
    widest = f.Frame(b"x" * 16, most, Position(most, most), most, most, tuple([Entry("t", None)] * 70_000))
    assert len(wire.encode(widest)) - wire.size_of(widest.entries) <= wire.FRAME_HEAD


# --- values --------------------------------------------------------------------------------------


class Shade(enum.StrEnum):
    DARK = "dark"


def _nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            {"items": [1, 2, 3, {"when": datetime.datetime.now(datetime.UTC)}]},
            r"data\.items\[3\]\.when: datetime is not",
        ),
        ({"a b": {1, 2}}, r"data\['a b'\]: set is not"),
        (2**53, r"data: an int of 54 bits"),
        (-(2**53), "beyond"),
        (2**64, "beyond"),
        (-(2**64) - 1, "beyond"),
        pytest.param(10**5000, "beyond", id="10^5000"),
        ([float("nan")], r"data\[0\]: nan is not finite"),
        (float("-inf"), "not finite"),
        ("\ud800", "half a surrogate"),
        ({"\udfff": 1}, "half a surrogate"),
        ({1: 2}, "key '1' is int"),
        ({b"x": 2}, "is bytes"),
        (bytearray(b"x"), r"bytes\(\.\.\.\)"),
        (decimal.Decimal(1), "Decimal is not"),
        (object(), "object is not"),
        (Shade.DARK, r"Shade is a subclass of str; convert it with str"),
        (collections.OrderedDict(a=1), r"dict\(\.\.\.\)"),
        (_nested(17), "nested deeper than 16"),
        ({"a": _nested(16)}, "nested deeper than 16"),
    ],
)
def test_bad_values_are_named_at_the_sender(value: Any, message: str) -> None:
    with pytest.raises(BadValue, match=message):
        wire.check_value(value)
    with pytest.raises(BadValue):
        wire.encode(dataclasses.replace(FRAME, entries=(Entry("x", value),)))
    with pytest.raises(BadValue):
        wire.encode(f.Command("id", "wf", "message", value))


def test_a_value_that_holds_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(BadValue, match="nested deeper"):
        wire.check_value(value)


def test_tuples_arrive_as_lists() -> None:
    wire.check_value((1, ("a",)))
    assert wire.unpack(wire.pack((1, ("a",)))) == [1, ["a"]]


def test_sixteen_levels_fit_everywhere() -> None:
    deep = _nested(16)
    frame = dataclasses.replace(FRAME, entries=(Entry("x", deep),))
    page = dataclasses.replace(PAGE, items=(f.Item(1, 1, 1, 0, "x", deep),))
    assert wire.decode_frame(wire.encode(frame)) == frame
    assert wire.decode_response(wire.encode(page)) == page


@pytest.mark.parametrize("kind", ["", "x" * 129, "\ud800", b"text", None])
def test_bad_types_are_named_at_the_sender(kind: Any) -> None:
    with pytest.raises(BadValue):
        wire.check_type(kind)


# --- a hostile peer ------------------------------------------------------------------------------


def _tag(number: int) -> bytes:
    return b"\xda" + number.to_bytes(4, "big")


BAD_CBOR = {
    "nothing": b"",
    "an array of 2^47 items": b"\x9b\x00\x00\x7f\xff\xff\xff\xff\xff",
    "an array of 2^31 items": b"\x9a\x7f\xff\xff\xff",
    "bytes of 2^62": b"\x5b\x3f\xff\xff\xff\xff\xff\xff\xff",
    "text of 2^31": b"\x7a\x7f\xff\xff\xff",
    "a map of 2^47 items": b"\xbb\x00\x00\x7f\xff\xff\xff\xff\xff",
    "deep nesting": b"\x81" * 100_000 + b"\x01",
    "indefinite array": b"\x9f\x01\xff",
    "indefinite text": b"\x7f\x61a\xff",
    "break": b"\xff",
    "bad UTF-8": b"\x61\xff",
    "a surrogate": b"\x63\xed\xa0\x80",
    "a reserved length": b"\x1c",
    "two values": b"\x01\x02",
    "a value and an unfinished one": b"\x01\x48",
    "a key twice": b"\xa2\x61a\x01\x61a\x02",
    "a list as key": b"\xa1\x81\x01\x02",
    "cut short": b"\x82\x01",
}


@pytest.mark.parametrize("data", BAD_CBOR.values(), ids=BAD_CBOR)
@pytest.mark.parametrize("decode", DECODERS)
def test_bytes_that_are_not_the_protocol(decode: Callable[[bytes], object], data: bytes) -> None:
    with pytest.raises(WireError):
        decode(data)


@pytest.mark.parametrize("body", [b"\x01", b"\x61a", b"\x82\x01\x02", b"\x41a", b"\x80"])
def test_no_tag_is_interpreted(body: bytes) -> None:
    for number in (*range(2048), 43000, 55799, 65535, 2**31):
        with pytest.raises(WireError, match="tags"):
            wire.unpack(_tag(number) + body)


@pytest.mark.parametrize(
    "body", [b"\xf7", b"\xf8\x20", b"\xf9\x7e\x00", b"\xf9\x7c\x00", b"\x1b" + b"\xff" * 8, b"\xa1\x01\x02"]
)
def test_values_outside_the_subset_are_refused_on_arrival(body: bytes) -> None:
    head = wire.encode(dataclasses.replace(FRAME, entries=()))[:-1]
    with pytest.raises(WireError, match=r"runs|map key"):
        wire.decode_frame(head + b"\x81\x82\x61x\x81" + body)


@given(st.binary(max_size=60))
def test_noise_is_a_wire_error_or_a_message(data: bytes) -> None:
    for decode in DECODERS:
        try:
            decode(data)
        except WireError:
            continue


@given(some.RESPONSES | some.REQUESTS | some.FRAMES | some.ACKS, st.data())
def test_damaged_messages_are_a_wire_error_or_a_message(message: Any, data: st.DataObject) -> None:
    raw = bytearray(wire.encode(message))
    raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    for decode in DECODERS:
        try:
            decode(bytes(raw))
        except WireError:
            continue


@given(some.VALUES | st.dictionaries(st.sampled_from(["v", "kind", "wf", "id", "data", "expires"]), some.VALUES))
def test_any_value_as_a_message_is_a_wire_error_or_a_message(value: Any) -> None:
    for decode in DECODERS:
        try:
            decode(wire.pack(value))
        except WireError:
            continue


def test_a_message_above_the_limit_is_not_read() -> None:
    for data in (wire.pack(b"x" * wire.MAX_MESSAGE), b'{"kind":"' + b"x" * wire.MAX_MESSAGE + b'"}'):
        with pytest.raises(WireError, match="above the limit"):
            wire.decode_command(data, workflow="wf", sender="me")


@pytest.mark.parametrize(
    "z",
    [
        zlib.compress(b"\x00" * (wire.MAX_MESSAGE + 1)),
        zlib.compress(b"\x80")[:-1],
        zlib.compress(b"\xff"),
        b"noise",
        "text",
        None,
    ],
)
def test_a_page_that_does_not_inflate(z: Any) -> None:
    with pytest.raises(WireError):
        wire.decode_response(_with(PAGE, items=..., z=z))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[
            (1, "inc"),
            (1, b"x" * 17),
            (2, -1),
            (2, 2**53),
            (2, True),
            (2, 1.5),
            (3, [1]),
            (3, 7),
            (4, None),
            (5, "now"),
        ],
        *[(6, 3), (6, [["text"]]), (6, [["", []]]), (6, [[1, []]]), (6, [["text", "hello"]]), (6, ["text"])],
    ],
)
def test_a_field_of_a_frame_that_does_not_fit_is_named(field: int, value: Any) -> None:
    parts = cbor2.loads(wire.encode(FRAME))
    parts[field] = value
    name = ["v", "inc", "epoch", "parent", "first", "time", "runs"][field]
    with pytest.raises(WireError, match=f"frame: {name} "):
        wire.decode_frame(cbor2.dumps(parts))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *[("wf", ""), ("wf", 3), ("inc", "x"), ("epoch", -1), ("par", [1]), ("state", "odd"), ("owner", [])],
        *[("at", "x"), ("tail", ...), ("state", ...), ("req", "x"), ("detail", 2**60)],
    ],
)
def test_a_field_of_a_map_that_does_not_fit_is_named(key: str, value: Any) -> None:
    with pytest.raises(WireError, match=f"status: {key} "):
        wire.decode_status(_with(STATUS, **{key: value}))


@pytest.mark.parametrize(
    "items",
    [
        7,
        [7],
        [[1, 1, "t", ["a"]]],
        [[1, 1, "t", ["a"], [1, 2]]],
        [[1, 1, "t", ["a"], [-1]]],
        [[1, 1, "t", ["a"], ["x"]]],
        [[1, 1, "t", ["a"], 0, [0]]],
        [[1, 1, "t", ["a"], 0, [1, 1]]],
        [[1, 1, "t", ["a"], 0, 1]],
        [[1, 1, "", ["a"], 0]],
        [[1, 1, "t", [2**60], 0]],
    ],
)
def test_items_that_do_not_fit_are_refused(items: Any) -> None:
    with pytest.raises(WireError, match="page: items"):
        wire.decode_response(_with(PAGE, items=items))


# --- another version -----------------------------------------------------------------------------


def test_unknown_keys_and_trailing_elements_are_skipped() -> None:
    assert wire.decode_status(_with(STATUS, colour="red", nested={"a": [1]})) == STATUS
    parts = cbor2.loads(wire.encode(FRAME))
    parts[3].append("more")
    parts[6][0].append({"new": 1})
    assert wire.decode_frame(cbor2.dumps([*parts, "more", 7])) == FRAME
    page = cbor2.loads(wire.encode(PAGE))
    page["items"][1].append("more")
    assert wire.decode_response(cbor2.dumps(page)) == PAGE


def test_another_version_is_said() -> None:
    parts = cbor2.loads(wire.encode(FRAME))
    with pytest.raises(WireError, match="version 2"):
        wire.decode_frame(cbor2.dumps([2, *parts[1:]]))
    with pytest.raises(WireError, match="version 2"):
        wire.decode_status(_with(STATUS, v=2))


def test_an_unknown_kind_is_said() -> None:
    with pytest.raises(WireError, match="kind 'novel' is unknown"):
        wire.decode_response(_with(STATUS, kind="novel"))
    with pytest.raises(WireError, match="unknown"):
        wire.decode_status(_with(PAGE))
    with pytest.raises(WireError, match="unknown"):
        wire.decode_request(_with(STATUS, kind=["list"]))


def test_null_stands_for_an_optional_field_that_is_absent() -> None:
    claim = f.Claim(b"r", "wf", b"i", b"b", 1, 0, 0, b"")
    assert wire.decode_request(_with(claim, cut=None, take=None)) == claim


def test_whole_floats_pass_as_numbers() -> None:
    """Some JavaScript encoders write ints above 2^32 as floats."""
    assert wire.decode_status(_with(STATUS, at=1_000.0)) == STATUS
    assert type(wire.decode_status(_with(STATUS, at=1_000.0)).at) is int


# --- what people type ----------------------------------------------------------------------------


def _typed(text: str, *, workflow: str = "wf", sender: str = "me") -> f.Command:
    return wire.decode_command(text.encode(), workflow=workflow, sender=sender, now=1_000_000)


def test_a_command_may_be_typed_as_json() -> None:
    assert _typed('{"kind":"message","data":"hello","id":"x","expires":60}') == f.Command(
        "x", "wf", "message", "hello", 1_060_000
    )
    assert _typed(' {"kind":"interrupt","id":"x"}\n') == f.Command("x", "wf", "interrupt", None, 0)
    assert _typed('{"kind":"a","id":"x","deadline":5,"expires":60}').deadline == 5


def test_expires_counts_from_now_by_the_clock_if_none_is_given() -> None:
    late = wire.decode_command(b'{"kind":"a","expires":1e9}', workflow="wf", sender="me").deadline
    assert late > 2_700_000_000_000


def test_a_command_without_id_is_the_same_only_if_it_says_the_same() -> None:
    one = _typed('{"kind":"a","data":{"x":1}}')
    assert one.id.startswith(wire.ANONYMOUS)
    assert one == _typed('{ "data":{"x":1.0e0}, "kind":"a", "v":1}'.replace("1.0e0", "1"))
    others = [
        _typed('{"kind":"b","data":{"x":1}}'),
        _typed('{"kind":"a","data":{"x":2}}'),
        _typed('{"kind":"a","data":{"x":1}}', sender="you"),
        _typed('{"kind":"a","data":{"x":1}}', workflow="other"),
    ]
    assert len({one.id, *(other.id for other in others)}) == 5


@pytest.mark.parametrize(
    "text",
    [
        "",
        "interrupt",
        "[]",
        '"x"',
        "{}",
        '{"kind":""}',
        '{"kind":7}',
        '{"kind":"a"',
        '{"kind":"a","data":NaN}',
        '{"kind":"a","data":1e999}',
        '{"kind":"a","data":9007199254740992}',
        '{"kind":"a","data":' + "9" * 5000 + "}",
        '{"kind":"a","data":"\\ud800"}',
        '{"kind":"\\ud800"}',
        '{"kind":"a","kind":"b"}',
        '{"kind":"a","id":7}',
        '{"kind":"a","id":""}',
        '{"kind":"a","expires":0}',
        '{"kind":"a","expires":-1}',
        '{"kind":"a","expires":"60"}',
        '{"kind":"a","expires":1e300}',
        '{"kind":"a","deadline":-1}',
        '{"kind":"a","wf":"other"}',
        '{"kind":"a","v":2}',
        '{"kind":"a","data":' + "[" * 100_000 + "]" * 100_000 + "}",
    ],
)
def test_json_that_is_no_command(text: str) -> None:
    with pytest.raises(WireError):
        _typed(text)


def test_the_topic_decides_the_workflow() -> None:
    command = f.Command("id", "x" * 200, "message", None)
    assert wire.decode_command(wire.encode(command), workflow="", sender="me") == command
    with pytest.raises(WireError, match="on the topic of 'wf'"):
        wire.decode_command(wire.encode(command), workflow="wf", sender="me")
    with pytest.raises(WireError, match="wf is missing"):
        wire.decode_command(b'{"kind":"a"}', workflow="", sender="me")
    with pytest.raises(WireError, match="on the topic of"):
        wire.decode_request(wire.encode(f.Describe(1, "other")), workflow="wf")


def test_a_request_may_be_typed_as_json() -> None:
    assert wire.decode_request(b'{"kind":"describe"}', workflow="wf") == f.Describe(0, "wf")
    assert wire.decode_request(b'{"kind":"list","limit":5}') == f.ListRuns(0, "", 5)
    fetch = json.dumps({"kind": "fetch", "req": 3, "inc": "0aff", "pos": [1, 2]}).encode()
    assert wire.decode_request(fetch, workflow="wf") == f.Fetch(3, "wf", b"\x0a\xff", Position(1, 2))
    with pytest.raises(WireError, match="hex"):
        wire.decode_request(fetch.replace(b"0aff", b"0afg"), workflow="wf")
