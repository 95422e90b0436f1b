"""What a watcher shows."""

from __future__ import annotations

import json

import pytest

from agentmqtt import Cursor, Event, Gap, Position, Rewound
from agentmqtt.cli.show import JsonLines, Text, as_json

AT = Cursor(bytes.fromhex("c0ffee"), Position(7, 42))


def event(type_: str, data: object, span: int = 1) -> Event:
    return Event(AT, type_, data, 1000, span)


def test_each_kind_of_item_is_an_object_of_its_own() -> None:
    assert json.loads(as_json(event("text", "ü\n"))) == {
        "cursor": "7.42",
        "type": "text",
        "data": "ü\n",
        "time": 1000,
        "at": "7.42@c0ffee",
    }
    assert json.loads(as_json(event("text", "merged", 3)))["span"] == 3
    assert json.loads(as_json(Gap(AT, "trimmed"))) == {"gap": "trimmed", "cursor": "7.42", "at": "7.42@c0ffee"}
    assert json.loads(as_json(Rewound(AT))) == {"rewound": "7.42", "at": "7.42@c0ffee"}


def test_one_line_whatever_is_in_it() -> None:
    line = as_json(event("x", {"a": "b\nc\u2028\r", "raw": [b"\x00\xff"]}))
    assert line.count("\n") == 1
    assert json.loads(line)["data"] == {"a": "b\nc\u2028\r", "raw": [{"base64": "AP8="}]}


async def test_text_goes_to_stdout_and_all_else_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    show = Text()
    for item in [
        event("text", "one "),
        event("text", "two\n"),
        event("log", "careful\n"),
        event("am.state", {"name": "searching", "detail": {"page": 3}}),
        event("am.receipt", {"id": "x", "outcome": "rejected", "reason": "no"}),
        event("chart", [1, 2]),
        Gap(AT, "trimmed"),
        Rewound(AT),
        event("am.release", {"error": "ValueError: x"}),
        event("am.end", {"outcome": "done", "result": {"exit": 0}}),
    ]:
        await show.put(item)
    out, err = capfd.readouterr()
    assert out == "one two\n"
    assert err.splitlines() == [
        "careful",
        '· state: searching {"page": 3}',
        "· command rejected: no",
        "· chart [1, 2]",
        "── gap (trimmed): history before 7.42 cannot be shown ──",
        "── withdrawn: what was shown after 7.42 no longer counts ──",
        "· the owner left: ValueError: x",
        '· ended: done {"exit": 0}',
    ]


async def test_long_lines_are_written_whole(capfd: pytest.CaptureFixture[str]) -> None:
    show = JsonLines()
    for _ in range(3):
        await show.put(event("text", "x" * 30_000))
    assert [len(json.loads(line)["data"]) for line in capfd.readouterr().out.splitlines()] == [30_000] * 3
