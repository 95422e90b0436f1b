"""Names and topics: reversible, collision-free, strict (PROTOCOL §2)."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmqtt.errors import BadName
from agentmqtt.names import (
    Kind,
    Parsed,
    Topics,
    decode_name,
    encode_name,
    is_client_id,
    is_hashed,
    matches,
)

CLIENT = "abcdefghijKLMNOPQRST123"
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=200)
LEVELS = st.one_of(
    st.text("aZ09_-%~ABCDEF4./+#$", max_size=20),
    st.text(max_size=20),
    NAMES.map(encode_name),
    NAMES.map(lambda name: encode_name(name).lower()),
)


@pytest.mark.parametrize(
    ("workflow", "level"),
    [
        ("report-42", "report-42"),
        ("a/b", "a%2Fb"),
        ("a+b", "a%2Bb"),
        ("#", "%23"),
        ("$x", "%24x"),
        (" ", "%20"),
        ("~", "%7E"),
        ("~journal", "%7Ejournal"),
        ("100%", "100%25"),
        ("a.b", "a%2Eb"),
        ("\0", "%00"),
        ("é", "%C3%A9"),
        ("e\u0301", "e%CC%81"),
        ("🙂", "%F0%9F%99%82"),
        ("a" * 96, "a" * 96),
    ],
)
def test_names_are_written_as_documented(workflow: str, level: str) -> None:
    assert encode_name(workflow) == level
    assert decode_name(level) == workflow
    assert matches(level, workflow)


def test_a_long_name_is_hashed_and_can_be_proved() -> None:
    level = encode_name("a" * 97)
    assert re.fullmatch("~[a-z2-7]{32}", level)
    assert is_hashed(level)
    assert level != encode_name("a" * 98)
    assert matches(level, "a" * 97)
    assert not matches(level, "a" * 98)
    with pytest.raises(BadName, match="hash"):
        decode_name(level)


@pytest.mark.parametrize("workflow", ["", "\ud800", "a\udfff", "x" * 4097, "é" * 35_000])
def test_names_that_no_topic_can_carry_are_refused(workflow: str) -> None:
    with pytest.raises(BadName):
        encode_name(workflow)
    assert not matches("x", workflow)


@pytest.mark.parametrize(
    "level",
    [
        "",
        "%41",
        "%2f",
        "%",
        "%2",
        "%GG",
        "a b",
        "a.b",
        "~",
        "~a",
        "%C3",
        "%ED%A0%80",
        "%C0%AF",
        "é",
        "a" * 97,
        "a\n",
        "+",
    ],
)
def test_levels_that_are_not_canonical_are_refused(level: str) -> None:
    with pytest.raises(BadName):
        decode_name(level)


@given(NAMES)
def test_every_name_becomes_one_safe_level_and_comes_back(workflow: str) -> None:
    level = encode_name(workflow)
    assert re.fullmatch(r"[A-Za-z0-9_%~-]{1,96}", level)
    assert matches(level, workflow)
    if not is_hashed(level):
        assert decode_name(level) == workflow


@given(NAMES, NAMES)
def test_two_names_never_share_a_level(one: str, two: str) -> None:
    assert (encode_name(one) == encode_name(two)) == (one == two)


@given(LEVELS)
def test_a_level_that_decodes_is_the_only_one_of_its_name(level: str) -> None:
    try:
        workflow = decode_name(level)
    except BadName:
        return
    assert encode_name(workflow) == level


def _all_topics(topics: Topics, workflow: str, client: str) -> dict[str, Parsed]:
    level = encode_name(workflow)
    return {
        topics.out(workflow): Parsed(level, Kind.OUT, ""),
        topics.ack(workflow): Parsed(level, Kind.ACK, ""),
        topics.status(workflow): Parsed(level, Kind.STATUS, ""),
        topics.own(workflow, client): Parsed(level, Kind.OWN, client),
        topics.inbox(workflow, client): Parsed(level, Kind.IN, client),
        topics.req(workflow, client): Parsed(level, Kind.REQ, client),
        topics.client_req(client): Parsed("~", Kind.CLIENT_REQ, client),
        topics.client_res(client): Parsed("~", Kind.CLIENT_RES, client),
        topics.alive(client): Parsed("~", Kind.ALIVE, client),
        topics.journal(): Parsed("~", Kind.JOURNAL, ""),
    }


def test_topics_are_written_as_documented() -> None:
    assert list(_all_topics(Topics(), "a/b", CLIENT)) == [
        "agentmqtt/v1/a%2Fb/out",
        "agentmqtt/v1/a%2Fb/ack",
        "agentmqtt/v1/a%2Fb/status",
        f"agentmqtt/v1/a%2Fb/own/{CLIENT}",
        f"agentmqtt/v1/a%2Fb/in/{CLIENT}",
        f"agentmqtt/v1/a%2Fb/req/{CLIENT}",
        f"agentmqtt/v1/~/{CLIENT}/req",
        f"agentmqtt/v1/~/{CLIENT}/res",
        f"agentmqtt/v1/~/{CLIENT}/alive",
        "agentmqtt/v1/~/journal",
    ]


@given(NAMES, st.from_regex(r"[A-Za-z0-9]{23}", fullmatch=True), st.sampled_from(["agentmqtt/v1", "x", "a/b/c/d/e"]))
def test_every_topic_parses_back_and_stays_in_bounds(workflow: str, client: str, root: str) -> None:
    topics = Topics(root)
    made = _all_topics(topics, workflow, client)
    assert len(made) == 10
    for topic, parsed in made.items():
        assert topics.parse(topic) == parsed
        assert topic.count("/") <= 7
        assert len(topic.encode()) <= 256


@given(st.lists(st.sampled_from(["~", "out", "own", "req", "journal", "alive", CLIENT, "wf", "", "%41", "+", "#"])))
def test_what_parses_is_what_a_method_makes(levels: list[str]) -> None:
    topics = Topics()
    topic = "/".join(["agentmqtt/v1", *levels])
    parsed = topics.parse(topic)
    if parsed is not None:
        assert topic in _all_topics(topics, "wf" if parsed.level == "~" else decode_name(parsed.level), CLIENT)


@pytest.mark.parametrize(
    "topic",
    [
        "agentmqtt/v1",
        "agentmqtt/v1/",
        "agentmqtt/v10/x/out",
        "other/v1/x/out",
        "agentmqtt/v1/~/out",
        "agentmqtt/v1/~/status",
        f"agentmqtt/v1/~/own/{CLIENT}",
        f"agentmqtt/v1/~/req/{CLIENT}",
        f"agentmqtt/v1/~x/req/{CLIENT}",
        "agentmqtt/v1/x/own/short",
        f"agentmqtt/v1/x/own/{CLIENT}/more",
        f"agentmqtt/v1/x/own/{CLIENT}\n",
        "agentmqtt/v1/%41/out",
        "agentmqtt/v1/x/nothing",
        "agentmqtt/v1/x/out/",
        "agentmqtt/v1/x/own",
    ],
)
def test_foreign_topics_are_none(topic: str) -> None:
    assert Topics().parse(topic) is None


def test_filters_for_the_journal() -> None:
    topics = Topics("r")
    filters = [
        topics.all_out(),
        topics.all_own(),
        topics.all_in(),
        topics.all_req(),
        topics.all_client_req(),
        topics.all_alive(),
    ]
    assert filters == ["r/+/out", "r/+/own/+", "r/+/in/+", "r/+/req/+", "r/~/+/req", "r/~/+/alive"]


@pytest.mark.parametrize(
    "root",
    ["", "/", "/a", "a/", "a//b", "$SYS", "a/$b", "a/+", "#", "a\0b", "a\nb", "a\ud800", "a/b/c/d/e/f", "x" * 132],
)
def test_roots_that_some_broker_refuses(root: str) -> None:
    with pytest.raises(BadName):
        Topics(root)


def test_the_longest_root_still_fits() -> None:
    topics = Topics("x" * 131)
    assert len(topics.own("a" * 96, CLIENT)) == 256


@pytest.mark.parametrize(
    "client", ["", "a" * 22, "a" * 24, "a" * 22 + "/", "a" * 22 + "+", "a" * 22 + "é", "a" * 23 + "\n"]
)
def test_only_23_letters_and_digits_are_a_client_id(client: str) -> None:
    assert not is_client_id(client)
    with pytest.raises(BadName):
        Topics().own("x", client)
