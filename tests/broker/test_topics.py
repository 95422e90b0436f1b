"""Tries against a matcher that is read off the standard."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmqtt.broker.topics import Subscriptions, TopicMap, valid_filter, valid_topic

LEVELS = st.sampled_from(["a", "b", "", "$x"])
TOPICS = st.lists(LEVELS, min_size=1, max_size=4).map("/".join).filter(valid_topic)
FILTERS = (
    st.tuples(st.lists(st.sampled_from(["a", "b", "", "$x", "+"]), max_size=4), st.booleans())
    .map(lambda parts: "/".join([*parts[0], *(["#"] if parts[1] else [])]))
    .filter(valid_filter)
)


def matches(pattern: str, topic: str) -> bool:
    """[4.7], level by level."""
    if topic.startswith("$") and pattern.startswith(("+", "#")):
        return False
    want, have = pattern.split("/"), topic.split("/")
    for place, level in enumerate(want):
        if level == "#":
            return True
        if place >= len(have) or level not in ("+", have[place]):
            return False
    return len(want) == len(have) or (len(want) == len(have) + 1 and want[-1] == "#")


def naive(pattern: str, topic: str) -> bool:
    return matches(pattern, topic) or (pattern.endswith("/#") and matches(pattern[:-2], topic))


@given(
    st.lists(st.tuples(st.booleans(), FILTERS, st.integers(0, 3), st.integers(0, 2)), max_size=25),
    st.lists(TOPICS, min_size=1, max_size=4),
)
def test_subscriptions_match_like_the_standard(steps: list[tuple[bool, str, int, int]], topics: list[str]) -> None:
    trie: Subscriptions[int] = Subscriptions()
    known: dict[tuple[str, int], int] = {}
    for add, pattern, who, qos in steps:
        if add:
            trie.add(pattern, who, qos)
            known[pattern, who] = qos
        else:
            trie.remove(pattern, who)
            known.pop((pattern, who), None)
        for topic in topics:  # after every step, so that a stale cached answer shows
            expected: dict[int, int] = {}
            for (have, subscriber), granted in known.items():
                if naive(have, topic):
                    expected[subscriber] = max(granted, expected.get(subscriber, 0))
            assert dict(trie.match(topic)) == expected
    for pattern, who in known:
        trie.remove(pattern, who)
    assert not trie._trie.root.children


@given(st.lists(st.tuples(TOPICS, st.booleans()), max_size=25), st.lists(FILTERS, min_size=1, max_size=4))
def test_retained_topics_are_found_like_the_standard(steps: list[tuple[str, bool]], patterns: list[str]) -> None:
    trie: TopicMap[str] = TopicMap()
    known: set[str] = set()
    for topic, keep in steps:
        if keep:
            trie.put(topic, topic.upper())
            known.add(topic)
        else:
            assert trie.pop(topic) == (topic.upper() if topic in known else None)
            known.discard(topic)
    assert len(trie) == len(known)
    for pattern in patterns:
        assert sorted(trie.match(pattern)) == sorted(topic for topic in known if naive(pattern, topic))
    for topic in known:
        trie.pop(topic)
    assert not trie._trie.root.children


@pytest.mark.parametrize(
    ("pattern", "topic", "expected"),
    [
        ("sport/tennis/#", "sport/tennis", True),
        ("sport/tennis/#", "sport/tennis/a/b", True),
        ("#", "/", True),
        ("+/+", "/finance", True),
        ("/+", "/finance", True),
        ("+", "/finance", False),
        ("sport/+", "sport", False),
        ("sport/+", "sport/", True),
        ("#", "$SYS/x", False),
        ("+/x", "$SYS/x", False),
        ("$SYS/#", "$SYS/x", True),
        ("$SYS/+", "$SYS/x", True),
        ("a/#", "a/$b", True),
        ("ACCOUNTS", "Accounts", False),
    ],
)
def test_the_standards_examples(pattern: str, topic: str, expected: bool) -> None:
    trie: Subscriptions[str] = Subscriptions()
    trie.add(pattern, "s", 1)
    assert bool(trie.match(topic)) is expected
    retained: TopicMap[int] = TopicMap()
    retained.put(topic, 1)
    assert bool(retained.match(pattern)) is expected


def test_a_topic_of_ten_thousand_levels_needs_no_stack() -> None:
    deep = "/".join("a" * 10_000)
    trie: Subscriptions[str] = Subscriptions()
    trie.add(deep, "s", 1)
    trie.add("#", "t", 0)
    assert dict(trie.match(deep)) == {"s": 1, "t": 0}
    trie.remove(deep, "s")
    retained: TopicMap[int] = TopicMap()
    retained.put(deep, 1)
    assert retained.match("a/#") == [deep]


def test_a_subscription_keeps_the_cached_answers_of_other_topics() -> None:
    trie: Subscriptions[str] = Subscriptions()
    trie.add("a/b", "s", 1)
    kept, dropped = trie.match("a/b"), trie.match("x/y")
    trie.add("x/+", "t", 1)
    assert trie.match("a/b") is kept
    assert trie.match("x/y") != dropped


def test_the_cache_is_bounded() -> None:
    trie: Subscriptions[str] = Subscriptions()
    for n in range(10_000):
        trie.match(f"t/{n}")
    assert len(trie._cache) <= 4_096
