"""The rules file: who may read and write topics that are not agentmqtt's own (docs/SECURITY.md).

One rule a line: `WHO WHAT FILTER`. WHO is `everyone`, `user:NAME` or `role:ROLE`; WHAT is `read`, `write` or
`readwrite`; in FILTER `%u` stands for the user's name and `%c` for its client ID. `#` begins a comment.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from agentmqtt.broker.rights import CLIENT, Role, Rule
from agentmqtt.broker.topics import valid_filter
from agentmqtt.errors import UsageError

_WHAT = {"read": (False, True), "write": (True, False), "readwrite": (True, True)}


class Line(NamedTuple):
    """One line of the file. `user` and `role` are empty where it is for everyone."""

    user: str
    role: str
    rule: Rule


class RulesFile:
    """The lines of a rules file."""

    def __init__(self, lines: list[Line]) -> None:
        self.lines = lines

    @classmethod
    def read(cls, path: Path) -> RulesFile:
        """Raises UsageError: it cannot be read, or a line is not a rule; its number is named."""
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"rules file {path} cannot be read: {error}") from error
        return cls.parse(text, str(path))

    @classmethod
    def parse(cls, text: str, where: str = "rules") -> RulesFile:
        """Raises UsageError, naming the line."""
        lines = []
        for number, line in enumerate(text.splitlines(), 1):
            words = line.split()
            if words and not words[0].startswith("#"):
                lines.append(_line(words, f"{where}, line {number}"))
        return cls(lines)

    def of(self, user: str | None, role: Role) -> list[Rule]:
        """The rules for a login; `user` is None for a client without a name."""
        found = []
        for line in self.lines:
            mine = line.user == user if line.user else line.role in ("", role)
            named = "%u" not in "/".join(line.rule.levels)
            if mine and (named or _plain(user)):
                levels = tuple(level.replace("%u", user or "") for level in line.rule.levels)
                found.append(line.rule._replace(levels=levels))
        return found


def _plain(user: str | None) -> bool:
    """A user's name that can be part of a topic level without becoming a wildcard or more levels."""
    return bool(user) and not any(char in str(user) for char in "/+#$\0")


def _line(words: list[str], where: str) -> Line:
    if len(words) != 3:
        raise UsageError(f"{where}: {' '.join(words)!r} is not WHO WHAT FILTER, such as: user:ann read home/+/state")
    who, what, pattern = words
    if what not in _WHAT:
        raise UsageError(f"{where}: {what!r} is not read, write or readwrite")
    if not valid_filter(pattern.replace("%u", "u").replace("%c", "c")):
        raise UsageError(f"{where}: {pattern!r} is no topic filter")
    levels = tuple(CLIENT if level == "%c" else level for level in pattern.split("/"))
    if any("%c" in level for level in levels):
        raise UsageError(f"{where}: %c must be a whole level of {pattern!r}")
    write, read = _WHAT[what]
    kind, _, name = who.partition(":")
    if who != "everyone" and (kind not in ("user", "role") or not name):
        raise UsageError(f"{where}: {who!r} is not everyone, user:NAME or role:ROLE")
    if kind == "role" and name not in list(Role):
        raise UsageError(f"{where}: there is no role {name!r}; there are {', '.join(Role)}")
    return Line(name if kind == "user" else "", name if kind == "role" else "", Rule(levels, write, read))
