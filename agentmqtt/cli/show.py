"""What a watcher got, as text for a person or JSON for a program."""

from __future__ import annotations

import base64
import json
import os
import select
import sys
from typing import Protocol

from agentmqtt.core.states import END, MARK, RECEIPT, RELEASE, STATE
from agentmqtt.family import Told
from agentmqtt.types import Event, Gap, Rewound

Item = Event | Gap | Rewound

_SAFE = select.PIPE_BUF
"""Bytes that a pipe takes at once if it takes any."""


class Sink(Protocol):
    """Where items go."""

    async def put(self, item: Item) -> None:
        """Returns when the item is where it belongs. Raises OSError."""
        ...


def as_json(item: Item) -> str:
    """One line. `at` is the full cursor, with the channel's incarnation."""
    at = item.cursor
    match item:
        case Event(type=type_, data=data, time=time, span=span):
            fields = {"cursor": str(at), "type": type_, "data": data, "time": time, "at": at.token}
            if span > 1:
                fields["span"] = span
        case Gap(reason=reason):
            fields = {"gap": reason, "cursor": str(at), "at": at.token}
        case Rewound():
            fields = {"rewound": str(at), "at": at.token}
    return json.dumps(fields, ensure_ascii=False, default=_binary) + "\n"


def _binary(value: object) -> object:
    """JSON has no bytes."""
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    raise TypeError(type(value).__name__)


class JsonLines:
    """Every item as a line on stdout."""

    async def put(self, item: Item) -> None:
        await write(1, as_json(item))


class Text:
    """Text as it is on stdout; everything else as lines on stderr, dim where a person looks."""

    def __init__(self) -> None:
        self._open_line = False
        self._dim, self._bold, self._plain = ("\x1b[2m", "\x1b[1;33m", "\x1b[0m") if sys.stderr.isatty() else ("",) * 3

    async def put(self, item: Item) -> None:
        match item:
            case Event(type="text", data=str(text)):
                await write(1, text)
                self._open_line = not text.endswith("\n")
            case Event(type="log", data=str(text)):
                await self._aside(self._dim, text.rstrip("\n"))
            case Event():
                await self._aside(self._dim, f"· {describe(item)}")
            case Gap(cursor=cursor, reason=reason):
                await self._aside(self._bold, f"── gap ({reason}): history before {cursor} cannot be shown ──")
            case Rewound(cursor=cursor):
                await self._aside(self._bold, f"── withdrawn: what was shown after {cursor} no longer counts ──")

    async def _aside(self, style: str, line: str) -> None:
        start = "\n" if self._open_line and sys.stderr.isatty() and sys.stdout.isatty() else ""
        self._open_line = self._open_line and not start
        await write(2, f"{start}{style}{line}{self._plain}\n")


def describe(event: Event) -> str:
    """An event that is not text, in a few words."""
    data = event.data if isinstance(event.data, dict) else {}
    match event.type:
        case str(word) if word in (STATE, MARK):
            detail = f" {_short(data['detail'])}" if "detail" in data else ""
            return f"{word.removeprefix('am.')}: {data.get('name')}{detail}"
        case str(word) if word == RECEIPT:
            return f"command {data.get('outcome')}{_because(data)}"
        case "am.received":
            return "command received"
        case "am.ask":
            return f"asks: {data.get('question')} (agentmqtt answer WORKFLOW {data.get('id')} VALUE)"
        case "am.answer":
            return "nobody answered in time" if data.get("expired") else f"answered: {_short(data.get('value'))}"
        case "am.step":
            return f"step {data.get('name')}"
        case "am.child":
            return f"child {data.get('name')}"
        case str(word) if word == END:
            result = f" {_short(data['result'])}" if "result" in data else ""
            return f"ended: {data.get('outcome')}{result}"
        case str(word) if word == RELEASE:
            return f"the owner left{_because(data)}"
        case _:
            return f"{event.type} {_short(event.data)}"


def family_json(told: Told) -> str:
    """One line, with the run that it is of."""
    return json.dumps({"run": told.run, **json.loads(as_json(told.item))}, ensure_ascii=False) + "\n"


def family_line(told: Told, root: str) -> str:
    """One line, after the name of the child that it is of."""
    whose = told.run.removeprefix(root).lstrip("/") or root
    match told.item:
        case Event(type="text" | "log", data=str(text)):
            return f"{whose} | {text.rstrip()}\n"
        case Event():
            return f"{whose} · {describe(told.item)}\n"
        case Gap(cursor=cursor, reason=reason):
            return f"{whose} ── gap ({reason}): history before {cursor} cannot be shown\n"
        case Rewound(cursor=cursor):
            return f"{whose} ── withdrawn: what was shown after {cursor} no longer counts\n"


def _because(data: dict[str, object]) -> str:
    reason = data.get("reason") or data.get("error")
    return f": {reason}" if reason else ""


def _short(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=_binary)


async def write(fd: int, text: str) -> None:
    """Write all of it. A slow reader of a pipe holds up this task, not the others. Raises OSError."""
    import asyncio

    data = memoryview(text.encode("utf-8", "replace"))
    while data:
        if len(data) <= _SAFE and _writable(fd):
            data = data[os.write(fd, data) :]
        else:
            data = data[await asyncio.to_thread(os.write, fd, data) :]


def _writable(fd: int) -> bool:
    _, writable, _ = select.select((), (fd,), (), 0)
    return bool(writable)
