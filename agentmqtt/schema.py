"""Every map message as a table: which field stands under which key, and who reads it (PROTOCOL §4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from agentmqtt import groups
from agentmqtt import values as v
from agentmqtt.errors import WireError
from agentmqtt.frames import (
    Alive,
    Claim,
    Command,
    CommandList,
    Describe,
    Fetch,
    Grant,
    Handed,
    JournalAlive,
    ListCommands,
    Listing,
    ListRuns,
    ListWatchers,
    Outcome,
    Page,
    PageKind,
    PendingCommand,
    Recall,
    Refusal,
    Renew,
    Row,
    Status,
    WatcherList,
    WatcherRow,
    Watching,
    Why,
    Withdraw,
)
from agentmqtt.types import CommandState, OwnerState, RunState, Value, When

VERSION: Final = 1
_REQUIRED: Final = object()


class Field(NamedTuple):
    """One field of a map message. A field that equals its default is left out."""

    name: str
    key: str
    read: Callable[[Any], Any]
    default: Any = _REQUIRED
    write: Callable[[Any], Any] | None = None


class Map(NamedTuple):
    """One kind of map message."""

    kind: str
    cls: Callable[..., Any]
    fields: tuple[Field, ...]


def write(shape: Map, message: Any) -> dict[str, Any]:
    """A message as the map that goes on the wire.

    Raises:
        BadValue: if it carries a value that some client could not read.
    """
    raw: dict[str, Any] = {"v": VERSION, "kind": shape.kind}
    for field in shape.fields:
        part = getattr(message, field.name)
        if field.default is _REQUIRED or part != field.default:
            raw[field.key] = field.write(part) if field.write else part
    return raw


def read(shape: Map, raw: Mapping[str, Any]) -> Any:
    """A map from the wire as a message. Keys that the shape does not know are skipped.

    Raises:
        WireError: naming the key that is missing or does not fit.
    """
    return shape.cls(**{field.name: _read_field(shape.kind, field, raw) for field in shape.fields})


def _read_field(kind: str, field: Field, raw: Mapping[str, Any]) -> Any:
    part = raw.get(field.key)
    if part is None and field.default is not _REQUIRED:
        return field.default
    if field.key not in raw:
        raise WireError(f"{kind}: {field.key} is missing")
    try:
        return field.read(part)
    except v.Misfit as error:
        raise WireError(f"{kind}: {field.key} {error}") from error


def check_version(what: str, version: Any) -> None:
    """Refuse a message of another version.

    Raises:
        WireError: naming both versions.
    """
    if version != VERSION:
        raise WireError(f"{what}: version {v.show(version)} is not {VERSION}; update the older side")


# --- parts of fields -----------------------------------------------------------------------------


def _checked(value: Value) -> Value:
    v.check_value(value)
    return value


def _read_rows(value: Any) -> tuple[Row, ...]:
    return tuple(_read_row(row) for row in v.array(value))


def _read_row(row: Any) -> Row:
    if type(row) is not list or len(row) < 6:
        raise v.Misfit(f"holds {v.show(row)}, not [workflow, state, owner, epoch, tail, updated]")
    workflow, state, owner, epoch, tail, updated = row[:6]
    return Row(
        v.workflow_id(workflow),
        _run_state(state),
        _owner_state(owner),
        v.count(epoch),
        v.position(tail),
        v.count(updated),
    )


def _read_commands(value: Any) -> tuple[PendingCommand, ...]:
    return tuple(_read_command(row) for row in v.array(value))


def _read_command(row: Any) -> PendingCommand:
    if type(row) is not list or len(row) < 6:
        raise v.Misfit(f"holds {v.show(row)}, not [id, kind, sender, state, deadline, when]")
    id_, kind, sender, state, deadline, when = row[:6]
    return PendingCommand(
        v.label(id_),
        v.label(kind),
        v.label(sender),
        v.one_of(CommandState)(state),
        v.count(deadline),
        v.one_of(When)(when),
    )


def _read_watchers(value: Any) -> tuple[WatcherRow, ...]:
    rows = v.array(value)
    if not all(type(row) is list and len(row) >= 2 for row in rows):
        raise v.Misfit(f"holds {v.show(rows)}, not [[client, since], ...]")
    return tuple(WatcherRow(v.label(row[0]), v.count(row[1])) for row in rows)


def _read_names(value: Any) -> tuple[str, ...]:
    return tuple(v.workflow_id(name) for name in v.array(value))


# --- the messages --------------------------------------------------------------------------------

_run_state = v.one_of(RunState)
_owner_state = v.one_of(OwnerState)

_WF: Final = Field("workflow", "wf", v.workflow_id)
_INC: Final = Field("inc", "inc", v.incarnation)
_EPOCH: Final = Field("epoch", "epoch", v.count)
_PARENT: Final = Field("parent", "par", v.position)
_TAIL: Final = Field("tail", "tail", v.position)
_TOKEN: Final = Field("request", "req", v.blob)
_NUMBER: Final = Field("request", "req", v.count, 0)
_BOOT: Final = Field("boot", "boot", v.blob)
_CONN: Final = Field("conn", "conn", v.count)
_ID: Final = Field("id", "id", v.label)
_STORED: Final = Field("stored", "stored", v.count)
_DEADLINE: Final = Field("deadline", "deadline", v.count, 0)
_WHEN: Final = Field("when", "when", v.one_of(When), When.NOW)


def _flag(name: str, key: str) -> Field:
    return Field(name, key, v.flag, default=False)


def _value(name: str, key: str) -> Field:
    return Field(name, key, v.any_value, default=None, write=_checked)


CLAIM: Final = Map(
    "claim",
    Claim,
    (
        _TOKEN,
        _WF,
        Field("instance", "inst", v.blob),
        _BOOT,
        _CONN,
        Field("mine", "mine", v.count),
        Field("replaces", "repl", v.count),
        _INC,
        Field("cut", "cut", v.position, None),
        _flag("attempt", "att"),
        _flag("takeover", "take"),
        _flag("reopen", "open"),
    ),
)
FETCH: Final = Map(
    "fetch",
    Fetch,
    (
        _NUMBER,
        _WF,
        Field("inc", "inc", v.incarnation, b""),
        Field("position", "pos", v.position),
        Field("limit", "limit", v.count, 48 * 1024),
        _flag("deflate", "z"),
    ),
)
DESCRIBE: Final = Map("describe", Describe, (_NUMBER, _WF))
WITHDRAW: Final = Map("withdraw", Withdraw, (_WF, _ID, _DEADLINE))
RENEW: Final = Map("renew", Renew, (_BOOT, _CONN))
LIST: Final = Map(
    "list", ListRuns, (_NUMBER, Field("after", "after", v.text, ""), Field("limit", "limit", v.count, 100))
)

GRANT: Final = Map("grant", Grant, (_TOKEN, _WF, _INC, _EPOCH, _PARENT, _STORED, Field("attempt", "att", v.count)))
REFUSAL: Final = Map(
    "refusal",
    Refusal,
    (
        _TOKEN,
        _WF,
        _INC,
        _EPOCH,
        Field("why", "why", v.one_of(Why)),
        Field("live", "live", v.flag),
        Field("known", "known", v.flag),
        Field("outcome", "outcome", v.text, ""),
        _value("result", "result"),
    ),
)
PAGE: Final = Map(
    "page",
    Page,
    (
        _NUMBER,
        _WF,
        _INC,
        _EPOCH,
        _PARENT,
        Field("kind", "how", v.one_of(PageKind)),
        Field("asked", "asked", v.position),
        Field("start", "start", v.position),
        _TAIL,
        Field("items", "items", groups.to_items, write=groups.of_items),
    ),
)
HANDED: Final = Map(
    "handed",
    Handed,
    (
        _WF,
        _INC,
        _EPOCH,
        _ID,
        Field("kind", "cmd", v.label),
        _value("data", "data"),
        Field("sender", "from", v.label),
        _DEADLINE,
        _flag("again", "again"),
        _WHEN,
    ),
)
RECALL: Final = Map("recall", Recall, (_WF, _INC, _EPOCH, _ID))
OUTCOME: Final = Map(
    "outcome",
    Outcome,
    (
        _WF,
        _ID,
        Field("state", "state", v.one_of(CommandState)),
        _value("reason", "reason"),
        Field("now", "now", v.count),
    ),
)
STATUS: Final = Map(
    "status",
    Status,
    (
        _WF,
        _INC,
        _EPOCH,
        _PARENT,
        _TAIL,
        Field("state", "state", _run_state),
        Field("owner", "owner", _owner_state),
        Field("at", "at", v.count),
        Field("updated", "upd", v.count),
        Field("attempt", "att", v.count, 0),
        _value("detail", "detail"),
        _value("result", "result"),
        _NUMBER,
    ),
)
COMMANDS: Final = Map("commands", ListCommands, (_NUMBER, _WF))
PENDING: Final = Map("pending", CommandList, (_NUMBER, _WF, Field("rows", "rows", _read_commands)))
WATCHERS: Final = Map("watchers", ListWatchers, (_NUMBER, _WF))
AUDIENCE: Final = Map("audience", WatcherList, (_NUMBER, _WF, Field("rows", "rows", _read_watchers)))
WATCHING: Final = Map("watching", Watching, (_BOOT, _CONN, Field("names", "names", _read_names)))
LISTING: Final = Map("listing", Listing, (_NUMBER, Field("rows", "rows", _read_rows), Field("more", "more", v.flag)))
ALIVE: Final = Map("alive", Alive, (_BOOT, _CONN, Field("online", "online", v.flag)))
JOURNAL: Final = Map(
    "journal",
    JournalAlive,
    (
        Field("online", "online", v.flag),
        Field("version", "version", v.text),
        _BOOT,
        _CONN,
        Field("lease", "lease", v.seconds),
        Field("frame_limit", "frame", v.count),
        Field("event_limit", "event", v.count),
    ),
)
# A command's own kind stands where other messages have theirs: people type {"kind":"interrupt"}.
COMMAND: Final = Map(
    "command", Command, (_ID, _WF, Field("kind", "kind", v.label), _value("data", "data"), _DEADLINE, _WHEN)
)

_QUESTIONS: Final = (CLAIM, FETCH, DESCRIBE, WITHDRAW, COMMANDS, WATCHERS, WATCHING, RENEW, LIST)
REQUESTS: Final = {shape.kind: shape for shape in _QUESTIONS}
RESPONSES: Final = {
    shape.kind: shape for shape in (GRANT, REFUSAL, PAGE, HANDED, RECALL, OUTCOME, STATUS, LISTING, PENDING, AUDIENCE)
}
BY_CLASS: Final[dict[Any, Map]] = {
    shape.cls: shape for shape in (*REQUESTS.values(), *RESPONSES.values(), ALIVE, JOURNAL, COMMAND)
}
