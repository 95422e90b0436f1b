"""`messages.json`: bytes that every client reads the same way, and bytes that it must refuse."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import cbor2

from agentmqtt import frames as f
from agentmqtt import wire
from agentmqtt.types import CommandState, Entry, OwnerState, Position, RunState
from tests.vectors.plain import meaning

INC = bytes.fromhex("00112233445566ff")
WF = "report-42"
NOW = 1_700_000_000_000
MOST = 2**53 - 1
READ: dict[str, Callable[[bytes], Any]] = {
    "out": wire.decode_frame,
    "ack": wire.decode_ack,
    "status": wire.decode_status,
    "alive": wire.decode_alive,
    "journal": wire.decode_journal,
    "res": wire.decode_response,
    "req": lambda data: wire.decode_request(data, workflow=WF),
    "own": lambda data: wire.decode_request(data, workflow=WF),
    "in": lambda data: wire.decode_command(data, workflow=WF, sender="phone", now=NOW),
    "~req": wire.decode_request,
}
"""How the payload of each topic of §2.3 is read; `~req` is the client's own."""


def _frame(*entries: Entry, **changes: Any) -> f.Frame:
    return dataclasses.replace(f.Frame(INC, 1, Position(0, 0), 1, NOW, entries), **changes)


def _item(n: int, data: Any, *, kind: str = "text", span: int = 1, epoch: int = 2, time: int = NOW) -> f.Item:
    return f.Item(epoch, n, span, time, kind, data)


def _page(*items: f.Item, **changes: Any) -> f.Page:
    page = f.Page(7, WF, INC, 2, Position(1, 3), f.PageKind.OK, Position(1, 3), Position(1, 3), Position(2, 9), items)
    return dataclasses.replace(page, **changes)


def _status(**changes: Any) -> f.Status:
    running = (RunState.RUNNING, OwnerState.ONLINE)
    return dataclasses.replace(f.Status(WF, INC, 2, Position(1, 3), Position(2, 9), *running, NOW, NOW - 5), **changes)


def _deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


VALUES: dict[str, Any] = {
    "null": None,
    "true and false": [True, False],
    "the largest and the smallest integer": [MOST, -MOST],
    "integers of every width": [0, 23, 24, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32, -1, -24, -25, -256, -257],
    "floats": [0.5, -1.5, 1e300, 0.1, 3.0, -0.0],
    "text": ["", "a", "ä", "€", "🙂", "e\u0301", "\u00e9", "\x00\x1f\n", "x" * 300],
    "bytes": [b"", b"\x00\xff", b"a" * 24],
    "nested": {"a": {"b": [1, [2, {"c": []}]]}, "": {}, "ключ": 1},
    "sixteen deep": _deep(16),
}


def good() -> Iterator[tuple[str, str, Any]]:
    """Name, topic and message."""
    yield "a token", "out", _frame(Entry("text", "Hello"))
    yield "a probe", "out", _frame(first=10)
    run = [Entry("text", "a"), Entry("text", "b"), Entry("tool", {"name": "search"}), Entry("text", "c")]
    yield "consecutive events of one type share a header", "out", _frame(*run, epoch=3, parent=Position(2, 7), first=5)
    yield "large numbers", "out", _frame(Entry("n", MOST), epoch=MOST, parent=Position(MOST - 1, MOST), first=MOST)
    for name, value in VALUES.items():
        yield f"value: {name}", "out", _frame(Entry("value", value))
    yield "the end of a run", "out", _frame(Entry("am.end", {"outcome": "done", "result": {"url": "x"}}))
    yield "a receipt", "ack", f.Ack(INC, 2, 41)
    for why in f.Why:
        yield f"a refusal: {why}", "ack", f.Ack(INC, 2, 0, why)
    yield from _responses()
    yield "status, short", "status", _status()
    detail = {"name": "searching", "detail": [1]}
    yield "status, full", "status", _status(attempt=2, detail=detail, result={"url": "x"}, request=9)
    for state in RunState:
        yield f"status: {state}", "status", _status(state=state)
    for owner in OwnerState:
        yield f"status: owner {owner}", "status", _status(owner=owner)
    yield "presence", "alive", f.Alive(b"boot", 3, online=True)
    yield "the will", "alive", f.Alive(b"boot", 3, online=False)
    yield "the journal", "journal", f.JournalAlive(online=True, version="0.1.0", boot=b"boot", conn=2, lease=2.5)
    yield from _requests()


