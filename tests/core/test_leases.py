"""Which processes live (PROTOCOL §5.4)."""

from __future__ import annotations

import pytest

from agentmqtt.core.leases import Leases

ME = ("client", b"boot")
NONE: frozenset[str] = frozenset()


@pytest.fixture
def leases() -> Leases:
    """One process with two names, on its connection 3, since time 0."""
    made = Leases(30, 15)
    made.hold(ME, "x", 0, 3)
    made.hold(ME, "y", 0, 3)
    return made


def names(*those: str) -> frozenset[str]:
    return frozenset(those)


def test_a_lease_ends_once_and_then_its_grace(leases: Leases) -> None:
    assert leases.expire(29.9) == (NONE, NONE)
    assert leases.expire(30) == (names("x", "y"), NONE)
    assert leases.expire(44.9) == (NONE, NONE)
    assert leases.expire(45) == (NONE, names("x", "y"))
    assert leases.expire(1000) == (NONE, NONE)


def test_late_lost_and_over_at_once(leases: Leases) -> None:
    assert leases.expire(100) == (names("x", "y"), names("x", "y"))


def test_signs_of_life_renew(leases: Leases) -> None:
    assert leases.seen(ME, 29, 3) == NONE
    assert leases.expire(58) == (NONE, NONE)
    assert leases.expire(59) == (names("x", "y"), NONE)


def test_whoever_was_lost_is_news(leases: Leases) -> None:
    leases.expire(30)
    assert leases.seen(ME, 31) == names("x", "y")
    assert leases.seen(ME, 31) == NONE
    assert leases.expire(61) == (names("x", "y"), NONE)
    assert leases.expire(76) == (NONE, names("x", "y"))


@pytest.mark.parametrize(("conn", "news"), [(None, False), (2, False), (3, False), (4, True)])
def test_a_newer_connection_is_news(leases: Leases, conn: int | None, news: bool) -> None:
    assert leases.seen(ME, 1, conn) == (names("x", "y") if news else NONE)


def test_a_connection_number_never_falls(leases: Leases) -> None:
    leases.seen(ME, 1, 2)
    assert leases.died(ME, 3, 2) == names("x", "y")


def test_the_first_connection_after_a_restart_of_the_journal_is_news() -> None:
    leases = Leases(30, 15)
    leases.hold(ME, "x", 0)
    assert leases.died(ME, 1, 1) == NONE
    assert leases.seen(ME, 2, 1) == names("x")


@pytest.mark.parametrize("conn", [2, 4])
def test_the_will_of_another_connection_means_nothing(leases: Leases, conn: int) -> None:
    assert leases.died(ME, conn, 1) == NONE
    assert leases.expire(29) == (NONE, NONE)


def test_the_will_ends_the_lease_now(leases: Leases) -> None:
    assert leases.died(ME, 3, 10) == names("x", "y")
    assert leases.died(ME, 3, 11) == NONE
    assert leases.expire(24) == (NONE, NONE)
    assert leases.expire(25) == (NONE, names("x", "y"))


def test_strangers_have_no_lease(leases: Leases) -> None:
    other = ("client", b"other boot")
    assert leases.seen(other, 0, 1) == leases.died(other, 1, 0) == leases.names(other) == NONE
    leases.drop(other, "x")
    assert leases.names(ME) == names("x", "y")


def test_a_dropped_name_is_not_held(leases: Leases) -> None:
    leases.drop(ME, "x")
    assert leases.names(ME) == names("y")
    assert leases.boots("client") == {b"boot"}
    leases.drop(ME, "y")
    assert leases.names(ME) == NONE
    assert leases.boots("client") == frozenset()
    assert leases.expire(99) == (NONE, NONE)
