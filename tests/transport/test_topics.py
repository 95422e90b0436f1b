"""Filters and topics (MQTT 4.7)."""

from __future__ import annotations

import pytest

from agentmqtt.transport.topics import is_valid_filter, matches, strip_share


@pytest.mark.parametrize(
    ("filter_", "topic", "wanted"),
    [
        ("a/b", "a/b", True),
        ("a/b", "a/b/c", False),
        ("a/+", "a/b", True),
        ("a/+", "a/", True),
        ("a/+", "a", False),
        ("+/+", "/b", True),
        ("+", "/b", False),
        ("a/+/c", "a/b/c", True),
        ("a/#", "a", True),
        ("a/#", "a/b/c", True),
        ("a/#", "ab", False),
        ("#", "a/b", True),
        ("#", "$SYS/x", False),
        ("+/x", "$SYS/x", False),
        ("$SYS/#", "$SYS/x", True),
        ("", "", True),
    ],
)
def test_matches(filter_: str, topic: str, wanted: bool) -> None:
    assert matches(filter_, topic) is wanted


def test_shared_subscriptions() -> None:
    assert strip_share("$share/g/a/+") == "a/+"
    assert strip_share("$share/g") == "$share/g"


@pytest.mark.parametrize("filter_", ["a", "a/+", "+/+/#", "#", "/", "$share/g/a/#", "a b/ü"])
def test_valid(filter_: str) -> None:
    assert is_valid_filter(filter_)


@pytest.mark.parametrize("filter_", ["", "a+", "a/#/b", "a/b#", "a\0", "x" * 65536, "$share/g/"])
def test_invalid(filter_: str) -> None:
    assert not is_valid_filter(filter_)