def _responses() -> Iterator[tuple[str, str, Any]]:
    for kind in f.PageKind:
        yield f"an empty page: {kind}", "res", _page(kind=kind)
    yield "a page", "res", _page(_item(1, "a"), _item(2, "b", time=NOW + 5), _item(3, 7, kind="tool"))
    yield "a page with merged text", "res", _page(_item(1, "abc", span=3), _item(4, "d"), _item(5, 1, kind="n"))
    yield "a page over two epochs", "res", _page(_item(4, "x", epoch=1), _item(1, "y"))
    yield (
        "a page of a channel that nobody knows",
        "res",
        _page(inc=b"", epoch=0, parent=Position(0, 0), asked=Position(0, 0), start=Position(0, 0), tail=Position(0, 0)),
    )
    for state in CommandState:
        yield f"an outcome: {state}", "res", f.Outcome(WF, "c-1", state, None, NOW)
    yield "an outcome with a reason", "res", f.Outcome(WF, "c-1", CommandState.REJECTED, {"why": "busy"}, NOW)
    row = f.Row(WF, RunState.DONE, OwnerState.NONE, 2, Position(2, 9), NOW)
    yield "a listing", "res", f.Listing(4, (row, row._replace(workflow="ä/b")), more=True)
    yield "an empty listing", "res", f.Listing(4, (), more=False)
    yield "a described status", "res", _status(request=12)
    yield "a grant", "res", f.Grant(b"req", WF, INC, 3, Position(2, 9), 9, 1)
    yield "a refused claim", "res", f.Refusal(b"req", WF, INC, 3, f.Why.OWNED, live=True, known=False)
    handed = f.Handed(WF, INC, 3, "c-1", "interrupt", "stop", "phone", NOW, again=False)
    yield "a command for its owner", "res", handed
    yield "a command that may have happened", "res", dataclasses.replace(handed, again=True)


def _requests() -> Iterator[tuple[str, str, Any]]:
    yield "a fetch", "req", f.Fetch(7, WF, INC, Position(1, 3))
    yield "a first fetch", "req", f.Fetch(1, WF, b"", Position(0, 0), deflate=True)
    yield "a question for the tail", "req", f.Fetch(1, WF, b"", Position(0, 0), limit=0)
    yield "describe", "req", f.Describe(12, WF)
    yield "list", "~req", f.ListRuns(4, "a", 20)
    yield "renew", "~req", f.Renew(b"boot", 3)
    yield "a claim", "own", f.Claim(b"req", WF, b"disk", b"boot", 3, 0, 0, b"")
    cut = f.Claim(b"req", WF, b"disk", b"boot", 3, 2, 2, INC, cut=Position(2, 4), takeover=True, reopen=True)
    yield "a claim with a cut", "own", cut
    yield "a command", "in", f.Command("c-1", WF, "message", {"text": "go"}, NOW)
    yield "a command without data", "in", f.Command("c-1", WF, "interrupt", None)


_LISTING = {"v": 1, "kind": "listing", "req": 1, "rows": [], "more": False}
_ALIVE = {"v": 1, "kind": "alive", "boot": b"boot", "conn": 1, "online": True}


