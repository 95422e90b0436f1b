"""Values that survive Python, JavaScript, C and MicroPython, and the readers that hold a peer to them (PROTOCOL §3)."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from typing import Any, TypeVar

from agentmqtt.errors import BadValue
from agentmqtt.types import Position, Value

MAX_INT = 2**53 - 1
"""Above it JavaScript and JSON round."""
MAX_DEPTH = 16
"""Lists and maps inside each other."""
MAX_TYPE = 128
"""Characters of an event type, of a command's kind and of its ID."""

E = TypeVar("E", bound=enum.StrEnum)

_PLAIN = (str, int, float, bytes, list, dict)


def check_value(value: Value, name: str = "data") -> None:
    """Refuse what some client could not read as it was sent (§3.1). Tuples pass; they arrive as lists.

    Raises:
        BadValue: naming the path to the part, such as `data.items[3].when`, and what to do.
    """
    if type(value) is str and value.isascii():
        return
    flaw = _flaw(value, MAX_DEPTH)
    if flaw:
        path, problem = flaw
        raise BadValue(f"{name}{path}: {problem}")


def check_type(text: str, name: str = "type") -> None:
    """Refuse an event type or command kind that is not 1 to 128 characters of valid Unicode (§3.2).

    Raises:
        BadValue: naming what is wrong.
    """
    if type(text) is not str or not 0 < len(text) <= MAX_TYPE:
        raise BadValue(f"{name}: {str(text)[:40]!r} is not a text of 1 to {MAX_TYPE} characters")
    check_value(text, name)


def _flaw(value: Value, room: int) -> tuple[str, str] | None:
    """Path and problem of the first part that does not fit; None if all is well."""
    check = _CHECKS.get(type(value))
    return check(value, room) if check else ("", _foreign(value))


def _fine(_value: Value, _room: int) -> None:
    return None


def _text_flaw(value: str, _room: int) -> tuple[str, str] | None:
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            return "", f"text holds half a surrogate pair at {error.start}; send valid Unicode"
    return None


def _int_flaw(value: int, _room: int) -> tuple[str, str] | None:
    if -MAX_INT <= value <= MAX_INT:
        return None
    return "", f"an int of {value.bit_length()} bits is beyond ±(2^53-1), where some clients round; send it as text"


def _float_flaw(value: float, _room: int) -> tuple[str, str] | None:
    return None if math.isfinite(value) else ("", f"{value} is not finite; send None or text")


def _list_flaw(value: list[Value] | tuple[Value, ...], room: int) -> tuple[str, str] | None:
    if not room:
        return "", f"is nested deeper than {MAX_DEPTH}; flatten it or send it as text"
    for index, part in enumerate(value):
        flaw = _flaw(part, room - 1)
        if flaw:
            return f"[{index}]{flaw[0]}", flaw[1]
    return None


def _dict_flaw(value: dict[Any, Value], room: int) -> tuple[str, str] | None:
    if not room:
        return "", f"is nested deeper than {MAX_DEPTH}; flatten it or send it as text"
    for key, part in value.items():
        if type(key) is not str:
            return "", f"key {str(key)[:40]!r} is {type(key).__name__}; use text as keys"
        flaw = _text_flaw(key, 0) or _flaw(part, room - 1)
        if flaw:
            step = f".{key}" if key.isidentifier() else f"[{key[:40]!r}]"
            return f"{step}{flaw[0]}", flaw[1]
    return None


def _foreign(value: Any) -> str:
    name = type(value).__name__
    for base in _PLAIN:
        # A subclass would arrive as its base: that would be a different value than the one sent.
        if isinstance(value, base):
            return f"{name} is a subclass of {base.__name__}; convert it with {base.__name__}(...)"
    if isinstance(value, (bytearray, memoryview)):
        return f"{name} is not a value that every client can read; convert it with bytes(...)"
    return f"{name} is not a value that every client can read; use None, bool, int, float, str, bytes, list or dict"


_CHECKS: dict[type, Callable[[Any, int], tuple[str, str] | None]] = {
    str: _text_flaw,
    int: _int_flaw,
    float: _float_flaw,
    bool: _fine,
    bytes: _fine,
    type(None): _fine,
    list: _list_flaw,
    tuple: _list_flaw,
    dict: _dict_flaw,
}


class Misfit(Exception):
    """What a peer sent where something else belongs; `wire` names the field and raises WireError."""


def count(value: Any) -> int:
    """A number from 0 to 2^53-1. Whole floats pass: some JavaScript encoders write large ints so."""
    if type(value) is float and value.is_integer():
        value = int(value)
    if type(value) is not int or not 0 <= value <= MAX_INT:
        raise Misfit(f"is {show(value)}, not a number from 0 to 2^53-1")
    return value


def flag(value: Any) -> bool:
    """True or false."""
    if type(value) is not bool:
        raise Misfit(f"is {show(value)}, not true or false")
    return value


def seconds(value: Any) -> float:
    """A finite number above 0."""
    if type(value) not in (int, float) or not 0 < value < MAX_INT:
        raise Misfit(f"is {show(value)}, not a number of seconds above 0")
    return float(value)


def blob(value: Any) -> bytes:
    """Up to 64 bytes: boot, instance and request IDs."""
    if type(value) is not bytes or len(value) > 64:
        raise Misfit(f"is {show(value)}, not up to 64 bytes")
    return value


def incarnation(value: Any) -> bytes:
    """Up to 16 bytes."""
    if type(value) is not bytes or len(value) > 16:
        raise Misfit(f"is {show(value)}, not up to 16 bytes")
    return value


def position(value: Any) -> Position:
    """`[epoch, n]`."""
    if type(value) is not list or len(value) < 2:
        raise Misfit(f"is {show(value)}, not [epoch, n]")
    return Position(count(value[0]), count(value[1]))


def text(value: Any) -> str:
    """Any text."""
    if type(value) is not str or _text_flaw(value, 0):
        raise Misfit(f"is {show(value)}, not text")
    return value


def label(value: Any) -> str:
    """An event type, a kind, an ID: 1 to 128 characters."""
    if type(value) is not str or not 0 < len(value) <= MAX_TYPE or _text_flaw(value, 0):
        raise Misfit(f"is {show(value)}, not a text of 1 to {MAX_TYPE} characters")
    return value


def workflow_id(value: Any) -> str:
    """1 to 4,096 characters; `names` decides whether a topic can carry it."""
    if type(value) is not str or not 0 < len(value) <= 4096 or _text_flaw(value, 0):
        raise Misfit(f"is {show(value)}, not a workflow ID")
    return value


def any_value(value: Any) -> Value:
    """Whatever `check_value` lets pass."""
    flaw = _flaw(value, MAX_DEPTH)
    if flaw:
        raise Misfit(f"holds what the protocol does not: {flaw[0]} {flaw[1]}")
    return value


def array(value: Any) -> list[Any]:
    """A list."""
    if type(value) is not list:
        raise Misfit(f"is {show(value)}, not a list")
    return value


def one_of(members: type[E]) -> Callable[[Any], E]:
    """Reader for a closed set of words."""

    def read(value: Any) -> E:
        try:
            return members(value)
        except ValueError as error:
            raise Misfit(f"is {show(value)}, not one of {', '.join(members)}") from error

    return read


def optional(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Reader that lets null pass."""
    return lambda value: None if value is None else read(value)


def show(value: Any) -> str:
    """A foreign value, short enough for a message."""
    if isinstance(value, (str, bytes)):
        return repr(value[:40]) + ("…" if len(value) > 40 else "")
    return type(value).__name__ if isinstance(value, (list, tuple, dict)) else repr(value)[:40]
