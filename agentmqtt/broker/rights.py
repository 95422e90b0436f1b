"""What a login may do: templates of topics by role, and rules of a file (docs/SECURITY.md). Pure."""

from __future__ import annotations

import enum
import fnmatch
import functools
import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from agentmqtt.errors import BadName
from agentmqtt.names import decode_name, encode_name

KNOWN = 4_096
"""Verdicts that one login remembers."""


class Role(enum.StrEnum):
    """What a login is for. Every role but `admin` and `journal` is bound to its workflows and its client ID."""

    AGENT = "agent"
    WATCHER = "watcher"
    OBSERVER = "observer"
    JOURNAL = "journal"
    ADMIN = "admin"
    NONE = "none"


class Rule(NamedTuple):
    """One permission: levels of a topic filter, in which `{wf}` and `{client}` stand for what the login has."""

    levels: tuple[str, ...]
    write: bool
    read: bool


WF, CLIENT = "{wf}", "{client}"
_ROOT = "{root}"

_FOLLOWS: Final = (
    Rule((_ROOT, WF, "out"), write=False, read=True),
    Rule((_ROOT, WF, "ack"), write=False, read=True),
    Rule((_ROOT, WF, "status"), write=False, read=True),
    Rule((_ROOT, WF, "req", CLIENT), write=True, read=False),
    Rule((_ROOT, "~", CLIENT, "req"), write=True, read=False),
    Rule((_ROOT, "~", CLIENT, "res"), write=False, read=True),
    Rule((_ROOT, "~", CLIENT, "alive"), write=True, read=True),
    Rule((_ROOT, "~", "journal"), write=False, read=True),
)
_STEERS: Final = (*_FOLLOWS, Rule((_ROOT, WF, "in", CLIENT), write=True, read=False))
_OWNS: Final = (
    *_STEERS,
    Rule((_ROOT, WF, "out"), write=True, read=True),
    Rule((_ROOT, WF, "own", CLIENT), write=True, read=False),
)
ROLES: Final[dict[Role, tuple[Rule, ...]]] = {
    Role.OBSERVER: _FOLLOWS,
    Role.WATCHER: _STEERS,
    Role.AGENT: _OWNS,
    Role.JOURNAL: (Rule((_ROOT, "#"), write=True, read=True),),
    Role.ADMIN: (Rule(("#",), write=True, read=True), Rule(("$SYS", "#"), write=False, read=True)),
    Role.NONE: (),
}
"""The topic map of PROTOCOL §2.3 by role."""


class Workflows:
    """Patterns of workflow IDs: `*` and `?` as in file names, on the decoded ID. No pattern is no workflow."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self.patterns = tuple(patterns)
        self.all = "*" in self.patterns
        self._match = re.compile("|".join(fnmatch.translate(pattern) for pattern in self.patterns) or r"(?!)").match
        # The hash of a long ID cannot be undone: it is known only where the ID itself was named (§2.1).
        self._levels = {level for pattern in self.patterns if (level := _level(pattern))}

    def holds(self, level: str) -> bool:
        """Whether every workflow that a level of a topic or filter stands for is one of these."""
        if level in ("~", "#"):
            return False
        if self.all or level in self._levels:
            return True
        try:
            return self._match(decode_name(level)) is not None
        except BadName:
            return False


def _level(pattern: str) -> str:
    try:
        return encode_name(pattern)
    except BadName:
        return ""


class Rights:
    """Everything that one login may do.

    Args:
        rules: of its role and of the rules file.
        root: first levels of the topics of agentmqtt.
        client: its client ID.
        workflows: patterns of what it may see.
    """

    def __init__(self, rules: Sequence[Rule], root: str, client: str, workflows: Sequence[str]) -> None:
        # A client ID that is a wildcard, or more than one level, names no topic of its own.
        self._client = "" if any(char in client for char in "+#/$") else client
        self._workflows = Workflows(workflows)
        bound = [(_rooted(rule.levels, root), rule) for rule in rules]
        self._write = [levels for levels, rule in bound if rule.write]
        self._read = [levels for levels, rule in bound if rule.read]
        self._known: dict[tuple[bool, str], bool] = {}

    def may_write(self, topic: str) -> bool:
        """Whether it may publish to a topic."""
        return self._remembered(topic, write=True)

    def may_read(self, pattern: str) -> bool:
        """Whether it may receive every topic that a filter, or a topic, stands for."""
        return self._remembered(pattern, write=False)

    def _remembered(self, topic: str, *, write: bool) -> bool:
        known = self._known.get((write, topic))
        if known is None:
            if len(self._known) >= KNOWN:
                self._known.clear()
            levels = topic.split("/")
            allowed = self._write if write else self._read
            known = self._known[write, topic] = any(self._covers(rule, levels) for rule in allowed)
        return known

    def _covers(self, rule: Sequence[str], wanted: Sequence[str]) -> bool:
        """Whether everything that `wanted` stands for is allowed by `rule`."""
        for at, level in enumerate(rule):
            if level == "#":
                # Wildcards at the first level do not reach topics that begin with $ [4.7.2-1].
                return at > 0 or not wanted[0].startswith("$")
            if at >= len(wanted) or not self._level_covers(level, wanted[at], first=at == 0):
                return False
        return len(wanted) == len(rule)

    def _level_covers(self, level: str, wanted: str, *, first: bool) -> bool:
        if level == WF:
            return self._workflows.holds(wanted)
        if level == CLIENT:
            return bool(wanted) and wanted == self._client
        if level == "+":
            return wanted != "#" and not (first and wanted.startswith("$"))
        return level == wanted


@functools.lru_cache(maxsize=1024)
def _rooted(levels: tuple[str, ...], root: str) -> tuple[str, ...]:
    return (*root.split("/"), *levels[1:]) if levels[0] == _ROOT else levels