def bad() -> Iterator[tuple[str, str, bytes]]:
    """Name, topic and bytes that nobody may take for a message (§3.1, §3.3)."""
    head = [1, INC, 1, [0, 0], 1, NOW]
    token = [["text", ["a"]]]

    def frame(*parts: Any) -> bytes:
        return cbor2.dumps(list(parts))

    whole = frame(*head, token)
    yield "nothing", "out", b""
    yield "cut short", "out", whole[:-1]
    yield "goes on after its end", "out", whole + b"\x00"
    yield "another version", "out", frame(2, *head[1:], token)
    yield "a map where an array belongs", "out", cbor2.dumps({"v": 1})
    yield "an array where a map belongs", "res", whole
    yield "a part is missing", "out", frame(*head)
    yield "a negative number", "out", frame(*head[:4], -1, NOW, token)
    yield "a number above 2^53-1", "out", frame(*head, [["n", [2**53]]])
    yield "a number below -(2^53-1)", "out", frame(*head, [["n", [-(2**53)]]])
    yield "not a number", "out", frame(*head, [["n", [float("nan")]]])
    yield "infinity", "out", frame(*head, [["n", [float("inf")]]])
    yield "undefined", "out", frame(*head, [["n", [cbor2.undefined]]])
    yield "a tag", "out", frame(*head, [["n", [cbor2.CBORTag(4000, 1)]]])
    yield "a big number as a tag", "out", frame(*head, [["n", [2**70]]])
    yield "a key that is no text", "out", frame(*head, [["n", [{1: 2}]]])
    yield "an array of unknown length", "out", whole.replace(b"\x81\x61a", b"\x9f\x61a\xff")
    yield "a text of unknown length", "out", whole.replace(b"\x81\x61a", b"\x81\x7f\x61a\xff")
    yield "text that is not UTF-8", "out", whole.replace(b"\x61a", b"\x61\xff")
    yield "an empty event type", "out", frame(*head, [["", ["a"]]])
    yield "an event type of 129 characters", "out", frame(*head, [["t" * 129, ["a"]]])
    yield "one key twice", "out", frame(*head, [["n", [0]]])[:-1] + b"\xa2\x61a\x01\x61a\x02"
    yield "seventeen deep", "out", frame(*head, [["n", [_deep(17)]]])
    yield "a kind that nobody knows", "res", cbor2.dumps({"v": 1, "kind": "riddle"})
    yield "no kind", "res", cbor2.dumps({"v": 1})
    yield "another version of a map", "res", cbor2.dumps({**_LISTING, "v": 2})
    yield "a field is missing", "res", cbor2.dumps({"v": 1, "kind": "listing", "req": 1})
    yield "a state that nobody knows", "status", wire.encode(_status()).replace(b"grunning", b"gsinging")
    yield "a number where bytes belong", "alive", cbor2.dumps({**_ALIVE, "boot": 5})
    yield "compressed items that do not inflate", "res", _squeezed(b"no zlib")
    yield "no JSON", "in", b'{"kind": "interrupt"'
    yield "JSON with a fraction beyond doubles", "in", b'{"kind": "x", "data": 1e999}'
    yield "another workflow than the topic's", "in", b'{"kind": "x", "wf": "report-43"}'


def _squeezed(data: bytes) -> bytes:
    raw = cbor2.loads(wire.encode(_page()))
    del raw["items"]
    return cbor2.dumps({**raw, "z": data})


def _json_commands() -> Iterator[tuple[str, bytes]]:
    yield "typed by hand", b'{"kind": "interrupt"}'
    yield "typed with everything", b'{"kind": "message", "data": {"n": [1, 2.5, null]}, "id": "c-9", "expires": 60}'
    yield "keys that nobody knows are skipped", b'{"kind": "interrupt", "id": "c-2", "mood": "good"}'


def _skipped() -> Iterator[tuple[str, str, bytes]]:
    """What a newer version may add (§3.3)."""
    raw = cbor2.loads(wire.encode(_frame(Entry("text", "a"))))
    yield "a longer frame", "out", cbor2.dumps([*raw, "new", {"x": 1}])
    yield "a longer ack", "ack", cbor2.dumps([*cbor2.loads(wire.encode(f.Ack(INC, 2, 41))), 5])
    yield "a map with more keys", "status", cbor2.dumps({**cbor2.loads(wire.encode(_status())), "mood": "good"})


def build() -> dict[str, Any]:
    """The whole file. `exact`: an encoder that follows §4.6 makes these very bytes of the meaning."""
    cases = [(name, topic, wire.encode(message), True) for name, topic, message in good()]
    text = "word " * 400
    cases.append(("a compressed page", "res", wire.encode(_page(_item(1, text, span=400)), deflate=True), False))
    cases += [(f"JSON: {name}", "in", data, False) for name, data in _json_commands()]
    cases += [(f"from a newer version: {name}", topic, data, False) for name, topic, data in _skipped()]
    return {
        "about": "`means` by wire keys. In the topics: workflow report-42, sender phone. Clock: 1700000000000.",
        "good": [
            {"name": name, "topic": topic, "hex": data.hex(), "exact": exact, "means": meaning(READ[topic](data))}
            for name, topic, data, exact in cases
        ],
        "bad": [{"name": name, "topic": topic, "hex": data.hex()} for name, topic, data in bad()],
    }
