"""Who watches: told by each watcher, debounced, bounded, never by an older process (PROTOCOL §6.8)."""

from __future__ import annotations

from agentmqtt.core import audience
from agentmqtt.core.audience import DEBOUNCE, NAMES, Audience

BOOT, OTHER = b"boot", b"other"


def people(room: Audience, name: str = "run", now: float = 1.0) -> list[tuple[str, int]]:
    return list(room.of(name, now))


def test_who_watches_is_known_for_a_lease() -> None:
    room = Audience(30.0)
    room.seen("phone", BOOT, 1, ["run", "other"], 0.0, 1000)
    room.seen("phone", BOOT, 1, ["run"], 10.0, 2000)
    assert people(room, now=39.0) == [("phone", 1000)]
    assert people(room, "other", 39.0) == []
    assert people(room, now=40.0) == []
    room.seen("phone", BOOT, 1, ["run"], 50.0, 3000)
    assert people(room, now=51.0) == [("phone", 3000)]


def test_who_watches_nothing_is_gone_at_once() -> None:
    room = Audience(30.0)
    room.seen("phone", BOOT, 1, ["run"], 0.0, 0)
    room.seen("phone", BOOT, 1, [], 1.0, 0)
    assert people(room) == []


def test_a_flap_is_no_leave() -> None:
    room = Audience(30.0)
    room.seen("phone", BOOT, 1, ["run"], 0.0, 1000)
    room.lost("phone", BOOT, 1, 1.0)
    assert people(room, now=DEBOUNCE) == [("phone", 1000)]
    room.seen("phone", BOOT, 2, ["run"], 2.0, 2000)
    assert people(room, now=20.0) == [("phone", 1000)]
    room.lost("phone", BOOT, 2, 20.0)
    assert people(room, now=20.0 + DEBOUNCE) == []


def test_old_news_is_no_news() -> None:
    room = Audience(30.0)
    room.seen("phone", BOOT, 2, ["run"], 0.0, 1000)
    room.seen("phone", BOOT, 1, [], 1.0, 1000)
    room.lost("phone", BOOT, 1, 1.0)
    room.lost("phone", OTHER, 2, 1.0)
    room.lost("nobody", OTHER, 2, 1.0)
    assert people(room, now=20.0) == [("phone", 1000)]
    room.seen("phone", OTHER, 1, ["run"], 21.0, 2000)  # a new process of the same installation
    assert people(room, now=22.0) == [("phone", 1000)]


def test_it_is_bounded() -> None:
    room = Audience(30.0)
    room.seen("phone", BOOT, 1, (str(n) for n in range(NAMES + 5)), 0.0, 0)
    assert people(room, str(NAMES - 1))
    assert not people(room, str(NAMES))
    for n in range(audience.CLIENTS):
        room.seen(f"c{n}", BOOT, 1, ["run"], 0.0, 0)
    assert len(people(room)) == audience.CLIENTS
    assert not people(room, "0")
