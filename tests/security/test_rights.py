"""What a role may do: by the topic map, with its own client ID and its own workflows only."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmqtt.broker.rights import ROLES, Rights, Role, Rule
from agentmqtt.broker.rules import RulesFile
from agentmqtt.broker.topics import Subscriptions
from agentmqtt.errors import UsageError
from agentmqtt.names import Topics

ME, OTHER = "a" * 23, "b" * 23
T = Topics()
LONG = "x" * 300


def rights(role: Role, *workflows: str, client: str = ME) -> Rights:
    return Rights(ROLES[role], T.root, client, workflows or ("*",))


MAY = [
    (Role.AGENT, "write", T.out("r-1"), True),
    (Role.AGENT, "write", T.own("r-1", ME), True),
    (Role.AGENT, "write", T.own("r-1", OTHER), False),
    (Role.AGENT, "write", T.ack("r-1"), False),
    (Role.AGENT, "write", T.status("r-1"), False),
    (Role.WATCHER, "write", T.out("r-1"), False),
    (Role.WATCHER, "write", T.own("r-1", ME), False),
    (Role.WATCHER, "write", T.inbox("r-1", ME), True),
    (Role.WATCHER, "write", T.inbox("r-1", OTHER), False),
    (Role.WATCHER, "write", T.req("r-1", ME), True),
    (Role.WATCHER, "read", T.out("r-1"), True),
    (Role.WATCHER, "read", T.all_out(), True),
    (Role.WATCHER, "read", T.client_res(ME), True),
    (Role.WATCHER, "read", T.client_res(OTHER), False),
    (Role.WATCHER, "read", f"{T.root}/~/+/res", False),
    (Role.WATCHER, "read", f"{T.root}/#", False),
    (Role.WATCHER, "read", "#", False),
    (Role.WATCHER, "read", T.all_in(), False),
    (Role.WATCHER, "read", T.alive(OTHER), False),
    (Role.WATCHER, "read", "$SYS/broker/uptime", False),
    (Role.OBSERVER, "write", T.inbox("r-1", ME), False),
    (Role.OBSERVER, "read", T.status("r-1"), True),
    (Role.JOURNAL, "read", T.all_in(), True),
    (Role.JOURNAL, "write", T.client_res(OTHER), True),
    (Role.JOURNAL, "read", "elsewhere", False),
    (Role.ADMIN, "read", "#", True),
    (Role.ADMIN, "read", "$SYS/#", True),
    (Role.ADMIN, "write", "$SYS/broker/uptime", False),
    (Role.NONE, "read", T.journal(), False),
]


@pytest.mark.parametrize(("role", "how", "topic", "may"), MAY)
def test_a_role_may_what_the_topic_map_says(role: Role, how: str, topic: str, may: bool) -> None:
    mine = rights(role)
    assert (mine.may_write(topic) if how == "write" else mine.may_read(topic)) is may


@pytest.mark.parametrize(
    ("pattern", "workflow", "may"),
    [
        ("report-*", "report-42", True),
        ("report-*", "reports", False),
        ("report-*", "x/report-1", False),
        ("a/*", "a/b", True),
        ("é", "e\u0301", False),
        ("*", LONG, True),
        (LONG, LONG, True),
        ("x*", LONG, False),  # only the hash is in the topic: the pattern cannot be judged
    ],
)
def test_patterns_are_of_the_workflow_and_not_of_its_level(pattern: str, workflow: str, may: bool) -> None:
    assert rights(Role.WATCHER, pattern).may_read(T.out(workflow)) is may


def test_a_wildcard_needs_all_workflows() -> None:
    assert not rights(Role.WATCHER, "report-*").may_read(T.all_out())
    assert not rights(Role.WATCHER, "report-*").may_read(f"{T.root}/+/+")
    assert not rights(Role.AGENT, "~").may_write(f"{T.root}/~/out")


@pytest.mark.parametrize("client", ["+", "#", "a/b", "$x", ""])
def test_a_client_id_that_is_a_wildcard_names_no_topic(client: str) -> None:
    mine = rights(Role.WATCHER, client=client)
    assert not mine.may_read(f"{T.root}/~/{client}/res")
    assert not mine.may_read(f"{T.root}/~/+/res")


LEVELS = st.lists(st.sampled_from(["a", "b", "+", "$x", ""]), min_size=1, max_size=4)


@given(LEVELS, st.booleans(), LEVELS, st.booleans(), st.lists(st.sampled_from(["a", "b", "$x", ""]), min_size=1))
def test_a_filter_is_allowed_only_if_all_that_it_matches_is(
    rule: list[str], deep: bool, wanted: list[str], below: bool, topic: list[str]
) -> None:
    """Whatever a granted filter can receive, the rule alone would receive too."""
    allowed = "/".join(rule + ["#"] * deep)
    asked = "/".join(wanted + ["#"] * below)
    if Rights([Rule(tuple(allowed.split("/")), write=False, read=True)], T.root, ME, ()).may_read(asked):
        both: Subscriptions[str] = Subscriptions()
        both.add(allowed, "allowed", 0)
        both.add(asked, "asked", 0)
        found = {name for name, _ in both.match("/".join(topic))}
        assert "asked" not in found or "allowed" in found


def test_rules_of_a_file() -> None:
    rules = RulesFile.parse(
        "# sensors\nuser:ann readwrite home/%u/#\nrole:agent read home/+/state\neveryone read time\n"
    )
    ann = Rights(rules.of("ann", Role.NONE), T.root, ME, ())
    assert ann.may_write("home/ann/lamp")
    assert ann.may_read("home/ann/#")
    assert not ann.may_read("home/#")
    assert not ann.may_write("time")
    agent = Rights(rules.of("bob", Role.AGENT), T.root, ME, ())
    assert agent.may_read("home/kitchen/state")
    assert not agent.may_read("home/ann/lamp")
    assert Rights(rules.of(None, Role.NONE), T.root, ME, ()).may_read("time")


def test_a_name_that_is_a_wildcard_gets_no_rule_with_its_name() -> None:
    rules = RulesFile.parse("everyone readwrite home/%u/#")
    for name in ("+", "#", "a/b", None):
        assert not rules.of(name, Role.NONE)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("ann read x", "'ann' is not everyone"),
        ("user:ann look x", "'look' is not read"),
        ("user:ann read a/#/b", "is no topic filter"),
        ("user:ann read", "is not WHO WHAT FILTER"),
        ("role:king read x", "there is no role 'king'"),
        ("everyone read a%c/b", "must be a whole level"),
    ],
)
def test_a_line_that_is_no_rule_is_named(line: str, says: str) -> None:
    with pytest.raises(UsageError, match="line 2") as error:
        RulesFile.parse(f"\n{line}\n")
    assert says in str(error.value)
