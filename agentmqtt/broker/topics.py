"""Topics and filters: what is valid, who matches. Cost grows with levels, not with filters. Pure [4.7]."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")
S = TypeVar("S")

_CACHE = 4_096
_CHURN = 32
"""Changes in a row after which searching the cache costs more than it keeps."""


def valid_topic(topic: str) -> bool:
    """Whether a message can have this topic name [4.7.3-1, 3.3.2-2]."""
    return bool(topic) and "+" not in topic and "#" not in topic and "\0" not in topic


def valid_filter(pattern: str) -> bool:
    """Whether a subscription can have this topic filter [4.7.1-2, 4.7.1-3, 4.7.3-1]."""
    if not pattern or "\0" in pattern:
        return False
    if "+" not in pattern and "#" not in pattern:
        return True
    *levels, last = pattern.split("/")
    whole = all("#" not in level and ("+" not in level or level == "+") for level in levels)
    return whole and (last in ("+", "#") or not ("+" in last or "#" in last))


class _Node(Generic[T]):
    __slots__ = ("children", "value")

    def __init__(self) -> None:
        self.children: dict[str, _Node[T]] = {}
        self.value: T | None = None


class _Trie(Generic[T]):
    """A value for each path of levels; empty branches are cut."""

    __slots__ = ("root",)

    def __init__(self) -> None:
        self.root: _Node[T] = _Node()

    def grow(self, path: str) -> _Node[T]:
        node = self.root
        for level in path.split("/"):
            child = node.children.get(level)
            if child is None:
                child = node.children[level] = _Node()
            node = child
        return node

    def find(self, path: str) -> _Node[T] | None:
        node: _Node[T] | None = self.root
        for level in path.split("/"):
            if node is None:
                return None
            node = node.children.get(level)
        return node

    def cut(self, path: str) -> None:
        """Remove the value at `path` and the branch that is now empty."""
        nodes = [self.root]
        levels = path.split("/")
        for level in levels:
            child = nodes[-1].children.get(level)
            if child is None:
                return
            nodes.append(child)
        nodes[-1].value = None
        for parent, level, node in zip(nodes[-2::-1], reversed(levels), reversed(nodes), strict=False):
            if node.children or node.value is not None:
                return
            del parent.children[level]


class Subscriptions(Generic[S]):
    """Who subscribed to what. Each subscriber matches once, with the highest QoS of its filters [3.3.5-1]."""

    __slots__ = ("_cache", "_churn", "_trie")

    def __init__(self) -> None:
        self._trie: _Trie[dict[S, int]] = _Trie()
        self._churn = 0
        self._cache: dict[str, tuple[tuple[S, int], ...]] = {}

    def add(self, pattern: str, subscriber: S, qos: int) -> None:
        """Subscribe, or change the QoS of a subscription."""
        node = self._trie.grow(pattern)
        if node.value is None:
            node.value = {}
        node.value[subscriber] = qos
        self._forget(pattern)

    def remove(self, pattern: str, subscriber: S) -> None:
        """Unsubscribe; nothing happens if it was not subscribed."""
        node = self._trie.find(pattern)
        if node is None or node.value is None or node.value.pop(subscriber, None) is None:
            return
        if not node.value:
            self._trie.cut(pattern)
        self._forget(pattern)

    def match(self, topic: str) -> tuple[tuple[S, int], ...]:
        """Every subscriber of `topic` with its QoS."""
        found = self._cache.get(topic)
        if found is None:
            found = self._search(topic)
            self._churn = 0
            if len(self._cache) >= _CACHE:
                del self._cache[next(iter(self._cache))]
            self._cache[topic] = found
        return found

    def _forget(self, pattern: str) -> None:
        """Drop the cached answers that `pattern` may change, and not the others."""
        plain = pattern.partition("+")[0].partition("#")[0]
        if plain == pattern:
            self._cache.pop(pattern, None)
            return
        self._churn += 1
        if self._churn > _CHURN:
            self._cache.clear()
        start = plain.removesuffix("/")  # "a/#" matches "a" as well
        for topic in [topic for topic in self._cache if topic.startswith(start)]:
            del self._cache[topic]

    def _search(self, topic: str) -> tuple[tuple[S, int], ...]:
        found: dict[S, int] = {}
        nodes = [self._trie.root]
        wild = not topic.startswith("$")  # no wildcard at the first level reaches a $ topic [4.7.2-1]
        for level in topic.split("/"):
            below = []
            for node in nodes:
                children = node.children
                if wild:
                    _collect(children.get("#"), found)
                    if (plus := children.get("+")) is not None:
                        below.append(plus)
                if (child := children.get(level)) is not None:
                    below.append(child)
            nodes, wild = below, True
        for node in nodes:
            _collect(node, found)
            _collect(node.children.get("#"), found)  # the parent level counts [4.7.1.2]
        return tuple(found.items())


def _collect(node: _Node[dict[S, int]] | None, found: dict[S, int]) -> None:
    if node is None or node.value is None:
        return
    for subscriber, qos in node.value.items():
        if qos >= found.get(subscriber, 0):
            found[subscriber] = qos


class TopicMap(Generic[T]):
    """A value for each topic, found by filter. Only branches that match are visited."""

    __slots__ = ("_trie", "_values")

    def __init__(self) -> None:
        self._trie: _Trie[str] = _Trie()
        self._values: dict[str, T] = {}

    def __len__(self) -> int:
        return len(self._values)

    def get(self, topic: str) -> T | None:
        return self._values.get(topic)

    def put(self, topic: str, value: T) -> None:
        if topic not in self._values:
            self._trie.grow(topic).value = topic
        self._values[topic] = value

    def pop(self, topic: str) -> T | None:
        """Remove a topic and return what it had."""
        value = self._values.pop(topic, None)
        if value is not None:
            self._trie.cut(topic)
        return value

    def match(self, pattern: str) -> list[str]:
        """Every topic that `pattern` matches, in no order."""
        if "+" not in pattern and "#" not in pattern:
            return [pattern] if pattern in self._values else []
        nodes = [self._trie.root]
        hidden = True  # $ topics, for a wildcard at the first level [4.7.2-1]
        for level in pattern.split("/"):
            if level == "#":
                return [name for node in nodes for name in _below(node, hidden=hidden)]
            if level == "+":
                nodes = [
                    child
                    for node in nodes
                    for name, child in node.children.items()
                    if not (hidden and name.startswith("$"))
                ]
            else:
                nodes = [child for node in nodes if (child := node.children.get(level)) is not None]
            hidden = False
        return [node.value for node in nodes if node.value is not None]


def _below(node: _Node[str], *, hidden: bool) -> Iterator[str]:
    """The values at and under `node`."""
    if node.value is not None:
        yield node.value
    stack = [child for name, child in node.children.items() if not (hidden and name.startswith("$"))]
    while stack:
        node = stack.pop()
        if node.value is not None:
            yield node.value
        stack.extend(node.children.values())
